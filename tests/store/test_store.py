"""Store: what each call guarantees, checked through the API and in the files."""

from __future__ import annotations

import os
import pydoc
import stat
import threading
import time
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from store import (
    AlreadyExists,
    Closed,
    Conflict,
    InvalidContent,
    InvalidName,
    Location,
    Message,
    NotFound,
    PendingQuestion,
    Session,
    Store,
    StoreError,
    Timestamp,
)
from store.disk.file import Stamp
from store.model.budget import CompressionEvent, ConversationSummary
from tests.builders import NINE_DIGITS, files_below, make_document, make_session, read_json


def load(store: Store, id: str = "s1") -> Session:
    session = store.load(id)
    assert session is not None
    return session


def documents(home: Path, id: str = "s1") -> tuple[Any, Any]:
    directory = home / "sessions" / id
    return read_json(directory / "session.json"), read_json(directory / "runtime.json")


# -- save and load -----------------------------------------------------------------------------------


def test_saved_session_is_loaded_unchanged(store: Store) -> None:
    """Every member is equal."""
    session = make_session(run_id="run-1", title="T", metadata={"k": "v"})
    store.save(session)
    assert load(store) == session


def test_documents_are_formatted_as_serde_json_does(store: Store, home: Path) -> None:
    """Two spaces, unescaped UTF-8, no final newline; the sidecar is the same without messages."""
    store.save(make_session(messages=0, title="Grüße 漢字 / \x07"))
    text = (home / "sessions/s1/session.json").read_text()
    assert text.startswith('{\n  "id": "s1",\n  "title": "Grüße 漢字 / \\u0007",\n  "pinned": false,\n')
    assert text.endswith("\n}")
    assert (home / "sessions/s1/runtime.json").read_text() == text


def test_directories_and_files_are_private(store: Store, home: Path) -> None:
    """0700 and 0600, unless sessions/ has another mode."""
    store.save(make_session())
    assert stat.S_IMODE((home / "sessions/s1").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "sessions/s1/session.json").stat().st_mode) == 0o600


def test_home_readable_by_others_stays_readable(home: Path) -> None:
    """New directories get the mode of sessions/; a replaced document keeps its own."""
    (home / "sessions").mkdir(parents=True)
    (home / "sessions").chmod(0o755)
    with Store.open(home, background=False) as store:
        store.save(make_session())
        path = home / "sessions/s1/session.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o640)
        store.append("s1", [Message.user("x")])
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert stat.S_IMODE((home / "sessions/s1").stat().st_mode) == 0o755


def test_saving_an_unchanged_session_changes_nothing(store: Store, home: Path) -> None:
    """No new version, no new time, no row in the feed."""
    store.save(make_session())
    before, cursor = files_below(home), store.feed.since().cursor
    version = os.stat(home / "sessions/s1/session.json")
    store.save(load(store))
    assert files_below(home) == before
    assert os.stat(home / "sessions/s1/session.json") == version
    assert store.feed.since(cursor).items == []


def test_unknown_ids_return_none_or_false(store: Store) -> None:
    """Only `append` raises."""
    assert store.load("unknown") is None
    assert store.load("unknown/else") is None
    assert store.load_runtime("unknown") is None
    assert store.entry("unknown") is None
    assert store.attachments.read("unknown", "a") is None
    assert store.update("unknown", lambda s: None) is None
    assert store.delete("unknown") is False
    assert store.clear("unknown") is False
    assert store.children("unknown") == []
    assert store.usage.append("unknown", "{}") is False
    with pytest.raises(NotFound):
        store.append("unknown", [Message.user("x")])


def test_wrong_argument_is_a_type_error_and_changes_nothing(store: Store, home: Path) -> None:
    """The error names the argument, the expected type and the given type."""
    store.save(make_session())
    before = files_below(home)
    calls: dict[str, Callable[[Any], object]] = {
        "session id: expected a string, got NoneType": lambda s: s.append(None, []),
        "append: expected a list of messages, got a single str": lambda s: s.append("s1", "hello"),
        "append: expected a list of messages, got a single Message": lambda s: s.append("s1", Message.user("hello")),
        "append: expected a list of messages, got a single dict": lambda s: s.append("s1", {"role": "user"}),
        "attachment: expected bytes or a string, got int": lambda s: s.attach("s1", 5),
        "query: expected a string, got list": lambda s: s.search(["a"]),
    }
    for message, call in calls.items():
        with pytest.raises(TypeError, match=message):
            call(store)
    assert files_below(home) == before


