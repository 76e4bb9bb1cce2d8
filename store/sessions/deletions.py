"""Deletions as a user sees them: groups of trash slots, selected by name. Pure.

`rm -r` on a mount deletes a tree file by file, and each file gets a slot. Consecutive deletions
of one session form one group. It is named by its last slot, the session's id, or its title.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from store.disk.trash import FILE_DELETIONS, FILE_REPLACED, HIDDEN_DELETED, LOG_REPLACED, TrashSlot
from store.errors import NotFound
from store.sessions.match_name import match_name, match_one

PAUSE_NS = 10 * 10**9  # longest time between two unlinks of one `rm -r`, on a slow machine
_SINGLE = ("document deleted", *FILE_DELETIONS)  # a file in it
# Reasons of slots whose files were replaced by better ones, or which nobody misses. A session's
# name never selects them.
_NEVER_BY_NAME = (
    HIDDEN_DELETED,
    *(FILE_REPLACED, LOG_REPLACED, "displaced", "replaced by a restore", "leftover"),
    *("bad sidecar", "sidecar replaced", "unreadable record replaced"),
)


class DeletionGroup(NamedTuple):
    """Slots of one deletion, the last first: the order in which they are restored."""

    slots: tuple[TrashSlot, ...]

    @property
    def last(self) -> TrashSlot:
        return self.slots[0]

    @property
    def is_session(self) -> bool:
        """Whether a session was deleted, with its files, and not only files of it."""
        return self.last.is_session

    @property
    def paths(self) -> list[str]:
        return [original for slot in self.slots for original, _ in slot.moves]

    @property
    def what(self) -> str:
        """Description of the deletion, with the numbers of children and files that belong to it."""
        if len(self.slots) == 1:
            return self.last.what
        if not self.is_session:
            return f"{len(self.slots)} files deleted"
        children = sum(slot.is_session for slot in self.slots[1:])
        files = sum(slot.what in FILE_DELETIONS for slot in self.slots)
        counts = ((children, "child" if children == 1 else "children"), (files, "file" if files == 1 else "files"))
        along = " and ".join(f"{count} {noun}" for count, noun in counts if count)
        return f"deleted, with {along}" if along else "deleted"


def group_deletions(slots: Sequence[TrashSlot]) -> list[DeletionGroup]:
    """Group slots, given newest first. The groups are ordered by their last slot, newest first."""
    by_root: dict[str, list[TrashSlot]] = {}
    for slot in slots:
        by_root.setdefault(slot.session_id.partition("/")[0], []).append(slot)
    found = {group.last.name: group for tree in by_root.values() for group in _groups_of_tree(tree)}
    return [found[slot.name] for slot in slots if slot.name in found]


def _groups_of_tree(slots: list[TrashSlot]) -> Iterator[DeletionGroup]:
    taken: set[str] = set()
    for number, last in enumerate(slots):
        if last.name not in taken:
            more = tuple(_same_burst((s for s in slots[number + 1 :] if s.name not in taken), last))
            taken.update(slot.name for slot in more)
            yield DeletionGroup((last, *more))


def _same_burst(older: Iterable[TrashSlot], last: TrashSlot) -> Iterator[TrashSlot]:
    """Deletions in the same session, and below it, that precede `last` without a pause.

    A session can be deleted, created again and deleted again within seconds. What is older than
    the earlier deletion belongs to the earlier session, even if the names are the same.
    """
    if not last.is_session and last.what not in _SINGLE:
        return
    is_whole, before_ns = last.is_session, last.deleted_at_ns
    seen = {original for original, _ in last.moves}
    replaced: set[str] = set()  # children whose older slots belong to a child of the same name
    for slot in older:
        if slot.is_session and _is_in(last.session_id, slot.session_id):
            return
        is_below = is_whole and _is_in(slot.session_id, last.session_id)
        if slot.session_id != last.session_id and not is_below:
            continue
        if slot.what not in _SINGLE and (not slot.is_session or not is_below):
            continue
        if before_ns - slot.deleted_at_ns > PAUSE_NS:
            return
        originals = {original for original, _ in slot.moves}
        if slot.is_session and originals & seen:
            replaced.add(slot.session_id)
        if slot.session_id in replaced or originals & seen:
            continue
        seen |= originals
        before_ns = slot.deleted_at_ns
        yield slot


def _is_in(session_id: str, above: str) -> bool:
    """Whether a session is `above` or one of its descendants."""
    return session_id == above or session_id.startswith(f"{above}/")


def find_deletion(groups: Sequence[DeletionGroup], name: str) -> DeletionGroup:
    """Find a deletion by the name of a slot, an original path, or the name of a session.

    Of several deletions of one session, the latest. Raises NotFound, or Ambiguous if the name
    matches several sessions.
    """
    for group in groups:
        if group.last.name == name:
            return group
    for slot in (slot for group in groups for slot in group.slots):
        if name == slot.name or name in (original for original, _ in slot.moves):
            return DeletionGroup((slot,))
    if name.strip():
        deleted = [group for group in groups if any(slot.what not in _NEVER_BY_NAME for slot in group.slots)]
        found = match_one(name, deleted, _session_id, _title)
        if found is not None:
            return found
    raise _not_found(groups, name)


def _session_id(group: DeletionGroup) -> str:
    return group.last.session_id


def _title(group: DeletionGroup) -> str:
    return group.last.title


def _not_found(groups: Sequence[DeletionGroup], name: str) -> NotFound:
    replaced = match_name(name, groups, _session_id, _title)
    if not replaced:
        return NotFound(f"there is no {name!r} in the trash; `grovefs trash` lists its contents")
    slot = replaced[0].last
    return NotFound(
        f"{name!r} was not deleted; the trash only has a replaced version ({slot.what}). "
        f"To restore that one: `grovefs undelete {slot.name}`"
    )
