"""A program that holds a Session learns what others did, and saves both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from store import Conflict, InvalidContent, MemoryStore, Message, NotFound, Session, Store, layout
from store.documents.merge import MergeConflict
from tests.builders import make_document, make_session, read_json


@pytest.fixture(params=["local", "memory"])
def backend(request: pytest.FixtureRequest, store: Store) -> Store | MemoryStore:
    return store if request.param == "local" else MemoryStore()


def two_copies(backend: Store | MemoryStore, **fields: Any) -> tuple[Session, Session]:
    backend.save(make_session("s1", **fields))
    one, other = backend.load("s1"), backend.load("s1")
    assert one is not None
    assert other is not None
    return one, other


def contents(session: Session | None) -> list[str]:
    assert session is not None
    return [message.content for message in session.messages]


# -- save(on_conflict="merge") ---------------------------------------------------------------------


def test_a_merged_save_stores_both_changes(backend: Store | MemoryStore) -> None:
    """Rule 8. The Session is the merged one afterwards, and can be saved again."""
    ours, theirs = two_copies(backend)
    theirs.add_message(Message.user("theirs"))
    theirs.metadata["their"] = "key"
    backend.save(theirs)
    ours.add_message(Message.user("ours"))
    ours.title = "ours"
    backend.save(ours, on_conflict="merge")
    assert contents(ours) == ["msg-0", "msg-1", "theirs", "ours"]
    assert (ours.title, ours.metadata["their"]) == ("ours", "key")
    assert backend.load("s1") == ours
    ours.pinned = True
    backend.save(ours)


def test_raise_is_the_default(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    theirs.title = "theirs"
    backend.save(theirs)
    ours.pinned = True
    with pytest.raises(Conflict):
        backend.save(ours)


def test_a_clash_changes_neither_the_store_nor_the_session(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend, title="before")
    theirs.title = "theirs"
    backend.save(theirs)
    ours.title = "ours"
    with pytest.raises(MergeConflict) as caught:
        backend.save(ours, on_conflict="merge")
    clash = caught.value.clashes[0]
    assert (clash.path, clash.base, clash.theirs, clash.ours) == (("title",), "before", "theirs", "ours")
    assert ours.title == "ours"
    assert backend.load("s1") == theirs


def test_a_merged_save_without_own_changes_commits_nothing(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    theirs.title = "theirs"
    backend.save(theirs)
    backend.save(ours, on_conflict="merge")
    assert ours == theirs


def test_a_merge_does_not_allow_fewer_messages(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend, messages=4)
    theirs.add_message(Message.user("theirs"))
    backend.save(theirs)
    del ours.messages[0]
    with pytest.raises(Conflict, match="would drop 1 message"):
        backend.save(ours, on_conflict="merge")
    backend.save(ours, on_conflict="merge", shorten=True)
    assert contents(backend.load("s1")) == ["msg-1", "msg-2", "msg-3", "theirs"]


def test_a_session_that_was_not_loaded_is_not_merged(backend: Store | MemoryStore) -> None:
    backend.save(make_session("s1"))
    with pytest.raises(Conflict, match="was not loaded from it"):
        backend.save(make_session("s1"), on_conflict="merge")


def test_versions_grow_past_both_sides(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    theirs.pinned = True
    backend.save(theirs)
    ours.title = "ours"
    backend.save(ours, on_conflict="merge")
    assert ours.title_version > theirs.title_version
    assert ours.metadata_version > theirs.metadata_version
    assert ours.updated_at.ns > theirs.updated_at.ns


def test_an_edited_message_clears_their_summary(backend: Store | MemoryStore) -> None:
    """As any save of an edited message does: the summary may cover that message."""
    ours, theirs = two_copies(backend)
    theirs.metadata["responses.previous_response_id"] = "r1"
    backend.save(theirs)
    ours.messages[0].content = "edited"
    backend.save(ours, on_conflict="merge")
    assert "responses.previous_response_id" not in ours.metadata


def test_the_texts_keep_what_nobody_changed(store: Store) -> None:
    """Rule 5: unknown members, order and digits of the stored text."""
    raw = make_document("s1", extra={"z": 1.50, "a": 12345678901234567890}, metadata={"k": "v"})
    store.put_document("s1", layout.SESSION, raw)
    ours, theirs = store.load("s1"), store.load("s1")
    assert ours is not None
    assert theirs is not None
    theirs.title = "theirs"
    store.save(theirs)
    ours.pinned = True
    store.save(ours, on_conflict="merge")
    text = store.get_document("s1", layout.SESSION)
    assert text is not None
    assert b'"z": 1.5' in text
    assert b"12345678901234567890" in text
    side = read_json(store.home / "sessions/s1" / layout.RUNTIME)
    assert (side["title"], side["pinned"]) == ("theirs", True)
    assert store.check().is_clean


def test_stale_copies_of_many_threads_are_all_merged(store: Store) -> None:
    """Three threads save 25 times each without ever loading again."""
    store.save(make_session("s1", messages=1))

    def work(name: str) -> None:
        session = store.load("s1")
        assert session is not None
        for number in range(25):
            session.add_message(Message.user(f"{name}{number}"))
            store.save(session, on_conflict="merge")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, "abc"))
    found = contents(store.load("s1"))[1:]
    assert len(found) == 75
    for name in "abc":
        assert [text for text in found if text[0] == name] == [f"{name}{number}" for number in range(25)]


# -- refresh ---------------------------------------------------------------------------------------


def test_refresh_takes_what_others_stored(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    assert not backend.refresh(ours)
    theirs.add_message(Message.user("theirs"))
    backend.save(theirs)
    assert backend.refresh(ours)
    assert ours == theirs
    assert not backend.refresh(ours)


def test_refresh_keeps_unsaved_changes_and_message_objects(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    held = ours.messages[0]
    held.content = "unsaved"
    theirs.add_message(Message.user("theirs"))
    backend.save(theirs)
    assert backend.refresh(ours)
    assert ours.messages[0] is held
    assert contents(ours) == ["unsaved", "msg-1", "theirs"]
    held.content = "changed again"
    backend.save(ours)
    assert contents(backend.load("s1")) == ["changed again", "msg-1", "theirs"]


def test_refresh_reports_a_clash(backend: Store | MemoryStore) -> None:
    ours, theirs = two_copies(backend)
    theirs.title = "theirs"
    backend.save(theirs)
    ours.title = "ours"
    with pytest.raises(MergeConflict):
        backend.refresh(ours)
    assert ours.title == "ours"


def test_refresh_of_a_deleted_or_unknown_session(backend: Store | MemoryStore) -> None:
    session = make_session("s1")
    with pytest.raises(Conflict):
        backend.refresh(session)
    backend.save(session)
    backend.delete("s1")
    with pytest.raises(NotFound):
        backend.refresh(session)


def test_refresh_of_a_session_without_messages(store: Store) -> None:
    store.save(make_session("s1"))
    session = store.load_runtime("s1")
    assert session is not None
    session.pinned = True
    store.update("s1", lambda other: setattr(other, "title", "theirs"))
    assert store.refresh(session)
    assert (session.title, session.pinned, session.messages) == ("theirs", True, [])
    store.save_runtime(session)


def test_refresh_names_an_invalid_field(store: Store) -> None:
    ours, theirs = two_copies(store)
    theirs.title = "theirs"
    store.save(theirs)
    ours.model = 5  # type: ignore[assignment]
    with pytest.raises(InvalidContent, match="model"):
        store.refresh(ours)
