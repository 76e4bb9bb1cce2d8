"""Syncs of logs, shared by the writers that wait for one."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from fusefs.requests.log_syncs import LogSyncs
from fusefs.requests.threads import Threads
from store.path_kinds import PathInfo, classify_path
from tests.fusefs.requests.harness import in_trio, wait_until

WRITERS = 8
PLACE = classify_path("sessions/s/token-usage.jsonl")


class SlowDisk:
    """Counts syncs, each of which waits until the test lets it end."""

    def __init__(self) -> None:
        self.synced: list[tuple[int, bool]] = []  # inode, and whether the directory was synced too
        self.may_end = threading.Event()
        self.error: OSError | None = None

    def sync_log(self, place: PathInfo, fd: int, *, is_new: bool) -> None:
        assert place is PLACE
        self.synced.append((os.fstat(fd).st_ino, is_new))
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error


def syncs_on(disk: SlowDisk) -> LogSyncs:
    return LogSyncs(Threads(), disk.sync_log)


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    """Descriptors of two files."""
    opened = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("a", "b")]
    yield opened
    for fd in opened:
        os.close(fd)


async def started(disk: SlowDisk, syncs: int) -> None:
    await wait_until(lambda: len(disk.synced) >= syncs)
    await trio.testing.wait_all_tasks_blocked()


@in_trio
async def test_writers_that_wait_share_the_next_sync(fds: list[int]) -> None:
    disk = SlowDisk()
    syncs = syncs_on(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(syncs.sync, PLACE, fds[0], is_new=False))
        await started(disk, 1)
        for number in range(WRITERS):
            nursery.start_soon(partial(syncs.sync, PLACE, fds[0], is_new=number == 3))
        await trio.testing.wait_all_tasks_blocked()
        assert len(disk.synced) == 1
        disk.may_end.set()
    inode = os.fstat(fds[0]).st_ino
    assert disk.synced == [(inode, False), (inode, True)], "the directory is synced if any of them created the log"
    assert syncs._logs == {}


@in_trio
async def test_different_logs_are_synced_at_the_same_time(fds: list[int]) -> None:
    disk = SlowDisk()
    syncs = syncs_on(disk)
    async with trio.open_nursery() as nursery:
        for fd in fds:
            nursery.start_soon(partial(syncs.sync, PLACE, fd, is_new=False))
        await started(disk, 2)
        disk.may_end.set()


@in_trio
async def test_a_sync_never_answers_for_bytes_written_after_it_began(fds: list[int]) -> None:
    """Each caller returns only after a sync that began after its call."""
    began: list[float] = []

    def note(place: PathInfo, fd: int, *, is_new: bool) -> None:
        began.append(time.monotonic())
        time.sleep(0.002)

    syncs = LogSyncs(Threads(), note)

    async def write() -> None:
        for _ in range(20):
            called = time.monotonic()
            await syncs.sync(PLACE, fds[0], is_new=False)
            assert began[-1] >= called

    async with trio.open_nursery() as nursery:
        for _ in range(WRITERS):
            nursery.start_soon(write)
    assert len(began) < 20 * WRITERS


@in_trio
async def test_an_error_reaches_every_writer_that_shared_the_sync(fds: list[int]) -> None:
    disk = SlowDisk()
    disk.error = OSError(errno.EIO, "bad block")
    syncs, errors = syncs_on(disk), 0

    async def write() -> None:
        nonlocal errors
        with pytest.raises(OSError, match="bad block"):
            await syncs.sync(PLACE, fds[0], is_new=False)
        errors += 1

    async with trio.open_nursery() as nursery:
        for _ in range(WRITERS):
            nursery.start_soon(write)
        await started(disk, 1)
        disk.may_end.set()
    assert errors == WRITERS


@in_trio
async def test_writers_get_an_error_if_the_one_that_syncs_for_them_is_cancelled(fds: list[int]) -> None:
    disk = SlowDisk()
    syncs, leader = syncs_on(disk), trio.CancelScope()

    async def lead() -> None:
        with leader:
            await syncs.sync(PLACE, fds[0], is_new=False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(syncs.sync, PLACE, fds[0], is_new=False))
        await started(disk, 1)
        nursery.start_soon(lead)
        await trio.testing.wait_all_tasks_blocked()
        leader.cancel()
        with pytest.raises(OSError, match="before the log was synced"):
            await syncs.sync(PLACE, fds[0], is_new=False)
        disk.may_end.set()
