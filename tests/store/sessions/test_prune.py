"""Pruning by age and number: planning, applying, automatic runs."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import AutoPrune, IndexEntry, Keep, Location, Session, Store, Timestamp
from store.sessions.prune import DAY_NS, is_unchanged, plan_prune
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


def test_planning_changes_nothing(store: Store, home: Path) -> None:
    """Neither files nor index."""
    add(store, "old", 100)
    before = files_below(home)
    assert [str(t.root) for t in store.prune.plan(Keep(days=30)).to_delete] == ["old"]
    assert files_below(home) == before
    assert store.ids() == ["old"]


def test_old_trees_are_moved_to_the_trash(store: Store, home: Path) -> None:
    """With children and records; all can be restored."""
    add(store, "old", 100)
    add_child(store, "old", "kid", 101)
    store.records.save_traces("old", [make_event()])
    add(store, "new")
    result = store.prune.apply(store.prune.plan(Keep(days=30)))
    assert sorted(map(str, result.deleted)) == ["old", "old/kid"]
    assert store.ids() == ["new"]
    assert not (home / "sessions/old").exists()
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.ids() == ["new", "old", "old/kid"]
    assert store.records.load_traces("old") == [make_event()]


def test_the_newest_trees_are_kept(store: Store) -> None:
    """The oldest are deleted first."""
    for number in range(5):
        add(store, f"s{number}", 10 - number)
    result = store.prune.apply(store.prune.plan(Keep(newest=3)))
    assert list(map(str, result.deleted)) == ["s0", "s1"]
    assert store.ids() == ["s2", "s3", "s4"]


def test_pinned_sessions_and_their_ancestors_are_kept(store: Store) -> None:
    """At any depth."""
    add(store, "root", 100)
    add_child(store, "root", "kid", 100)
    add_child(store, "root", "grandkid", 100, parent_session_id="kid", spawn_depth=2, pinned=True)
    add(store, "gone", 100)
    store.prune.apply(store.prune.plan(Keep(days=30)))
    assert store.ids() == ["root", "root/grandkid", "root/kid"]


def test_trees_changed_after_planning_are_left(store: Store) -> None:
    """One was pinned, one changed, one has a new child, one was deleted."""
    for id in ("pinned", "continued", "grown", "gone", "same"):
        add(store, id, 100)
    plan = store.prune.plan(Keep(days=30))
    store.update("pinned", lambda session: setattr(session, "pinned", True))
    store.update("continued", lambda session: setattr(session, "title", "Going on"))
    add_child(store, "grown", "kid", 200)
    store.delete("gone")
    result = store.prune.apply(plan)
    assert list(map(str, result.deleted)) == ["same"]
    assert {str(tree.root) for tree in result.left} == {"pinned", "continued", "grown", "gone"}
    assert store.ids() == ["continued", "grown", "grown/kid", "pinned"]


def test_a_locked_tree_is_left(home: Path) -> None:
    """The others are deleted."""
    with Store.open(home, background=False, lock_timeout_s=0.2) as store:
        add(store, "busy", 100)
        add(store, "idle", 100)
        plan = store.prune.plan(Keep(days=30))
        with Store.open(home, background=False) as other:
            held, done = threading.Event(), threading.Event()

            def work() -> None:
                with other._core.locked(Location("busy")):
                    held.set()
                    done.wait(60)

            thread = threading.Thread(target=work)
            thread.start()
            held.wait(60)
            result = store.prune.apply(plan)
            done.set()
            thread.join()
        assert list(map(str, result.deleted)) == ["idle"]
        assert [(str(tree.root), tree.reason) for tree in result.left] == [("busy", "it is locked by another writer")]
        assert store.ids() == ["busy"]


def test_a_direct_edit_after_planning_is_noticed(store: Store, home: Path) -> None:
    """A file is read again if it changed since it was indexed."""
    add(store, "s1", 100)
    plan = store.prune.plan(Keep(days=30))
    for name in ("session.json", "runtime.json"):
        path = home / "sessions/s1" / name
        path.write_bytes(path.read_bytes().replace(b'"pinned": false', b'"pinned": true'))
    assert store.prune.apply(plan).deleted == []
    assert store.ids() == ["s1"]


@pytest.mark.warns
def test_a_tree_with_an_unreadable_session_is_kept(store: Store, home: Path) -> None:
    """Whether it became unreadable before or after planning."""
    for id in ("before", "after"):
        add(store, id, 100)
        add_child(store, id, f"kid-of-{id}", 100)
    broken = [home / f"sessions/{id}/children/kid-of-{id}/session.json" for id in ("before", "after")]
    broken[0].write_bytes(b"{")
    store.maintenance.sweep()
    plan = store.prune.plan(Keep(days=30))
    assert [(str(t.root), t.reason) for t in plan.protected] == [("before", "a session in it cannot be read")]
    broken[1].write_bytes(b"{")
    assert store.prune.apply(plan).deleted == []
    for path in broken:
        shutil.rmtree(path.parent)
    store.check(repair=True)


def test_progress_is_reported_per_tree(store: Store) -> None:
    add(store, "a", 100)
    add(store, "b", 90)
    seen: list[tuple[int, int]] = []
    store.prune.apply(store.prune.plan(Keep(days=30)), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


# -- automatic pruning -----------------------------------------------------------------------------


def test_nothing_is_pruned_by_default(home: Path) -> None:
    """Housekeeping keeps sessions of any age."""
    with Store.open(home) as store:
        add(store, "ancient", 5_000)
        store._home.tidy()
        assert store.ids() == ["ancient"]
    with Store.open(home) as store:
        assert store.ids() == ["ancient"]


def test_auto_prune_runs_in_the_background(home: Path) -> None:
    """Shortly after a change."""
    with Store.open(home, auto_prune=AutoPrune(Keep(days=30))) as store:
        add(store, "old", 100)
        add(store, "new")
        deadline = time.monotonic() + 60
        while store.ids() != ["new"]:
            assert time.monotonic() < deadline, "not pruned in time"
            time.sleep(0.05)


def test_automatic_runs_have_a_cooldown(store: Store, home: Path) -> None:
    """Shared by all processes. Applying a plan has none."""
    auto = AutoPrune(Keep(days=30), cooldown_s=3600)
    add(store, "new")
    add(store, "old", 100)
    result = store.prune.run_if_due(auto)
    assert result is not None
    assert list(map(str, result.deleted)) == ["old"]
    add(store, "old2", 100)
    assert store.prune.run_if_due(auto) is None
    with Store.open(home, background=False) as other:
        assert other.prune.run_if_due(auto) is None
    assert store.ids() == ["new", "old2"]
    assert store.prune.run_if_due(AutoPrune(Keep(days=30), cooldown_s=0)) is not None
    assert store.ids() == ["new"]


def test_a_clock_set_back_does_not_prevent_pruning(store: Store) -> None:
    """A last run in the future is ignored."""
    store._core.db.set_meta(pruned_ns=time.time_ns() + 10**18)
    assert store._home.services.pruner.is_due(3600)


@pytest.mark.warns
def test_an_automatic_run_never_deletes_every_session(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong clock would make every session old. Applying a plan has no such limit."""
    add(store, "a", 100)
    add(store, "b", 100)
    assert store.prune.run_if_due(AutoPrune(Keep(days=30))) is None
    assert store.ids() == ["a", "b"]
    assert "Is the clock right?" in caplog.text
    assert len(store.prune.apply(store.prune.plan(Keep(days=30))).deleted) == 2


