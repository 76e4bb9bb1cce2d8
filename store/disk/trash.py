"""What was deleted lately, and how to have it back.

A deleted session is moved, never erased at once: a slot under `.grovefs/trash/` holds its directories,
numbered, and `info.json`, which says where each of them belongs. Slots are emptied after seven days; those of single
attachments and logs earlier, the oldest first, where there are too many bytes of them.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from store import layout
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.errors import Corrupt
from store.layout import Location

log = logging.getLogger("grovefs.store")

KEPT_DAYS = 7
KEPT_BYTES = 1 << 30  # of single files: a program that makes and deletes them all day must not fill the disk
INFO = "info.json"
BESIDE = ("record deleted", "attachment deleted", "log deleted")


class TrashSlot(NamedTuple):
    """One deletion: its name in the trash, when it was, and what went where."""

    name: str
    deleted_at_ns: int
    session_id: str
    what: str
    moves: list[tuple[str, str]]  # from the home into the slot
    title: str = ""  # of the session, where it was known


def new_slot(location: Location) -> str:
    """A path of its own for one deletion; its name sorts by time and tells a person what it is."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", location.id)[:80]
    return f"{layout.TRASH}/{time.time_ns():020d}-{readable}-{uuid.uuid4().hex[:8]}"


def info_file(
    slot: str, location: Location, what: str, moves: Sequence[tuple[str, str]], title: str | None = None
) -> NewFile:
    info: dict[str, Any] = {
        "session_id": str(location),
        **({"title": title} if title else {}),
        "what": what,
        "deleted_at_ns": time.time_ns(),
        "moves": [list(move) for move in moves],
    }
    return NewFile(f"{slot}/{INFO}", [json.dumps(info, indent=2).encode()])  # names may be no UTF-8: in escapes


def move_top_level(disk: Disk, name: str, source: str | None = None) -> None:
    """Move a file at the top of the home, or `source` under its name, to the trash.

    No session owns it, so its slot has no info.json and cannot be restored by name.
    """
    slot = new_slot(Location(name))
    disk.make_dirs(slot)
    disk.move(source or name, f"{slot}/{name}")


def deleted(disk: Disk) -> list[TrashSlot]:
    """What can still be had back, the newest first."""
    found = [find(disk, name) for name in reversed(disk.directories(layout.TRASH))]
    return [slot for slot in found if slot is not None]


def find(disk: Disk, name: str) -> TrashSlot | None:
    """A slot by its name; None if nothing can be had back from it: that was done already, or its note is broken."""
    try:
        file = disk.read(f"{layout.TRASH}/{name}/{INFO}")
        info = json.loads(file.data) if file else {"moves": []}
        kept = [(source, f"{layout.TRASH}/{name}/{target.rpartition('/')[2]}") for source, target in info["moves"]]
        moves = [move for move in kept if disk.stat(move[1]) is not None]
        title = str(info.get("title") or "")
        return TrashSlot(name, info["deleted_at_ns"], info["session_id"], info["what"], moves, title) if moves else None
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s/%s is left alone: its %s is broken: %s", layout.TRASH, name, INFO, error)
        return None


def purge(disk: Disk, kept_days: float = KEPT_DAYS) -> int:
    """Erase what was deleted longer ago than that, by one who is alone with the home; returns how many slots went."""
    count = 0
    for name in filter(_older_than(kept_days), disk.directories(layout.TRASH)):
        try:
            disk.remove_tree(f"{layout.TRASH}/{name}")
        except OSError as error:  # no reason not to open the home
            log.warning("the trash cannot be emptied: %s", error)
            continue
        count += 1
    return count


def _older_than(days: float) -> Callable[[str], bool]:
    """Whether a slot is, by its name."""
    horizon = f"{time.time_ns() - int(days * 86_400e9):020d}"
    return lambda name: name.partition("-")[0].isdigit() and name < horizon


@dataclass
class TrashExpiry:
    """Which slots have had their time, asked again and again: each is looked into only once, for it does not change."""

    disk: Disk
    kept_bytes: int = KEPT_BYTES
    _sizes: dict[str, int] = field(init=False, default_factory=dict)  # of single files, by slot; 0: only age counts

    def names(self) -> list[str]:
        names = self.disk.directories(layout.TRASH)
        self._sizes = {name: self._sizes[name] if name in self._sizes else self._size(name) for name in names}
        is_old = _older_than(KEPT_DAYS)
        total = 0
        expired: list[str] = []
        for name in reversed(names):
            total += self._sizes[name]
            if is_old(name) or (self._sizes[name] and total > self.kept_bytes):
                expired.append(name)
        return expired

    def _size(self, name: str) -> int:
        slot = find(self.disk, name)
        if slot is None or slot.what not in BESIDE:
            return 0
        return sum(info.st_size for _, kept in slot.moves if (info := self.disk.stat(kept)) is not None)
