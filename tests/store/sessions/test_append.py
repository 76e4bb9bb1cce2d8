"""append: the fast path and the rewrite have the same result; the caller's Session stays current."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import Conflict, Message, NotFound, Store
from store.sessions.append import AppendOperation
from tests.builders import make_session, read_json
from tests.store.tables import dump_tables

ADDED = [Message.user("one more"), Message.assistant("an answer")]


def contents(store: Store) -> list[str]:
    session = store.load("s1")
    assert session is not None
    return [message.content for message in session.messages]


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "rewrite"])
def test_append_writes_both_documents_and_the_index(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch, *, fast: bool
) -> None:
    """By either way: the messages, one updated_at in both documents, and the rows of a rebuild."""
    store.save(make_session("s1", messages=1))
    if fast:
        monkeypatch.delattr(AppendOperation, "_append_by_rewrite")
    else:
        monkeypatch.setattr(AppendOperation, "_append_fast", lambda *_: None)
    store.append("s1", ADDED)
    main, side = (read_json(home / "sessions/s1" / name) for name in ("session.json", "runtime.json"))
    assert [message["content"] for message in main["messages"]] == ["msg-0", "one more", "an answer"]
    assert main["updated_at"] == side["updated_at"]
    tables = dump_tables(home)
    store.maintenance.rebuild()
    assert dump_tables(home) == tables


@pytest.mark.parametrize("damage", ["missing", "invalid"])
@pytest.mark.warns
def test_append_without_a_valid_sidecar_creates_one(store: Store, home: Path, damage: str) -> None:
    store.save(make_session("s1", messages=1))
    path = home / "sessions/s1/runtime.json"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"{")
    store.append("s1", ADDED)
    assert contents(store) == ["msg-0", "one more", "an answer"]
    assert read_json(path)["id"] == "s1"


def test_current_session_is_extended_and_can_be_saved(store: Store) -> None:
    session = make_session("s1", messages=1)
    store.save(session)
    store.append(session, ADDED)
    assert [message.content for message in session.messages] == ["msg-0", "one more", "an answer"]
    session.title = "Changed"
    store.save(session)
    assert contents(store) == ["msg-0", "one more", "an answer"]


def test_a_stale_session_learns_what_others_did(store: Store) -> None:
    """The program sees the messages of others after its own append, and can save (rule 8)."""
    session = make_session("s1", messages=1)
    store.save(session)
    store.append("s1", [Message.user("by another writer")])
    store.update("s1", lambda other: setattr(other, "title", "theirs"))
    store.append(session, ADDED)
    assert session == store.load("s1")
    assert [m.content for m in session.messages][:2] == ["msg-0", "by another writer"]
    assert session.title == "theirs"
    session.pinned = True
    store.save(session)


def test_a_stale_session_keeps_its_unsaved_changes(store: Store) -> None:
    session = make_session("s1", messages=1)
    store.save(session)
    session.title = "unsaved"
    store.append("s1", [Message.user("by another writer")])
    store.append(session, ADDED)
    assert session.title == "unsaved"
    assert len(session.messages) == 2 + len(ADDED)
    store.save(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert loaded.title == "unsaved"


def test_a_session_whose_changes_clash_is_left_alone(store: Store) -> None:
    """The append itself never conflicts; a later save of the stale copy does (rule 8)."""
    session = make_session("s1", messages=1)
    store.save(session)
    session.title = "ours"
    store.update("s1", lambda other: setattr(other, "title", "theirs"))
    store.append(session, ADDED)
    assert (session.title, len(session.messages)) == ("ours", 1)
    with pytest.raises(Conflict):
        store.save(session)


def test_a_session_without_messages_can_be_saved_after_an_append(store: Store) -> None:
    store.save(make_session("s1", messages=1))
    session = store.load_runtime("s1")
    assert session is not None
    session.title = "unsaved"
    store.append(session, ADDED)
    store.save_runtime(session)
    loaded = store.load("s1")
    assert loaded is not None
    assert (loaded.title, len(loaded.messages)) == ("unsaved", 1 + len(ADDED))


def test_append_to_an_unknown_session_creates_nothing(store: Store) -> None:
    with pytest.raises(NotFound, match="there is no session 'nobody'"):
        store.append("nobody", ADDED)
    assert store.count() == 0


@pytest.mark.parametrize(
    "single", ["text", b"text", {"role": "user"}, Message.user("text")], ids=["str", "bytes", "dict", "Message"]
)
def test_single_message_instead_of_a_list_is_rejected(store: Store, single: object) -> None:
    store.save(make_session("s1"))
    with pytest.raises(TypeError, match="expected a list of messages"):
        store.append("s1", single)  # type: ignore[arg-type]


def test_message_without_an_id_is_appended(store: Store) -> None:
    """Formats without message ids exist; the caller gets the index."""
    store.save(make_session(messages=1))
    (appended,) = store.append("s1", [{"role": "user", "content": "no id"}])
    assert (appended.index, appended.id) == (1, None)
