"""What may go, and why: plans that can be shown before they are carried out. Pure.

A plan names sessions; it removes nothing. Whoever applies it looks at each session once more under its
lock, for a plan may be old by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from store.layout import Location
from store.models import IndexEntry

CleanupMode = Literal["all", "empty", "children"]

EMPTY_MESSAGES = 1  # a session with nothing but its system prompt


@dataclass(frozen=True)
class Plan:
    """Sessions to delete. Those under a doomed root go with it, but are named all the same."""

    mode: CleanupMode
    keep_pinned: bool
    doomed: tuple[Location, ...]

    @property
    def session_ids(self) -> list[str]:
        return sorted(location.id for location in self.doomed)


@dataclass(frozen=True)
class CleanupResult:
    deleted_count: int
    deleted_session_ids: list[str]


def is_empty(entry: IndexEntry) -> bool:
    return entry.message_count <= EMPTY_MESSAGES


def plan_cleanup(entries: Iterable[tuple[Location, IndexEntry]], mode: CleanupMode, *, keep_pinned: bool) -> Plan:
    """Everything (`all`), what holds nothing (`empty`), or every child (`children`); pinned ones stay.

    Whatever must stay keeps its ancestors too. In mode `empty` a session that holds something is such a
    one: an empty root is no reason to delete the work of its children.
    """
    known = dict(entries)
    stay: set[Location] = set()
    for location, entry in known.items():
        if (keep_pinned and entry.pinned) or (mode == "empty" and not is_empty(entry)):
            stay.add(location)
            stay.update(ancestors(location, known))
    doomed = [
        location for location in known if location not in stay and (mode != "children" or location.child is not None)
    ]
    return Plan(mode, keep_pinned, tuple(doomed))


def ancestors(location: Location, known: Mapping[Location, IndexEntry]) -> set[Location]:
    """The chain of parents, and the root, in whose directory every descendant lies."""
    if location.child is None:
        return set()
    found = {Location(location.root)}
    entry = known.get(location)
    while entry is not None and entry.parent_session_id not in (None, location.root):
        parent = Location(location.root, entry.parent_session_id)
        if parent in found:  # a circle of parents, made by hand
            break
        found.add(parent)
        entry = known.get(parent)
    return found


def descendants(location: Location, known: Mapping[Location, IndexEntry]) -> list[Location]:
    """All sessions below one, at any depth: those that deleting it takes along."""
    if location.child is None:
        return [other for other in known if other.root == location.root and other != location]
    return [other for other in known if other != location and location in ancestors(other, known)]
