"""What was deleted lately, and how to have it back.

A deleted session is moved, never erased at once: a slot under `.grovefs/trash/` holds its directories,
numbered, and `info.json`, which says where each of them belongs. Slots are emptied after seven days; those of single
attachments and logs earlier, the oldest first, where there are too many bytes of them.

A filesystem takes a tree away name by name, each into a slot of its own; what went in one go of the same session is one
deletion to a person, and has a name to people: that of its last slot, the session's id, or its title.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from store import layout
from store.disk.disk import Disk, NewFile
from store.errors import Ambiguous, Corrupt, NotFound
from store.layout import Location

log = logging.getLogger("grovefs.store")

KEPT_DAYS = 7
KEPT_BYTES = 1 << 30  # of single files: a program that makes and deletes them all day must not fill the disk
_INFO = "info.json"


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
    return NewFile(f"{slot}/{_INFO}", [json.dumps(info, indent=2).encode()])  # names may be no UTF-8: in escapes


def deleted(disk: Disk) -> list[TrashSlot]:
    """What can still be had back, the newest first."""
    found = [find(disk, name) for name in reversed(disk.directories(layout.TRASH))]
    return [slot for slot in found if slot is not None]


def find(disk: Disk, name: str) -> TrashSlot | None:
    """A slot by its name; None if nothing can be had back from it: that was done already, or its note is broken."""
    try:
        file = disk.read(f"{layout.TRASH}/{name}/{_INFO}")
        info = json.loads(file.data) if file else {"moves": []}
        kept = [(source, f"{layout.TRASH}/{name}/{target.rpartition('/')[2]}") for source, target in info["moves"]]
        moves = [move for move in kept if disk.stat(move[1]) is not None]
        title = str(info.get("title") or "")
        return TrashSlot(name, info["deleted_at_ns"], info["session_id"], info["what"], moves, title) if moves else None
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s/%s is left alone: its %s is broken: %s", layout.TRASH, name, _INFO, error)
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


# -- what people call it -----------------------------------------------------------------------------------

PAUSE_NS = 10 * 10**9  # between two names that one `rm -r` takes away, on a slow machine
# A session's directory, and what of it a filesystem takes away by itself.
_WHOLE = "deleted"
BESIDE = ("record deleted", "attachment deleted", "log deleted")
_SINGLE = ("document deleted", *BESIDE)
# What something better has taken the place of: nobody means it who wants a session back.
_REPLACED = (
    *("displaced", "replaced by a restore", "leftover"),
    *("bad sidecar", "sidecar replaced", "unreadable record replaced"),
)


class DeletionGroup(NamedTuple):
    """What went in one go: its slots, the last one first, as they have to come back."""

    slots: tuple[TrashSlot, ...]

    @property
    def last(self) -> TrashSlot:
        return self.slots[0]

    @property
    def paths(self) -> list[str]:
        return [original for slot in self.slots for original, _ in slot.moves]

    @property
    def what(self) -> str:
        """In words: what happened, and what went along by itself."""
        if len(self.slots) == 1:
            return self.last.what
        if self.last.what != _WHOLE:
            return f"{len(self.slots)} files deleted"
        children = sum(slot.what == _WHOLE for slot in self.slots[1:])
        files = sum(slot.what in BESIDE for slot in self.slots)
        counts = ((children, "child" if children == 1 else "children"), (files, "file" if files == 1 else "files"))
        along = " and ".join(f"{count} {noun}" for count, noun in counts if count)
        return f"deleted, with {along}" if along else "deleted"


def group_deletions(slots: Sequence[TrashSlot]) -> list[DeletionGroup]:
    """Deletions as people made them, the newest first, of slots in that order. Pure."""
    by_root: dict[str, list[TrashSlot]] = {}
    for slot in slots:
        by_root.setdefault(slot.session_id.partition("/")[0], []).append(slot)
    found = {deletion.last.name: deletion for tree in by_root.values() for deletion in _of_one_tree(tree)}
    return [found[slot.name] for slot in slots if slot.name in found]


def _of_one_tree(slots: list[TrashSlot]) -> Iterator[DeletionGroup]:
    taken: set[str] = set()
    for place, last in enumerate(slots):
        if last.name not in taken:
            more = tuple(_same_burst((s for s in slots[place + 1 :] if s.name not in taken), last))
            taken.update(slot.name for slot in more)
            yield DeletionGroup((last, *more))


def _same_burst(older: Iterable[TrashSlot], last: TrashSlot) -> Iterator[TrashSlot]:
    """What was deleted of the same session, and below it, just before, with no pause between."""
    if last.what != _WHOLE and last.what not in _SINGLE:
        return
    is_whole, before_ns = last.what == _WHOLE, last.deleted_at_ns
    for slot in older:
        is_below = is_whole and slot.session_id.startswith(f"{last.session_id}/")
        if slot.session_id != last.session_id and not is_below:
            continue
        if slot.what not in _SINGLE and (slot.what != _WHOLE or not is_below):
            continue
        if before_ns - slot.deleted_at_ns > PAUSE_NS:
            return
        before_ns = slot.deleted_at_ns
        yield slot


def find_deletion(deletions: Sequence[DeletionGroup], name: str) -> DeletionGroup:
    """The one that a person means: by its name in the trash, a path, or as sessions are named everywhere. Of several
    deletions of one session the latest."""
    for deletion in deletions:
        if deletion.last.name == name:
            return deletion
    for slot in (slot for deletion in deletions for slot in deletion.slots):
        if name == slot.name or name in (original for original, _ in slot.moves):
            return DeletionGroup((slot,))
    named = _called(deletions, name)
    found = [deletion for deletion in named if deletion.last.what not in _REPLACED]
    if named and not found:
        raise NotFound(
            f"{name!r} was not deleted; the trash only has what was replaced ({named[0].what}), "
            f"which its own name brings back: `grovefs undelete {named[0].last.name}`"
        )
    if not found:
        raise NotFound(f"there is no {name!r} in the trash; `grovefs trash` lists what is")
    if len({deletion.last.session_id for deletion in found}) > 1:
        raise Ambiguous(name, {deletion.last.session_id for deletion in found})
    return found[0]


def _called(deletions: Sequence[DeletionGroup], name: str) -> list[DeletionGroup]:
    """An id that is there is meant as it stands; else a beginning of one, or a title, in any case."""
    wanted = _folded(name)
    if not wanted:
        return []
    exact = [d for d in deletions if name in (d.last.session_id, d.last.session_id.rpartition("/")[2])]
    return exact or [d for d in deletions if _begins(d.last.session_id, name) or _folded(d.last.title) == wanted]


def _begins(session_id: str, name: str) -> bool:
    """Of `root/child` both may be shortened; a plain name is the beginning of an id."""
    parts, wanted = session_id.split("/"), name.split("/")
    shown = parts if len(wanted) > 1 else parts[-1:]
    return len(shown) == len(wanted) and all(map(str.startswith, shown, wanted))


def _folded(title: str) -> str:
    return " ".join(title.split()).casefold()
