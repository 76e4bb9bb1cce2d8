"""Append buffers: bytes that are added to a file at the commit, whatever others added before.

An attachment or state text opened with O_APPEND, and not truncated, has no version that a commit
could conflict with. The buffer's file holds only the new bytes. Each commit appends those that the
one before did not, and writes may continue meanwhile. Truncating the file turns the buffer into an
ordinary one, which replaces the version that was opened.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from fusefs.tree.write_buffers import WriteBuffer
from store.commit.write_request import CommitResult, OnConflict, Writer, WriteRequest
from store.disk.file import Temp
from store.disk.file_io import iter_chunks, write_all


@dataclass
class AppendBuffer(WriteBuffer):
    start: int = 0  # bytes of the buffer's file that are committed
    is_whole: bool = False  # it was truncated and replaces the file

    def write(self, offset: int, data: bytes) -> int:
        if self.is_whole:
            return super().write(offset, data)
        if self.temp is None:
            self.temp = self.store.names.new_write_buffer()
        self.written, self.writes = True, self.writes + 1
        return os.pwrite(self.temp.fd, data, os.fstat(self.temp.fd).st_size)

    def large_source(self) -> tuple[int, int] | None:
        return super().large_source() if self.is_whole else None

    def append(self, data: bytes) -> int:
        return super().append(data) if self.is_whole else self.write(0, data)

    def read(self, offset: int, size: int) -> bytes:
        if self.is_whole or self.temp is None:
            return super().read(offset, size)
        before = self._read_version(offset, size)
        after = max(0, offset + len(before) - self.version_size)
        return before + os.pread(self.temp.fd, size - len(before), self.start + after)

    @property
    def size(self) -> int:
        if self.is_whole:
            return super().size
        if self.version_fd < 0 and self.info is not None:  # looked up, but not opened yet
            return self.info.st_size
        added = os.fstat(self.temp.fd).st_size - self.start if self.temp is not None else 0
        return self.version_size + added

    def truncate(self, size: int) -> None:
        if not self.is_whole:
            self._become_whole(empty=size == 0)
        super().truncate(size)

    def _become_whole(self, *, empty: bool) -> None:
        added, self.temp, self.is_whole = self.temp, None, True
        if added is None:
            return
        if not empty:
            whole = self._fill(empty=False)
            os.lseek(whole.fd, 0, os.SEEK_END)
            write_all(whole.fd, iter_chunks(added.fd, start=self.start))
        self._drop(added)

    # -- committing ------------------------------------------------------------------------------

    def begin_commit(self, on_conflict: OnConflict, writer: Writer | None = None) -> WriteRequest:
        if self.is_whole:
            return super().begin_commit(on_conflict, writer)
        temp: Temp | None = self.temp if self.written else None
        return WriteRequest(
            self.path_info,
            temp,
            mode=self.mode,
            mtime_ns=self.mtime_ns,
            owner=self.owner,
            writer=writer,
            appended=(self.start, os.fstat(temp.fd).st_size) if temp is not None else None,
        )

    def committed(self, request: WriteRequest, result: CommitResult) -> None:
        if self.is_whole or request.appended is None or self.temp is None:
            return super().committed(request, result)
        self.start = request.appended[1]
        self.written = os.fstat(self.temp.fd).st_size > self.start
        if not self.written:  # a descriptor may stay open, and append, for days
            os.ftruncate(self.temp.fd, 0)
            self.start = 0
        self.adopt(request, result)
        self.pin()
