"""Seed 000, bamboo-storage 2026.6.20 `SessionStoreV2`: each of its tests, for our store.

The names are those of the seed, with the prefix `test_` added where it was missing. "same" means that our
test asserts what the seed asserts, or more. Otherwise the difference and its reason follow.

| seed test | ours |
|---|---|
| test_new_creates_sessions_directory | same |
| test_new_creates_index_file | same; sessions.json is an export here, but exists from the start |
| append_token_usage_record_writes_jsonl_in_session_dir | same, and the bytes are exact |
| append_token_usage_record_is_noop_for_unindexed_session | same; returns False |
| save_session_writes_runtime_sidecar | same |
| save_runtime_state_does_not_rewrite_session_json_messages | same, with a copy of the saved session, like in the seed; a new session with the same id raises Conflict instead of overwriting (rule 8); the index is updated too, unlike in the seed |
| save_runtime_state_falls_back_to_full_save_when_unpersisted | same |
| corrupt_sidecar_is_ignored_and_session_still_loads | same, with a warning and a finding of `check`, which repairs it |
| migration_backfills_sidecars_for_legacy_sessions | same |
| migration_is_idempotent_and_skips_existing_sidecars | same |
| migration_drops_legacy_denormalized_children_from_sidecar | same; session.json keeps the ids, because its bytes are never changed unasked (rule 5) |
| list_child_run_statuses_filters_by_parent_and_reports_status | same; None where there is no status |
| load_runtime_control_plane_reads_sidecar_without_messages | same; session.json is made unreadable to prove it |
| test_save_and_load_session | same, and the whole record is compared |
| test_load_session_returns_none_when_not_found | same |
| nested_grandchild_persists_under_root | same |
| test_list_index_entries_empty | same |
| test_list_index_entries_with_sessions | same, newest first |
| test_get_index_entry | same |
| test_get_index_entry_returns_none_when_not_found | same |
| test_delete_session | same; the session is moved to the trash |
| test_delete_session_returns_false_when_not_found | same |
| test_validate_session_id_empty | same |
| test_validate_session_id_with_slash | same |
| test_validate_session_id_with_backslash | same |
| test_validate_session_id_with_double_dot | same |
| test_validate_session_id_valid | same |
| test_root_rel_path | same |
| test_child_rel_path | same |
| test_mime_to_extension | same for the seed's types and for invalid ones; another valid type is encoded in the extension, where the seed loses it in `.bin` |
| test_extension_to_mime | same |
| test_extension_to_mime_case_insensitive | same |
| test_extension_to_mime_with_whitespace | same |
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import AgentRuntimeState, Conflict, InvalidName, Location, Message, Session, Store
from store.documents.attachment_names import extension_to_mime, mime_to_extension
from store.layout import check_id
from tests.builders import files_below, make_session, read_json


def run_id_of(session: Session | None) -> str:
    assert session is not None
    assert session.agent_runtime_state is not None
    return session.agent_runtime_state.run_id


# -- opening ---------------------------------------------------------------------------------------------


def test_new_creates_sessions_directory(home: Path) -> None:
    """Opening a home that does not exist creates it, with a sessions directory."""
    assert not home.exists()
    with Store.open(home, background=False):
        assert (home / "sessions").is_dir()


def test_new_creates_index_file(home: Path) -> None:
    """sessions.json exists as soon as the home is open: empty, in the version that Bamboo writes."""
    assert not home.exists()
    with Store.open(home, background=False):
        index = read_json(home / "sessions.json")
    assert index["version"] == 2
    assert index["sessions"] == {}


# -- the usage log -----------------------------------------------------------------------------------------


def test_append_token_usage_record_writes_jsonl_in_session_dir(store: Store, home: Path) -> None:
    """Each record is one line in the session's directory, given with or without a newline."""
    store.save(make_session("metered", messages=1, run_id="run-A"))
    assert store.usage.append("metered", '{"round":1,"in":10}')
    assert store.usage.append("metered", '{"round":2,"in":20}\n')
    text = (home / "sessions/metered/token-usage.jsonl").read_text()
    assert text == '{"round":1,"in":10}\n{"round":2,"in":20}\n'
    assert [json.loads(line)["round"] for line in text.splitlines()] == [1, 2]


