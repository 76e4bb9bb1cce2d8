"""Reader: a user of the machine, and which files of the home this user could read.

`may_read` decides it for everything that is derived from sessions and shown to other users: the
views of a shared mount show a user a session only if its session.json would be readable.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from store import layout
from store.disk.disk import Disk


class Reader(NamedTuple):
    """A user and the groups of one of this user's processes."""

    uid: int
    gids: frozenset[int]


def may_read(disk: Disk, reader: Reader, path: str) -> bool:
    """Whether the modes allow the reader to read a file, or the session.json of a session's directory.

    The mode of the home itself does not count: a mount shows what is in it, not the home.
    """
    location, rest = layout.locate_path(path) or (None, "")
    file = location.path(layout.SESSION) if location is not None and not rest else path
    parts = file.split("/")
    folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return all(_allows(disk, reader, folder, stat.S_IXOTH) for folder in folders) and _allows(
        disk, reader, file, stat.S_IROTH
    )


def _allows(disk: Disk, reader: Reader, path: str, bit: int) -> bool:
    """As the kernel decides: the bits of the owner, of the group or of others, whichever applies first."""
    info = disk.stat(path)
    return info is not None and bool(info.st_mode & (bit << _shift(reader, info)))


def _shift(reader: Reader, info: os.stat_result) -> int:
    if info.st_uid == reader.uid:
        return 6
    return 3 if info.st_gid in reader.gids else 0