# -- plans -----------------------------------------------------------------------------------------

NOW_NS = 1_000 * DAY_NS


def entry(location: Location, age_days: float, **fields: Any) -> IndexEntry:
    moment = Timestamp.from_ns(NOW_NS - int(age_days * DAY_NS))
    members: dict[str, Any] = {
        "id": location.id,
        "kind": location.kind,
        "rel_path": location.dir,
        "title": f"title of {location}",
        "pinned": False,
        "parent_session_id": None if location.child is None else location.root,
        "root_session_id": location.root,
        "spawn_depth": 0 if location.child is None else 1,
        "created_at": moment,
        "updated_at": moment,
        "last_activity_at": moment,
        "message_count": 2,
        "has_attachments": False,
    }
    return IndexEntry.model_validate(members | fields)


def forest(**ages: float) -> dict[Location, IndexEntry]:
    """Sessions by name, `root` or `root__child`, and age in days."""
    locations = {Location(*name.split("__")): age for name, age in ages.items()}
    return {location: entry(location, age) for location, age in locations.items()}


def planned(known: dict[Location, IndexEntry], keep: Keep, unreadable: tuple[Location, ...] = ()) -> list[str]:
    return [str(tree.root) for tree in plan_prune(known.items(), keep, NOW_NS, unreadable).to_delete]


def test_trees_older_than_the_limit_are_planned_oldest_first() -> None:
    """A tree of exactly that age is kept."""
    known = forest(a=1, b=30, c=31, d=300)
    assert planned(known, Keep(days=30)) == ["d", "c"]
    assert planned(known, Keep(days=0.5)) == ["d", "c", "b", "a"]


def test_trees_beyond_the_newest_are_planned() -> None:
    """Roots are counted; ties are ordered by name, so plans are reproducible."""
    known = forest(a=1, b=2, c=3, d=3)
    assert planned(known, Keep(newest=2)) == ["c", "d"]
    assert planned(known, Keep(newest=3)) == ["c"]
    assert planned(known, Keep(newest=9)) == []


