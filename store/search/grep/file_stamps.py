"""What tells one version of a file from another, packed; and whether a hundred thousand files are as they were.

A stamp holds what statx(2) says of a file, in its order: inode, size, ctime, mtime. So the answers to many
questions can be compared with many stamps at once, a column at a time. `grovefs grep` asks through this module.
"""

from __future__ import annotations

import os
import struct
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STAMP = struct.Struct("=QQqQqQ")
NEVER = bytes(_STAMP.size)  # the stamp of no file
# A file changed this shortly before it was looked at may change again without its times showing it.
_RACY_NS = 50_000_000
_SECOND_NS = 1_000_000_000

_AT_A_TIME = 512  # files; if one of them differs, each is looked at again
_ANSWER_BYTES = 256  # struct statx
_COLUMNS = (4, 5, 12, 13, 14, 15)  # of its 64-bit words: as in a stamp; the fields of seconds are padded with zeros
_STAMP_WORDS, _ANSWER_WORDS = _STAMP.size // 8, _ANSWER_BYTES // 8
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_WANTED = 0x100 | 0x200 | 0x80 | 0x40  # inode, size, ctime, mtime


def pack(info: os.stat_result) -> bytes:
    """A stamp, as the tables have it."""
    changed, modified = divmod(info.st_ctime_ns, _SECOND_NS), divmod(info.st_mtime_ns, _SECOND_NS)
    return _STAMP.pack(info.st_ino, info.st_size, *changed, *modified)


def pack_if_settled(info: os.stat_result, now_ns: int) -> bytes:
    """The stamp, or one that equals no file's, if it may change again unnoticed (racy-git's rule)."""
    return pack(info) if now_ns - max(info.st_mtime_ns, info.st_ctime_ns) > _RACY_NS else NEVER


def changed_paths(prefix: bytes, rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Of paths with the stamps they had, those that have another now, or cannot be looked at."""
    ask, answers, words = _bind_statx()
    found = []
    for start in range(0, len(rows), _AT_A_TIME):
        some = rows[start : start + _AT_A_TIME]
        paths = [prefix + path for path, _ in some]
        wanted = memoryview(b"".join([stamp for _, stamp in some]))
        failed = sum(map(ask, repeat(_AT_FDCWD), paths, repeat(_AT_SYMLINK_NOFOLLOW), repeat(_WANTED), answers))
        if failed or len(wanted) != len(some) * _STAMP.size or not _agree(wanted.cast("Q"), words, len(some)):
            found += [path for path, stamp in some if not _is(prefix + path, stamp)]
    return found


def _agree(wanted: memoryview, words: memoryview, number: int) -> bool:
    end = number * _ANSWER_WORDS
    return all(wanted[i::_STAMP_WORDS] == words[c:end:_ANSWER_WORDS] for i, c in enumerate(_COLUMNS))


def _is(path: bytes, stamp: bytes) -> bool:
    try:
        return pack(os.lstat(path)) == stamp
    except OSError:  # gone, or out of reach: to be looked at again either way
        return False


def _bind_statx() -> tuple[Callable[..., int], list[object], memoryview]:
    """statx(2), a buffer for each of its results, and all buffers as 64-bit words.

    `os.lstat` would build an object with twenty fields for each result. PyDLL keeps the GIL, which costs
    less than releasing it for every call. ctypes is imported only here: grep needs it only without a
    freshness server.
    """
    from ctypes import PyDLL, c_char

    room = bytearray(_AT_A_TIME * _ANSWER_BYTES)
    answer = c_char * _ANSWER_BYTES
    answers: list[object] = [answer.from_buffer(room, at) for at in range(0, len(room), _ANSWER_BYTES)]
    return PyDLL(None).statx, answers, memoryview(room).cast("Q")
