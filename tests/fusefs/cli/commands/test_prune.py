"""`grovefs prune`: lists the plan and deletes nothing without confirmation."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from store import Store, Timestamp
from store.sessions.prune import DAY_NS
from tests.builders import files_below, make_session
from tests.fusefs.cli.test_cli import grovefs


@pytest.fixture
def aged(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        for id, days in (("old", 100), ("older", 200), ("pinned", 300), ("new", 0)):
            moment = Timestamp.from_ns(time.time_ns() - days * DAY_NS)
            store.save(make_session(id, title=f"The {id} one", updated_at=moment, pinned=id == "pinned"))
    return home


def ids(home: Path) -> list[str]:
    with Store.open(home, background=False) as store:
        return store.ids()


def test_dry_run_lists_what_would_be_deleted_and_why(aged: Path) -> None:
    before = files_below(aged)
    result = grovefs(aged, "prune", "--days", "30", "--dry-run")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert [line.split("\t")[1:] for line in lines[:2]] == [
        ["older", "1 session", "not changed for 200 days", "The older one"],
        ["old", "1 session", "not changed for 100 days", "The old one"],
    ]
    assert lines[2:] == ["protected: pinned: pinned is pinned", "would delete 2 sessions, 1 root protected, 1 kept"]
    assert files_below(aged) == before


def test_nothing_is_deleted_without_confirmation(aged: Path) -> None:
    """Without a terminal it is a usage error."""
    result = grovefs(aged, "prune", "--keep", "1")
    assert result.returncode == 2
    assert "--yes" in result.stderr
    assert len(ids(aged)) == 4


def test_pruned_sessions_go_to_the_trash(aged: Path) -> None:
    result = grovefs(aged, "prune", "--keep", "2", "--yes")
    assert result.stdout.splitlines()[-1] == "deleted 1 session; `grovefs trash` lists what can be restored"
    assert ids(aged) == ["new", "old", "pinned"]
    with Store.open(aged, background=False) as store:
        assert [d.session_id for d in store.trash.deleted()] == ["older"]


def test_json_output(aged: Path) -> None:
    plan = json.loads(grovefs(aged, "prune", "--days", "150", "--dry-run", "--json").stdout)
    assert [tree["id"] for tree in plan["to_delete"]] == ["older"]
    assert (plan["protected"][0]["id"], plan["kept"], plan["deleted"]) == ("pinned", 2, None)
    done = json.loads(grovefs(aged, "prune", "--days", "150", "--yes", "--json").stdout)
    assert done["deleted"] == ["older"]
    none = json.loads(grovefs(aged, "prune", "--days", "150", "--yes", "--json").stdout)
    assert (none["to_delete"], none["deleted"]) == ([], None)


def test_every_limits_how_often_it_runs(aged: Path) -> None:
    first = grovefs(aged, "prune", "--days", "150", "--every", "3600")
    assert first.stdout == "deleted 1 session; `grovefs trash` lists what can be restored\n"
    second = grovefs(aged, "prune", "--days", "50", "--every", "3600", "--json")
    assert json.loads(second.stdout) == {"ran": False, "deleted": []}
    assert ids(aged) == ["new", "old", "pinned"]


def test_days_or_keep_is_required(aged: Path) -> None:
    for wrong in ([], ["--days", "0"], ["--keep", "0"], ["--days", "-1"], ["--days", "nan"]):
        assert grovefs(aged, "prune", *wrong, "--yes").returncode == 2, wrong
    assert len(ids(aged)) == 4


def test_agent_records_are_pruned(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for number, days in enumerate([0, 50, 60]):
            moment = Timestamp.from_ns(time.time_ns() - days * DAY_NS)
            store.state.save_json("agents", f"a{number}", {"id": f"a{number}", "created_at": moment})
        store.state.save_json("agents", "odd", [])
    shown = grovefs(home, "prune", "--agents", "--days", "30", "--dry-run").stdout.splitlines()
    assert [line.split("\t")[1:] for line in shown[:2]] == [
        ["a2", "created 60 days ago"],
        ["a1", "created 50 days ago"],
    ]
    assert shown[2].startswith("protected: odd:")
    assert shown[3] == "would delete 2 agent records, 1 protected, 1 kept"
    assert grovefs(home, "prune", "--agents", "--days", "30").returncode == 2
    done = json.loads(grovefs(home, "prune", "--agents", "--days", "30", "--yes", "--batch", "1", "--json").stdout)
    assert done["deleted"] == ["a2", "a1"]
    assert sorted(p.name for p in (home / "state/agents").iterdir()) == ["a0.json", "odd.json"]
