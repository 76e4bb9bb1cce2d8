"""Append-only logs: lines are appended whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from store import Corrupt, Store
from store.disk.append_log import appending
from store.disk.disk import Disk
from tests.builders import make_session


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    opened = Disk(tmp_path)
    yield opened
    opened.close()


def append(disk: Disk, lines: bytes) -> None:
    with appending(disk, "log") as add:
        add(lines)


def test_lines_are_appended(disk: Disk, tmp_path: Path) -> None:
    append(disk, b"one\n")
    append(disk, b"two\nthree\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nthree\n"


def test_append_after_an_incomplete_line_starts_a_new_line(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntw")
    append(disk, b"three\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntw\nthree\n"


@pytest.mark.parametrize("present", [None, b"", b"one\n", b"one\ntw"])
def test_failure_after_the_append_removes_the_lines(disk: Disk, tmp_path: Path, present: bytes | None) -> None:
    """Rule 3. A log that did not exist before is deleted again."""
    path = tmp_path / "log"
    if present is not None:
        path.write_bytes(present)

    def append_and_fail() -> None:
        with appending(disk, "log") as add:
            add(b"two\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        append_and_fail()
    assert (path.read_bytes() if path.exists() else None) == present


def test_append_waits_for_a_line_that_is_being_written(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers can see the first part of a line that crosses a page; it needs no extra newline."""
    path = tmp_path / "log"
    path.write_bytes(b"half of ")
    monkeypatch.setattr("time.sleep", lambda seconds: path.write_bytes(b"half of a line\n"))
    append(disk, b"next\n")
    assert path.read_bytes() == b"half of a line\nnext\n"


@pytest.mark.parametrize("is_late", [False, True])
def test_rollback_keeps_lines_of_other_writers(disk: Disk, tmp_path: Path, is_late: bool) -> None:
    """A mount appends without the session's lock and has reported success."""

    def append_and_fail() -> None:
        with appending(disk, "log") as add, (tmp_path / "log").open("ab", buffering=0) as other:
            if not is_late:
                other.write(b"theirs\n")
            add(b"ours\n")
            if is_late:
                other.write(b"theirs\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        append_and_fail()
    assert (tmp_path / "log").read_bytes() == (b"ours\ntheirs\n" if is_late else b"theirs\n")


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("elsewhere"), os.mkfifo], ids=["link", "fifo"])
def test_append_rejects_links_and_fifos(disk: Disk, tmp_path: Path, make: object) -> None:
    make(tmp_path / "log")  # type: ignore[operator]
    with pytest.raises(Corrupt):
        append(disk, b"one\n")
    assert not (tmp_path / "elsewhere").exists()


def test_line_is_removed_if_the_index_cannot_be_written(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3: the append reports failure, so the line must not remain."""
    store.save(make_session())
    store.usage.append("s1", {"input_tokens": 1})
    path = home / "sessions/s1/token-usage.jsonl"
    before = path.read_bytes()

    def full(*arguments: object) -> None:
        raise apsw.FullError

    with monkeypatch.context() as patched:
        patched.setattr("store.index.changed_files.note", full)
        with pytest.raises(OSError, match="No space left") as raised:
            store.usage.append("s1", {"input_tokens": 2})
    assert raised.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    store.usage.append("s1", {"input_tokens": 3})
    assert len(path.read_bytes().splitlines()) == 2
