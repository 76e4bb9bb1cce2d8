"""Packed file stamps, and a fast check whether a hundred thousand files still have theirs.

A stamp holds inode, size, ctime and mtime, in the order of struct statx. So the results of many statx(2)
calls can be compared with many stamps at once, column by column. `grovefs grep` uses this: few imports.
"""

from __future__ import annotations

import os
import struct
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STAMP = struct.Struct("=QQqQqQ")
NEVER = bytes(_STAMP.size)  # equals no file's stamp
# A file that changed this recently may change again without a change of its times.
_RACY_NS = 50_000_000
_SECOND_NS = 1_000_000_000

_BATCH = 512  # files; if one of them differs, each is compared by itself
_STATX_BYTES = 256  # sizeof(struct statx)
_COLUMNS = (4, 5, 12, 13, 14, 15)  # 64-bit words of struct statx, as in a stamp; nanoseconds are padded with zeros
_STAMP_WORDS, _STATX_WORDS = _STAMP.size // 8, _STATX_BYTES // 8
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_MASK = 0x100 | 0x200 | 0x80 | 0x40  # inode, size, ctime, mtime


def pack(info: os.stat_result) -> bytes:
    """The stamp of a file, as stored in index.db."""
    changed, modified = divmod(info.st_ctime_ns, _SECOND_NS), divmod(info.st_mtime_ns, _SECOND_NS)
    return _STAMP.pack(info.st_ino, info.st_size, *changed, *modified)


def pack_if_settled(info: os.stat_result, now_ns: int) -> bytes:
    """The stamp, or NEVER if the file may change again unnoticed (git's racy rule)."""
    return pack(info) if now_ns - max(info.st_mtime_ns, info.st_ctime_ns) > _RACY_NS else NEVER


def changed_paths(prefix: bytes, rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The paths of `rows` (path, stamp) that have another stamp now, or cannot be examined."""
    statx, buffers, words = _bind_statx()
    found = []
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        paths = [prefix + path for path, _ in some]
        expected = memoryview(b"".join([stamp for _, stamp in some]))
        failed = sum(map(statx, repeat(_AT_FDCWD), paths, repeat(_AT_SYMLINK_NOFOLLOW), repeat(_MASK), buffers))
        if failed or len(expected) != len(some) * _STAMP.size or not _agree(expected.cast("Q"), words, len(some)):
            found += [path for path, stamp in some if not _has_stamp(prefix + path, stamp)]
    return found


def _agree(expected: memoryview, words: memoryview, count: int) -> bool:
    end = count * _STATX_WORDS
    return all(expected[i::_STAMP_WORDS] == words[c:end:_STATX_WORDS] for i, c in enumerate(_COLUMNS))


def _has_stamp(path: bytes, stamp: bytes) -> bool:
    try:
        return pack(os.lstat(path)) == stamp
    except OSError:  # deleted or unreadable: grep has to examine it either way
        return False


def _bind_statx() -> tuple[Callable[..., int], list[object], memoryview]:
    """statx(2), a buffer for each of its results, and all buffers as 64-bit words.

    `os.lstat` would build an object with twenty fields for each result. PyDLL keeps the GIL, which costs
    less than releasing it for every call. ctypes is imported only here: grep needs it only without a
    freshness server.
    """
    from ctypes import PyDLL, c_char

    memory = bytearray(_BATCH * _STATX_BYTES)
    struct_statx = c_char * _STATX_BYTES
    buffers: list[object] = [struct_statx.from_buffer(memory, at) for at in range(0, len(memory), _STATX_BYTES)]
    return PyDLL(None).statx, buffers, memoryview(memory).cast("Q")
