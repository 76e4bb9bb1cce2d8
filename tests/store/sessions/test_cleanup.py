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
from tests.builders import ids, make_session, pin


@pytest.fixture
def store(fast_store: Store) -> Store:
    return fast_store


@pytest.fixture
def mixed(store: Store) -> Store:
    """full (with empty child e1, full child f1), shell (empty, with full child f2), bare (empty, with empty e2)."""
    for root, messages in (("full", 3), ("shell", 1), ("bare", 0)):
        session = make_session(root, messages=messages)
        if messages == 1:
            session.messages = [Message.system("be kind")]
        store.save(session)
    for id, root, messages in (("e1", "full", 1), ("f1", "full", 2), ("f2", "shell", 2), ("e2", "bare", 1)):
        child = Session.new_child(id, root, "m", id)
        child.add_message(Message.system("be kind"))
        for i in range(1, messages):
            child.add_message(Message.user(f"m{i}"))
        store.save(child)
    return store


@pytest.mark.parametrize(
    ("mode", "deleted"),
    [
        ("all", {"full", "shell", "bare", "e1", "f1", "f2", "e2"}),
        ("empty", {"e1", "bare", "e2"}),
        ("children", {"e1", "f1", "f2", "e2"}),
    ],
)
def test_cleanup_deletes_what_its_plan_lists(mixed: Store, mode: CleanupMode, deleted: set[str]) -> None:
    """Mode `empty` keeps an empty root with a child that is not empty."""
    plan = mixed.prune.plan_cleanup(mode)
    assert set(plan.session_ids) == deleted
    assert plan.session_ids == sorted(plan.session_ids)
    everyone = ids(mixed)
    result = mixed.prune.apply(mixed.prune.plan_cleanup(mode))
    assert result.deleted_session_ids == sorted(deleted)
    assert result.deleted_count == len(deleted)
    assert ids(mixed) == everyone - deleted
    assert mixed.prune.apply(mixed.prune.plan_cleanup(mode)).deleted_count == 0


def test_cleanup_keeps_pinned_sessions_and_their_ancestors(grove: Store) -> None:
    """A pinned grandchild protects child and root, at any depth."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("children")).deleted_session_ids == ["b", "k"]
    assert grove.prune.apply(grove.prune.plan_cleanup("all")).deleted_session_ids == ["q"]
    assert ids(grove) == {"r", "a", "a1", "a2"}


@pytest.mark.parametrize("mode", ["all", "children"])
def test_cleanup_can_delete_pinned_sessions(grove: Store, mode: CleanupMode) -> None:
    """With keep_pinned=False."""
    pin(grove, "a2")
    grove.prune.apply(grove.prune.plan_cleanup(mode, keep_pinned=False))
    assert ids(grove) == (set() if mode == "all" else {"r", "q"})


def test_a_pinned_root_does_not_protect_its_children(grove: Store) -> None:
    """Only ancestors are protected."""
    pin(grove, "r")
    assert grove.prune.apply(grove.prune.plan_cleanup("all")).deleted_session_ids == ["a", "a1", "a2", "b", "k", "q"]
    assert ids(grove) == {"r"}


def test_a_session_pinned_after_planning_is_kept(grove: Store) -> None:
    """Each session is checked again when the plan is applied."""
    plan = grove.prune.plan_cleanup("all")
    pin(grove, "a1")
    assert grove.prune.apply(plan).deleted_session_ids == ["a2", "b", "k", "q"]
    assert ids(grove) == {"r", "a", "a1"}


def test_a_session_no_longer_empty_is_kept(mixed: Store) -> None:
    """A child with new messages is kept with its root."""
    plan = mixed.prune.plan_cleanup("empty")
    mixed.append("e2", [Message.user("more"), Message.user("and more")])
    assert mixed.prune.apply(plan).deleted_session_ids == ["e1"]
    assert {"bare", "e2"} <= ids(mixed)


def test_a_session_created_after_planning_is_kept(grove: Store) -> None:
    """And so is its root."""
    plan = grove.prune.plan_cleanup("all")
    grove.save(Session.new_child("later", "q", "m", "later"))
    assert "q" not in grove.prune.apply(plan).deleted_session_ids
    assert ids(grove) == {"q", "later"}


def test_cleanup_reports_progress_and_can_be_undone(mixed: Store) -> None:
    seen: list[tuple[int, int]] = []
    mixed.prune.apply(mixed.prune.plan_cleanup("empty"), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for slot in mixed.trash.deleted():
        mixed.trash.undelete(slot.name)
    assert len(ids(mixed)) == 7


# -- plans, as a property --------------------------------------------------------------------------


@st.composite
def forests(draw: st.DrawFn) -> dict[Location, IndexEntry]:
    """Roots with children; the parent of a child is any session of the tree, itself, or missing; some are pinned."""
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
    """An independent implementation: up to the root, or until a cycle."""
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
def test_a_plan_contains_exactly_the_sessions_that_need_not_stay(
    known: dict[Location, IndexEntry], mode: CleanupMode, keep_pinned: bool
) -> None:
    """Pinned sessions and their ancestors stay; in mode `empty`, sessions with content too."""
    only_system = {loc for loc, found in known.items() if found.message_count == 1}
    plan = plan_cleanup(known.items(), mode, keep_pinned=keep_pinned, only_system=only_system)
    assert isinstance(plan, Plan)
    deleted = set(plan.to_delete)
    must_stay = {
        loc
        for loc, found in known.items()
        if (keep_pinned and found.pinned) or (mode == "empty" and found.message_count > 1)
    }
    must_stay |= {above for loc in must_stay for above in parents_of(loc, known)}
    wanted = {loc for loc in known if mode != "children" or loc.child is not None}
    assert deleted == wanted - must_stay


@given(forests())
@settings(deadline=None)
def test_descendants_and_ancestors_agree(known: dict[Location, IndexEntry]) -> None:
    for one in known:
        below = descendants(one, known)
        assert one not in below
        for other in known:
            if other != one:
                assert (other in below) == (one in ancestors(other, known))


def test_an_unknown_mode_is_rejected() -> None:
    """It must not act like `all`."""
    with pytest.raises(ValueError, match="mode: expected one of all, empty, children, got 'everything'"):
        plan_cleanup([], "everything", keep_pinned=True)  # type: ignore[arg-type]


def test_d2_a_session_with_one_message_of_the_user_is_not_empty(store: Store) -> None:
    """The user may have asked, and the agent failed to start."""
    for name, message in (("asked", Message.user("hi")), ("prompted", Message.system("be kind")), ("bare", None)):
        session = make_session(name, messages=0)
        session.messages = [message] if message is not None else []
        store.save(session)
    plan = store.prune.plan_cleanup("empty")
    assert plan.session_ids == ["bare", "prompted"]
    store.append("prompted", [Message.user("hi")])
    assert store.prune.apply(plan).deleted_session_ids == ["bare"]