def test_unknown_cleanup_mode_is_rejected(store: Store) -> None:
    with pytest.raises(ValueError, match="mode: expected one of all, empty, children, got 'bogus'"):
        store.prune.plan_cleanup("bogus")  # type: ignore[arg-type]


def test_new_ids_are_validated_more_strictly_than_existing_ones(store: Store, home: Path) -> None:
    """An unusual id that is on disk can be loaded and saved, but not created."""
    for bad in (".hidden", "tab\tbed", "n" * 256):
        with pytest.raises(InvalidName):
            store.save(make_session(bad))
    odd = home / "sessions/.odd\tone"
    odd.mkdir()
    (odd / "session.json").write_bytes(make_document(".odd\tone"))
    session = load(store, ".odd\tone")
    session.title = "still odd"
    store.save(session)
    assert load(store, ".odd\tone").title == "still odd"


def test_child_needs_root_and_parent(store: Store) -> None:
    session = make_session(kind="child", root_session_id="", parent_session_id="p")
    with pytest.raises(InvalidContent, match="root_session_id"):
        store.save(session)


def test_invalid_session_is_not_saved(store: Store, home: Path) -> None:
    """Rule 6: the API validates like the mount, and the error names the field."""
    store.save(make_session())
    before = files_below(home)
    for name, value in [("title", None), ("metadata", {"n": 1}), ("kind", "root "), ("spawn_depth", -1)]:
        session = load(store)
        setattr(session, name, value)
        with pytest.raises(InvalidContent, match=name):
            store.save(session)
    for value in ("\ud800", 2**70):
        session = load(store)
        session.messages[0].metadata = {"x": value}
        with pytest.raises(InvalidContent):
            store.save(session)
    assert files_below(home) == before


# -- conflicts (rule 8) --------------------------------------------------------------------------------


def test_stale_save_is_rejected_and_the_newer_version_is_unchanged(store: Store) -> None:
    store.save(make_session())
    mine, theirs = load(store), load(store)
    theirs.title = "theirs"
    store.save(theirs)
    mine.title = "mine"
    with pytest.raises(Conflict, match="changed by another writer"):
        store.save(mine)
    assert load(store).title == "theirs"
    store.save(mine, overwrite=True)
    assert load(store).title == "mine"


def test_runtime_save_makes_other_copies_stale(store: Store) -> None:
    """Otherwise saving would revert the newer fields of the sidecar."""
    store.save(make_session())
    mine, theirs = load(store), load(store)
    theirs.last_run_status = "completed"
    store.save_runtime(theirs)
    mine.title = "mine"
    with pytest.raises(Conflict):
        store.save(mine)
    with pytest.raises(Conflict):
        store.save_runtime(mine)


def test_new_session_does_not_replace_an_existing_one(store: Store) -> None:
    store.save(make_session(messages=5))
    with pytest.raises(Conflict, match="already exists"):
        store.save(make_session(messages=0))
    assert len(load(store).messages) == 5


def test_session_deleted_meanwhile_is_not_created_again(store: Store) -> None:
    store.save(make_session())
    mine = load(store)
    store.delete("s1")
    mine.title = "restored"
    with pytest.raises(Conflict, match="deleted"):
        store.save(mine)
    store.save(mine, overwrite=True)
    assert load(store).title == "restored"


def test_save_rejects_fewer_messages_without_shorten(store: Store) -> None:
    store.save(make_session(messages=3))
    session = load(store)
    session.messages.pop()
    with pytest.raises(Conflict, match="would drop 1 message;"):
        store.save(session)
    assert len(load(store).messages) == 3
    store.save(session, shorten=True)
    assert len(load(store).messages) == 2


def test_session_can_be_saved_repeatedly(store: Store) -> None:
    """Saving keeps the object up to date; so does appending with it."""
    session = make_session(messages=0)
    store.save(session)
    for i in range(3):
        session.add_message(Message.user(str(i)))
        store.save(session)
        store.append(session, [Message.assistant(f"answer {i}")])
        session.last_run_status = f"round {i}"
        store.save_runtime(session)
    assert load(store) == session
    assert [m.content for m in session.messages] == ["0", "answer 0", "1", "answer 1", "2", "answer 2"]


