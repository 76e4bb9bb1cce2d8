"""Entry replies that show another inode number than the node's.

A reply to lookup or readdir names the node and describes its attributes. These are two members of
`struct fuse_entry_param`, `ino` and `attr.st_ino`, which pyfuse3 can only set both at once. So the
second one is written here in memory, at a place found and verified at import. Where pyfuse3 is
built differently nothing is written: only getattr, a reply without a node, shows the number then.
"""

from __future__ import annotations

import ctypes
import sys

from pyfuse3 import EntryAttributes

_MARK, _OTHER = 0x5A17_C0DE_0BAD_F00D, 0x1234_5678_9ABC_DEF0
_DISTANCE = 24  # ino, generation, attr.st_dev: 64 bits each


def _find_offset() -> int | None:
    """The place of `attr.st_ino` in the object; None if it is not where the struct has it."""
    probe = EntryAttributes()
    probe.st_ino = _MARK
    raw = ctypes.string_at(id(probe), probe.__sizeof__())
    places = [at for at in range(0, len(raw) - 7, 8) if raw[at : at + 8] == _MARK.to_bytes(8, sys.byteorder)]
    if len(places) != 2 or places[1] - places[0] != _DISTANCE:
        return None
    ctypes.c_uint64.from_address(id(probe) + places[1]).value = _OTHER
    return places[1] if probe.st_ino == _MARK else None


_OFFSET = _find_offset()
CAN_SHOW_NUMBERS = _OFFSET is not None


def show_number(attrs: EntryAttributes, number: int) -> None:
    """Set the inode number that stat(2) and readdir(3) report. The reply still names the same node."""
    if _OFFSET is not None:
        ctypes.c_uint64.from_address(id(attrs) + _OFFSET).value = number