def test_both_limits_apply_at_once() -> None:
    """Too old, or too many."""
    known = forest(a=1, b=2, c=3, d=300)
    assert planned(known, Keep(days=100, newest=2)) == ["d", "c"]
    plan = plan_prune(known.items(), Keep(days=100, newest=2), NOW_NS)
    assert [tree.reason for tree in plan.to_delete] == ["not changed for 300 days", "beyond the 2 newest"]
    assert plan.kept == 2


def test_the_age_of_a_tree_is_that_of_its_latest_change() -> None:
    """A tree is deleted as a whole or not at all."""
    known = forest(a=300, a__x=301, b=300, b__y=1)
    plan = plan_prune(known.items(), Keep(days=30), NOW_NS)
    assert [(str(t.root), [str(s) for s in t.sessions]) for t in plan.to_delete] == [("a", ["a", "a/x"])]
    assert plan.session_count == 2
    assert plan.to_delete[0].title == "title of a"


def test_a_pinned_session_protects_its_tree() -> None:
    """The plan names it."""
    known = forest(a=300, a__x=300, a__y=300, b=300)
    known[Location("a", "x")] = entry(Location("a", "x"), 300, pinned=True)
    plan = plan_prune(known.items(), Keep(days=30), NOW_NS)
    assert [str(t.root) for t in plan.to_delete] == ["b"]
    assert [(str(t.root), t.reason) for t in plan.protected] == [("a", "a/x is pinned")]
    assert plan.kept == 0


def test_pinned_trees_count_among_the_newest() -> None:
    """Pinned trees beyond the newest are kept in addition."""
    known = forest(a=1, b=2, c=3, d=4)
    known[Location("d")] = entry(Location("d"), 4, pinned=True)
    assert planned(known, Keep(newest=1)) == ["c", "b"]
    known[Location("a")] = entry(Location("a"), 1, pinned=True)
    assert planned(known, Keep(newest=1)) == ["c", "b"]


def test_an_unreadable_session_protects_its_tree() -> None:
    """Its age and contents are unknown."""
    known = forest(a=300, b=300)
    assert planned(known, Keep(days=30), (Location("a", "broken"),)) == ["b"]


def test_children_without_a_root_are_not_planned() -> None:
    """`check` reports them."""
    assert planned(forest(a__x=300), Keep(days=30)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"days": 0},
        {"days": -1},
        {"days": float("nan")},
        {"days": float("inf")},
        {"newest": 0},
        {"newest": -5},
    ],
)
def test_limits_that_would_keep_nothing_are_rejected(wrong: dict[str, Any]) -> None:
    """0 means neither "no limit" nor "nothing"."""
    with pytest.raises(ValueError, match=r"keep|kept"):
        Keep(**wrong)


def test_a_changed_tree_is_not_the_planned_one() -> None:
    """Changed, pinned, extended or deleted. A tree that lost a child still counts as planned."""
    known = forest(a=300, a__x=301)
    (tree,) = plan_prune(known.items(), Keep(days=30), NOW_NS).to_delete
    assert is_unchanged(tree, known)
    assert is_unchanged(tree, forest(a=300))
    assert not is_unchanged(tree, forest(a=300, a__x=2))
    assert not is_unchanged(tree, forest(a=300, a__x=301, a__new=301))
    assert not is_unchanged(tree, {**known, Location("a"): entry(Location("a"), 300, pinned=True)})
    assert not is_unchanged(tree, {})


ages = st.integers(0, 60)
forests = st.dictionaries(
    st.builds(Location, st.sampled_from("abcdef"), st.sampled_from([None, "x", "y"])), st.tuples(ages, st.booleans())
)
keeps = st.builds(Keep, st.none() | st.integers(1, 60), st.integers(1, 8)) | st.builds(Keep, st.integers(1, 60))


@given(forests, keeps)
def test_every_plan_is_safe(sessions: dict[Location, tuple[int, bool]], keep: Keep) -> None:
    """Whole trees only, none pinned or recent; each tree is to delete, protected or kept."""
    known = {location: entry(location, age, pinned=pinned) for location, (age, pinned) in sessions.items()}
    plan = plan_prune(known.items(), keep, NOW_NS)
    roots = {location for location in known if location.child is None}
    for tree in plan.to_delete:
        members = {location for location in known if location.root == tree.root.root}
        assert set(tree.sessions) == members
        assert not any(known[location].pinned for location in members)
        youngest = min(sessions[location][0] for location in members)
        newer = [r for r in roots if r != tree.root and _age(known, sessions, r) <= youngest]
        is_old = keep.days is not None and youngest > keep.days
        assert is_old or (keep.newest is not None and len(newer) >= keep.newest)
    assert len(plan.to_delete) + len(plan.protected) + plan.kept == len(roots)
    assert [t.updated_at.ns for t in plan.to_delete] == sorted(t.updated_at.ns for t in plan.to_delete)


def _age(known: dict[Location, IndexEntry], sessions: dict[Location, tuple[int, bool]], root: Location) -> int:
    return min(sessions[location][0] for location in known if location.root == root.root)