# -- updated_at, versions, mirrors, derived state --------------------------------------------------------


def test_updated_at_increases_with_every_change(store: Store) -> None:
    """By at least a nanosecond, even if the stored time is in the future."""
    future = Timestamp("2999-01-01T00:00:00.000000001Z")
    store.save(make_session(updated_at=future))
    session = load(store)
    session.title = "changed"
    store.save(session)
    assert session.updated_at == "2999-01-01T00:00:00.000000002Z"
    store.append("s1", [Message.user("x")])
    assert load(store).updated_at.ns == future.ns + 2


def test_title_and_pin_increment_their_versions_in_both_files(store: Store, home: Path) -> None:
    store.save(make_session())
    session = load(store)
    session.title = "new"
    store.save(session)
    session.pinned = True
    store.save(session)
    session.pinned = False
    store.save(session)
    for document in documents(home):
        assert (document["title_version"], document["metadata_version"]) == (1, 3)


def test_runtime_save_of_a_title_increments_versions_in_the_sidecar(store: Store, home: Path) -> None:
    store.save(make_session())
    session = store.load_runtime("s1")
    assert session is not None
    session.title = "new"
    store.save_runtime(session)
    main, side = documents(home)
    assert (side["title"], side["title_version"], side["metadata_version"]) == ("new", 1, 1)
    assert main["title"] == "New Session"
    assert load(store).title == "new"


def test_typed_runtime_fields_update_their_legacy_mirror(store: Store, home: Path) -> None:
    """Changed in place or through the accessor, in save and in save_runtime."""
    store.save(make_session(last_run_status="running"))
    session = load(store)
    assert session.runtime_metadata is not None
    session.runtime_metadata.last_run_status = "completed"
    session.runtime_metadata.selected_skill_ids = ["a", "b"]
    store.save_runtime(session)
    assert documents(home)[1]["metadata"] == {"last_run_status": "completed", "selected_skill_ids": '["a","b"]'}
    session.runtime_metadata.selected_skill_ids = None
    store.save(session)
    for document in documents(home):
        assert document["metadata"] == {"last_run_status": "completed"}
        assert document["runtime_metadata"] == {"last_run_status": "completed"}


def compressed_session() -> Session:
    now = Timestamp.now()
    session = make_session(messages=3)
    session.conversation_summary = ConversationSummary(
        created_at=now, updated_at=now, content="so far", message_count=2, token_count=9
    )
    session.compression_events = [CompressionEvent(id="e1", created_at=now, messages_compressed=1, segments_removed=1)]
    session.messages[0].compressed = True
    session.messages[0].compressed_by_event_id = "e1"
    session.metadata["responses.previous_response_id"] = "r1"
    return session


def test_editing_a_message_removes_derived_members(store: Store) -> None:
    store.save(compressed_session())
    store.update("s1", lambda s: setattr(s.messages[1], "content", "edited"))
    session = load(store)
    assert session.conversation_summary is None
    assert session.compression_events == []
    assert session.metadata == {}
    assert not session.messages[0].compressed
    assert session.messages[0].compressed_by_event_id is None


def test_appending_and_compressing_keep_derived_members(store: Store) -> None:
    """A compression writes flags, events and summary in one save; that does not count as an edit."""
    store.save(make_session(messages=3))

    def compress(session: Session) -> None:
        made = compressed_session()
        session.conversation_summary = made.conversation_summary
        session.compression_events = made.compression_events
        session.messages[0].compressed = True
        session.messages[0].compressed_by_event_id = "e1"

    store.update("s1", compress)
    store.append("s1", [Message.user("more")])
    store.update("s1", lambda s: s.add_message(Message.user("still more")))
    session = load(store)
    assert session.conversation_summary is not None
    assert len(session.compression_events) == 1
    assert session.messages[0].compressed


# -- save_runtime, load_runtime ----------------------------------------------------------------------------


