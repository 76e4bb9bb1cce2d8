"""Agent records, `state/agents/<id>.json`: pruning them by age and number.

Only `created_at` of a record matters here. A record that cannot be parsed or has no valid
`created_at` is never pruned. Records are moved to the trash in batches, one commit per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import Commit, IndexRefresh
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.to_trash import to_trash
from store.disk.file import Stamp
from store.errors import Corrupt
from store.index.database import now_ns
from store.model.timestamp import Timestamp
from store.sessions.delete import apply_plan
from store.sessions.prune import Keep, expired
from store.workspace.state import State

CATEGORY = "agents"
BATCH = 100


class AgentRecord(NamedTuple):
    name: str
    path: str
    created_at: Timestamp
    stamp: Stamp  # of the version that was read


class AgentToDelete(NamedTuple):
    record: AgentRecord
    reason: str


@dataclass(frozen=True)
class AgentPlan:
    """Records to delete, oldest first."""

    to_delete: tuple[AgentToDelete, ...]
    unreadable: tuple[str, ...]  # always kept
    kept: int


def plan_agents(records: Sequence[AgentRecord], keep: Keep, now: int, unreadable: Sequence[str] = ()) -> AgentPlan:
    """Plan to delete the records beyond the limits of `keep`, by creation time. Pure."""
    ordered = sorted(records, key=lambda record: (record.created_at.ns, record.name), reverse=True)
    found = expired(ordered, lambda record: record.created_at, keep, now, "created {} days ago")
    to_delete = tuple(AgentToDelete(record, reason) for record, reason in found)
    return AgentPlan(to_delete, tuple(unreadable), len(records) - len(to_delete))


@dataclass(frozen=True)
class Agents:
    core: Core
    commits: Commits
    state: State

    def plan(self, keep: Keep) -> AgentPlan:
        """What `apply` would delete. Changes nothing."""
        records, unreadable = [], []
        for name in dict.fromkeys(self.state.names(CATEGORY)):
            path = f"{layout.STATE}/{CATEGORY}/{name}.json"
            stamp = self.core.disk.stamp(path)
            if stamp is None:
                continue  # a Markdown document of that name
            created_at = self._created_at(name)
            if created_at is None:
                unreadable.append(name)
            else:
                records.append(AgentRecord(name, path, created_at, stamp))
        return plan_agents(records, keep, now_ns(), unreadable)

    def _created_at(self, name: str) -> Timestamp | None:
        try:
            value = self.state.load_json(CATEGORY, name)
            return Timestamp(value["created_at"])
        except (Corrupt, PermissionError, ValueError, TypeError, KeyError):
            return None

    def apply(
        self, plan: AgentPlan, *, batch: int = BATCH, progress: Callable[[int, int], None] | None = None
    ) -> list[str]:
        """Delete the records of a plan, except those that changed since.

        Returns the names of the deleted.
        """
        self.core.check_writable()
        records = [planned.record for planned in plan.to_delete]
        size = max(batch, 1)
        batches = [records[start : start + size] for start in range(0, len(records), size)]

        def report(done: int, total: int) -> None:
            if progress is not None:
                progress(min(done * size, len(records)), len(records))

        return apply_plan(batches, self._delete, report)

    @repeats
    def _delete(self, records: Sequence[AgentRecord]) -> list[str]:
        location = layout.state_location(CATEGORY)
        with self.core.locked(location):
            unchanged = [record for record in records if self.core.disk.stamp(record.path) == record.stamp]
            if unchanged:
                self._commit([record.path for record in unchanged])
        return [record.name for record in unchanged]

    def _commit(self, paths: Sequence[str]) -> None:
        location = layout.state_location(CATEGORY)
        part = to_trash(location, "agent records pruned", moved=paths, numbered=True)
        self.commits.run(Commit(location, part.files, part.moves, part.dirs), IndexRefresh(documents=paths), "state")
