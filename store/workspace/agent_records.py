"""Agent records, `state/agents/<id>.json` (FORMATS F.3), and how old ones go: by a plan, in batches, to the trash.

Of a record only `created_at` matters here. One that cannot be read, or does not say when it was made, is never pruned.
A batch is one commit: after a crash all of it is gone, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.journal import Commit
from store.commit.to_trash import to_trash
from store.disk.file import Stamp
from store.errors import Corrupt
from store.index import fulltext
from store.index.database import now_ns
from store.model.timestamp import Timestamp
from store.sessions.prune_plan import Keep, age_reason
from store.workspace.state import State

CATEGORY = "agents"
BATCH = 100


class AgentRecord(NamedTuple):
    name: str
    path: str
    created_at: Timestamp
    stamp: Stamp  # of the file as it was looked at


class AgentToDelete(NamedTuple):
    record: AgentRecord
    reason: str


@dataclass(frozen=True)
class AgentPlan:
    """Records that may go, the oldest first."""

    to_delete: tuple[AgentToDelete, ...]
    unreadable: tuple[str, ...]  # which stay, whatever they are
    kept: int


def plan_agents(records: Sequence[AgentRecord], keep: Keep, now: int, unreadable: Sequence[str] = ()) -> AgentPlan:
    """What is beyond the newest, or older than the days, by when it was made. Pure."""
    ordered = sorted(records, key=lambda record: (record.created_at.ns, record.name), reverse=True)
    reasons = [age_reason(place, r.created_at, keep, now, "made {} days ago") for place, r in enumerate(ordered)]
    found = reversed([*zip(ordered, reasons, strict=True)])
    doomed = [AgentToDelete(record, reason) for record, reason in found if reason is not None]
    return AgentPlan(tuple(doomed), tuple(unreadable), len(records) - len(doomed))


@dataclass(frozen=True)
class Agents:
    core: Core
    commits: Commits
    state: State

    def plan(self, keep: Keep) -> AgentPlan:
        """What would go; nothing is changed."""
        records, unreadable = [], []
        for name in dict.fromkeys(self.state.names(CATEGORY)):
            path = f"{layout.STATE}/{CATEGORY}/{name}.json"
            stamp = self.core.disk.stamp(path)
            if stamp is None:
                continue  # markdown of that name
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
        """Carry a plan out; the names of those that went. One that changed since is left alone."""
        self.core.check_writable()
        gone: list[str] = []
        for done, some in enumerate(_batches(plan.to_delete, batch)):
            gone += self._delete([doomed.record for doomed in some])
            if progress is not None:
                progress(min((done + 1) * batch, len(plan.to_delete)), len(plan.to_delete))
        return gone

    def _delete(self, records: Sequence[AgentRecord]) -> list[str]:
        location = layout.state_location(CATEGORY)
        with self.core.locked(location):
            same = [record for record in records if self.core.disk.stamp(record.path) == record.stamp]
            if same:
                paths = [record.path for record in same]
                part = to_trash(location, "agent records pruned", moved=paths, numbered=True)

                def follow(db: apsw.Connection) -> None:
                    for path in paths:
                        fulltext.remove_document(db, path)

                self.commits.run(Commit(location, part.files, part.moves, part.dirs), follow, "state")
        return [record.name for record in same]


def _batches(doomed: Sequence[AgentToDelete], size: int) -> list[Sequence[AgentToDelete]]:
    return [doomed[start : start + size] for start in range(0, len(doomed), max(size, 1))]
