"""What may go, and why: plans that can be shown before they are carried out. Pure.

A plan names sessions; it removes nothing. Whoever applies it looks at each session once more under its
lock, for a plan may be old by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.timestamp import Timestamp

CleanupMode = Literal["all", "empty", "children"]

EMPTY_MESSAGES = 1  # a session with nothing but its system prompt


@dataclass(frozen=True)
class Plan:
    """Sessions to delete. Those under a doomed root go with it, but are named all the same."""

    mode: CleanupMode
    keep_pinned: bool
    to_delete: tuple[Location, ...]

    @property
    def session_ids(self) -> list[str]:
        return sorted(location.id for location in self.to_delete)


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
    if mode not in get_args(CleanupMode):  # anything else would count as "all"
        raise ValueError(f"mode: expected one of {', '.join(get_args(CleanupMode))}, got {mode!r}")
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


# -- by age and by number ------------------------------------------------------------------------------------

DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Keep:
    """What stays: trees changed within so many days, and no more than so many of them. None: no such limit."""

    days: float | None = None
    newest: int | None = None

    def __post_init__(self) -> None:
        if self.days is None and self.newest is None:
            raise ValueError("say what is to be kept: the last so many days, or the newest so many")
        if self.days is not None and not 0 < self.days < float("inf"):
            raise ValueError(f"{self.days} is no number of days to keep; None keeps all")
        if self.newest is not None and self.newest < 1:
            raise ValueError(f"{self.newest} is no number to keep; None keeps all")


class PrunedTree(NamedTuple):
    """A root with all its descendants, and why it may go; or why it stays though it might."""

    root: Location
    title: str
    updated_at: Timestamp  # the latest of all of them
    sessions: tuple[Location, ...]
    reason: str


@dataclass(frozen=True)
class PrunePlan:
    """Trees that may go, the oldest first. Nothing is gone before someone applies it."""

    keep: Keep
    to_delete: tuple[PrunedTree, ...]
    protected: tuple[PrunedTree, ...]  # these would go too, but for something in them
    kept: int  # the number of all other trees

    @property
    def session_count(self) -> int:
        return sum(len(tree.sessions) for tree in self.to_delete)


def plan_prune(
    entries: Iterable[tuple[Location, IndexEntry]],
    keep: Keep,
    now_ns: int,
    unreadable: Collection[Location] = (),
) -> PrunePlan:
    """What is beyond the newest, or older than the days. A tree goes as a whole or stays as a whole.

    It is as young as the youngest session in it. One with a pinned session stays, for that has to, and so have its
    ancestors; one with a session that cannot be read stays, for nobody knows what it is.
    """
    trees = sorted(_trees(entries), key=lambda tree: (tree[1].updated_at.ns, tree[0].root), reverse=True)
    doomed: list[PrunedTree] = []
    spared: list[PrunedTree] = []
    blind = {location.root for location in unreadable}
    for place, (root, newest, members) in enumerate(trees):
        reason = age_reason(place, newest.updated_at, keep, now_ns)
        if reason is None:
            continue
        tree = PrunedTree(root, members[root].title, newest.updated_at, tuple(sorted(members, key=str)), reason)
        pinned = [location for location in tree.sessions if members[location].pinned]
        if pinned:
            spared.append(tree._replace(reason=f"{pinned[0]} is pinned"))
        elif root.root in blind:
            spared.append(tree._replace(reason="a session in it cannot be read"))
        else:
            doomed.append(tree)
    kept = len(trees) - len(doomed) - len(spared)
    return PrunePlan(keep, tuple(reversed(doomed)), tuple(reversed(spared)), kept)


def _trees(
    entries: Iterable[tuple[Location, IndexEntry]],
) -> Iterable[tuple[Location, IndexEntry, dict[Location, IndexEntry]]]:
    """Root, youngest entry and all members of every tree. Children whose root is not there are in none."""
    found: dict[str, dict[Location, IndexEntry]] = {}
    for location, entry in entries:
        found.setdefault(location.root, {})[location] = entry
    for root, members in found.items():
        if Location(root) in members:
            yield Location(root), max(members.values(), key=lambda entry: entry.updated_at.ns), members


def age_reason(
    place: int, moment: Timestamp, keep: Keep, now_ns: int, words: str = "not changed for {} days"
) -> str | None:
    """Why something may go, given its moment and its place among the newest; None if it may not."""
    if keep.days is not None and moment.ns < now_ns - int(keep.days * DAY_NS):
        return words.format((now_ns - moment.ns) // DAY_NS)
    if keep.newest is not None and place >= keep.newest:
        return f"beyond the {keep.newest} newest"
    return None


def is_unchanged(tree: PrunedTree, now: Mapping[Location, IndexEntry]) -> bool:
    """Whether a tree still is what was agreed on: no session more, none changed, none pinned."""
    if tree.root not in now or not set(now) <= set(tree.sessions):
        return False
    latest = max(entry.updated_at.ns for entry in now.values())
    return latest == tree.updated_at.ns and not any(entry.pinned for entry in now.values())
