"""What a page shows next to a transcript: neighbours, parent, sub-agents, tokens per message."""

from __future__ import annotations

from store import Location, Message, Session, Store, Timestamp
from store.search.page_facts import PageFacts, image_extension
from tests.builders import make_session


def facts(store: Store, location: Location) -> PageFacts:
    found = store.pages.find(location)
    assert found is not None
    return found


def at(second: int) -> Timestamp:
    return Timestamp.from_ns((1_700_000_000 + second) * 10**9)


def test_neighbours_are_in_the_order_of_the_list(store: Store) -> None:
    """Equal times too: every root is between two others."""
    for name, second in (("a", 1), ("b", 2), ("c", 2), ("d", 2), ("e", 3)):
        store.save(make_session(name, updated_at=at(second)))
    listed = [one.location for one in store.pages.iter_sessions()]
    assert [listed[0].root, listed[-1].root] == ["e", "a"]
    for place, location in enumerate(listed):
        found = facts(store, location)
        assert (found.newer.location if found.newer else None) == (listed[place - 1] if place else None)
        assert (found.older.location if found.older else None) == (listed[place + 1] if place < 4 else None)


def test_children_are_linked_from_their_parent(store: Store) -> None:
    """A child whose parent does not exist is linked from the root."""
    root = make_session("r", title="Root")
    store.save(root)
    child = Session.new_child_of("c", root, "m", "Child")
    store.save(child)
    store.save(Session.new_child_of("g", child, "m", "Grandchild"))
    lost = Session.new_child_of("lost", root, "m", "Lost")
    lost.parent_session_id = "nobody"
    store.save(lost)
    assert {one.location.id for one in facts(store, Location("r")).children} == {"c", "lost"}
    assert [one.title for one in facts(store, Location("r", "c")).children] == ["Grandchild"]
    assert [facts(store, Location("r", id)).parent.title for id in ("c", "g", "lost")] == ["Root", "Child", "Root"]  # type: ignore[union-attr]
    counts = {str(one.location): one.children for one in store.pages.iter_sessions()}
    assert counts == {"r": 2, "r/c": 0, "r/g": 0, "r/lost": 0}  # as many as the page of the root links to
    assert facts(store, Location("r")).parent is None
    assert store.pages.find(Location("r", "x")) is None
    store.delete("r/lost")  # `check` reports it


def test_tokens_belong_to_the_nearest_answer(store: Store) -> None:
    session = make_session("r", messages=0)
    for second, message in ((0, Message.user("q")), (10, Message.assistant("a")), (20, Message.assistant("b"))):
        message.created_at = at(second)
        session.messages.append(message)
    store.save(session)
    for second, output in ((-5, 1), (12, 2), (18, 4), (99, 8)):
        store.usage.append("r", {"ts": at(second), "output_tokens": output, "cache_read_input_tokens": 100})
    store.usage.append("r", {"ts": "never", "output_tokens": 1000})
    found = facts(store, Location("r")).tokens
    assert [(one.message, one.output, one.cache_read) for one in found] == [(1, 3, 200), (2, 12, 200)]


def test_list_has_totals_and_derived_titles(store: Store) -> None:
    """A log is read again after it has changed."""
    store.save(make_session("r", title="New Session", messages=1))
    store.usage.append("r", {"input_tokens": 5, "output_tokens": 2, "thinking_tokens": 1})
    (one,) = store.pages.iter_sessions()
    assert (one.title, one.tokens, one.message_count) == ("msg-0", 7, 1)
    store.usage.append("r", {"cache_creation_input_tokens": 3})
    (one,) = store.pages.iter_sessions()
    assert one.tokens == 10


def test_image_extension_is_plain() -> None:
    assert [image_extension(mime) for mime in ("image/png", "image/svg+xml", "image/x.y", "", "a/../b")] == [
        *["png", "svg", "bin", "bin", "bin"]
    ]
