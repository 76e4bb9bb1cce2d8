"""Append-only logs: the one kind of file that is changed in place, by whole lines at its end.

A crash may cut the last line off; whoever appends next begins a new one. What fails is taken back, also when it is
the caller who fails after the lines were written. The caller holds the session's lock; but a mount, and whoever has the
file open, appends without it. So the end of the file may move at any time, and what lies behind one's own lines is
somebody else's.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from store.disk.disk import Disk
from store.errors import Corrupt, Problem

log = logging.getLogger("grovefs.store")

# The kernel takes a line that crosses a page in two pieces, and shows the first before it has the second. Hardly ever
# is a writer interrupted there for longer than this; and if it were, an empty line too many would be all.
_SETTLED_S = 0.01
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def appending(disk: Disk, path: str) -> Iterator[Callable[[bytes], None]]:
    """How to append to a log; if anything in the block fails, nothing has been appended."""
    directory, _, name = path.rpartition("/")
    is_new = disk.stat(path) is None
    with disk.open_dir(directory) as parent:
        disk.step("append-line")
        fd = _open(disk, path, parent)
        try:
            _refuse_odd(fd, path)
            own = AppendedRange(fd)
            try:
                yield lambda lines: _append(disk, own, lines, directory if is_new else None)
            except BaseException:
                own.take_back(parent, name if is_new else None)
                raise
        finally:
            os.close(fd)


def _open(disk: Disk, path: str, parent: int) -> int:
    try:
        return os.open(path.rpartition("/")[2], _FLAGS, disk.file_mode, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Corrupt(path, Problem("not a plain file; links are not followed")) from None
        raise


def _refuse_odd(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Corrupt(path, Problem("not a plain file"))


def _append(disk: Disk, own: AppendedRange, lines: bytes, made_in: str | None) -> None:
    own.write(b"\n" + lines if _is_torn(own.fd) else lines)
    disk.fsync(own.fd, "sync-log")
    if made_in is not None:  # a new name has to last too
        disk.sync_dirs([made_in])


def _is_torn(fd: int) -> bool:
    """Whether the last line has no end, and nobody is about to write it."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        time.sleep(_SETTLED_S)
        before, size = size, os.fstat(fd).st_size
        if size == before:
            return True
    return False


@dataclass
class AppendedRange:
    """What we have written: the last bytes before `end`, where the kernel left us after it found the file's end."""

    fd: int
    written: int = 0
    end: int = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.write(self.fd, view)
            view, self.written, self.end = view[done:], self.written + done, os.lseek(self.fd, 0, os.SEEK_CUR)

    def take_back(self, parent: int, made: str | None) -> None:
        """Unless somebody has written behind it: that was promised to them."""
        try:
            if self.written and os.fstat(self.fd).st_size == self.end:
                os.ftruncate(self.fd, self.end - self.written)
            if made is not None and os.fstat(self.fd).st_size == 0:
                os.unlink(made, dir_fd=parent)
        except OSError as error:  # what failed first is what the caller hears of
            log.warning("%d bytes at the end of a log could not be taken back: %s", self.written, error)
