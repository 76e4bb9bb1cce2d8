"""WriteRequest: reading its content, and the file it makes for a commit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import TooLarge
from store.commit.write_request import WriteRequest
from store.disk.file import File, NewFile, Stamp, Temp
from store.index.catalog import NO_VERSION
from store.path_kinds import classify_path

TARGET = classify_path("sessions/s1/session.json")
REPLACED = File(b"old", Stamp(1, 2, 3, 4), 0o640, 0, 0)


@pytest.fixture
def temp(tmp_path: Path) -> Iterator[Temp]:
    """A temporary file with ten bytes, positioned at its end as after a write."""
    fd = os.open(tmp_path / "temp", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"0123456789")
    yield Temp(fd, "temp")
    os.close(fd)


def test_content_is_read_from_bytes_or_a_file(temp: Temp) -> None:
    """The position of the descriptor does not matter."""
    assert WriteRequest(TARGET, b"bytes").read(100) == b"bytes"
    assert WriteRequest(TARGET, temp).read(100) == b"0123456789"
    assert WriteRequest(TARGET, temp).read(10) == b"0123456789"
    assert WriteRequest(TARGET, None).read(100) == b""


def test_file_over_the_limit_is_rejected_before_it_is_read(temp: Temp, monkeypatch: pytest.MonkeyPatch) -> None:
    os.ftruncate(temp.fd, 1 << 40)  # sparse; reading it would need a terabyte of memory
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("the file was read"))
    with pytest.raises(TooLarge, match="over the limit of 10 bytes"):
        WriteRequest(TARGET, temp).read(10)


def test_new_file_of_bytes_has_the_bytes_and_options() -> None:
    request = WriteRequest(TARGET, b"bytes", mode=0o600, mtime_ns=7, owner=(1, 2))
    file = request.new_file(b"bytes", REPLACED)
    assert file == NewFile(TARGET.path, [b"bytes"], REPLACED, 7, 0o600, (1, 2))


def test_new_file_of_a_temp_is_the_temp_itself(temp: Temp) -> None:
    """A large file is written once: the commit renames it."""
    file = WriteRequest(TARGET, temp).new_file(b"0123456789", None)
    assert file.content is temp
    assert (file.path, file.like, file.mtime_ns, file.mode) == (TARGET.path, None, None, None)


def test_overwrite_checks_no_base() -> None:
    assert WriteRequest(TARGET, b"", NO_VERSION).checked_base == NO_VERSION
    assert WriteRequest(TARGET, b"", NO_VERSION, "overwrite").checked_base is None
    assert WriteRequest(TARGET, b"").checked_base is None
