"""What was deleted lately, and how to have it back.

A deleted session is moved, never erased at once: a slot under `.grovefs/trash/` holds its directories,
numbered, and `info.json`, which says where each of them belongs. Slots are emptied after seven days.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from store import layout
from store.atomic import Disk, NewFile
from store.errors import Corrupt
from store.layout import Location

log = logging.getLogger("grovefs.store")

KEPT_DAYS = 7
_INFO = "info.json"


class Deleted(NamedTuple):
    """One deletion: its name in the trash, when it was, and what went where."""

    name: str
    deleted_at_ns: int
    session_id: str
    what: str
    moves: list[tuple[str, str]]  # from the home into the slot


def new_slot(location: Location) -> str:
    """A path of its own for one deletion; its name sorts by time and tells a person what it is."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", location.id)[:80]
    return f"{layout.TRASH}/{time.time_ns():020d}-{readable}-{uuid.uuid4().hex[:8]}"


def info_file(slot: str, location: Location, what: str, moves: Sequence[tuple[str, str]]) -> NewFile:
    info: dict[str, Any] = {
        "session_id": str(location),
        "what": what,
        "deleted_at_ns": time.time_ns(),
        "moves": [list(move) for move in moves],
    }
    return NewFile(f"{slot}/{_INFO}", [orjson.dumps(info, option=orjson.OPT_INDENT_2)])


def deleted(disk: Disk) -> list[Deleted]:
    """What can still be had back, the newest first."""
    found = [_parse(disk, name) for name in reversed(disk.directories(layout.TRASH))]
    return [slot for slot in found if slot is not None]


def _parse(disk: Disk, name: str) -> Deleted | None:
    """None for a slot that nothing can be had back from: it was put back already, or its note is broken."""
    try:
        file = disk.read(f"{layout.TRASH}/{name}/{_INFO}")
        info = orjson.loads(file.data) if file else {"moves": []}
        kept = [(source, f"{layout.TRASH}/{name}/{target.rpartition('/')[2]}") for source, target in info["moves"]]
        moves = [move for move in kept if disk.stat(move[1]) is not None]
        return Deleted(name, info["deleted_at_ns"], info["session_id"], info["what"], moves) if moves else None
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s/%s is left alone: its %s is broken: %s", layout.TRASH, name, _INFO, error)
        return None


def purge(disk: Disk, kept_days: float = KEPT_DAYS) -> int:
    """Erase what was deleted longer ago than that; returns how many slots went."""
    horizon_ns = time.time_ns() - int(kept_days * 86_400e9)
    count = 0
    for name in disk.directories(layout.TRASH):
        stamp, _, _ = name.partition("-")
        if stamp.isdigit() and int(stamp) < horizon_ns:
            try:
                disk.remove_tree(f"{layout.TRASH}/{name}")
            except OSError as error:  # no reason not to open the home
                log.warning("the trash cannot be emptied: %s", error)
                continue
            count += 1
    return count
