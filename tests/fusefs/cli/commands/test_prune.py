"""`grovefs prune`: the plan first, and nothing without a yes."""

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


def test_a_dry_run_says_what_would_go_and_why(aged: Path) -> None:
    before = files_below(aged)
    result = grovefs(aged, "prune", "--days", "30", "--dry-run")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert [line.split("\t")[1:] for line in lines[:2]] == [
        ["older", "1 session", "not changed for 200 days", "The older one"],
        ["old", "1 session", "not changed for 100 days", "The old one"],
    ]
    assert lines[2:] == ["spared: pinned: pinned is pinned", "2 sessions would go, 1 root spared, 1 kept"]
    assert files_below(aged) == before


def test_nothing_goes_without_a_yes(aged: Path) -> None:
    """Where nobody can be asked it is a wrong usage."""
    result = grovefs(aged, "prune", "--keep", "1")
    assert result.returncode == 2
    assert "--yes" in result.stderr
    assert len(ids(aged)) == 4


def test_with_a_yes_it_goes_to_the_trash(aged: Path) -> None:
    result = grovefs(aged, "prune", "--keep", "2", "--yes")
    assert result.stdout.splitlines()[-1] == "1 session deleted; `grovefs undelete` has them back for seven days"
    assert ids(aged) == ["new", "old", "pinned"]
    with Store.open(aged, background=False) as store:
        assert [d.session_id for d in store.trash.deleted()] == ["older"]


def test_programs_get_json(aged: Path) -> None:
    plan = json.loads(grovefs(aged, "prune", "--days", "150", "--dry-run", "--json").stdout)
    assert [tree["root"] for tree in plan["doomed"]] == ["older"]
    assert (plan["spared"][0]["root"], plan["kept"], plan["deleted"]) == ("pinned", 2, None)
    done = json.loads(grovefs(aged, "prune", "--days", "150", "--yes", "--json").stdout)
    assert done["deleted"] == ["older"]
    none = json.loads(grovefs(aged, "prune", "--days", "150", "--yes", "--json").stdout)
    assert (none["doomed"], none["deleted"]) == ([], None)


def test_a_timer_runs_it_once_in_a_while(aged: Path) -> None:
    first = grovefs(aged, "prune", "--days", "150", "--every", "3600")
    assert first.stdout == "1 session deleted; `grovefs undelete` has them back for seven days\n"
    second = grovefs(aged, "prune", "--days", "50", "--every", "3600", "--json")
    assert json.loads(second.stdout) == {"ran": False, "deleted": []}
    assert ids(aged) == ["new", "old", "pinned"]


def test_what_to_keep_must_be_said(aged: Path) -> None:
    for wrong in ([], ["--days", "0"], ["--keep", "0"], ["--days", "-1"], ["--days", "nan"]):
        assert grovefs(aged, "prune", *wrong, "--yes").returncode == 2, wrong
    assert len(ids(aged)) == 4


def test_agent_records_are_pruned_in_the_same_way(home: Path) -> None:
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
    assert shown[2].startswith("spared: odd:")
    assert shown[3] == "2 agent records would go, 1 spared, 1 kept"
    assert grovefs(home, "prune", "--agents", "--days", "30").returncode == 2
    done = json.loads(grovefs(home, "prune", "--agents", "--days", "30", "--yes", "--batch", "1", "--json").stdout)
    assert done["deleted"] == ["a2", "a1"]
    assert sorted(p.name for p in (home / "state/agents").iterdir()) == ["a0.json", "odd.json"]
