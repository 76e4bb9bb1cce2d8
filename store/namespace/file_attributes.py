"""Mode, owner and times of files in a home, changed without following links."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from store.disk.disk import Disk
from store.disk.file import storable_mode
from store.path_kinds import PathInfo


def has_attributes(info: os.stat_result | None, mode: int | None, owner: tuple[int, int] | None) -> bool:
    """Whether a file exists and has this mode and owner; None stands for any."""
    if info is None:
        return False
    is_mode = mode is None or stat.S_IMODE(info.st_mode) == stat.S_IMODE(mode)
    return is_mode and owner in (None, (info.st_uid, info.st_gid))


def change_attributes(
    disk: Disk,
    place: PathInfo,
    mode: int | None,
    times_ns: tuple[int, int] | None,
    owner: tuple[int, int] | None,
) -> None:
    """chown, chmod and utimens; None leaves an attribute as it is."""
    with disk.open_dir(place.path.rpartition("/")[0]) as parent:
        if owner is not None:
            os.chown(place.name, *owner, dir_fd=parent, follow_symlinks=False)
        if mode is not None:
            change_mode(place, mode, parent)
        if times_ns is not None:
            os.utime(place.name, ns=times_ns, dir_fd=parent, follow_symlinks=False)


def change_mode(place: PathInfo, mode: int, parent: int) -> None:
    """Change the mode through a descriptor: chmod follows links, and a link may replace the file."""
    fd = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        info = os.fstat(fd)
        if stat.S_ISLNK(info.st_mode):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), place.path)
        os.chmod(f"/proc/self/fd/{fd}", storable_mode(mode, info))
    finally:
        os.close(fd)


def create_file(name: str, flags: int, mode: int, *, dir_fd: int) -> int:
    """Open a file, which is created if it does not exist. The umask of this process does not count."""
    while True:
        try:
            fd = os.open(name, flags | os.O_EXCL, 0o600, dir_fd=dir_fd)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            with suppress(FileNotFoundError):  # removed meanwhile
                return os.open(name, flags & ~os.O_CREAT, dir_fd=dir_fd)
        else:
            os.fchmod(fd, storable_mode(mode))
            return fd
