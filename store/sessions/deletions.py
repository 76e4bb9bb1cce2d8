"""Deletions as people made them, and what people call them.

A filesystem takes a tree away name by name, each into a slot of its own; what went in one go of the same session is one
deletion to a person, and has a name to people: that of its last slot, the session's id, or its title.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from store.disk.trash import BESIDE, TrashSlot
from store.errors import Ambiguous, NotFound

PAUSE_NS = 10 * 10**9  # between two names that one `rm -r` takes away, on a slow machine
# A session's directory, and what of it a filesystem takes away by itself.
_WHOLE = "deleted"
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
