"""Syncs of logs, shared by the writers that wait for one.

A log is closed, and synced, after every line. A sync and the change to a worker thread for it take
longer than all other requests of a line together. So the writers that close a log while it is being
synced get the next sync together: each waits for two syncs at most, and eight writers of one log
need hardly more syncs than one. Different logs are synced at the same time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from fusefs.requests.threads import Threads
from store.path_kinds import PathInfo

_FileKey = tuple[int, int]  # device and inode
_NOT_SYNCED = OSError(errno.EIO, "the mount ended before the log was synced")


@dataclass
class _SyncRound:
    """One sync, for the writers that came before it began."""

    is_new: bool = False  # the log was created by one of them: its directory is synced too
    is_taken: bool = False  # one of them syncs for all
    ended: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = _NOT_SYNCED


@dataclass
class _SyncedLog:
    """A log with waiting writers: the lock of its running sync, and the round after that."""

    next: _SyncRound = field(default_factory=_SyncRound)
    running: trio.Lock = field(default_factory=trio.Lock)
    waiting: int = 0


class LogSyncs:
    def __init__(self, threads: Threads, sync_log: Callable[..., None]) -> None:
        self._threads = threads
        self._sync_log = sync_log  # Namespace.sync_log: blocks until the log is on disk
        self._logs: dict[_FileKey, _SyncedLog] = {}

    async def sync(self, place: PathInfo, fd: int, *, is_new: bool) -> None:
        """Return after a sync of the log that began after this call. Raises its error."""
        info = os.fstat(fd)
        key = info.st_dev, info.st_ino
        synced = self._logs.setdefault(key, _SyncedLog())
        mine = synced.next
        mine.is_new = mine.is_new or is_new
        synced.waiting += 1
        try:
            if mine.is_taken:
                await mine.ended.wait()
            else:
                mine.is_taken = True
                await self._lead(synced, mine, place, fd)
        finally:
            synced.waiting -= 1
            if not synced.waiting:
                del self._logs[key]
        if mine.error is not None:
            raise mine.error

    async def _lead(self, synced: _SyncedLog, mine: _SyncRound, place: PathInfo, fd: int) -> None:
        """Wait for the running sync, then sync for everybody who has come meanwhile."""
        try:
            async with synced.running:
                synced.next = _SyncRound()  # a later caller may have written after this sync began
                await self._threads.run(partial(self._sync_log, place, fd, is_new=mine.is_new))
                mine.error = None
        except Exception as error:
            mine.error = error
        finally:
            mine.ended.set()