def test_runtime_save_changes_no_other_document(store: Store, home: Path) -> None:
    store.save(make_session(run_id="run-1"))
    before = Stamp.of(os.stat(home / "sessions/s1/session.json"))  # without the access time
    session = load(store)
    session.set_pending_question(PendingQuestion(tool_call_id="c", question="?", options=[], allow_custom=True))
    store.save_runtime(session)
    assert Stamp.of(os.stat(home / "sessions/s1/session.json")) == before
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_pending_question
    session.clear_pending_question()
    store.save_runtime(session)
    assert "pending_question" not in documents(home)[1]


def test_session_loaded_without_messages_is_not_saved_completely(store: Store) -> None:
    store.save(make_session(messages=3))
    session = store.load_runtime("s1")
    assert session is not None
    assert session.messages == []
    with pytest.raises(Conflict, match="save_runtime"):
        store.save(session, shorten=True)
    with pytest.raises(Conflict, match="save_runtime"):
        store.save(session, overwrite=True, shorten=True)
    assert len(load(store).messages) == 3


def test_first_runtime_save_creates_a_missing_sidecar(store: Store, home: Path) -> None:
    store.save(make_session(run_id="run-1"))
    (home / "sessions/s1/runtime.json").unlink()
    session = store.load_runtime("s1")
    assert session is not None
    session.last_run_status = "completed"
    store.save_runtime(session)
    main, side = documents(home)
    assert side["messages"] == []
    assert side["runtime_metadata"] == {"last_run_status": "completed"}
    assert "runtime_metadata" not in main
    assert load(store).last_run_status == "completed"


@pytest.mark.warns
def test_corrupt_sidecar_is_replaced_by_a_save_and_kept_in_the_trash(store: Store, home: Path) -> None:
    """The session stays readable, and the bytes of the corrupt sidecar are not lost."""
    for write in (store.save, store.save_runtime):
        store.save(make_session(), overwrite=True)
        path = home / "sessions/s1/runtime.json"
        path.write_bytes(b"{ broken")
        session = load(store)
        session.last_run_status = "repaired"
        write(session)
        assert read_json(path)["metadata"]["last_run_status"] == "repaired"
        kept = [p.read_bytes() for p in (home / ".grovefs/trash").rglob("runtime.json")]
        assert b"{ broken" in kept


# -- update, append ----------------------------------------------------------------------------------------------


def test_update_may_return_another_session_and_call_the_store(store: Store) -> None:
    """The lock is reentrant."""
    store.save(make_session())

    def outer(session: Session) -> Session:
        store.save(make_session("s2"))
        store.append("s2", [Message.user("from inside")])
        changed = session.model_copy(deep=True)
        changed.title = "returned"
        return changed

    updated = store.update("s1", outer)
    assert updated is not None
    assert load(store).title == "returned"


def test_failed_update_changes_nothing(store: Store, home: Path) -> None:
    """Rule 3, for an exception raised by the caller."""
    store.save(make_session())
    before = files_below(home)

    def broken(session: Session) -> None:
        session.title = "half done"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.update("s1", broken)
    assert files_below(home) == before


def test_append_keeps_every_other_byte(store: Store, home: Path) -> None:
    """Unusual formatting, unknown members, number formats."""
    raw = make_document(indent=None, unknown={"z": 1.50, "a": 1e5}, updated_at=NINE_DIGITS)
    raw = raw.replace(b'"a": 100000.0', b'"a": 1E5')
    store.put_document("s1", "session.json", raw)
    store.append("s1", [Message(role="user", content="more")])
    new = (home / "sessions/s1/session.json").read_bytes()
    stamp = load(store).updated_at.encode()
    expected = raw.replace(b'}], "created_at"', b'},{"role":"user","content":"more"}], "created_at"')
    assert new == expected.replace(b'"updated_at": "' + NINE_DIGITS.encode(), b'"updated_at": "' + stamp)


def test_append_truncates_long_tool_output(store: Store) -> None:
    store.save(make_session(messages=0))
    store.append("s1", [Message.tool_result("call", "x" * 300_000)])
    content = load(store).messages[0].content
    assert len(content) < 262_144
    assert "tool output truncated" in content


def test_invalid_message_is_not_appended(store: Store, home: Path) -> None:
    store.save(make_session())
    before = files_below(home)
    with pytest.raises(InvalidContent, match="role"):
        store.append("s1", [{"role": "robot", "content": "x"}])
    with pytest.raises(InvalidContent):
        store.append("s1", [Message.user("fine"), {"role": "user", "content": "\ud800"}])
    assert files_below(home) == before


