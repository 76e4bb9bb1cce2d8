"""Clean up sessions by kind: all, the empty ones, or all children.

A plan lists the sessions to delete, so it can be shown before it is applied. Applying it checks
each session again under the lock of its tree.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from store.commit.core import Core
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.sessions.delete import DeleteOperations, ancestors, apply_plan

CleanupMode = Literal["all", "empty", "children"]


@dataclass(frozen=True)
class Plan:
    """Sessions to delete. The descendants of a listed root are listed too."""

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


def plan_cleanup(
    entries: Iterable[tuple[Location, IndexEntry]],
    mode: CleanupMode,
    *,
    keep_pinned: bool,
    only_system: Container[Location] = (),
) -> Plan:
    """Plan to delete every session (`all`), every empty one (`empty`) or every child. Pure.

    A session that is kept keeps its ancestors. Pinned sessions are kept, and in mode `empty` the
    sessions that are not empty: an empty root is not a reason to delete the work of its children.
    A session is empty without messages, or if it is in `only_system`: its only message is a system prompt.
    """
    if mode not in get_args(CleanupMode):  # any other value would act like "all"
        raise ValueError(f"mode: expected one of {', '.join(get_args(CleanupMode))}, got {mode!r}")
    known = dict(entries)
    kept: set[Location] = set()
    for location, entry in known.items():
        if (keep_pinned and entry.pinned) or (mode == "empty" and entry.message_count and location not in only_system):
            kept.add(location)
            kept.update(ancestors(location, known))
    candidates = (location for location in known if mode != "children" or location.child is not None)
    return Plan(mode, keep_pinned, tuple(location for location in candidates if location not in kept))


@dataclass(frozen=True)
class Cleanup:
    core: Core
    deleter: DeleteOperations

    def plan(self, mode: CleanupMode, *, keep_pinned: bool) -> Plan:
        only_system = self.core.index.with_lone_system_prompt()
        return plan_cleanup(self.core.index.all_entries(), mode, keep_pinned=keep_pinned, only_system=only_system)

    def apply(self, plan: Plan, progress: Callable[[int, int], None] | None = None) -> CleanupResult:
        """Delete the sessions of a plan, except those pinned or no longer empty since."""
        self.core.check_writable()
        planned = set(plan.to_delete)
        gone: set[Location] = set()

        def delete(location: Location) -> list[Location]:
            if location in gone:  # with its root
                return []
            deleted = self.deleter.delete_if(location, is_agreed)
            gone.update(deleted)
            return deleted

        def is_agreed(known: dict[Location, IndexEntry], deleted: list[Location]) -> bool:
            only_system = self.core.index.with_lone_system_prompt()
            current = plan_cleanup(known.items(), plan.mode, keep_pinned=plan.keep_pinned, only_system=only_system)
            # The user agreed to the sessions in the plan: a descendant added since is not deleted.
            return all(loc in planned and loc in current.to_delete for loc in deleted)

        roots_first = sorted(plan.to_delete, key=lambda loc: (loc.root, loc.child or ""))
        found = apply_plan(roots_first, delete, progress)
        return CleanupResult(len(found), sorted(location.id for location in found))
