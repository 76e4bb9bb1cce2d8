"""The trash: deleted files, kept for seven days.

A deleted session is moved to a slot under `.grovefs/trash/`. The slot holds its directories,
numbered, and `info.json` with their original paths. Slots of single attachments, records and logs
expire earlier, oldest first, once they exceed KEPT_BYTES or KEPT_FILES in total.
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
KEPT_BYTES = 1 << 30  # of single files: a program that creates and deletes many must not fill the disk
KEPT_FILES = 10_000  # single files: each has a directory of its own
INFO = "info.json"
SESSION_DELETED = "deleted"  # TrashSlot.what of a session's directory
# Values of TrashSlot.what for single files.
# Programs delete hidden files and backups of editors all the time. A session's name never selects
# them alone, but they come back with their session.
HIDDEN_DELETED = "hidden or backup file deleted"
FILE_DELETIONS = ("record deleted", "attachment deleted", "log deleted", "file deleted", HIDDEN_DELETED)
FILE_REPLACED = "attachment replaced"
LOG_REPLACED = "log replaced"


class TrashSlot(NamedTuple):
    """One deletion in the trash: its name, time, kind and moves."""

    name: str
    deleted_at_ns: int
    session_id: str
    what: str
    moves: list[tuple[str, str]]  # original path → path in the slot
    title: str = ""  # of the session, if known

    @property
    def is_session(self) -> bool:
        """Whether it holds the directory of a session, not single files of it."""
        return self.what == SESSION_DELETED


def new_slot(location: Location) -> str:
    """A unique path for a new slot. Its name sorts by time and contains the session id."""
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
    raw = json.dumps(info, indent=2).encode()  # ASCII escapes: file names may not be valid UTF-8
    return NewFile(f"{slot}/{INFO}", [raw])


def move_top_level(disk: Disk, name: str, source: str | None = None) -> None:
    """Move a file at the top of the home, or `source` under its name, to the trash.

    No session owns it, so its slot has no info.json and cannot be restored by name.
    """
    slot = new_slot(Location(name))
    disk.make_dirs(slot)
    disk.move(source or name, f"{slot}/{name}")


def list_slots(disk: Disk) -> list[TrashSlot]:
    """All slots that can be restored, newest first."""
    found = [find_slot(disk, name) for name in reversed(disk.directories(layout.TRASH))]
    return [slot for slot in found if slot is not None]


def find_slot(disk: Disk, name: str) -> TrashSlot | None:
    """A slot by its name; None if it has been restored already or its info.json is damaged."""
    try:
        file = disk.read(f"{layout.TRASH}/{name}/{INFO}")
        info = json.loads(file.data) if file else {"moves": []}
        kept = [(source, f"{layout.TRASH}/{name}/{target.rpartition('/')[2]}") for source, target in info["moves"]]
        moves = [move for move in kept if disk.stat(move[1]) is not None]
        title = str(info.get("title") or "")
        return TrashSlot(name, info["deleted_at_ns"], info["session_id"], info["what"], moves, title) if moves else None
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s/%s is ignored: its %s is damaged: %s", layout.TRASH, name, INFO, error)
        return None


def purge(disk: Disk, kept_days: float = KEPT_DAYS) -> int:
    """Delete slots older than `kept_days`; returns their number.

    Requires exclusive use of the home.
    """
    count = 0
    for name in filter(_older_than(kept_days), disk.directories(layout.TRASH)):
        try:
            disk.remove_tree(f"{layout.TRASH}/{name}")
        except OSError as error:  # the home can be opened all the same
            log.warning("cannot delete an expired trash slot: %s", error)
            continue
        count += 1
    return count


def _older_than(days: float) -> Callable[[str], bool]:
    """A predicate on slot names, which start with the time of deletion."""
    horizon = f"{time.time_ns() - int(days * 86_400e9):020d}"
    return lambda name: name.partition("-")[0].isdigit() and name < horizon


@dataclass
class TrashExpiry:
    """Finds expired slots. Slots never change, so each is read once and its size remembered."""

    disk: Disk
    kept_bytes: int = KEPT_BYTES
    kept_files: int = KEPT_FILES
    _sizes: dict[str, int] = field(init=False, default_factory=dict)  # by slot name; 0: expires by age only

    def expired(self) -> list[str]:
        """The names of the slots to delete now."""
        names = self.disk.directories(layout.TRASH)
        self._sizes = {name: self._sizes[name] if name in self._sizes else self._size(name) for name in names}
        is_old = _older_than(KEPT_DAYS)
        total = count = 0
        expired: list[str] = []
        for name in reversed(names):
            total += self._sizes[name]
            count += self._sizes[name] > 0
            is_surplus = total > self.kept_bytes or count > self.kept_files
            if is_old(name) or (self._sizes[name] and is_surplus):
                expired.append(name)
        return expired

    def _size(self, name: str) -> int:
        slot = find_slot(self.disk, name)
        if slot is None or slot.what not in (*FILE_DELETIONS, FILE_REPLACED, LOG_REPLACED):
            return 0
        return sum(info.st_size for _, kept in slot.moves if (info := self.disk.stat(kept)) is not None)
