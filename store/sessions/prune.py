"""Prune sessions by age and number.

Pruning moves whole trees to the trash. A plan is made from the index and can be shown before it
is applied; applying it checks each tree again under its lock. Automatic pruning runs only if the
store was opened with it. It has a cooldown shared by all processes and never deletes every session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from store.commit.core import Core
from store.errors import Busy
from store.index.database import now_ns
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.timestamp import Timestamp
from store.sessions.delete import DeleteOperations, apply_plan

log = logging.getLogger("grovefs.store")

COOLDOWN_S = 3600.0
DAY_NS = 86_400 * 10**9

Item = TypeVar("Item")


@dataclass(frozen=True)
class Keep:
    """What to keep: items changed within `days`, and at most the `newest` of them.

    None: no limit.
    """

    days: float | None = None
    newest: int | None = None

    def __post_init__(self) -> None:
        if self.days is None and self.newest is None:
            raise ValueError("pass days, newest or both: there is no default for what to keep")
        if self.days is not None and not 0 < self.days < float("inf"):
            raise ValueError(f"days must be finite and greater than 0, got {self.days}; None keeps all")
        if self.newest is not None and self.newest < 1:
            raise ValueError(f"newest must be at least 1, got {self.newest}; None keeps all")


class PrunedTree(NamedTuple):
    """A root with its descendants, and the reason why it is deleted, protected or left."""

    root: Location
    title: str
    updated_at: Timestamp  # the latest in the tree
    sessions: tuple[Location, ...]
    reason: str


@dataclass(frozen=True)
class PrunePlan:
    """Trees to delete, oldest first."""

    keep: Keep
    to_delete: tuple[PrunedTree, ...]
    protected: tuple[PrunedTree, ...]  # beyond the limits too, but a session in them prevents it
    kept: int  # number of all other trees

    @property
    def session_count(self) -> int:
        return sum(len(tree.sessions) for tree in self.to_delete)


class PruneResult(NamedTuple):
    deleted: list[Location]
    left: list[PrunedTree]  # planned, but changed since or locked


class AutoPrune(NamedTuple):
    """Settings of automatic pruning. `keep` has no default: none would be right for everyone."""

    keep: Keep
    cooldown_s: float = COOLDOWN_S
    all_hosts: bool = False  # in a grove pruning deletes on every host, so it does nothing there unless asked


def expired(
    newest_first: Sequence[Item], moment: Callable[[Item], Timestamp], keep: Keep, now: int, words: str
) -> Iterator[tuple[Item, str]]:
    """The items beyond the limits of `keep`, oldest first, each with the reason.

    `words` describes the age: "created {} days ago".
    """
    for number in reversed(range(len(newest_first))):
        item = newest_first[number]
        age_ns = now - moment(item).ns
        if keep.days is not None and age_ns > int(keep.days * DAY_NS):
            yield item, words.format(age_ns // DAY_NS)
        elif keep.newest is not None and number >= keep.newest:
            yield item, f"beyond the {keep.newest} newest"


class _Tree(NamedTuple):
    root: Location
    updated_at: Timestamp
    members: dict[Location, IndexEntry]


def plan_prune(
    entries: Iterable[tuple[Location, IndexEntry]],
    keep: Keep,
    now: int,
    unreadable: Collection[Location] = (),
) -> PrunePlan:
    """Plan to delete whole trees beyond the limits of `keep`. Pure.

    The age of a tree is that of its latest change. A tree with a pinned session is protected,
    because that session and its ancestors stay; so is a tree with an unreadable session, because
    its age and contents are unknown.
    """
    trees = sorted(_trees(entries), key=lambda tree: (tree.updated_at.ns, tree.root.root), reverse=True)
    with_unreadable = {location.root for location in unreadable}
    to_delete: list[PrunedTree] = []
    protected: list[PrunedTree] = []
    for found, reason in expired(trees, lambda tree: tree.updated_at, keep, now, "not changed for {} days"):
        sessions = tuple(sorted(found.members, key=str))
        tree = PrunedTree(found.root, found.members[found.root].title, found.updated_at, sessions, reason)
        pinned = [location for location in sessions if found.members[location].pinned]
        if pinned:
            protected.append(tree._replace(reason=f"{pinned[0]} is pinned"))
        elif found.root.root in with_unreadable:
            protected.append(tree._replace(reason="a session in it cannot be read"))
        else:
            to_delete.append(tree)
    kept = len(trees) - len(to_delete) - len(protected)
    return PrunePlan(keep, tuple(to_delete), tuple(protected), kept)


def _trees(entries: Iterable[tuple[Location, IndexEntry]]) -> Iterable[_Tree]:
    """All trees that have a root; children without a root are not part of any."""
    found: dict[str, dict[Location, IndexEntry]] = {}
    for location, entry in entries:
        found.setdefault(location.root, {})[location] = entry
    for root, members in found.items():
        if Location(root) in members:
            latest = max((entry.updated_at for entry in members.values()), key=lambda moment: moment.ns)
            yield _Tree(Location(root), latest, members)


def is_unchanged(tree: PrunedTree, current: Mapping[Location, IndexEntry]) -> bool:
    """Whether a tree is as planned: no session was added, changed or pinned."""
    if tree.root not in current or not set(current) <= set(tree.sessions):
        return False
    latest = max(entry.updated_at.ns for entry in current.values())
    return latest == tree.updated_at.ns and not any(entry.pinned for entry in current.values())


@dataclass(frozen=True)
class Pruner:
    core: Core
    deleter: DeleteOperations

    def plan(self, keep: Keep) -> PrunePlan:
        """What `apply` would delete. Changes nothing."""
        return plan_prune(self.core.index.all_entries(), keep, now_ns(), self.core.index.damaged())

    def apply(self, plan: PrunePlan, progress: Callable[[int, int], None] | None = None) -> PruneResult:
        """Delete the trees of a plan, except those that changed since or are locked."""
        self.core.check_writable()
        left: list[PrunedTree] = []

        def delete(tree: PrunedTree) -> list[Location]:
            try:
                deleted = self._delete_tree(tree)
            except Busy:
                left.append(tree._replace(reason="it is locked by another writer"))
                return []
            if not deleted:
                left.append(tree._replace(reason="it changed since the plan was made"))
            return deleted

        return PruneResult(apply_plan(plan.to_delete, delete, progress), left)

    def _delete_tree(self, tree: PrunedTree) -> list[Location]:
        def is_agreed(current: dict[Location, IndexEntry], deleted: list[Location]) -> bool:
            # An unreadable session has no entry: a tree with one is left.
            return set(deleted) <= set(current) and is_unchanged(tree, current)

        return self.deleter.delete_if(tree.root, is_agreed)

    def is_due(self, cooldown_s: float) -> bool:
        """Whether the cooldown since the last automatic run is over; if so, start it again.

        The time is stored in index.db, so it holds for all processes. A time in the future, after
        the clock was set back, counts as over.
        """
        now = now_ns()
        with self.core.db.write():
            last = self.core.db.get_meta("pruned_ns", 0)
            if last <= now < last + int(cooldown_s * 1e9):
                return False
            self.core.db.set_meta(pruned_ns=now)
        return True

    def run_if_due(self, auto: AutoPrune) -> PruneResult | None:
        """Prune automatically. Returns None during the cooldown, or if no session would be left.

        In a grove it returns None unless `auto` says that it may delete on all hosts.
        """
        if self.core.agreement.is_joined and not auto.all_hosts:
            return None
        if not self.is_due(auto.cooldown_s):
            return None
        plan = self.plan(auto.keep)
        if plan.to_delete and not plan.kept:
            log.warning("automatic pruning skipped: it would delete every session. Is the clock right?")
            return None
        result = self.apply(plan)
        if result.deleted:
            log.info("pruned %d sessions; they are in the trash", len(result.deleted))
        return result
