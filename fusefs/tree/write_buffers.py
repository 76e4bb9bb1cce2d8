"""Write buffers: bytes written through the mount and not yet committed.

A buffer belongs to one private node and becomes visible only by a commit, which runs on flush and
fsync: the error of flush reaches close(2), the error of release is lost. Every close of a
descriptor sends a flush, also when a shell closes its copy before the first write, so a buffer
that was only truncated commits nothing.

The buffer's file is renamed into place by the commit. `begin_commit` makes that file read-only: a
write while the commit runs goes to a copy, for the next commit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from fusefs.tree.processes import UNKNOWN, Process
from store import Store
from store.commit.write_request import CommitResult, OnConflict, UnfinishedCommit, Writer, WriteRequest
from store.disk.file import Stamp, Temp
from store.disk.file_io import copy_file
from store.index.catalog import Version
from store.path_kinds import MAY_BE_EMPTY, PathInfo

COPIED_AT_ONCE = 1 << 20  # more bytes than this are copied in a worker thread


@dataclass
class WriteBuffer:
    """The uncommitted content and attributes of one writer."""

    store: Store
    path_info: PathInfo
    base: Version | None  # the version that was opened; None if the path has no conflict check
    info: os.stat_result | None  # of the committed file
    temp: Temp | None = None  # the file with the bytes
    in_commit: Temp | None = None  # the file that a running commit renames; read-only
    version_fd: int = -1  # the version that was opened, or committed last: for reads before the next write
    version_size: int = 0  # its size then: others may append to the same file
    has_committed: bool = False  # the version it would replace is its own
    is_created: bool = False  # its empty file is not synced yet
    failure: OSError | None = None  # a write failed (full disk): the bytes must not become a version
    writes: int = 0  # number of changes
    writers: int = 0  # open handles
    awaited: bool = False  # its writer was sent back for another lookup
    awaits_truncation: bool = False  # by that writer's open
    opener: int = 0  # the thread that opened it last
    process: Process = UNKNOWN  # that opened it
    opened_at: int = 0  # number of the event (evidence): what the process does later does not count
    is_truncated: bool = False  # its bytes did not start as those of `base`
    is_detached: bool = False  # its name was removed: nothing written now can be committed
    written: bool = False  # since the last commit or truncation
    is_emptied: bool = False  # truncated to 0 bytes and not written since
    unlinked_first: bool = False  # its writer unlinked the document first
    unlinked: Stamp | None = None  # the version that was unlinked, if that is known
    mode: int | None = None  # set through this node, for the next commit
    mtime_ns: int | None = None
    owner: tuple[int, int] | None = None
    is_rejected: bool = False  # by fsync; it shows the committed version until more is written

    @property
    def is_idle(self) -> bool:
        return self.writers == 0 and not self.awaited

    # -- writing ---------------------------------------------------------------------------------------

    def _fill(self, *, empty: bool) -> Temp:
        """Return the file to write to. A new one starts as a copy of the committed bytes, or empty."""
        if self.temp is not None and self.temp != self.in_commit:
            return self.temp
        source = self.temp.fd if self.temp is not None else self._open_version() if not empty else -1
        try:
            self.temp = temp = self.store.names.new_write_buffer()
            if not empty and source >= 0:
                copy_file(source, temp.fd, self._size_of(source))
        except OSError as error:
            self.failure = error
            raise
        return temp

    def _size_of(self, source: int) -> int:
        """The number of bytes to copy."""
        return self.version_size if source == self.version_fd else os.fstat(source).st_size

    def large_source(self) -> tuple[int, int] | None:
        """What the next write has to copy first, if that is much: a descriptor, for the caller to close, and a size."""
        if self.temp is not None and self.temp != self.in_commit:
            return None
        source = self.temp.fd if self.temp is not None else self._open_version()
        if source < 0 or (size := self._size_of(source)) <= COPIED_AT_ONCE:
            return None
        return os.dup(source), size

    def copy(self, source: int, size: int) -> Temp:
        """Copy the bytes of `large_source`, in a worker thread."""
        temp = self.store.names.new_write_buffer()
        try:
            copy_file(source, temp.fd, size)
        except BaseException:
            self._drop(temp)
            raise
        return temp

    def use_copy(self, temp: Temp, writes: int) -> None:
        """Write to this copy from now on, unless there were more than these writes meanwhile: it lacks theirs."""
        if self.writes == writes and (self.temp is None or self.temp == self.in_commit):
            self.temp = temp
        else:
            self._drop(temp)

    def _open_version(self) -> int:
        """Open the committed version and keep it open for all reads. Returns -1 if there is none."""
        if self.version_fd < 0:
            with suppress(FileNotFoundError):
                self._keep_version(self.store.names.open(self.path_info, os.O_RDONLY))
        return self.version_fd

    def _keep_version(self, fd: int) -> None:
        if self.version_fd >= 0:
            os.close(self.version_fd)
        self.version_fd, self.version_size = fd, os.fstat(fd).st_size

    def pin(self) -> None:
        """Keep the committed version open, so that reads see it until close, whatever happens to its name."""
        try:
            info = self._open_current()
        except FileNotFoundError:
            return
        self.info = info
        if self.base is not None:
            self.base = self.store.names.version_of(self.path_info, self.info)

    def _open_current(self) -> os.stat_result:
        """Open the committed version and keep it open.

        One that is replaced gets a new ctime, which the history does not know: then the next one is opened.
        """
        while True:
            self._keep_version(self.store.names.open(self.path_info, os.O_RDONLY))
            info, named = os.fstat(self.version_fd), self.store.names.stat(self.path_info.path)
            if named is not None and os.path.samestat(named, info):
                return info

    def _read_version(self, offset: int, size: int) -> bytes:
        fd = self._open_version()
        left = self.version_size - offset
        return os.pread(fd, min(size, left), offset) if fd >= 0 and left > 0 else b""

    def write(self, offset: int, data: bytes) -> int:
        temp = self._fill(empty=False)
        self.written, self.is_emptied, self.is_rejected = True, False, False
        self.writes += 1
        try:
            return os.pwrite(temp.fd, data, offset)
        except OSError as error:
            self.failure = error
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fill(empty=size == 0).fd, size)
        self.writes += 1
        self.failure = self.failure if size else None
        self.is_rejected = False
        self.is_emptied = size == 0
        self.is_truncated = self.is_truncated or size == 0
        self.written = size > 0  # after truncation to 0 the content is still to come

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.temp.fd, size, offset) if self.temp is not None else self._read_version(offset, size)

    def append(self, data: bytes) -> int:
        """Write at the end of the buffer: the kernel's offset comes from its cached size."""
        return self.write(os.fstat(self._fill(empty=False).fd).st_size, data)

    @property
    def size(self) -> int:
        if self.temp is not None and not self.is_rejected:
            return os.fstat(self.temp.fd).st_size
        if self.version_fd >= 0 and not self.is_rejected:
            return self.version_size
        return self.info.st_size if self.info is not None else 0

    # -- committing --------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        has_attributes = self.mode is not None or self.mtime_ns is not None or self.owner is not None
        return not self.is_detached and (self.written or has_attributes)

    def commit_if_empty(self) -> None:
        """Let an attachment or state text be empty. Another file without bytes is still to be written."""
        if self.is_emptied and self.path_info.kind in MAY_BE_EMPTY:
            self.written = True

    @property
    def base_stamp(self) -> Stamp | None:
        """The version of this document that was opened."""
        if self.base is None:
            return None
        return self.base.main or self.base.side  # a version of one document has one stamp

    def begin_commit(self, on_conflict: OnConflict, writer: Writer | None = None) -> WriteRequest:
        """Describe the commit of the current content. Later writes go to a copy."""
        if self.failure is not None and self.written:
            raise self.failure
        self.in_commit = self._fill(empty=False) if self.written else None
        return WriteRequest(
            self.path_info,
            self.in_commit,
            self.base,
            on_conflict,
            unlinked_first=self.unlinked_first,
            unlinked=self.unlinked,
            mode=self.mode,
            mtime_ns=self.mtime_ns,
            owner=self.owner,
            writer=writer,
            replaces_own=self.has_committed and on_conflict != "overwrite",
        )

    def committed(self, request: WriteRequest, result: CommitResult) -> None:
        """Adopt the result. Writes made during the commit stay for the next one."""
        if request.content is not None:
            self._drop_committed(is_in_place=result.is_in_place)
            self.has_committed = True
            if self.base is not None:
                self.base = self.store.names.version_of(self.path_info, result.info)
            # Of a merged save the handle keeps the text as typed; the base is unknown to it.
            self.is_truncated = result.draft is not None
        self.adopt(request, result)

    def adopt(self, request: WriteRequest, result: CommitResult) -> None:
        """Adopt the attributes of the committed file."""
        self.is_created = False
        if (self.mode, self.mtime_ns, self.owner) == (request.mode, request.mtime_ns, request.owner):
            self.mode = self.mtime_ns = self.owner = None
        self.info = result.info

    def _drop_committed(self, *, is_in_place: bool) -> None:
        done, self.in_commit = self.in_commit, None
        if done is not None and self.temp == done:
            self._read_on(done, is_in_place=is_in_place)
        elif done is not None:
            self._drop(done)

    def _read_on(self, done: Temp, *, is_in_place: bool) -> None:
        """Continue with the bytes that were typed: the committed file, or a draft if a merge stored others."""
        self.discard(keep=done)
        self._keep_version(done.fd)
        if not is_in_place:  # the commit did not use it
            self.store.names.drop_write_buffer(done.path)
        self.written = self.is_emptied = False

    def rejected(self) -> None:
        """The commit did not use the file: keep it, the writer may correct it and retry."""
        done, self.in_commit = self.in_commit, None
        if done is not None and self.temp != done:
            self._drop(done)

    def failed(self, error: BaseException) -> None:
        """The commit failed: keep the file for a retry, or continue with a copy if that is not safe.

        It is not safe if the file was renamed, or if recovery still needs it.
        """
        done = self.in_commit
        if done is None:
            return
        if not isinstance(error, UnfinishedCommit) and self._has_its_name(done):
            return self.rejected()
        if self.temp == done:
            try:
                self._fill(empty=False)
            except OSError:  # disk full: `failure` makes later commits fail until all is rewritten
                if self.temp is not None and self.temp != done:
                    self._drop(self.temp)
                self.temp = None
        self.in_commit = None
        os.close(done.fd)

    def _has_its_name(self, temp: Temp) -> bool:
        info = self.store.names.stat(temp.path)
        return info is not None and info.st_ino == os.fstat(temp.fd).st_ino

    def show_committed(self) -> None:
        """Show the committed version's attributes. Emacs remembers fstat after a failed fsync and asks the
        user if the next save finds another file. After a commit by someone else it should ask."""
        if self.base is None or self.base != self.store.names.version(self.path_info):
            return
        self.info = self.store.names.stat(self.path_info.path)
        self.is_rejected = self.info is not None

    def discard(self, keep: Temp | None = None) -> None:
        """Drop the uncommitted bytes, except those of `keep`."""
        self.failure = None
        if self.version_fd >= 0:
            os.close(self.version_fd)
            self.version_fd = -1
        temp, self.temp = self.temp, None
        if temp is not None and temp not in (self.in_commit, keep):
            self._drop(temp)

    def _drop(self, temp: Temp) -> None:
        os.close(temp.fd)
        self.store.names.drop_write_buffer(temp.path)
