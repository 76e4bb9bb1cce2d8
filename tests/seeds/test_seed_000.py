"""Seed 000, bamboo-storage 2026.6.20 `SessionStoreV2`: each of its tests, as a truth about our store.

Names are the seed's, `test_` put in front where it was missing. "same" means that ours asserts what the
seed asserts, or more; else the reason for the difference follows.

| seed test | ours |
|---|---|
| test_new_creates_sessions_directory | same |
| test_new_creates_index_file | same; sessions.json is an export here, yet it is there from the start |
| append_token_usage_record_writes_jsonl_in_session_dir | same, and the bytes are exact |
| append_token_usage_record_is_noop_for_unindexed_session | same; the answer False tells the caller |
| save_session_writes_runtime_sidecar | same |
| save_runtime_state_does_not_rewrite_session_json_messages | same, with a copy of what was saved, as there; a session made anew under the same id raises Conflict instead of winning (rule 8), and the index follows the sidecar, which the seed's does not |
| save_runtime_state_falls_back_to_full_save_when_unpersisted | same |
| corrupt_sidecar_is_ignored_and_session_still_loads | same, with a warning and a finding of `check`, whose repair ends it |
| migration_backfills_sidecars_for_legacy_sessions | same |
| migration_is_idempotent_and_skips_existing_sidecars | same |
| migration_drops_legacy_denormalized_children_from_sidecar | same; session.json keeps the ids, for nobody asked to change it (rule 5) |
| list_child_run_statuses_filters_by_parent_and_reports_status | same; None where there is no status |
| load_runtime_control_plane_reads_sidecar_without_messages | same, shown by making session.json unreadable |
| test_save_and_load_session | same, and the whole record is equal |
| test_load_session_returns_none_when_not_found | same |
| nested_grandchild_persists_under_root | same |
| test_list_index_entries_empty | same |
| test_list_index_entries_with_sessions | same, the newest first |
| test_get_index_entry | same |
| test_get_index_entry_returns_none_when_not_found | same |
| test_delete_session | same; it goes to the trash rather than for good |
| test_delete_session_returns_false_when_not_found | same |
| test_validate_session_id_empty | same |
| test_validate_session_id_with_slash | same |
| test_validate_session_id_with_backslash | same |
| test_validate_session_id_with_double_dot | same |
| test_validate_session_id_valid | same |
| test_root_rel_path | same |
| test_child_rel_path | same |
| test_mime_to_extension | same for the seed's types and for text that is no type; a legal type it does not know keeps its name as extension, where the seed loses it in `.bin` |
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
    """Opening a home that does not exist makes it, with a place for sessions."""
    assert not home.exists()
    with Store.open(home, background=False):
        assert (home / "sessions").is_dir()


def test_new_creates_index_file(home: Path) -> None:
    """sessions.json is there as soon as the home is open, empty and of the version Bamboo writes."""
    assert not home.exists()
    with Store.open(home, background=False):
        index = read_json(home / "sessions.json")
    assert index["version"] == 2
    assert index["sessions"] == {}


# -- the usage log -----------------------------------------------------------------------------------------


def test_append_token_usage_record_writes_jsonl_in_session_dir(store: Store, home: Path) -> None:
    """Each record is one line in the session's directory, whether or not it came with its newline."""
    store.save(make_session("metered", messages=1, run_id="run-A"))
    assert store.usage.append("metered", '{"round":1,"in":10}')
    assert store.usage.append("metered", '{"round":2,"in":20}\n')
    text = (home / "sessions/metered/token-usage.jsonl").read_text()
    assert text == '{"round":1,"in":10}\n{"round":2,"in":20}\n'
    assert [json.loads(line)["round"] for line in text.splitlines()] == [1, 2]


def test_append_token_usage_record_is_noop_for_unindexed_session(store: Store, home: Path) -> None:
    """A record for a session that was never saved is not an error, and leaves no file."""
    assert store.usage.append("never-saved", '{"in":10}') is False
    assert store.location("never-saved") is None
    assert not (home / "sessions/never-saved").exists()


# -- the sidecar ---------------------------------------------------------------------------------------------


def test_save_session_writes_runtime_sidecar(store: Store, home: Path) -> None:
    """A save writes runtime.json too: the control plane without the messages."""
    store.save(make_session("side-1", messages=2, run_id="run-A"))
    side = read_json(home / "sessions/side-1/runtime.json")
    assert side["messages"] == []
    assert side["agent_runtime_state"]["run_id"] == "run-A"


