"""Append-only logs: the one kind of file that is changed in place, by whole lines at its end.

A crash may cut the last line off; whoever appends next begins a new one. What fails is taken back, also when it is
the caller who fails after the lines were written. The caller holds the session's lock: nobody else is at the file.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from store.atomic import Disk, write_all
from store.errors import Corrupt, Flaw

log = logging.getLogger("grovefs.store")

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def appending(disk: Disk, path: str) -> Iterator[Callable[[bytes], None]]:
    """How to append to a log; if anything in the block fails, nothing has been appended."""
    directory, _, name = path.rpartition("/")
    is_new = disk.stat(path) is None
    with disk.opened(directory) as parent:
        disk.step("append-line")
        fd = _open(disk, path, parent)
        try:
            size = _size(fd, path)
            try:
                yield lambda lines: _append(disk, fd, size, lines, directory if is_new else None)
            except BaseException:
                _take_back(fd, size, parent, name if is_new else None)
                raise
        finally:
            os.close(fd)


def _open(disk: Disk, path: str, parent: int) -> int:
    try:
        return os.open(path.rpartition("/")[2], _FLAGS, disk.file_mode, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Corrupt(path, Flaw("not a plain file; links are not followed")) from None
        raise


def _size(fd: int, path: str) -> int:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise Corrupt(path, Flaw("not a plain file"))
    return info.st_size


def _append(disk: Disk, fd: int, size: int, lines: bytes, made_in: str | None) -> None:
    is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    write_all(fd, [b"\n" + lines if is_torn else lines])
    disk.fsync(fd, "sync-log")
    if made_in is not None:  # a new name has to last too
        disk.sync_dirs([made_in])


def _take_back(fd: int, size: int, parent: int, made: str | None) -> None:
    try:
        os.ftruncate(fd, size)
        if made is not None:
            os.unlink(made, dir_fd=parent)
    except OSError as error:  # what failed first is what the caller hears of
        log.warning("a log could not be cut back to the %d bytes it had: %s", size, error)
