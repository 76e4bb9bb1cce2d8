"""Let go of old sessions: always by a plan, and by itself only where someone asked for that.

What goes, goes to the trash. A plan is made from the index; each tree in it is looked at once more, alone with it,
before it goes. Automatic pruning rests for a while after each run, whoever ran it, and never takes everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from store.commit.core import Core
from store.errors import Busy
from store.index.database import now_ns
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.sessions import prune_plan
from store.sessions.delete import DeleteOperations
from store.sessions.prune_plan import Keep, PrunedTree, PrunePlan

log = logging.getLogger("grovefs.store")

COOLDOWN_S = 3600.0


class AutoPrune(NamedTuple):
    """What a store may prune by itself, and how long it rests in between. There is no default: none is right."""

    keep: Keep
    cooldown_s: float = COOLDOWN_S


class PruneResult(NamedTuple):
    deleted: list[Location]
    left: list[PrunedTree]  # in the plan, but no longer what was agreed on, or in use


@dataclass(frozen=True)
class Pruner:
    core: Core
    remover: DeleteOperations

    def plan(self, keep: Keep) -> PrunePlan:
        """What would go, and what is spared; nothing is changed."""
        entries = self.core.index.all_entries()
        return prune_plan.plan_prune(entries, keep, now_ns(), self.core.index.damaged())

    def apply(self, plan: PrunePlan, progress: Callable[[int, int], None] | None = None) -> PruneResult:
        """Carry a plan out; a tree that is not any more what the plan saw, or that someone works on, is left alone."""
        self.core.check_writable()
        deleted: list[Location] = []
        left: list[PrunedTree] = []
        for done, tree in enumerate(plan.to_delete):
            try:
                gone = self.remover.delete_if(tree.root, partial(_is_agreed, tree))
            except Busy:
                left.append(tree._replace(reason="someone is working on it"))
            else:
                deleted += gone
                left += [] if gone else [tree._replace(reason="it changed since the plan was made")]
            if progress is not None:
                progress(done + 1, len(plan.to_delete))
        return PruneResult(deleted, left)

    def is_due(self, cooldown_s: float) -> bool:
        """Whether the rest since the last automatic run is over; if so, it begins anew. One for all processes."""
        now = now_ns()
        with self.core.db.write():
            last = self.core.db.get_meta("pruned_ns", 0)
            if last <= now < last + int(cooldown_s * 1e9):
                return False
            self.core.db.set_meta(pruned_ns=now)
        return True

    def run_if_due(self, auto: AutoPrune) -> PruneResult | None:
        """Prune by itself; None if it is resting, or if that would leave nothing."""
        if not self.is_due(auto.cooldown_s):
            return None
        plan = self.plan(auto.keep)
        if plan.to_delete and not plan.kept:
            log.warning("not pruned: not one session is new enough to be kept. Is the clock right?")
            return None
        result = self.apply(plan)
        if result.deleted:
            log.info("pruned %d sessions, which are in the trash for now", len(result.deleted))
        return result


def _is_agreed(tree: PrunedTree, known: dict[Location, IndexEntry], going: list[Location]) -> bool:
    """Those that go are all known, so that none of them is one that cannot be read."""
    return set(going) <= set(known) and prune_plan.is_unchanged(tree, known)
