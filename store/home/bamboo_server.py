"""Is a Bamboo server at work on this home?

It keeps its sessions in memory and overwrites whatever was changed on disk meanwhile, so while one is
seen nothing is written here. Newer servers hold lock files; older ones give themselves away by
rewriting sessions.json, which nobody else does while we have the home open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store import layout
from store.disk.file import Stamp
from store.errors import BambooAtWork, Busy

# A server that has rewritten sessions.json may be idle for a while, its memory full all the same.
QUIET_S = 300.0
_LOCK_TIMEOUT_S = 5.0
_EXPORT_LOCK = f"{layout.PRIVATE}/export.lock"


class BambooServer:
    def __init__(self, home: Path, *, tolerated: bool) -> None:
        self._home = home
        self._tolerated = tolerated
        self._rewrote_at: float | None = None

    def note_rewrite(self) -> None:
        """sessions.json was rewritten by someone else while we had the home open."""
        self._rewrote_at = time.monotonic()

    def activity(self) -> str | None:
        """What shows that a server is at work; None if nothing does. Costs two or three system calls."""
        return self._look(time.monotonic())

    def _look(self, now: float) -> str | None:
        if self._rewrote_at is not None and now - self._rewrote_at < QUIET_S:
            return f"it rewrote {layout.INDEX_EXPORT} {now - self._rewrote_at:.0f} s ago"
        if _is_held(self._home / layout.BAMBOO_LIFECYCLE_LOCK):
            return f"it holds {layout.BAMBOO_LIFECYCLE_LOCK}"
        if self._index_is_locked():
            return f"it holds {layout.BAMBOO_INDEX_LOCK}"
        return None

    def _index_is_locked(self) -> bool:
        """By a server, that is. While we share the export lock none of ours can begin or end an export."""
        fd = os.open(self._home / _EXPORT_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            return _try_lock(fd, fcntl.LOCK_SH) and _is_held(self._home / layout.BAMBOO_INDEX_LOCK)
        finally:
            os.close(fd)

    def check(self) -> None:
        """Raise if writing now would be lost, or would make the server lose something."""
        reason = None if self._tolerated else self.activity()
        if reason is not None:
            raise BambooAtWork(
                f"a Bamboo server is at work on {self._home} ({reason}); it would overwrite changes made now, "
                "so nothing was changed. Stop it first, or open the home beside it on purpose"
            )

    @contextmanager
    def index_lock(self) -> Iterator[None]:
        """Around every replacement of sessions.json, as Bamboo does it. Ours first, so that we know our own."""
        with _flocked(self._home / _EXPORT_LOCK), _flocked(self._home / layout.BAMBOO_INDEX_LOCK):
            yield


def is_ours(found: Stamp | None, exported: list[list[int]]) -> bool:
    """Whether sessions.json is as one of our exports left it. A rename changes the ctime: it does not count."""
    return found is not None and list(found[:3]) in exported


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True


@contextmanager
def _flocked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try_lock(fd, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise Busy(f"{path} is held by someone else")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)
