"""Foreign files while they are written: sizes, offsets and what other processes read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mount.conftest import Mount


@pytest.fixture
def foreign(mounted: Mount) -> Path:
    (mounted.sessions / "root/work").mkdir()
    return mounted.sessions / "root/work"


def listed_sizes(directory: Path) -> dict[str, int]:
    """Sizes by readdirplus and stat, as `ls -l` asks for them."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def test_a5_size_of_a_foreign_file_being_written(foreign: Path) -> None:
    """A listing between two writes must not bring back the size that the file had before."""
    fd = os.open(foreign / "f", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        assert listed_sizes(foreign) == {"f": 0}
        for size in (5000, 10000):
            assert os.write(fd, b"x" * 5000) == 5000
            assert listed_sizes(foreign) == {"f": size}
            assert os.fstat(fd).st_size == size
            assert (foreign / "f").stat().st_size == size
            assert (foreign / "f").read_bytes() == b"x" * size
            assert os.lseek(fd, 0, os.SEEK_END) == size
        os.ftruncate(fd, 100)
        assert listed_sizes(foreign) == {"f": 100}
        os.write(fd, b"end")
        assert listed_sizes(foreign) == {"f": 10003}
    finally:
        os.close(fd)
    assert (foreign / "f").stat().st_size == 10003
