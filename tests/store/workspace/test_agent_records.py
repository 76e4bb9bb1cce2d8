"""Agent records: old ones go by a plan, in batches, to the trash."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from store import Keep, Store, Timestamp
from store.disk.file import Stamp
from store.sessions.prune import DAY_NS
from store.workspace.agent_records import AgentRecord, plan_agents

NOW_NS = 1_000 * DAY_NS


def record(name: str, age_days: float) -> AgentRecord:
    moment = Timestamp.from_ns(NOW_NS - int(age_days * DAY_NS))
    return AgentRecord(name, f"state/agents/{name}.json", moment, Stamp(1, 1, 1, 1))


def add(store: Store, name: str, age_days: float, **members: Any) -> None:
    moment = Timestamp.from_ns(time.time_ns() - int(age_days * DAY_NS))
    agent = {"id": name, "name": name, "status": "Completed", "created_at": moment, "steps_completed": 0}
    store.state.save_json("agents", name, agent | members)


# -- the plan ------------------------------------------------------------------------------------------------


def test_the_oldest_go_by_age_and_by_number() -> None:
    """By when they were made, the oldest first."""
    records = [record("a", 1), record("b", 50), record("c", 40), record("d", 2)]
    by_age = plan_agents(records, Keep(days=30), NOW_NS)
    assert [(d.record.name, d.reason) for d in by_age.to_delete] == [
        ("b", "created 50 days ago"),
        ("c", "created 40 days ago"),
    ]
    by_number = plan_agents(records, Keep(newest=1), NOW_NS)
    assert [d.record.name for d in by_number.to_delete] == ["b", "c", "d"]
    assert (by_age.kept, by_number.kept) == (2, 1)
    assert plan_agents([], Keep(newest=1), NOW_NS).to_delete == ()


# -- on disk -------------------------------------------------------------------------------------------------


def test_a_plan_changes_nothing_and_is_carried_out_in_batches(store: Store, home: Path) -> None:
    """Each batch is one commit and one slot of the trash; search forgets them too."""
    for number in range(7):
        add(store, f"agent-{number}", 100 + number)
    add(store, "young", 1)
    plan = store.prune.plan_agents(Keep(days=30))
    assert len(plan.to_delete) == 7
    assert len(store.state.names("agents")) == 8
    cursor = store.feed.since().cursor
    seen: list[tuple[int, int]] = []
    gone = store.prune.apply(plan, batch=3, progress=lambda done, total: seen.append((done, total)))
    assert gone == [f"agent-{number}" for number in reversed(range(7))]
    assert store.state.names("agents") == ["young"]
    assert [c.what for c in store.feed.since(cursor).items] == ["state"] * 3
    assert seen == [(3, 7), (6, 7), (7, 7)]
    assert [len(slot.moves) for slot in store.trash.deleted()] == [1, 3, 3]
    assert store.state.indexed() == ["state/agents/young.json"]


def test_a_batch_can_be_had_back(store: Store) -> None:
    """Deleted is not gone."""
    add(store, "a", 100)
    add(store, "b", 100)
    store.prune.apply(store.prune.plan_agents(Keep(days=30)))
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.state.names("agents") == ["a", "b"]


def test_what_cannot_be_read_is_never_pruned(store: Store, home: Path) -> None:
    """Broken, without a moment, with a wrong one, or no object at all; markdown is nobody's record."""
    add(store, "old", 100)
    add(store, "undated", 100, created_at=5)
    add(store, "odd", 100, created_at="long ago")
    store.state.save_json("agents", "list", [1, 2])
    store.state.save_markdown("agents", "notes", "by hand")
    plan = store.prune.plan_agents(Keep(newest=1, days=1))
    assert [d.record.name for d in plan.to_delete] == ["old"]
    assert plan.unreadable == ("list", "odd", "undated")
    store.prune.apply(plan)
    assert store.state.names("agents") == ["list", "notes", "odd", "undated"]


def test_a_record_that_changed_since_the_plan_stays(store: Store) -> None:
    """A person agreed to another one."""
    add(store, "a", 100)
    add(store, "b", 100)
    plan = store.prune.plan_agents(Keep(days=30))
    add(store, "a", 100, status="Running")
    store.state.delete("agents", "b")
    assert store.prune.apply(plan) == []
    assert store.state.names("agents") == ["a"]


def test_without_agents_there_is_nothing_to_do(store: Store) -> None:
    """No directory is made by looking."""
    assert store.prune.plan_agents(Keep(days=30)).to_delete == ()
    assert not (store.home / "state/agents").exists()


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_any_size_of_batch_takes_all(store: Store, batch: int) -> None:
    for number in range(5):
        add(store, f"a{number}", 100)
    assert len(store.prune.apply(store.prune.plan_agents(Keep(days=30)), batch=batch)) == 5