def test_save_runtime_state_does_not_rewrite_session_json_messages(store: Store, home: Path) -> None:
    """A runtime save changes the control plane and nothing of session.json, whatever messages it is given."""
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
    """The runtime save of a session that is not on disk yet saves all of it."""
    store.save_runtime(make_session("side-3", messages=1, run_id="run-A"))
    loaded = store.load("side-3")
    assert loaded is not None
    assert [m.content for m in loaded.messages] == ["msg-0"]
    assert store.entry("side-3") is not None


@pytest.mark.warns
def test_corrupt_sidecar_is_ignored_and_session_still_loads(store: Store, home: Path) -> None:
    """A sidecar that is no JSON costs a warning, not the session; `check` finds it and mends it."""
    store.save(make_session("side-4", messages=2, run_id="run-A"))
    (home / "sessions/side-4/runtime.json").write_bytes(b"{ no JSON at all")
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
    """What has a sidecar is not migrated, the first time or later."""
    store.save(make_session("new-c", run_id="run-C"))
    before = files_below(home)
    assert store.maintenance.migrate_sidecars() == 0
    assert store.maintenance.migrate_sidecars() == 0
    assert files_below(home) == before


def test_migration_drops_legacy_denormalized_children_from_sidecar(store: Store, home: Path) -> None:
    """Lists of child ids in an old runtime state do not get into the sidecar."""
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
    """A parent's children are its own only, each with the status of its last run."""
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
    """The control plane is loaded without the messages; session.json is not even read for it."""
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
    """What was saved is what is loaded."""
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
    """A child's child lies flat in the root's children/, and keeps its real parent and depth."""
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
    """A new home lists nothing."""
    assert store.entries() == []


def test_list_index_entries_with_sessions(store: Store) -> None:
    """Each saved session is listed once, the one changed last first."""
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
    """A deleted session can be loaded no more, and its directory is gone."""
    store.save(Session.new("session-1", "test-model"))
    assert store.load("session-1") is not None
    assert store.delete("session-1") is True
    assert store.load("session-1") is None
    assert store.entry("session-1") is None
    assert not (home / "sessions/session-1").exists()


def test_delete_session_returns_false_when_not_found(store: Store) -> None:
    """Deleting an unknown id says that there was nothing."""
    assert store.delete("nonexistent") is False


# -- ids and paths ---------------------------------------------------------------------------------------------------


def test_validate_session_id_empty() -> None:
    """No text is no id."""
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
    """An id leads nowhere else."""
    with pytest.raises(InvalidName):
        check_id("session..1")


def test_validate_session_id_valid() -> None:
    """An ordinary id passes, unchanged."""
    assert check_id("session-123") == "session-123"


def test_root_rel_path() -> None:
    """A root lies directly in sessions/."""
    assert Location("session-123").dir == "sessions/session-123"


def test_child_rel_path() -> None:
    """A child lies in its root's children/."""
    assert Location("root-1", "child-2").dir == "sessions/root-1/children/child-2"


# -- attachment types --------------------------------------------------------------------------------------------------


def test_mime_to_extension() -> None:
    """Bamboo's types have Bamboo's extensions; other legal types keep their name; other text is no type."""
    assert mime_to_extension("image/png") == "png"
    assert mime_to_extension("image/jpeg") == "jpg"
    assert mime_to_extension("image/webp") == "webp"
    assert mime_to_extension("image/gif") == "gif"
    assert mime_to_extension("image/bmp") == "bmp"
    assert mime_to_extension("unknown/type") is None
    assert mime_to_extension("application/x-unheard-of") == "application_x-unheard-of"
    assert extension_to_mime("application_x-unheard-of") == "application/x-unheard-of"


def test_extension_to_mime() -> None:
    """Each of Bamboo's extensions has its type; an unknown one has none."""
    assert extension_to_mime("png") == "image/png"
    assert extension_to_mime("jpg") == "image/jpeg"
    assert extension_to_mime("jpeg") == "image/jpeg"
    assert extension_to_mime("webp") == "image/webp"
    assert extension_to_mime("gif") == "image/gif"
    assert extension_to_mime("bmp") == "image/bmp"
    assert extension_to_mime("unknown") is None


def test_extension_to_mime_case_insensitive() -> None:
    """Capitals make no other type."""
    assert extension_to_mime("PNG") == "image/png"
    assert extension_to_mime("JPG") == "image/jpeg"
    assert extension_to_mime("JPEG") == "image/jpeg"


def test_extension_to_mime_with_whitespace() -> None:
    """White space around an extension is no part of it."""
    assert extension_to_mime("  png  ") == "image/png"
    assert extension_to_mime("\tjpg\t") == "image/jpeg"