def test_appending_no_messages_changes_nothing(store: Store) -> None:
    store.save(make_session())
    cursor = store.feed.since().cursor
    store.append("s1", [])
    assert store.feed.since(cursor).items == []


# -- put_document ---------------------------------------------------------------------------------------------------


def test_put_document_creates_a_session_with_its_sidecar(store: Store, home: Path) -> None:
    raw = make_document("new")
    assert store.put_document("new", "session.json", raw)
    assert store.get_document("new", "session.json") == raw
    assert read_json(home / "sessions/new/runtime.json") == {
        **read_json(home / "sessions/new/session.json"),
        "messages": [],
    }
    assert store.put_document("new", "session.json", raw) is False


def test_put_document_with_a_stale_base_is_rejected(store: Store) -> None:
    """Rule 8, as used by the mount."""
    store.put_document("s1", "session.json", make_document())
    location = store.location("s1")
    assert location is not None
    base = store.version(location)
    store.append("s1", [Message.user("newer")])
    late = make_document(title="late", updated_at="2999-01-01T00:00:00Z")
    with pytest.raises(Conflict, match="changed by another writer"):
        store.put_document("s1", "session.json", late, base=base)
    older = make_document(title="older")
    with pytest.raises(Conflict, match="updated_at"):
        store.put_document("s1", "session.json", older)
    assert store.put_document("s1", "session.json", older, on_conflict="overwrite")
    assert load(store).messages[0].content == "hello"


def test_put_document_keeps_a_given_mtime(store: Store, home: Path) -> None:
    """To the nanosecond; the index does not treat it as an edit by another program."""
    store.put_document("s1", "session.json", make_document(), mtime_ns=1_600_000_000_123_456_789)
    assert os.stat(home / "sessions/s1/session.json").st_mtime_ns == 1_600_000_000_123_456_789
    assert store.maintenance.sweep() == 0


def test_put_document_rejects_other_names_and_messages_in_the_sidecar(store: Store) -> None:
    store.put_document("s1", "session.json", make_document())
    with pytest.raises(InvalidName):
        store.put_document("s1", "notes.json", b"{}")
    with pytest.raises(InvalidContent, match="must not have messages"):
        store.put_document("s1", "runtime.json", make_document(updated_at="2999-01-01T00:00:00Z"))


def test_sidecar_may_be_written_before_its_session(store: Store, home: Path) -> None:
    """rsync restores file by file; the session exists once session.json does."""
    side = make_document("r", messages=[], title="from the sidecar")
    store.put_document("r", "runtime.json", side)
    assert store.entry("r") is None
    store.put_document("r", "session.json", make_document("r", title="from the session"))
    assert store.get_document("r", "runtime.json") == side
    entry = store.entry("r")
    assert entry is not None
    assert entry.title == "from the sidecar"


def test_document_with_another_id_becomes_a_fork_at_a_new_location(store: Store) -> None:
    """The exception of rule 5. It is rejected where a session exists."""
    store.put_document("a", "session.json", make_document("a"))
    store.put_document("b", "session.json", make_document("a"))
    assert load(store, "b").id == "b"
    with pytest.raises(InvalidContent, match="as in the path"):
        store.put_document("b", "session.json", make_document("a", updated_at="2999-01-01T00:00:00Z"))


def test_members_of_the_sidecar_survive_an_edit_of_session_json(store: Store, home: Path) -> None:
    """Rule 8: an agent and a user both write metadata; neither change is lost."""
    store.put_document("s1", "session.json", make_document())
    session = load(store)
    session.metadata["agent"] = "was here"
    store.save_runtime(session)
    raw = make_document(metadata={"user": "was here"}, updated_at="2999-01-01T00:00:00Z")
    store.put_document("s1", "session.json", raw)
    assert load(store).metadata == {"agent": "was here", "user": "was here"}
    store.put_document("s1", "session.json", make_document(updated_at="2999-01-02T00:00:00Z"))
    assert load(store).metadata == {"agent": "was here"}


def test_root_is_found_by_its_id_although_a_child_has_the_same_id(store: Store) -> None:
    """The id of a root is its exact name."""
    store.save(make_session("r"))
    store.save(Session.new_child("x", "r", "m", "the child"))
    store.save(make_session("x", title="the root"))
    assert load(store, "x").title == "the root"
    assert load(store, "r/x").title == "the child"


