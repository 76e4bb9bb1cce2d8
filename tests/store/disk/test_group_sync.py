"""Syncs shared by many writers."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.disk.group_sync import GroupSync

WRITERS = 8


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    """Descriptors of two files."""
    opened = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("a", "b")]
    yield opened
    for fd in opened:
        os.close(fd)


def in_threads(group: GroupSync, fds: list[int]) -> list[OSError | None]:
    """Sync each from a thread of its own; the errors."""
    errors: list[OSError | None] = [None] * len(fds)

    def sync(number: int) -> None:
        try:
            group.sync(fds[number])
        except OSError as error:
            errors[number] = error

    threads = [threading.Thread(target=sync, args=(number,)) for number in range(len(fds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


def test_writers_that_wait_share_a_sync(fds: list[int]) -> None:
    first_runs, calls = threading.Event(), list[int]()

    def slow(fd: int) -> None:
        calls.append(fd)
        first_runs.set()
        time.sleep(0.2)

    group = GroupSync(slow)
    leader = threading.Thread(target=group.sync, args=(fds[0],))
    leader.start()
    first_runs.wait(60)
    assert in_threads(group, [fds[0], fds[1]] * WRITERS) == [None] * 2 * WRITERS
    leader.join(60)
    assert len(calls) <= 5, "the first, then each file once, or twice for threads that started late"


def test_a_sync_never_answers_for_bytes_written_after_it_began(fds: list[int]) -> None:
    """Each caller returns only after a sync that began after its call."""
    began, lock = list[float](), threading.Lock()

    def note(_: int) -> None:
        with lock:
            began.append(time.monotonic())
        time.sleep(0.002)

    group = GroupSync(note)

    def write() -> None:
        for _ in range(20):
            called = time.monotonic()
            group.sync(fds[0])
            with lock:
                assert began[-1] >= called

    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            write()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_an_error_reaches_every_writer_of_that_file_only(fds: list[int]) -> None:
    def failing(fd: int) -> None:
        time.sleep(0.05)
        if os.fstat(fd).st_ino == os.fstat(fds[0]).st_ino:
            raise OSError(errno.EIO, "bad block")

    errors = in_threads(GroupSync(failing), [fds[0], fds[1]] * WRITERS)
    assert [error is None for error in errors] == [False, True] * WRITERS