def test_append_token_usage_record_is_noop_for_unindexed_session(store: Store, home: Path) -> None:
    """A record for an unknown session is not an error and creates no file."""
    assert store.usage.append("never-saved", '{"in":10}') is False
    assert store.location("never-saved") is None
    assert not (home / "sessions/never-saved").exists()


# -- the sidecar ---------------------------------------------------------------------------------------------


def test_save_session_writes_runtime_sidecar(store: Store, home: Path) -> None:
    """A save also writes runtime.json: the control plane without the messages."""
    store.save(make_session("side-1", messages=2, run_id="run-A"))
    side = read_json(home / "sessions/side-1/runtime.json")
    assert side["messages"] == []
    assert side["agent_runtime_state"]["run_id"] == "run-A"


def test_save_runtime_state_does_not_rewrite_session_json_messages(store: Store, home: Path) -> None:
    """A runtime save changes the control plane only; session.json is unchanged, whatever its messages are."""
    saved = make_session("side-2", messages=3, run_id="run-A")
    store.save(saved)
    main = home / "sessions/side-2/session.json"
    before = main.read_bytes()
    assert b"msg-2" in before

    session = saved.model_copy(deep=True)
    session.agent_runtime_state = AgentRuntimeState.new("run-B")
    session.last_run_status = "running"
    session.add_message(Message.user("msg-3-not-to-be-kept"))
    store.save_runtime(session)

    assert main.read_bytes() == before
    assert b"msg-3-not-to-be-kept" not in (home / "sessions/side-2/runtime.json").read_bytes()
    loaded = store.load("side-2")
    assert run_id_of(loaded) == "run-B"
    assert loaded is not None
    assert [m.content for m in loaded.messages] == ["msg-0", "msg-1", "msg-2"]
    entry = store.entry("side-2")
    assert entry is not None
    assert (entry.last_run_status, entry.message_count) == ("running", 3)

    with pytest.raises(Conflict, match="was not loaded from it"):
        store.save_runtime(make_session("side-2", run_id="run-C"))


def test_save_runtime_state_falls_back_to_full_save_when_unpersisted(store: Store) -> None:
    """The runtime save of a session that is not on disk saves all of it."""
    store.save_runtime(make_session("side-3", messages=1, run_id="run-A"))
    loaded = store.load("side-3")
    assert loaded is not None
    assert [m.content for m in loaded.messages] == ["msg-0"]
    assert store.entry("side-3") is not None


@pytest.mark.warns
def test_corrupt_sidecar_is_ignored_and_session_still_loads(store: Store, home: Path) -> None:
    """An invalid sidecar causes a warning; the session still loads. `check` reports and repairs it."""
    store.save(make_session("side-4", messages=2, run_id="run-A"))
    (home / "sessions/side-4/runtime.json").write_bytes(b"{ not JSON")
    loaded = store.load("side-4")
    assert run_id_of(loaded) == "run-A"
    assert loaded is not None
    assert len(loaded.messages) == 2

    assert "sidecar-corrupt" in {finding.kind for finding in store.check().findings}
    assert store.check(repair=True).exit_code == 1
    assert read_json(home / "sessions/side-4/runtime.json")["agent_runtime_state"]["run_id"] == "run-A"


# -- migration -------------------------------------------------------------------------------------------------


def test_migration_backfills_sidecars_for_legacy_sessions(store: Store, home: Path) -> None:
    """Sessions without a sidecar get one from their session.json, once per home."""
    runs = {"old-a": "run-A", "old-b": "run-B"}
    for id, run_id in runs.items():
        store.save(make_session(id, messages=3, run_id=run_id))
        (home / f"sessions/{id}/runtime.json").unlink()
    mains = {id: (home / f"sessions/{id}/session.json").read_bytes() for id in runs}

    assert store.maintenance.migrate_sidecars() == 2

    for id, run_id in runs.items():
        side = read_json(home / f"sessions/{id}/runtime.json")
        assert side["messages"] == []
        assert side["agent_runtime_state"]["run_id"] == run_id
        assert (home / f"sessions/{id}/session.json").read_bytes() == mains[id]
    loaded = store.load("old-a")
    assert loaded is not None
    assert len(loaded.messages) == 3
    assert (home / ".runtime_sidecar_migrated").read_bytes() == b"runtime-sidecar-v1\n"
    assert store.maintenance.migrate_sidecars() == 0


