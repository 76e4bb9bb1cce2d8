"""Logs: whole lines or none, whoever fails."""

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
    made = Disk(tmp_path)
    yield made
    made.close()


def append(disk: Disk, lines: bytes) -> None:
    with appending(disk, "log") as add:
        add(lines)


def test_lines_are_added_at_the_end(disk: Disk, tmp_path: Path) -> None:
    append(disk, b"one\n")
    append(disk, b"two\nthree\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nthree\n"


def test_a_line_that_was_cut_off_is_not_continued(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntw")
    append(disk, b"three\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntw\nthree\n"


@pytest.mark.parametrize("present", [None, b"", b"one\n", b"one\ntw"])
def test_who_fails_afterwards_has_appended_nothing(disk: Disk, tmp_path: Path, present: bytes | None) -> None:
    """Rule 3, and a log that was not there is not there."""
    path = tmp_path / "log"
    if present is not None:
        path.write_bytes(present)

    def fail_afterwards() -> None:
        with appending(disk, "log") as add:
            add(b"two\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_afterwards()
    assert (path.read_bytes() if path.exists() else None) == present


def test_a_line_that_is_just_being_written_is_waited_for(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel shows a line that crosses a page before it has all of it; an end of ours would be one too many."""
    path = tmp_path / "log"
    path.write_bytes(b"half of ")
    monkeypatch.setattr("time.sleep", lambda seconds: path.write_bytes(b"half of a line\n"))
    append(disk, b"next\n")
    assert path.read_bytes() == b"half of a line\nnext\n"


@pytest.mark.parametrize("is_late", [False, True])
def test_what_others_append_meanwhile_is_theirs(disk: Disk, tmp_path: Path, is_late: bool) -> None:
    """A mount appends without the session's lock; whatever fails here, its line was promised to someone."""

    def fail_beside() -> None:
        with appending(disk, "log") as add, (tmp_path / "log").open("ab", buffering=0) as other:
            if not is_late:
                other.write(b"theirs\n")
            add(b"ours\n")
            if is_late:
                other.write(b"theirs\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_beside()
    assert (tmp_path / "log").read_bytes() == (b"ours\ntheirs\n" if is_late else b"theirs\n")


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("elsewhere"), os.mkfifo], ids=["link", "fifo"])
def test_what_is_no_plain_file_is_not_written_to(disk: Disk, tmp_path: Path, make: object) -> None:
    make(tmp_path / "log")  # type: ignore[operator]
    with pytest.raises(Corrupt):
        append(disk, b"one\n")
    assert not (tmp_path / "elsewhere").exists()


def test_a_line_whose_index_cannot_be_written_is_taken_back(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3: the caller is told that it failed, so it must not be there."""
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
