"""Session locks across threads and processes, and the lock of an open home.

A session lock is one byte of `.grovefs/locks`, at an offset hashed from the location. It is an open
file description (OFD) lock: it excludes threads as well as processes, ends with its holder, and
needs no file per session. Locking a session also takes a shared lock of its tree; operations on a
whole tree (delete, rename) take that lock exclusively. The order is tree, then session.

Fairness: before taking a lock, a caller takes a second lock that marks it as next in the queue.
Without it a process that saves in a loop would take the lock again before any waiter polls.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from store.errors import Busy
from store.layout import Location

TIMEOUT_S = 10.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_READY = b"ready"
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.005  # keep short: a longer backoff would starve the longest waiter
_NEXT_PAUSE_S = 0.001  # only the head of the queue polls this often


@dataclass
class _HeldLock:
    """The locks that one thread holds in one tree."""

    fd: int
    exclusive: bool
    depth: int = 0
    sessions: dict[Location, int] = field(default_factory=dict)


class Locks:
    """The session and tree locks of one home. Re-entrant per thread."""

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._local = threading.local()

    @contextmanager
    def session(self, location: Location, *, timeout_s: float | None = None) -> Iterator[None]:
        """Hold the lock of a session. Raises Busy after the timeout."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._tree(location.root, exclusive=False, deadline=deadline) as held:
            key = f"session\0{location}"
            if held.exclusive or location in held.sessions:
                held.sessions[location] = held.sessions.get(location, 0) + 1
            else:
                _acquire(held.fd, key, fcntl.F_WRLCK, deadline)
                held.sessions[location] = 1
            try:
                yield
            finally:
                held.sessions[location] -= 1
                if not held.sessions[location]:
                    del held.sessions[location]
                    if not held.exclusive and held.depth > 1:  # else `_tree` releases all locks at once
                        _set(held.fd, _offset(key), fcntl.F_UNLCK)

    @contextmanager
    def tree(self, root: str, *, timeout_s: float | None = None) -> Iterator[None]:
        """Hold the lock of a root session and all its descendants.

        Raises Busy after the timeout.
        """
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._tree(root, exclusive=True, deadline=deadline):
            yield

    def holds(self, location: Location) -> bool:
        """Whether this thread holds the lock of the session or of its tree."""
        held = self._mine().get(location.root)
        return held is not None and (held.exclusive or location in held.sessions)

    def _mine(self) -> dict[str, _HeldLock]:
        mine: dict[str, _HeldLock] | None = getattr(self._local, "trees", None)
        if mine is None:
            mine = self._local.trees = {}
        return mine

    @contextmanager
    def _tree(self, root: str, *, exclusive: bool, deadline: float) -> Iterator[_HeldLock]:
        mine = self._mine()
        held = mine.get(root)
        if held is None:
            # Recorded before it is acquired: after an interrupt a lock may be recorded too long,
            # but never leaked.
            held = mine[root] = _HeldLock(os.open(self._path, _FLAGS, 0o600), exclusive)
            try:
                wanted = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
                _acquire(held.fd, f"tree\0{root}", wanted, deadline)
            except BaseException:
                del mine[root]
                os.close(held.fd)
                raise
        elif exclusive and not held.exclusive:
            # Waiting here would deadlock with another thread that does the same.
            raise Busy(f"tree {root}: this thread already holds the lock of one of its sessions")
        held.depth += 1
        try:
            yield held
        finally:
            held.depth -= 1
            if not held.depth:
                del mine[root]
                os.close(held.fd)  # releases every lock of this file description


@lru_cache(maxsize=1024)
def _offset(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(errors="surrogateescape"), digest_size=8).digest()) >> 2


def _set(fd: int, offset: int, kind: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))


def _acquire(fd: int, key: str, kind: int, deadline: float) -> None:
    """Take a lock in turn with other waiters. Raises Busy after the deadline."""
    queue = _offset(f"next\0{key}")
    _wait(fd, queue, fcntl.F_WRLCK, deadline, _LONGEST_PAUSE_S, key)
    try:
        _wait(fd, _offset(key), kind, deadline, _NEXT_PAUSE_S, key)
    finally:
        _set(fd, queue, fcntl.F_UNLCK)


def _wait(fd: int, offset: int, kind: int, deadline: float, longest_pause_s: float, key: str) -> None:
    pause_s = _FIRST_PAUSE_S
    lock = _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() >= deadline:
            name = key.replace("\0", " ", 1)
            raise Busy(f"{name} is locked by another writer; nothing was changed, try again")
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # jitter, so that waiters do not poll in step
        pause_s = min(pause_s * 1.5, longest_pause_s)


class HomePresence:
    """The lock of an open home: shared by every process that has it open, exclusive for setting it up.

    The file contains `ready` from the end of the first process's setup until the last process
    leaves. A process that waited for a setup that crashed finds it missing and does the setup
    itself.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, _FLAGS, 0o600)

    def enter(self) -> bool:
        """True if no other process has the home open.

        Others then wait until `ready`, so only one sets it up.
        """
        while True:
            if self.try_exclusive():
                os.ftruncate(self._fd, 0)
                return True
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0))
            if os.pread(self._fd, len(_READY), 0) == _READY:
                return False
            _set(self._fd, 0, fcntl.F_UNLCK)
            time.sleep(_LONGEST_PAUSE_S * random.random())  # others may be retrying too

    def ready(self) -> None:
        """Mark the setup as done and let other processes enter."""
        os.pwrite(self._fd, _READY, 0)
        _set(self._fd, 0, fcntl.F_RDLCK)

    def is_last(self) -> bool:
        """Whether no other process has the home open.

        If so, the next one to enter sets it up again.
        """
        if not self.try_exclusive():
            return False
        os.ftruncate(self._fd, 0)
        return True

    def try_exclusive(self) -> bool:
        """Take the lock exclusively, unless another process shares it."""
        try:
            _set(self._fd, 0, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def leave(self) -> None:
        os.close(self._fd)
