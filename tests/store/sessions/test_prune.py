"""Letting go of old sessions: plans carried out, and the rest between automatic runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from store import AutoPrune, Keep, Location, Session, Store, Timestamp
from store.sessions.prune_plan import DAY_NS
from tests.builders import files_below, make_session
from tests.records import make_event


def add(store: Store, id: str, age_days: float = 0, **fields: Any) -> None:
    moment = Timestamp.from_ns(time.time_ns() - int(age_days * DAY_NS))
    store.save(make_session(id, updated_at=moment, **fields))


def add_child(store: Store, root: str, id: str, age_days: float = 0, **fields: Any) -> None:
    child = Session.new_child(id, root, "m", "A child")
    child.updated_at = Timestamp.from_ns(time.time_ns() - int(age_days * DAY_NS))
    for name, value in fields.items():
        setattr(child, name, value)
    store.save(child)


def test_a_plan_changes_nothing(store: Store, home: Path) -> None:
    """Not in the files, not in the index."""
    add(store, "old", 100)
    before = files_below(home)
    assert [str(t.root) for t in store.pruner.plan(Keep(days=30)).to_delete] == ["old"]
    assert files_below(home) == before
    assert store.ids() == ["old"]


def test_old_trees_go_to_the_trash_with_all_they_hold(store: Store, home: Path) -> None:
    """Children, records and all; and each can be had back."""
    add(store, "old", 100)
    add_child(store, "old", "kid", 101)
    store.records.save_traces("old", [make_event()])
    add(store, "new")
    result = store.pruner.apply(store.pruner.plan(Keep(days=30)))
    assert sorted(map(str, result.deleted)) == ["old", "old/kid"]
    assert store.ids() == ["new"]
    assert not (home / "sessions/old").exists()
    store.undelete(store.deleted()[0].name)
    assert store.ids() == ["new", "old", "old/kid"]
    assert store.records.load_traces("old") == [make_event()]


def test_the_newest_so_many_are_kept(store: Store) -> None:
    """By number, the oldest first."""
    for number in range(5):
        add(store, f"s{number}", 10 - number)
    result = store.pruner.apply(store.pruner.plan(Keep(newest=3)))
    assert list(map(str, result.deleted)) == ["s0", "s1"]
    assert store.ids() == ["s2", "s3", "s4"]


def test_pinned_sessions_and_their_ancestors_stay(store: Store) -> None:
    """At any depth."""
    add(store, "root", 100)
    add_child(store, "root", "kid", 100)
    add_child(store, "root", "grandkid", 100, parent_session_id="kid", spawn_depth=2, pinned=True)
    add(store, "gone", 100)
    store.pruner.apply(store.pruner.plan(Keep(days=30)))
    assert store.ids() == ["root", "root/grandkid", "root/kid"]


def test_what_changed_since_the_plan_is_left_alone(store: Store) -> None:
    """A person agreed to something else: one was pinned, one went on, one has a new child, one is gone."""
    for id in ("pinned", "continued", "grown", "gone", "same"):
        add(store, id, 100)
    plan = store.pruner.plan(Keep(days=30))
    store.update("pinned", lambda session: setattr(session, "pinned", True))
    store.update("continued", lambda session: setattr(session, "title", "Going on"))
    add_child(store, "grown", "kid", 200)
    store.delete("gone")
    result = store.pruner.apply(plan)
    assert list(map(str, result.deleted)) == ["same"]
    assert {str(tree.root) for tree in result.left} == {"pinned", "continued", "grown", "gone"}
    assert store.ids() == ["continued", "grown", "grown/kid", "pinned"]


def test_a_tree_that_someone_works_on_is_left_alone(home: Path) -> None:
    """The others go all the same."""
    with Store.open(home, background=False, lock_timeout_s=0.2) as store:
        add(store, "busy", 100)
        add(store, "idle", 100)
        plan = store.pruner.plan(Keep(days=30))
        with Store.open(home, background=False) as other:
            held, done = threading.Event(), threading.Event()

            def work() -> None:
                with other._core.locked(Location("busy")):
                    held.set()
                    done.wait(60)

            thread = threading.Thread(target=work)
            thread.start()
            held.wait(60)
            result = store.pruner.apply(plan)
            done.set()
            thread.join()
        assert list(map(str, result.deleted)) == ["idle"]
        assert [(str(tree.root), tree.reason) for tree in result.left] == [("busy", "someone is working on it")]
        assert store.ids() == ["busy"]


def test_an_edit_behind_our_back_is_seen_before_it_is_too_late(store: Store, home: Path) -> None:
    """A file is read again if it is not the one its row was made from."""
    add(store, "s1", 100)
    plan = store.pruner.plan(Keep(days=30))
    for name in ("session.json", "runtime.json"):
        path = home / "sessions/s1" / name
        path.write_bytes(path.read_bytes().replace(b'"pinned": false', b'"pinned": true'))
    assert store.pruner.apply(plan).deleted == []
    assert store.ids() == ["s1"]


@pytest.mark.warns
def test_a_tree_with_a_session_that_cannot_be_read_stays(store: Store, home: Path) -> None:
    """Whether it was broken before the plan or after it."""
    for id in ("before", "after"):
        add(store, id, 100)
        add_child(store, id, f"kid-of-{id}", 100)
    broken = [home / f"sessions/{id}/children/kid-of-{id}/session.json" for id in ("before", "after")]
    broken[0].write_bytes(b"{")
    store.sweep()
    plan = store.pruner.plan(Keep(days=30))
    assert [(str(t.root), t.reason) for t in plan.protected] == [("before", "a session in it cannot be read")]
    broken[1].write_bytes(b"{")
    assert store.pruner.apply(plan).deleted == []
    for path in broken:
        path.unlink()
    store.check(repair=True)


def test_progress_is_told(store: Store) -> None:
    """Tree by tree."""
    add(store, "a", 100)
    add(store, "b", 90)
    seen: list[tuple[int, int]] = []
    store.pruner.apply(store.pruner.plan(Keep(days=30)), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


# -- by itself -----------------------------------------------------------------------------------------------


def test_nothing_is_pruned_unless_that_was_configured(home: Path) -> None:
    """Sessions of any age stay, whatever housekeeping runs."""
    with Store.open(home) as store:
        add(store, "ancient", 5_000)
        store._tidy()
        assert store.ids() == ["ancient"]
    with Store.open(home) as store:
        assert store.ids() == ["ancient"]


def test_a_store_that_was_told_to_prunes_by_itself(home: Path) -> None:
    """A moment after a change, in the background."""
    with Store.open(home, auto_prune=AutoPrune(Keep(days=30))) as store:
        add(store, "old", 100)
        add(store, "new")
        deadline = time.monotonic() + 60
        while store.ids() != ["new"]:
            assert time.monotonic() < deadline, "it never came to be"
            time.sleep(0.05)


def test_automatic_runs_rest_in_between(store: Store, home: Path) -> None:
    """For all processes alike; a plan applied by hand needs no rest."""
    auto = AutoPrune(Keep(days=30), cooldown_s=3600)
    add(store, "new")
    add(store, "old", 100)
    result = store.pruner.run_if_due(auto)
    assert result is not None
    assert list(map(str, result.deleted)) == ["old"]
    add(store, "old2", 100)
    assert store.pruner.run_if_due(auto) is None
    with Store.open(home, background=False) as other:
        assert other.pruner.run_if_due(auto) is None
    assert store.ids() == ["new", "old2"]
    assert store.pruner.run_if_due(AutoPrune(Keep(days=30), cooldown_s=0)) is not None
    assert store.ids() == ["new"]


def test_a_clock_that_went_back_does_not_end_pruning_for_years(store: Store) -> None:
    """A last run in the future counts as none."""
    store._core.db.set_meta(pruned_ns=time.time_ns() + 10**18)
    assert store.pruner.is_due(3600)


@pytest.mark.warns
def test_an_automatic_run_never_takes_everything(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A clock set to another century would make every session old; by hand it can be done all the same."""
    add(store, "a", 100)
    add(store, "b", 100)
    assert store.pruner.run_if_due(AutoPrune(Keep(days=30))) is None
    assert store.ids() == ["a", "b"]
    assert "Is the clock right?" in caplog.text
    assert len(store.pruner.apply(store.pruner.plan(Keep(days=30))).deleted) == 2
