"""Value types of the disk layer: a file as read, a file to be written, an entry of a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

# A file changed this shortly before it was looked at may change again without its times showing it.
RACY_NS = 50_000_000


class Stamp(NamedTuple):
    """What tells one version of a file from another."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> Stamp:
        return cls(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def if_settled(self, now_ns: int) -> Stamp:
        """Itself if old enough to be trusted, else a stamp that equals no file's (racy-git's rule)."""
        return self if now_ns - max(self.mtime_ns, self.ctime_ns) > RACY_NS else self._replace(ctime_ns=0)


class File(NamedTuple):
    """One version of a file as it was read."""

    data: bytes
    stamp: Stamp
    mode: int
    uid: int
    gid: int


class NewFile(NamedTuple):
    """A file to be put in place; `like` is the version it replaces, whose mode and owner it takes."""

    path: str
    parts: Iterable[bytes | memoryview]  # gone through once
    like: File | None = None
    mtime_ns: int | None = None
    mode: int | None = None  # instead of that of `like`


class DirEntry(NamedTuple):
    """What a directory says of one of its names; a link is only a link."""

    name: str
    is_dir: bool
    is_file: bool
    is_symlink: bool
