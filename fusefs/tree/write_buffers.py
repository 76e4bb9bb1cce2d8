"""Bytes written through the mount and not yet committed.

A shadow belongs to one private node and becomes visible only by commit, which runs on flush and fsync:
flush's error reaches close(2), release's is dropped. Flush comes for every closed descriptor, also the one
that a shell closes before it has written anything, so a shadow that was merely truncated commits nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from store import Store, layout
from store.index.catalog import Version
from store.path_kinds import CHECKED, MAY_BE_EMPTY, PathInfo, PathKind

T = TypeVar("T")

_PIECE = 1 << 20


class CommitInput(NamedTuple):
    """What a commit began with."""

    writes: int
    mode: int | None
    mtime_ns: int | None


class CommitResult(NamedTuple):
    """What stands after it."""

    base: Version | None
    info: os.stat_result | None


@dataclass
class WriteBuffer:
    """What one writer has made of a file so far."""

    store: Store
    place: PathInfo
    base: Version | None  # what the document was when the writer came; None for a new one
    info: os.stat_result | None  # of the committed file
    fd: int = -1
    path: str | None = None
    version_fd: int = -1  # the version that its writer read before it wrote
    failure: OSError | None = None  # bytes are missing since a full disk: whatever follows, they make no version
    writes: int = 0  # how often it was changed
    writers: int = 0  # open handles
    awaited: bool = False  # its writer was told to come again
    opener: int = 0  # the thread that opened it last
    is_detached: bool = False  # its name was removed: whatever is written now belongs nowhere
    written: bool = False  # bytes came since the last commit or truncation
    is_emptied: bool = False  # truncated to nothing, and nothing came since
    deleted_before: bool = False  # its writer took the document away first, and so means what comes
    mode: int | None = None  # set through this node, for the next commit
    mtime_ns: int | None = None
    is_refused: bool = False  # by fsync; until more is written it shows itself as what stands instead

    @property
    def is_idle(self) -> bool:
        return self.writers == 0 and not self.awaited

    # -- writing ---------------------------------------------------------------------------------------

    def _fill(self, *, empty: bool) -> None:
        """Begin with a copy of the committed bytes, or with nothing."""
        if self.fd >= 0:
            return
        self.fd, self.path = self.store.names.new_write_buffer()
        if not empty and self._open_version():
            self._keep_failure(self._copy_version)

    def _open_version(self) -> bool:
        """Hold on to the version that is there: who reads it piece by piece gets pieces of one. False if none is."""
        if self.version_fd < 0:
            with suppress(FileNotFoundError):
                self.version_fd = self.store.names.open(self.place, os.O_RDONLY)
        return self.version_fd >= 0

    def _copy_version(self) -> None:
        size, done = os.fstat(self.version_fd).st_size, 0
        while done < size:
            done += os.pwrite(self.fd, os.pread(self.version_fd, _PIECE, done), done)

    def _keep_failure(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            self.failure = error
            raise

    def write(self, offset: int, data: bytes) -> int:
        self._fill(empty=False)
        self.written, self.is_emptied, self.is_refused = True, False, False
        self.writes += 1
        return self._keep_failure(lambda: os.pwrite(self.fd, data, offset))

    def truncate(self, size: int) -> None:
        self._fill(empty=size == 0)
        os.ftruncate(self.fd, size)
        self.writes += 1
        self.failure = self.failure if size else None
        self.is_refused = False
        self.is_emptied = size == 0
        self.written = size > 0  # emptied: whatever it is to become has yet to be written

    def read(self, offset: int, size: int) -> bytes:
        if self.fd >= 0:
            return os.pread(self.fd, size, offset)
        return os.pread(self.version_fd, size, offset) if self._open_version() else b""

    def append(self, data: bytes) -> int:
        """The kernel works out where an append goes from the size it was shown; only the shadow knows its end."""
        self._fill(empty=False)
        return self.write(os.fstat(self.fd).st_size, data)

    @property
    def size(self) -> int:
        if self.fd >= 0 and not self.is_refused:
            return os.fstat(self.fd).st_size
        return self.info.st_size if self.info is not None else 0

    # -- committing --------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        return not self.is_detached and (self.written or self.mode is not None or self.mtime_ns is not None)

    def commit_if_empty(self, *, at_end: bool) -> None:
        """An attachment or a note may be empty: a new one at once, an old one if its last writer leaves it so."""
        if self.is_emptied and self.place.kind in MAY_BE_EMPTY and (at_end or self.info is None):
            self.written = True

    def begin_commit(self) -> CommitInput:
        """What is to be committed now; more may be written while that goes on."""
        return CommitInput(self.writes, self.mode, self.mtime_ns)

    def commit(self, attempt: CommitInput, *, overwrite: bool) -> CommitResult:
        """Make it real. Blocks, in a thread: it changes nothing here, for its writer may go on meanwhile."""
        if not self.written:
            self._set_attributes(attempt)
            return CommitResult(self.base, self.store.names.stat(self.place.path))
        if self.failure is not None:
            raise self.failure
        names = self.store.names
        names.commit_file(
            self.place,
            self.fd,
            base=self.base,
            overwrite=overwrite,
            deleted_before=self.deleted_before,
            mode=attempt.mode,
            mtime_ns=attempt.mtime_ns,
        )
        base = names.version(self.place) if self.place.kind in CHECKED else self.base
        return CommitResult(base, names.stat(self.place.path))

    def committed(self, attempt: CommitInput, done: CommitResult) -> None:
        """It is real. What came meanwhile, through this or another descriptor, is for the next commit."""
        if attempt.writes == self.writes:
            self.discard()
            self.written = self.is_emptied = False
        if (self.mode, self.mtime_ns) == (attempt.mode, attempt.mtime_ns):
            self.mode = self.mtime_ns = None
        self.base, self.info = done.base, done.info

    def show_committed(self) -> None:
        """From now on show what stands: Emacs remembers what fstat says after a failed fsync, and asks if
        the next save finds something else. If another version came meanwhile, it had better ask."""
        if self.base is None:
            return
        was, now = self.base, self.store.names.version(self.place)
        is_sidecar = self.place.kind is PathKind.DOCUMENT and self.place.name == layout.RUNTIME
        if (was.side != now.side) if is_sidecar else (was.main != now.main):
            return
        self.info = self.store.names.stat(self.place.path)
        self.is_refused = self.info is not None

    def _set_attributes(self, attempt: CommitInput) -> None:
        """Modes and times reach the document also when no byte was written."""
        mode, mtime_ns = attempt.mode, attempt.mtime_ns
        if (mode is None and mtime_ns is None) or self.store.names.stat(self.place.path) is None:
            return
        times = None if mtime_ns is None else (mtime_ns, mtime_ns)
        self.store.names.set_attributes(self.place, mode=mode, times_ns=times)

    def discard(self) -> None:
        """Let the uncommitted bytes go."""
        self.failure = None
        if self.version_fd >= 0:
            os.close(self.version_fd)
            self.version_fd = -1
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.path is not None:
            self.store.names.drop_write_buffer(self.path)
            self.path = None
