"""Cleanup deletes exactly what its plan lists, never a pinned session or its ancestors."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import Location, Message, Session, Store
from store.commit.session_reader import entry_of
from store.model.index_entry import IndexEntry
from store.sessions.cleanup import CleanupMode, Plan, plan_cleanup
from store.sessions.delete import ancestors, descendants
from tests.builders import make_session


@pytest.fixture
def store(fast_store: Store) -> Store:
    return fast_store


def ids(store: Store) -> set[str]:
    return {entry.id for entry in store.entries()}


def pin(store: Store, session_id: str) -> None:
    store.update(session_id, lambda s: setattr(s, "pinned", True))


@pytest.fixture
def mixed(store: Store) -> Store:
    """full (with empty child e1, full child f1), hollow (empty, with full child f2), bare (empty, with empty e2)."""
    for root, messages in (("full", 3), ("hollow", 1), ("bare", 0)):
        store.save(make_session(root, messages=messages))
    for id, root, messages in (("e1", "full", 1), ("f1", "full", 2), ("f2", "hollow", 2), ("e2", "bare", 1)):
        child = Session.new_child(id, root, "m", id)
        for i in range(messages):
            child.add_message(Message.user(f"m{i}"))
        store.save(child)
    return store


@pytest.mark.parametrize(
    ("mode", "doomed"),
    [
        ("all", {"full", "hollow", "bare", "e1", "f1", "f2", "e2"}),
        ("empty", {"e1", "bare", "e2"}),
        ("children", {"e1", "f1", "f2", "e2"}),
    ],
)
def test_cleanup_deletes_what_its_plan_says(mixed: Store, mode: CleanupMode, doomed: set[str]) -> None:
    """The plan can be shown first; `empty` spares an empty root with a child that holds something."""
    plan = mixed.prune.plan_cleanup(mode)
    assert set(plan.session_ids) == doomed
    assert plan.session_ids == sorted(plan.session_ids)
    everyone = ids(mixed)
    result = mixed.prune.apply(mixed.prune.plan_cleanup(mode))
    assert result.deleted_session_ids == sorted(doomed)
    assert result.deleted_count == len(doomed)
    assert ids(mixed) == everyone - doomed
    assert mixed.prune.apply(mixed.prune.plan_cleanup(mode)).deleted_count == 0


def test_cleanup_keeps_pinned_sessions_and_their_ancestors(grove: Store) -> None:
    """A pinned grandchild protects child and root, at any depth."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("children")).deleted_session_ids == ["b", "k"]
    assert grove.prune.apply(grove.prune.plan_cleanup("all")).deleted_session_ids == ["q"]
    assert ids(grove) == {"r", "a", "a1", "a2"}


@pytest.mark.parametrize("mode", ["all", "children"])
def test_cleanup_may_take_pinned_ones_too(grove: Store, mode: CleanupMode) -> None:
    """keep_pinned=False means it."""
    pin(grove, "a2")
    grove.prune.apply(grove.prune.plan_cleanup(mode, keep_pinned=False))
    assert ids(grove) == (set() if mode == "all" else {"r", "q"})


def test_pinned_root_does_not_protect_its_children(grove: Store) -> None:
    """Only ancestors are protected."""
    pin(grove, "r")
    assert grove.prune.apply(grove.prune.plan_cleanup("all")).deleted_session_ids == ["a", "a1", "a2", "b", "k", "q"]
    assert ids(grove) == {"r"}


def test_old_plan_spares_what_was_pinned_since(grove: Store) -> None:
    """A plan is looked at again, session by session."""
    plan = grove.prune.plan_cleanup("all")
    pin(grove, "a1")
    assert grove.prune.apply(plan).deleted_session_ids == ["a2", "b", "k", "q"]
    assert ids(grove) == {"r", "a", "a1"}


def test_old_plan_spares_what_is_no_longer_empty(mixed: Store) -> None:
    """A child that got messages since keeps itself and its root."""
    plan = mixed.prune.plan_cleanup("empty")
    mixed.append("e2", [Message.user("more"), Message.user("and more")])
    assert mixed.prune.apply(plan).deleted_session_ids == ["e1"]
    assert {"bare", "e2"} <= ids(mixed)


def test_old_plan_does_not_delete_what_came_since(grove: Store) -> None:
    """What nobody agreed to delete is not deleted, and neither is its root."""
    plan = grove.prune.plan_cleanup("all")
    grove.save(Session.new_child("later", "q", "m", "later"))
    assert "q" not in grove.prune.apply(plan).deleted_session_ids
    assert ids(grove) == {"q", "later"}


def test_cleanup_tells_its_progress_and_goes_to_the_trash(mixed: Store) -> None:
    """Each deletion can be undone."""
    seen: list[tuple[int, int]] = []
    mixed.prune.apply(mixed.prune.plan_cleanup("empty"), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for slot in mixed.trash.deleted():
        mixed.trash.undelete(slot.name)
    assert len(ids(mixed)) == 7


# -- plans, as a property --------------------------------------------------------------------------------


@st.composite
def forests(draw: st.DrawFn) -> dict[Location, IndexEntry]:
    """Roots with children whose parents are any session of the tree, themselves or nobody; some pinned."""
    known: dict[Location, IndexEntry] = {}
    for root in range(draw(st.integers(1, 3))):
        here = Location(f"r{root}")
        names = [f"c{i}" for i in range(draw(st.integers(0, 6)))]
        known[here] = entry(here, None, draw)
        for name in names:
            parent = draw(st.sampled_from([here.root, here.root, *names, "nobody"]))
            known[Location(here.root, name)] = entry(Location(here.root, name), parent, draw)
    return known


def entry(location: Location, parent: str | None, draw: Any) -> IndexEntry:
    session = Session.new(location.id)
    session.pinned = draw(st.sampled_from([False, False, True]))
    session.parent_session_id = parent
    return entry_of(session, location, draw(st.integers(0, 3)), has_attachments=False)


def parents_of(location: Location, known: dict[Location, IndexEntry]) -> Iterator[Location]:
    """Written again, plainly: up to the root, or until it goes in circles."""
    if location.child is None:
        return
    yield Location(location.root)
    seen: set[Location] = set()
    here: Location | None = location
    while here is not None and here not in seen:
        seen.add(here)
        found = known.get(here)
        parent = found.parent_session_id if found else None
        here = Location(location.root, parent) if parent and parent != location.root else None
        if here is not None:
            yield here


@given(forests(), st.sampled_from(["all", "empty", "children"]), st.booleans())
@settings(deadline=None)
def test_no_plan_dooms_what_must_stay(known: dict[Location, IndexEntry], mode: CleanupMode, keep_pinned: bool) -> None:
    """Nothing pinned and no ancestor of it; with `empty` nothing that holds something; all the rest."""
    plan = plan_cleanup(known.items(), mode, keep_pinned=keep_pinned)
    assert isinstance(plan, Plan)
    doomed = set(plan.to_delete)
    must_stay = {
        loc
        for loc, found in known.items()
        if (keep_pinned and found.pinned) or (mode == "empty" and found.message_count > 1)
    }
    must_stay |= {above for loc in must_stay for above in parents_of(loc, known)}
    wanted = {loc for loc in known if mode != "children" or loc.child is not None}
    assert doomed == wanted - must_stay


@given(forests())
@settings(deadline=None)
def test_descendants_and_ancestors_are_two_sides(known: dict[Location, IndexEntry]) -> None:
    """Who lies below whom is answered the same from both ends."""
    for one in known:
        below = descendants(one, known)
        assert one not in below
        for other in known:
            if other != one:
                assert (other in below) == (one in ancestors(other, known))
