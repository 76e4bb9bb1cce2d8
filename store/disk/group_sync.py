"""Syncs shared by many writers: those that wait while their file is synced get the next sync together.

A log is closed, and synced, after every line. Eight writers of one log that each waited for a sync
of their own would take eight times as long as one; here each waits for two syncs at most. Different
files are synced at the same time, which lets the filesystem commit them together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_FileKey = tuple[int, int]  # device and inode


@dataclass
class _SyncRound:
    """One sync, for the callers that came before it began."""

    error: OSError | None = None
    is_done: bool = False


@dataclass
class _SyncedFile:
    """A file with callers: its next round, and whether one is running."""

    next: _SyncRound = field(default_factory=_SyncRound)
    is_syncing: bool = False
    callers: int = 0


class GroupSync:
    """Thread-safe. The first caller that finds no sync of its file running syncs it for all who wait."""

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self._changed = threading.Condition()
        self._files: dict[_FileKey, _SyncedFile] = {}

    def sync(self, fd: int) -> None:
        """Return after a sync of the file that began after this call. Raises its OSError."""
        info = os.fstat(fd)
        key = info.st_dev, info.st_ino
        with self._changed:
            file = self._files.setdefault(key, _SyncedFile())
            file.callers += 1
            mine = file.next
        try:
            self._wait_or_lead(file, mine, fd)
        finally:
            with self._changed:
                file.callers -= 1
                if not file.callers:
                    del self._files[key]
        if mine.error is not None:
            raise mine.error

    def _wait_or_lead(self, file: _SyncedFile, mine: _SyncRound, fd: int) -> None:
        with self._changed:
            while file.is_syncing and not mine.is_done:
                self._changed.wait()
            if mine.is_done:
                return
            file.is_syncing, file.next = True, _SyncRound()
        try:
            self._fsync(fd)
        except OSError as error:
            mine.error = error
        finally:
            with self._changed:
                file.is_syncing, mine.is_done = False, True
                self._changed.notify_all()
