"""Detection of a Bamboo server that uses the same home.

A Bamboo V2 home opens unchanged: only `sessions.json` is rewritten, its version and unknown keys
are kept, and Bamboo's search database, locks and keys are not touched. A Bamboo server keeps its
sessions in memory and overwrites changes made on disk, so every write is rejected while one is
running, unless the store is opened with `beside_bamboo=True`. Newer servers hold lock files.
Older ones are detected because they rewrite sessions.json, which no other program does while we
have the home open.

Deliberate differences from Bamboo: a runtime save updates the index; a lost or broken
sessions.json is rebuilt; deleting a nested child deletes its descendants; a pinned descendant at
any depth protects its ancestors; cleaning up empty sessions keeps an empty root whose children
have messages; an attachment keeps its type, whatever it is.
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
from store.errors import BambooAtWork, Busy

# A server may be idle for a while after it rewrote sessions.json, but still hold sessions in memory.
QUIET_S = 300.0
_LOCK_TIMEOUT_S = 5.0
_EXPORT_LOCK = f"{layout.PRIVATE}/export.lock"


class BambooServer:
    def __init__(self, home: Path, *, tolerated: bool) -> None:
        self._home = home
        self._lifecycle_lock = home / layout.BAMBOO_LIFECYCLE_LOCK
        self._index_lock = home / layout.BAMBOO_INDEX_LOCK
        self._tolerated = tolerated
        self._rewrote_at: float | None = None

    def note_rewrite(self) -> None:
        """Record that another program rewrote sessions.json while we had the home open."""
        self._rewrote_at = time.monotonic()

    def activity(self) -> str | None:
        """Return the evidence that a server is running; None if there is none. Costs two or three system calls."""
        ago_s = time.monotonic() - self._rewrote_at if self._rewrote_at is not None else QUIET_S
        if ago_s < QUIET_S:
            until = f"unless it does so again, writes are accepted in {QUIET_S - ago_s:.0f} s"
            return f"it rewrote {layout.INDEX_EXPORT} {ago_s:.0f} s ago; {until}"
        if _is_held(self._lifecycle_lock):
            return f"it holds {layout.BAMBOO_LIFECYCLE_LOCK}"
        if _is_held(self._index_lock) and not self._is_exporting():
            return f"it holds {layout.BAMBOO_INDEX_LOCK}"
        return None

    def _is_exporting(self) -> bool:
        """Whether it was a GroveFS process that held the index lock: it exports, or has just finished."""
        fd = os.open(self._home / _EXPORT_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            return not _try_lock(fd, fcntl.LOCK_SH) or not _is_held(self._index_lock)
        finally:
            os.close(fd)

    def refusal(self) -> str | None:
        """Why writes are rejected now; None if they are not."""
        return None if self._tolerated else self.activity()

    def check(self) -> None:
        """Raise BambooAtWork if a server is running: it would overwrite our changes, or we would overwrite its own."""
        if not self._tolerated and (reason := self.activity()) is not None:
            raise BambooAtWork(
                f"a Bamboo server is using {self._home} ({reason}); it would overwrite changes made now, "
                "so nothing was changed. Stop the server, or pass beside_bamboo=True (--beside-bamboo)"
            )

    @contextmanager
    def index_lock(self) -> Iterator[None]:
        """Hold the locks for replacing sessions.json: the export lock first, then the index lock, as Bamboo does."""
        with _flocked(self._home / _EXPORT_LOCK), _flocked(self._index_lock):
            yield


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
                raise Busy(f"{path}: locked by another process")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)
