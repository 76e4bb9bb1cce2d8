"""Append-only logs and attachments that are appended to: the only files changed in place.

A crash may leave an incomplete last line; the next append starts a new line. If the append or the
caller's block fails, the lines are truncated again. The caller holds the session's lock, but a
mount and other programs append without it. The end of the file may therefore move at any time, and
bytes after our own lines are never touched.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from store.disk.disk import Disk
from store.errors import Corrupt, Problem

log = logging.getLogger("grovefs.store")

# The kernel writes a line that crosses a page in two steps, and readers can see the first alone. A
# writer is hardly ever interrupted there for longer than this; if it is, the log gets one extra
# empty line.
_SETTLED_S = 0.01
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def appending(disk: Disk, path: str) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that appends lines to a log. If the block fails, they are removed again."""
    with appending_bytes(disk, path, is_log=True) as append:
        yield lambda lines: append([lines])


@contextmanager
def appending_bytes(disk: Disk, path: str, *, is_log: bool = False) -> Iterator[Callable[[Iterable[bytes]], None]]:
    """Yield a function that appends bytes to a file. If the block fails, they are removed again.

    In a log they start a new line if the last one is incomplete.
    """
    directory, _, name = path.rpartition("/")
    is_new = disk.stat(path) is None
    with disk.open_dir(directory) as parent:
        disk.step("append-line")
        fd = _open(disk, path, parent)
        try:
            _require_regular_file(fd, path)
            own = AppendedRange(fd)
            try:
                yield lambda parts: _append(disk, own, parts, directory if is_new else None, is_log=is_log)
            except BaseException:
                own.roll_back(parent, name if is_new else None)
                raise
        finally:
            os.close(fd)


def _open(disk: Disk, path: str, parent: int) -> int:
    try:
        return os.open(path.rpartition("/")[2], _FLAGS, disk.file_mode, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Corrupt(path, Problem("not a regular file; links are not followed")) from None
        raise


def _require_regular_file(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Corrupt(path, Problem("not a regular file"))


def _append(disk: Disk, own: AppendedRange, parts: Iterable[bytes], made_in: str | None, *, is_log: bool) -> None:
    separator = b"\n" if is_log and _is_torn(own.fd) else b""
    for part in parts:
        own.write(separator + part if separator else part)
        separator = b""
    disk.fsync(own.fd, "sync-log")
    if made_in is not None:  # sync the new directory entry too
        disk.sync_dirs([made_in])


def _is_torn(fd: int) -> bool:
    """Whether the last line is incomplete and no writer is completing it."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        time.sleep(_SETTLED_S)
        before, size = size, os.fstat(fd).st_size
        if size == before:
            return True
    return False


@dataclass
class AppendedRange:
    """Our own bytes: the last `written` bytes before the offset `end`.

    `end` is the file offset after write(2), which O_APPEND moves to the end of the file first.
    """

    fd: int
    written: int = 0
    end: int = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.write(self.fd, view)
            view, self.written, self.end = view[done:], self.written + done, os.lseek(self.fd, 0, os.SEEK_CUR)

    def roll_back(self, parent: int, made: str | None) -> None:
        """Truncate our bytes, unless another writer has appended after them."""
        try:
            if self.written and os.fstat(self.fd).st_size == self.end:
                os.ftruncate(self.fd, self.end - self.written)
            if made is not None and os.fstat(self.fd).st_size == 0:
                os.unlink(made, dir_fd=parent)
        except OSError as error:  # the caller gets the first error
            log.warning("could not truncate %d appended bytes of a log: %s", self.written, error)