def test_migration_is_idempotent_and_skips_existing_sidecars(store: Store, home: Path) -> None:
    """A session with a sidecar is never migrated."""
    store.save(make_session("new-c", run_id="run-C"))
    before = files_below(home)
    assert store.maintenance.migrate_sidecars() == 0
    assert store.maintenance.migrate_sidecars() == 0
    assert files_below(home) == before


def test_migration_drops_legacy_denormalized_children_from_sidecar(store: Store, home: Path) -> None:
    """Lists of child ids in an old runtime state are not copied to the sidecar."""
    store.save(make_session("with-lists", messages=1, run_id="run-L"))
    main, side = (home / "sessions/with-lists" / name for name in ("session.json", "runtime.json"))
    document = read_json(main)
    document["agent_runtime_state"]["children"] = {"active_ids": ["long-gone"], "active_children": 1}
    old = json.dumps(document, indent=2).encode()
    main.write_bytes(old)
    side.unlink()

    assert store.maintenance.migrate_sidecars() == 1

    text = side.read_text()
    assert "long-gone" not in text
    assert "active_ids" not in text
    assert read_json(side)["agent_runtime_state"] == {**document["agent_runtime_state"], "children": {}}
    assert main.read_bytes() == old


# -- children, control plane ------------------------------------------------------------------------------------


def test_list_child_run_statuses_filters_by_parent_and_reports_status(store: Store) -> None:
    """Only direct children of the parent, each with the status of its last run."""
    store.save(Session.new("parent", "m"))
    store.save(Session.new("other", "m"))
    done = Session.new_child("done", "parent", "m", "c1")
    done.metadata["last_run_status"] = "completed"
    store.save(done)
    store.save(Session.new_child("waiting", "parent", "m", "c2"))
    store.save(Session.new_child("elsewhere", "other", "m", "x"))
    store.save(Session.new_child_of("below", done, "m", "a grandchild is not a child"))

    assert sorted((child.id, child.last_run_status) for child in store.children("parent")) == [
        ("done", "completed"),
        ("waiting", None),
    ]


@pytest.mark.warns
def test_load_runtime_control_plane_reads_sidecar_without_messages(store: Store, home: Path) -> None:
    """The control plane is loaded without the messages; session.json is not read."""
    store.save(make_session("side-5", messages=5, run_id="run-A"))
    main = home / "sessions/side-5/session.json"
    kept = main.read_bytes()
    main.write_bytes(b"{ cannot be read")
    control = store.load_runtime("side-5")
    assert run_id_of(control) == "run-A"
    assert control is not None
    assert control.messages == []
    main.write_bytes(kept)
    store.maintenance.sweep()


# -- save, load, list, delete --------------------------------------------------------------------------------------


def test_save_and_load_session(store: Store) -> None:
    """A loaded session equals the saved one."""
    session = Session.new("session-1", "test-model")
    store.save(session)
    loaded = store.load("session-1")
    assert loaded is not None
    assert (loaded.id, loaded.model) == ("session-1", "test-model")
    assert loaded == session


def test_load_session_returns_none_when_not_found(store: Store) -> None:
    """An unknown id loads as None."""
    assert store.load("nonexistent") is None


def test_nested_grandchild_persists_under_root(store: Store, home: Path) -> None:
    """A child of a child is stored flat in children/ of the root, and keeps its parent and depth."""
    root = Session.new("root-1", "m")
    child = Session.new_child_of("child-1", root, "m", "c")
    grandchild = Session.new_child_of("grand-1", child, "m", "g")
    for session in (root, child, grandchild):
        store.save(session)

    loaded = store.load("grand-1")
    assert loaded is not None
    assert loaded.kind == "child"
    assert (loaded.parent_session_id, loaded.root_session_id, loaded.spawn_depth) == ("child-1", "root-1", 2)
    assert (home / "sessions/root-1/children/grand-1/session.json").is_file()
    entry = store.entry("grand-1")
    assert entry is not None
    assert entry.rel_path == "sessions/root-1/children/grand-1"
    assert (entry.parent_session_id, entry.root_session_id) == ("child-1", "root-1")


