"""Value types of the disk layer: a file as read, a file to be written, an entry of a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

# A file that changed this shortly before it was read may change again without a new timestamp.
RACY_NS = 50_000_000


class Stamp(NamedTuple):
    """Identifies one version of a file."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> Stamp:
        return cls(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def if_settled(self, now_ns: int) -> Stamp:
        """This stamp, or one that matches no file if the file changed just before `now_ns`.

        Git does the same for racily clean index entries.
        """
        return self if now_ns - max(self.mtime_ns, self.ctime_ns) > RACY_NS else self._replace(ctime_ns=0)


def is_same_content(one: Stamp | None, other: Stamp | None) -> bool:
    """Whether two stamps are of the same bytes. The ctime does not count: chmod and chown change it."""
    return one == other or (one is not None and other is not None and one[:3] == other[:3])


class File(NamedTuple):
    """The content, stamp, mode and owner of one version of a file."""

    data: bytes
    stamp: Stamp
    mode: int
    uid: int
    gid: int
    start: int = 0  # where `data` begins, if only the end of the file was read


class Temp(NamedTuple):
    """A finished file under tmp/, still open.

    It is no longer written; a commit renames it into place.
    """

    fd: int
    path: str


class NewFile(NamedTuple):
    """A file to be written. It takes mode and owner of `like`, the version it replaces."""

    path: str
    content: Iterable[bytes | memoryview] | Temp  # an iterable is consumed once
    like: File | None = None
    mtime_ns: int | None = None
    mode: int | None = None  # overrides the mode of `like`
    owner: tuple[int, int] | None = None  # user and group id; overrides the owner of `like`
    # The content follows this number of bytes of `like`, the file that is now at `path`. Where the
    # filesystem can share blocks between files, they are neither read nor written.
    kept_bytes: int = 0
    text: bytes | None = None  # what a temporary file contains, if the caller has read it


def storable_mode(mode: int, present: os.stat_result | None = None) -> int:
    """The permission bits that the store accepts: never set-user-id or set-group-id.

    A directory keeps a set-group-id bit that it has: it only gives new files their group.
    """
    kept = stat.S_ISGID if present is not None and stat.S_ISDIR(present.st_mode) else 0
    return mode & (0o1777 | (present.st_mode & kept if present is not None else 0))


class DirEntry(NamedTuple):
    """Name and type of a directory entry; symbolic links are not followed."""

    name: str
    is_dir: bool
    is_file: bool
    is_symlink: bool
