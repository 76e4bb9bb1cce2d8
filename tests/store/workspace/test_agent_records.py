"""Agent records: pruning by age and number, in batches."""

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


# -- planning --------------------------------------------------------------------------------------


def test_records_are_planned_by_age_and_number() -> None:
    """By creation time, oldest first."""
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


# -- applying --------------------------------------------------------------------------------------


def test_a_plan_is_applied_in_batches(store: Store, home: Path) -> None:
    """Each batch is one commit and one trash slot, and is removed from search. Planning changes nothing."""
    for number in range(7):
        add(store, f"agent-{number}", 100 + number)
    add(store, "young", 1)
    plan = store.prune.plan_agents(Keep(days=30))
    assert len(plan.to_delete) == 7
    assert len(store.state.names("agents")) == 8
    cursor = store.feed.since().cursor
    seen: list[tuple[int, int]] = []
    deleted = store.prune.apply(plan, batch=3, progress=lambda done, total: seen.append((done, total)))
    assert deleted == [f"agent-{number}" for number in reversed(range(7))]
    assert store.state.names("agents") == ["young"]
    assert [c.what for c in store.feed.since(cursor).items] == ["state"] * 3
    assert seen == [(3, 7), (6, 7), (7, 7)]
    assert [len(slot.moves) for slot in store.trash.deleted()] == [1, 3, 3]
    assert store.state.indexed() == ["state/agents/young.json"]


def test_a_pruned_batch_can_be_restored(store: Store) -> None:
    add(store, "a", 100)
    add(store, "b", 100)
    store.prune.apply(store.prune.plan_agents(Keep(days=30)))
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.state.names("agents") == ["a", "b"]


def test_unreadable_records_are_never_pruned(store: Store, home: Path) -> None:
    """Without a valid created_at, or not an object. Markdown documents are not records."""
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


def test_records_changed_after_planning_are_kept(store: Store) -> None:
    add(store, "a", 100)
    add(store, "b", 100)
    plan = store.prune.plan_agents(Keep(days=30))
    add(store, "a", 100, status="Running")
    store.state.delete("agents", "b")
    assert store.prune.apply(plan) == []
    assert store.state.names("agents") == ["a"]


def test_planning_without_records_creates_nothing(store: Store) -> None:
    assert store.prune.plan_agents(Keep(days=30)).to_delete == ()
    assert not (store.home / "state/agents").exists()


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_all_records_are_pruned_with_any_batch_size(store: Store, batch: int) -> None:
    for number in range(5):
        add(store, f"a{number}", 100)
    assert len(store.prune.apply(store.prune.plan_agents(Keep(days=30)), batch=batch)) == 5