def test_sweep_finds_attachments_added_by_hand(store: Store, home: Path) -> None:
    store.save(make_session())
    (home / "sessions/s1/attachments/z.png").write_bytes(b"x")
    assert store.maintenance.sweep() == 1
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_attachments


def test_closed_store_raises_closed(home: Path) -> None:
    store = Store.open(home, background=False)
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.load("s1")


# -- attachments, logs -------------------------------------------------------------------------------------------------


def test_attachment_is_read_back_with_its_type(store: Store) -> None:
    """From bytes, base64 and data URLs; also types without a known extension."""
    store.save(make_session())
    cases: list[tuple[bytes | str, str | None, bytes, str]] = [
        (b"bytes", "image/webp", b"bytes", "image/webp"),
        ("aGVsbG8=", None, b"hello", "image/png"),
        ("data:text/plain;base64,aGVsbG8=", None, b"hello", "text/plain"),
        (b"x", "application/x-unheard-of", b"x", "application/x-unheard-of"),
        (b"x", None, b"x", "application/octet-stream"),
    ]
    for data, mime, content, kind in cases:
        attachment = store.attach("s1", data, mime)
        assert store.attachments.read("s1", attachment.id) == (content, kind)
        assert store.attachments.resolve(attachment.url) == (content, kind)


def test_token_usage_is_one_line_per_record(store: Store, home: Path) -> None:
    """With or without a newline from the caller; a truncated last line does not swallow the next record."""
    store.save(make_session())
    store.usage.append("s1", '{"n":1}\n')
    path = home / "sessions/s1/token-usage.jsonl"
    path.write_bytes(path.read_bytes() + b'{"n":')
    store.usage.append("s1", {"n": 3})
    assert path.read_bytes() == b'{"n":1}\n{"n":\n{"n":3}\n'
    for bad in ("two\nlines", "\ud800", {"n": 2**70}):
        with pytest.raises(InvalidContent):
            store.usage.append("s1", bad)


def test_links_in_the_private_directory_are_not_followed(home: Path, tmp_path: Path) -> None:
    """Neither index.db, nor the locks, nor the directories may be a link out of the home."""
    with Store.open(home, background=False):
        pass
    outside = tmp_path / "outside"
    for name in ("index.db", "locks", "open.lock", "tmp", "trash"):
        path = home / ".grovefs" / name
        backup = path.with_name("kept")
        path.rename(backup) if path.exists() else None
        path.symlink_to(outside)
        with pytest.raises((StoreError, OSError)), Store.open(home, background=False) as store:
            store.save(make_session())
        assert not outside.exists()
        path.unlink()
        backup.rename(path) if backup.exists() else None


# -- opening and closing -----------------------------------------------------------------------------------


def test_store_can_be_closed_twice(home: Path) -> None:
    store = Store.open(home)
    store.close()
    store.close()


def test_opening_removes_temporary_files_only_when_alone(home: Path) -> None:
    """They may belong to another process."""
    with Store.open(home, background=False) as first:
        mine = home / ".grovefs/tmp/123-leftover"
        mine.write_bytes(b"")
        with Store.open(home, background=False):
            assert mine.exists()
        assert first.count() == 0
    with Store.open(home, background=False):
        assert not mine.exists()


def test_undelete_does_not_replace_an_existing_session(store: Store) -> None:
    store.save(make_session())
    store.delete("s1")
    store.save(make_session(title="second"))
    with pytest.raises(AlreadyExists):
        store.trash.undelete(store.trash.deleted()[0].name)
    assert load(store).title == "second"