def test_list_index_entries_empty(store: Store) -> None:
    """A new home has no entries."""
    assert store.entries() == []


def test_list_index_entries_with_sessions(store: Store) -> None:
    """Each saved session is listed once, the last changed one first."""
    store.save(Session.new("session-1", "model-1"))
    store.save(Session.new("session-2", "model-2"))
    assert [entry.id for entry in store.entries()] == ["session-2", "session-1"]


def test_get_index_entry(store: Store) -> None:
    """A saved session has an entry."""
    store.save(Session.new("session-1", "test-model"))
    entry = store.entry("session-1")
    assert entry is not None
    assert (entry.id, entry.model) == ("session-1", "test-model")


def test_get_index_entry_returns_none_when_not_found(store: Store) -> None:
    """An unknown id has no entry."""
    assert store.entry("nonexistent") is None


def test_delete_session(store: Store, home: Path) -> None:
    """A deleted session cannot be loaded, and its directory does not exist."""
    store.save(Session.new("session-1", "test-model"))
    assert store.load("session-1") is not None
    assert store.delete("session-1") is True
    assert store.load("session-1") is None
    assert store.entry("session-1") is None
    assert not (home / "sessions/session-1").exists()


def test_delete_session_returns_false_when_not_found(store: Store) -> None:
    """Deleting an unknown id returns False."""
    assert store.delete("nonexistent") is False


# -- ids and paths ---------------------------------------------------------------------------------------------------


def test_validate_session_id_empty() -> None:
    """An empty string is not an id."""
    with pytest.raises(InvalidName):
        check_id("")


def test_validate_session_id_with_slash() -> None:
    """An id is one name, not a path."""
    with pytest.raises(InvalidName):
        check_id("session/1")


def test_validate_session_id_with_backslash() -> None:
    """An id is one name on any system."""
    with pytest.raises(InvalidName):
        check_id("session\\1")


def test_validate_session_id_with_double_dot() -> None:
    """An id cannot lead to another directory."""
    with pytest.raises(InvalidName):
        check_id("session..1")


def test_validate_session_id_valid() -> None:
    """An ordinary id is accepted unchanged."""
    assert check_id("session-123") == "session-123"


def test_root_rel_path() -> None:
    """A root is stored directly in sessions/."""
    assert Location("session-123").dir == "sessions/session-123"


def test_child_rel_path() -> None:
    """A child is stored in children/ of its root."""
    assert Location("root-1", "child-2").dir == "sessions/root-1/children/child-2"


# -- attachment types --------------------------------------------------------------------------------------------------


def test_mime_to_extension() -> None:
    """Bamboo's types have Bamboo's extensions; other valid types are encoded; invalid ones have none."""
    assert mime_to_extension("image/png") == "png"
    assert mime_to_extension("image/jpeg") == "jpg"
    assert mime_to_extension("image/webp") == "webp"
    assert mime_to_extension("image/gif") == "gif"
    assert mime_to_extension("image/bmp") == "bmp"
    assert mime_to_extension("unknown/type") is None
    assert mime_to_extension("application/x-unheard-of") == "application_x-unheard-of"
    assert extension_to_mime("application_x-unheard-of") == "application/x-unheard-of"


def test_extension_to_mime() -> None:
    """Each of Bamboo's extensions has its type; an unknown extension has none."""
    assert extension_to_mime("png") == "image/png"
    assert extension_to_mime("jpg") == "image/jpeg"
    assert extension_to_mime("jpeg") == "image/jpeg"
    assert extension_to_mime("webp") == "image/webp"
    assert extension_to_mime("gif") == "image/gif"
    assert extension_to_mime("bmp") == "image/bmp"
    assert extension_to_mime("unknown") is None


def test_extension_to_mime_case_insensitive() -> None:
    """Upper case does not matter."""
    assert extension_to_mime("PNG") == "image/png"
    assert extension_to_mime("JPG") == "image/jpeg"
    assert extension_to_mime("JPEG") == "image/jpeg"


def test_extension_to_mime_with_whitespace() -> None:
    """Surrounding white space is ignored."""
    assert extension_to_mime("  png  ") == "image/png"
    assert extension_to_mime("\tjpg\t") == "image/jpeg"
