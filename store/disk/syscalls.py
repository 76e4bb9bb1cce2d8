"""System calls missing from Python 3.11: openat2, statx (creation time), renameat2 (exchange), FICLONE.

Each takes directory descriptors and names, and raises OSError like the functions of `os`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: opening a FIFO must not block
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_PATH_MAX = 4096  # of one system call; programs go deeper step by step
_RENAME_EXCHANGE = 2
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_BENEATH_NO_LINKS = 0x08 | 0x04 | 0x02  # BENEATH, NO_SYMLINKS, NO_MAGICLINKS
_FICLONE = 0x40049409
_CANNOT_CLONE = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM})
_directory_how = _OpenHow(_DIRECTORY, 0, _RESOLVE_BENEATH_NO_LINKS)
TO_READ = _OpenHow(READ, 0, _RESOLVE_BENEATH_NO_LINKS)
_how_bytes = ctypes.c_size_t(ctypes.sizeof(_OpenHow))


def open_beneath(fd: int, path: str, how: _OpenHow = _directory_how) -> int:
    """Open a path below the directory `fd` without following symbolic links.

    One openat2 call; without openat2, or for a path longer than PATH_MAX, component by component.
    """
    raw = os.fsencode(path)
    opened: int = _libc.syscall(_OPENAT2, fd, raw, ctypes.byref(how), _how_bytes)
    if opened >= 0:
        return opened
    number = ctypes.get_errno()
    if number == errno.ENAMETOOLONG and len(raw) >= _PATH_MAX:
        return _open_by_steps(fd, path, how.flags)
    if number not in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a seccomp filter of a container
        raise OSError(number, os.strerror(number), path)
    return _open_by_steps(fd, path, how.flags)


def _open_by_steps(fd: int, path: str, flags: int = _DIRECTORY) -> int:
    fd = os.dup(fd)
    names = path.split("/")
    for number, name in enumerate(names, start=1):
        try:
            deeper = os.open(name, flags if number == len(names) else _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


def birth_ns(parent: int, name: str) -> int | None:
    """Creation time of a file; None if it is not recorded."""
    answer = (ctypes.c_uint64 * 32)()
    failed = _libc.statx(parent, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, ctypes.byref(answer))
    if failed or not answer[0] & _STATX_BTIME:
        return None
    return int(answer[10]) * 10**9 + (int(answer[11]) & 0xFFFFFFFF)


def exchange(one_dir: int, one: str, other_dir: int, other: str) -> None:
    """Exchange two names atomically."""
    if _libc.renameat2(one_dir, os.fsencode(one), other_dir, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one)


def clone_file(source: int, target: int) -> bool:
    """Let a file share all blocks of another one, as XFS and btrfs can. False if the filesystem cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT_CLONE:
            return False
        raise
    return True


def syncfs(fd: int) -> None:
    """Sync everything on the filesystem of an open file or directory."""
    if _libc.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
