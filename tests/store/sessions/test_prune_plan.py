"""What may go and why: plans by age and by number. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import IndexEntry, Keep, Location, Timestamp
from store.sessions.prune_plan import DAY_NS, is_unchanged, plan_prune

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


def doomed(known: dict[Location, IndexEntry], keep: Keep, unreadable: tuple[Location, ...] = ()) -> list[str]:
    return [str(tree.root) for tree in plan_prune(known.items(), keep, NOW_NS, unreadable).to_delete]


def test_what_is_older_goes_and_the_oldest_first() -> None:
    """Exactly on the day is not older."""
    known = forest(a=1, b=30, c=31, d=300)
    assert doomed(known, Keep(days=30)) == ["d", "c"]
    assert doomed(known, Keep(days=0.5)) == ["d", "c", "b", "a"]


def test_what_is_beyond_the_newest_goes() -> None:
    """Roots are counted; those of equal age by their name, so that two plans are the same."""
    known = forest(a=1, b=2, c=3, d=3)
    assert doomed(known, Keep(newest=2)) == ["c", "d"]
    assert doomed(known, Keep(newest=3)) == ["c"]
    assert doomed(known, Keep(newest=9)) == []


def test_both_limits_hold_at_once() -> None:
    """Too old or one too many."""
    known = forest(a=1, b=2, c=3, d=300)
    assert doomed(known, Keep(days=100, newest=2)) == ["d", "c"]
    plan = plan_prune(known.items(), Keep(days=100, newest=2), NOW_NS)
    assert [tree.reason for tree in plan.to_delete] == ["not changed for 300 days", "beyond the 2 newest"]
    assert plan.kept == 2


def test_children_go_with_their_root_and_keep_it_young() -> None:
    """A tree is as young as the youngest in it; nobody goes without the root."""
    known = forest(a=300, a__x=301, b=300, b__y=1)
    plan = plan_prune(known.items(), Keep(days=30), NOW_NS)
    assert [(str(t.root), [str(s) for s in t.sessions]) for t in plan.to_delete] == [("a", ["a", "a/x"])]
    assert plan.session_count == 2
    assert plan.to_delete[0].title == "title of a"


def test_a_pinned_session_spares_its_tree() -> None:
    """Itself, its ancestors, and so all that lies with them; the plan says which one it was."""
    known = forest(a=300, a__x=300, a__y=300, b=300)
    known[Location("a", "x")] = entry(Location("a", "x"), 300, pinned=True)
    plan = plan_prune(known.items(), Keep(days=30), NOW_NS)
    assert [str(t.root) for t in plan.to_delete] == ["b"]
    assert [(str(t.root), t.reason) for t in plan.protected] == [("a", "a/x is pinned")]
    assert plan.kept == 0


def test_a_pinned_tree_among_the_newest_takes_its_place() -> None:
    """The newest so many are kept, and pinned ones besides."""
    known = forest(a=1, b=2, c=3, d=4)
    known[Location("d")] = entry(Location("d"), 4, pinned=True)
    assert doomed(known, Keep(newest=1)) == ["c", "b"]
    known[Location("a")] = entry(Location("a"), 1, pinned=True)
    assert doomed(known, Keep(newest=1)) == ["c", "b"]


def test_what_cannot_be_read_spares_its_tree() -> None:
    """Nobody knows how old it is, or what it holds."""
    known = forest(a=300, b=300)
    assert doomed(known, Keep(days=30), (Location("a", "broken"),)) == ["b"]


def test_children_without_their_root_are_left_alone() -> None:
    """`check` tells of them."""
    assert doomed(forest(a__x=300), Keep(days=30)) == []


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
def test_a_rule_that_would_keep_nothing_is_refused(wrong: dict[str, Any]) -> None:
    """Nought is not read as 'no limit', nor as 'nothing': it is asked again."""
    with pytest.raises(ValueError, match=r"keep|kept"):
        Keep(**wrong)


def test_a_tree_that_changed_is_not_the_one_agreed_on() -> None:
    """Changed, pinned, grown, or gone; but one that lost a child may go."""
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
def test_any_plan_is_safe(sessions: dict[Location, tuple[int, bool]], keep: Keep) -> None:
    """Whole trees only, nothing pinned, nothing young, and every tree is in exactly one of three heaps."""
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
