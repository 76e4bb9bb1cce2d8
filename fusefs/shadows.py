"""Bytes written through the mount and not yet committed.

A shadow belongs to one private node and becomes visible only by commit, which runs on flush and fsync:
flush's error reaches close(2), release's is dropped. Flush comes for every closed descriptor, also the one
that a shell closes before it has written anything, so a shadow that was merely truncated commits nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from store import Store
from store.index import Version
from store.places import Kind, Place


@dataclass
class Shadow:
    """What one writer has made of a file so far."""

    store: Store
    place: Place
    base: Version | None  # what the document was when the writer came; None for a new one
    info: os.stat_result | None  # of the committed file
    fd: int = -1
    path: Path | None = None
    writers: int = 0  # open handles
    awaited: bool = False  # its writer was told to come again
    written: bool = False  # bytes came since the last commit or truncation
    deleted_before: bool = False  # its writer took the document away first, and so means what comes
    mode: int | None = None  # set through this node, for the next commit
    mtime_ns: int | None = None

    @property
    def is_idle(self) -> bool:
        return self.writers == 0 and not self.awaited

    # -- writing ---------------------------------------------------------------------------------------

    def _fill(self, *, empty: bool) -> None:
        """Begin with a copy of the committed bytes, or with nothing."""
        if self.fd >= 0:
            return
        self.path = self.store.names.new_shadow()
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if not empty:
            data = self.store.names.read(self.place)
            os.write(self.fd, data or b"")

    def write(self, offset: int, data: bytes) -> int:
        self._fill(empty=False)
        self.written = True
        return os.pwrite(self.fd, data, offset)

    def truncate(self, size: int) -> None:
        self._fill(empty=size == 0)
        os.ftruncate(self.fd, size)
        self.written = size > 0  # emptied: whatever it is to become has yet to be written

    def read(self, offset: int, size: int) -> bytes:
        if self.fd >= 0:
            return os.pread(self.fd, size, offset)
        data = self.store.names.read(self.place) or b""
        return data[offset : offset + size]

    @property
    def size(self) -> int:
        if self.fd >= 0:
            return os.fstat(self.fd).st_size
        return self.info.st_size if self.info is not None else 0

    # -- committing --------------------------------------------------------------------------------------

    @property
    def has_something_to_say(self) -> bool:
        return self.written or self.mode is not None or self.mtime_ns is not None

    def commit(self, *, overwrite: bool) -> bool:
        """Make it real, if there is anything; False if nothing changed. Blocks."""
        if not self.written:
            self._set_attributes()
            return False
        size = os.fstat(self.fd).st_size
        data = os.pread(self.fd, size, 0)
        changed = self.store.names.commit(
            self.place,
            data,
            base=self.base,
            overwrite=overwrite,
            deleted_before=self.deleted_before,
            mode=self.mode,
            mtime_ns=self.mtime_ns,
        )
        self.discard()
        self.written = False
        self.mode = self.mtime_ns = None
        if self.place.location is not None and self.place.kind is Kind.DOCUMENT:
            self.base = self.store.version(self.place.location)
        self.info = self.store.names.stat(self.place.path)
        return changed

    def _set_attributes(self) -> None:
        """Modes and times reach the document also when no byte was written."""
        if (self.mode is None and self.mtime_ns is None) or self.store.names.stat(self.place.path) is None:
            return
        times = None if self.mtime_ns is None else (self.mtime_ns, self.mtime_ns)
        self.store.names.set_attributes(self.place, mode=self.mode, times_ns=times)
        self.mode = self.mtime_ns = None

    def discard(self) -> None:
        """Let the uncommitted bytes go."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None
