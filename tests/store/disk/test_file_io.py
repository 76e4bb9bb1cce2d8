"""Reading and writing whole files through descriptors."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from store.disk.file_io import CHUNK_BYTES, copy_file, iter_chunks, replace_file, write_all


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1])
@pytest.mark.parametrize("limit", [None, 0, 1, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_chunks_are_the_file_up_to_the_limit(tmp_path: Path, size: int, limit: int | None) -> None:
    """The offset of the descriptor does not matter and does not move."""
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    with opened(tmp_path / "file") as fd:
        os.lseek(fd, 7, os.SEEK_SET)
        assert b"".join(iter_chunks(fd, limit)) == data[:limit]
        assert os.lseek(fd, 0, os.SEEK_CUR) == 7


def test_write_all_continues_after_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    with opened(tmp_path / "file", os.O_WRONLY | os.O_CREAT) as fd:
        write_all(fd, [b"one two", b"", memoryview(b" three")])
    assert (tmp_path / "file").read_bytes() == b"one two three"


def test_replace_file_replaces_a_link_and_sets_the_mode(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"unchanged")
    path.symlink_to(target)
    replace_file(path, b"new", mode=0o640)
    assert (path.read_bytes(), target.read_bytes()) == (b"new", b"unchanged")
    assert stat.S_IMODE(path.lstat().st_mode) == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "target"]


def test_failed_replace_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves no temp file."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(fd: int) -> None:
        raise OSError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError):  # noqa: PT011
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [None, errno.EXDEV])
def test_copied_file_keeps_its_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None) -> None:
    """Also where the filesystem cannot copy by itself. Only the first bytes are copied."""

    def fail(*_arguments: int) -> int:
        assert error is not None
        raise OSError(error, os.strerror(error))

    if error is not None:
        monkeypatch.setattr(os, "copy_file_range", fail)
    with (
        opened(tmp_path / "one", os.O_RDWR | os.O_CREAT) as one,
        opened(tmp_path / "two", os.O_RDWR | os.O_CREAT) as two,
    ):
        os.pwrite(one, b"begin", 0)
        os.pwrite(one, b"middle", 64 << 20)
        os.ftruncate(one, 128 << 20)
        copy_file(one, two, (64 << 20) + 3)
        info = os.fstat(two)
        assert info.st_size == (64 << 20) + 3
        assert info.st_blocks * 512 < 1 << 20
        assert (os.pread(two, 5, 0), os.pread(two, 9, 64 << 20)) == (b"begin", b"mid")
