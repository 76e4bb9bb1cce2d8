"""One writer per session, across threads and processes; and who has the home open.

A lock is one byte of `.grovefs/locks`, at an offset hashed from the location, held by an "open file
description" lock: it excludes threads and processes alike, dies with its holder, and leaves no file
behind for each of a hundred thousand sessions. Whoever locks a session also shares the lock of its
tree, which is taken exclusively by what concerns all of a tree (delete, rename): tree first, then session.
Whoever wants a lock first takes a second one, of who is next: else a process that saves without end would have
its lock again each time before anybody who waits has looked.
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
from hashlib import blake2b
from pathlib import Path

from store.errors import Busy
from store.layout import Location

TIMEOUT_S = 10.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_READY = b"ready"
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.005  # short, for who waits longest must not look most seldom
_NEXT_PAUSE_S = 0.001  # only one at a time is next, and everybody else waits for him


@dataclass
class _HeldLock:
    """What one thread holds of one tree."""

    fd: int
    exclusive: bool
    depth: int = 0
    sessions: dict[Location, int] = field(default_factory=dict)


class Locks:
    """The locks of one home. Re-entrant per thread."""

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._local = threading.local()

    @contextmanager
    def session(self, location: Location, *, timeout_s: float | None = None) -> Iterator[None]:
        """Nobody else writes this session meanwhile. Busy if that is not granted in time."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._tree(location.root, exclusive=False, deadline=deadline) as held:
            if held.exclusive or location in held.sessions:
                held.sessions[location] = held.sessions.get(location, 0) + 1
            else:
                _acquire(held.fd, f"session\0{location}", fcntl.F_WRLCK, deadline)
                held.sessions[location] = 1
            try:
                yield
            finally:
                held.sessions[location] -= 1
                if not held.sessions[location]:
                    del held.sessions[location]
                    if not held.exclusive:
                        _set(held.fd, _offset(f"session\0{location}"), fcntl.F_UNLCK)

    @contextmanager
    def tree(self, root: str, *, timeout_s: float | None = None) -> Iterator[None]:
        """Nobody else writes any session of this tree meanwhile."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with self._tree(root, exclusive=True, deadline=deadline):
            yield

    def holds(self, location: Location) -> bool:
        """Whether this thread may write the session."""
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
            # Noted before it is taken: an interrupt may leave it noted too long, but never taken and forgotten.
            held = mine[root] = _HeldLock(os.open(self._path, _FLAGS, 0o600), exclusive)
            try:
                wanted = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
                _acquire(held.fd, f"tree\0{root}", wanted, deadline)
            except BaseException:
                del mine[root]
                os.close(held.fd)
                raise
        elif exclusive and not held.exclusive:
            # Waiting for the others who share it, while they wait for us, would never end.
            raise Busy(f"tree {root}: this thread already works on one of its sessions")
        held.depth += 1
        try:
            yield held
        finally:
            held.depth -= 1
            if not held.depth:
                del mine[root]
                os.close(held.fd)  # and with it every lock of this description


def _offset(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(errors="surrogateescape"), digest_size=8).digest()) >> 2


def _record(offset: int, kind: int) -> bytes:
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, offset, 1, 0)  # struct flock of 64-bit Linux


def _set(fd: int, offset: int, kind: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _record(offset, kind))


def _acquire(fd: int, key: str, kind: int, deadline: float) -> None:
    """Have a lock, after those who were waiting for it. Busy if not in time."""
    following = _offset(f"next\0{key}")
    _wait(fd, following, fcntl.F_WRLCK, deadline, _LONGEST_PAUSE_S, key)
    try:
        _wait(fd, _offset(key), kind, deadline, _NEXT_PAUSE_S, key)
    finally:
        _set(fd, following, fcntl.F_UNLCK)


def _wait(fd: int, offset: int, kind: int, deadline: float, longest_pause_s: float, key: str) -> None:
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return _set(fd, offset, kind)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() >= deadline:
            name = key.replace("\0", " ", 1)
            raise Busy(f"{name} is being written by someone else; nothing was changed, try again")
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # spread, so that waiters do not march in step
        pause_s = min(pause_s * 1.5, longest_pause_s)


class HomePresence:
    """Who has the home open: everyone shares a lock, and to have it alone means to be the only one.

    The file says `ready` from when the one who came first has set things up until the last one leaves: who
    waited for another that died meanwhile finds it missing, and becomes the first himself.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, _FLAGS, 0o600)

    def enter(self) -> bool:
        """True if nobody else is here; others then wait until `settle`, so that one alone sets things up."""
        while True:
            if self.try_exclusive():
                os.ftruncate(self._fd, 0)
                return True
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, _record(0, fcntl.F_RDLCK))
            if os.pread(self._fd, len(_READY), 0) == _READY:
                return False
            _set(self._fd, 0, fcntl.F_UNLCK)
            time.sleep(_LONGEST_PAUSE_S * random.random())  # others may be at the same point

    def ready(self) -> None:
        """Things are set up: let the others in."""
        os.pwrite(self._fd, _READY, 0)
        _set(self._fd, 0, fcntl.F_RDLCK)

    def is_last(self) -> bool:
        """Whether we are the last to leave; if so nobody comes in any more without setting things up."""
        if not self.try_exclusive():
            return False
        os.ftruncate(self._fd, 0)
        return True

    def try_exclusive(self) -> bool:
        """Take the lock for oneself, if nobody shares it."""
        try:
            _set(self._fd, 0, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def leave(self) -> None:
        os.close(self._fd)
