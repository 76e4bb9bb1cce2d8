"""Writes to logs, which are open in place while others append to them, replace or rename them.

An agent has its log open for hours. `sed -i`, an editor, an import or a restore replaces the file
meanwhile: lines appended to the old one would be lost, or be in the trash. They continue in the new one.
"""

from __future__ import annotations

import os
import stat

from fusefs.tree.evidence import Evidence
from fusefs.tree.handles import FileHandle
from store import Store
from store.disk.file import Stamp


class LogWrites:
    def __init__(self, store: Store, evidence: Evidence) -> None:
        self._names = store.names
        self._evidence = evidence

    def write(self, handle: FileHandle, offset: int, data: bytes) -> int:
        before = os.fstat(handle.fd)
        written = handle.write(offset, data)
        after = os.fstat(handle.fd)
        end = before.st_size + written if handle.appends else max(before.st_size, offset + written)
        if after.st_size == end:
            self._note_saved(handle, before, after)
        if handle.appends:
            self._repeat_in_new_log(handle, after, data[:written])
        return written

    def _note_saved(self, handle: FileHandle, before: os.stat_result, after: os.stat_result) -> None:
        """A process that knew all lines before its write knows all of them now: it may replace the log."""
        path = handle.place.path
        if self._evidence.has_had(handle.process, path, Stamp.of(before)):
            self._evidence.note_saved(handle.process, path, Stamp.of(after), None)

    def _repeat_in_new_log(self, handle: FileHandle, old: os.stat_result, lines: bytes) -> None:
        """Append lines again if another file has the log's name. From now on the handle is of that file.

        A hard link to the old file says nothing: a replaced log has one in the trash. Without a new log,
        the old one was deleted or renamed, and the lines go where those of any such file go.
        """
        place = handle.place
        named = self._names.stat(place.path) if place.is_session_log else None
        if named is None or os.path.samestat(named, old) or not stat.S_ISREG(named.st_mode):
            return
        try:
            fd = self._names.open(place, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return
        os.dup2(fd, handle.fd, inheritable=False)  # the number stays: a worker thread may be syncing it
        os.close(fd)
        handle.write(0, lines)