def test_export_is_written_within_two_seconds(home: Path) -> None:
    """By the background thread."""
    with Store.open(home) as store:
        store.save(make_session("fresh"))
        deadline = time.monotonic() + 20.0  # two seconds by design; a busy machine may take longer
        while "fresh" not in read_json(home / "sessions.json")["sessions"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_erase_all_leaves_an_empty_store_that_works(store: Store, home: Path) -> None:
    store.save(make_session())
    store.save(Session.new_child("c", "s1", "m", "t"))
    store.maintenance.erase_all()
    assert store.entries() == []
    assert store.search("msg") == []
    assert read_json(home / "sessions.json")["sessions"] == {}
    store.save(make_session())


def test_opening_does_not_change_directory_times(home: Path) -> None:
    """rsync would report a directory with a changed time."""
    with Store.open(home, background=False) as store:
        store.save(make_session())
    before = (home / "sessions").stat().st_mtime_ns
    Store.open(home, background=False).close()
    assert (home / "sessions").stat().st_mtime_ns == before


def test_descriptors_of_an_ended_thread_are_closed(store: Store) -> None:
    """Each reading thread has its own connection, and a mount starts new threads all the time."""
    store.save(make_session())

    def read_in_a_thread() -> int:
        thread = threading.Thread(target=store.entries)
        thread.start()
        thread.join()
        return len(os.listdir("/proc/self/fd"))

    before = read_in_a_thread()
    assert max(read_in_a_thread() for _ in range(20)) <= before


def test_c12_children_of_a_missing_parent_are_found(store: Store) -> None:
    """By the id of the parent, whose document may have been removed directly on disk."""
    store.save(make_session("root"))
    store.save(Session.new_child("kid", "root", "m", "t"))
    (store.home / "sessions/root/session.json").rename(store.home / "kept")
    store.maintenance.sweep()
    assert [entry.id for entry in store.children("root")] == ["kid"]
    (store.home / "kept").rename(store.home / "sessions/root/session.json")
    store.maintenance.sweep()


@pytest.mark.parametrize("since", ["2026-01-01T00:00:00Z", Timestamp("2026-01-01T00:00:00Z")])
def test_d5_times_in_filters_may_be_strings(store: Store, since: str) -> None:
    store.save(make_session("s1"))
    assert [entry.id for entry in store.entries(updated_since=since)] == ["s1"]
    assert store.summaries.page(updated_before=since) == []
    with pytest.raises(ValueError, match="RFC 3339"):
        store.entries(updated_since="yesterday")


def test_d6_a_closed_store_says_so(home: Path) -> None:
    """Also through groups and the feed taken before: never EBADF or an error of SQLite."""
    store = Store.open(home, background=False)
    store.save(make_session("s1"))
    feed, cursor = store.feed, store.feed.since().cursor
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.append("s1", [Message.user("x")]),
        lambda: feed.wait(cursor, 0.1),
        lambda: store.summaries.page(),
        lambda: store.mail.at("s1").pending(),
        lambda: store.trajectory.read("s1"),
        lambda: store.projects.all_keys(),
        lambda: store.names.stat("sessions"),
    ]
    for call in calls:
        with pytest.raises(Closed, match="is closed"):
            call()


def test_d7_the_packages_ship_type_annotations() -> None:
    """A type checker reads them only with py.typed."""
    folder = Path(import_module("store").__path__[0])
    packed = tomllib.loads((folder.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in ("store", "fusefs"):
        assert (folder.parent / package / "py.typed").exists()
        assert "py.typed" in packed[package]


def test_d15_append_returns_index_and_id(store: Store) -> None:
    store.save(make_session("s1", messages=2))
    (one, two) = store.append("s1", [Message.user("a"), {"role": "user", "content": "b", "id": "mine"}])
    assert (one.index, two.index, two.id) == (2, 3, "mine")
    loaded = store.load("s1")
    assert loaded is not None
    assert [message.id for message in loaded.messages[2:]] == [one.id, two.id]
    assert store.append("s1", []) == []


def test_d15_a_child_is_made_in_one_call(store: Store) -> None:
    store.save(make_session("s1", model="m1"))
    child = store.new_child("s1", title="worker")
    grandchild = store.new_child(child, "g1", model="m2")
    assert (child.kind, child.parent_session_id, child.model, child.spawn_depth) == ("child", "s1", "m1", 1)
    assert store.location("g1") == Location("s1", "g1")
    assert (grandchild.parent_session_id, grandchild.model, grandchild.spawn_depth) == (child.id, "m2", 2)
    with pytest.raises(NotFound):
        store.new_child("nobody")


def test_d15_dir_and_pydoc_show_the_classes() -> None:
    package = import_module("store")
    assert {"Store", "Session", "Message"} <= set(dir(package))
    shown = pydoc.plain(pydoc.render_doc(package))
    assert "class Store(" in shown
