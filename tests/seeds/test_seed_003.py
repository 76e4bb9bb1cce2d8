"""Seed 003, a3s_code_core `SessionStore` with its file and memory stores: each of its tests, for our stores.

The names are those of the seed. "same" means that our test asserts what the seed asserts, or more. Otherwise the
difference and its reason follow. tests/store/test_backend.py tests what both of our stores have in common. The seed's
own members of a session (config, state, context_usage, tool_names, tasks …) are unknown members here: they are kept.
`store/transfer/formats/a3s_records.py` has their types, for import and export.

| seed test | ours |
|---|---|
| test_file_store_save_and_load | same |
| test_file_store_load_nonexistent | same |
| test_file_store_delete | same; the session is moved to the trash |
| test_file_store_save_and_load_artifacts | same, for an existing session; for an unknown one NotFound is raised, where the seed creates orphaned files; `session/a` is a child here and is not rewritten to `session_a` |
| test_file_store_save_and_load_trace_events | same, with that difference |
| test_file_store_save_and_load_verification_reports | same, with that difference |
| test_memory_store_save_load_and_delete_artifacts | same |
| test_memory_store_save_load_and_delete_trace_events | same |
| test_memory_store_save_load_and_delete_verification_reports | same |
| test_file_store_list | same, in order |
| test_file_store_overwrite | same; each save increases updated_at, and a stale copy raises Conflict |
| test_file_store_path_traversal_prevention | rejected (InvalidName) instead of rewritten: `../x` and `__x` would become one session |
| test_file_store_with_policies | same, and every member of the seed's format to the byte |
| test_file_store_with_llm_config | same: a save omits the key; through the mount a document that contains one is rejected |
| test_memory_store_save_and_load | same |
| test_memory_store_delete | same |
| test_memory_store_list | same, in order |
| test_session_data_serialization | same, for what is on disk |
| test_tool_names_from_definitions | same, `SessionData.tool_names_from_definitions` (test_a3s_export) |
| test_file_store_backslash_sanitization | rejected instead of rewritten |
| test_file_store_mixed_separator_sanitization | rejected instead of rewritten |
| test_file_store_corrupted_json_recovery | same: Corrupt, with line and column; the file is unchanged |
| test_file_store_exists | same |
| test_memory_store_exists | same |
| test_file_store_health_check | same, with more checks; the name is "local", because it is more than files |
| test_file_store_health_check_bad_dir | same in effect: a home that cannot be created is not opened, and a deleted one is unhealthy |
| test_memory_store_health_check | same |
| test_file_store_load_empty_file | same |
| test_file_store_load_partial_json | same |
| test_file_store_concurrent_save | one save succeeds and the others raise Conflict, where in the seed the last one wins; `overwrite=True` does that |
| test_file_store_load_nonexistent_returns_none | same |
"""  # noqa: E501  # a row of a table is one line

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from store import (
    ArtifactSet,
    Backend,
    Conflict,
    Corrupt,
    InvalidContent,
    InvalidName,
    MemoryStore,
    Message,
    NotFound,
    Session,
    Store,
)
from tests.builders import files_below, make_session, read_json
from tests.records import make_artifact, make_event, make_report

ID = "test-session-1"
# Members of the seed's session for which ours has no field.
MEMBERS: dict[str, Any] = {
    "config": {
        "name": "Test Session",
        "workspace": "/tmp/workspace",
        "system_prompt": "You are helpful.",
        "max_context_length": 200000,
        "auto_compact": False,
        "auto_compact_threshold": 0.8,
        "storage_type": "file",
        "planning_mode": "Auto",
        "goal_tracking": False,
    },
    "state": "Active",
    "context_usage": {"used_tokens": 100, "max_tokens": 200000, "percent": 0.0005, "turns": 2},
    "total_usage": {
        "prompt_tokens": 50,
        "completion_tokens": 50,
        "total_tokens": 100,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
    },
    "total_cost": 0.0,
    "cost_records": [],
    "tool_names": ["bash", "read"],
    "thinking_enabled": False,
    "thinking_budget": None,
    "tasks": [],
}


def seed_session(**more: Any) -> Session:
    session = make_session(ID, messages=0)
    session.messages = [Message.user("Hello"), Message.assistant("Hi there!")]
    return Session.model_validate(session.model_dump() | MEMBERS | more)


def members(backend: Backend) -> dict[str, Any]:
    loaded = backend.load(ID)
    assert loaded is not None
    return loaded.model_extra or {}


def write_file(store: Store, raw: bytes) -> Path:
    """Write a session.json of the session test-id directly."""
    path = store.home / "sessions/test-id/session.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    return path


def corrupt_and_unchanged(store: Store, path: Path) -> str:
    """The text of the Corrupt error; the file must be unchanged."""
    raw = path.read_bytes()
    with pytest.raises(Corrupt) as caught:
        store.load("test-id")
    assert path.read_bytes() == raw
    shutil.rmtree(path.parent)
    store.maintenance.sweep()
    return str(caught.value)


# -- file store ---------------------------------------------------------------------------------------


def test_file_store_save_and_load(store: Store) -> None:
    """The whole session."""
    session = seed_session()
    store.save(session)
    assert store.load(ID) == session
    assert members(store)["config"]["name"] == "Test Session"
    assert members(store)["state"] == "Active"


def test_file_store_load_nonexistent(store: Store) -> None:
    assert store.load("nonexistent") is None


def test_file_store_delete(store: Store) -> None:
    store.save(seed_session())
    assert store.exists(ID)
    assert store.delete(ID)
    assert not store.exists(ID)
    assert store.load(ID) is None


def test_file_store_save_and_load_artifacts(store: Store) -> None:
    """By their URI; only for an existing session."""
    with pytest.raises(NotFound):
        store.records.save_artifacts("session/a", ArtifactSet.of([make_artifact()]))
    store.save(seed_session())
    store.records.save_artifacts(ID, ArtifactSet.of([make_artifact()]))
    found = store.records.load_artifacts(ID)
    assert found is not None
    assert len(found) == 1
    artifact = found.find("a3s://tool-output/test/a")
    assert artifact is not None
    assert artifact.content == "artifact content"


def test_file_store_save_and_load_trace_events(store: Store) -> None:
    """With the artifacts named in their metadata."""
    store.save(seed_session())
    event = make_event("read", metadata={"artifact": {"artifact_uri": "a3s://tool-output/read/abc"}})
    assert event.artifact_uris == ["a3s://tool-output/read/abc"]
    store.records.save_traces(ID, [event])
    assert store.records.load_traces(ID) == [event]


def test_file_store_save_and_load_verification_reports(store: Store) -> None:
    """With their status."""
    store.save(seed_session())
    store.records.save_verification(ID, [make_report()])
    assert store.records.load_verification(ID) == [make_report()]
    assert make_report().status == "passed"


def test_file_store_list(store: Store) -> None:
    """Empty at first, then all of them."""
    assert store.ids() == []
    for number in (3, 1, 2):
        store.save(make_session(f"session-{number}"))
    assert store.ids() == ["session-1", "session-2", "session-3"]


def test_file_store_overwrite(store: Store) -> None:
    """The same session, changed and saved again."""
    session = seed_session()
    store.save(session)
    before = session.updated_at.ns
    session.add_message(Message.user("Another message"))
    store.save(session)
    loaded = store.load(ID)
    assert loaded is not None
    assert len(loaded.messages) == 3
    assert loaded.updated_at.ns > before


@pytest.mark.parametrize("id", ["../../../etc/passwd", "..", "a/../b"])
def test_file_store_path_traversal_prevention(store: Store, home: Path, id: str) -> None:
    """No path leads out of the home, and no id is rewritten."""
    with pytest.raises(InvalidName):
        store.save(make_session(id))
    with pytest.raises(InvalidName):
        store.load(id)
    assert files_below(home) == {}


def test_file_store_with_policies(store: Store, home: Path) -> None:
    """Policies, queue, tool names and all other members keep their form in a rewrite."""
    config = MEMBERS["config"] | {
        "confirmation_policy": {
            "enabled": True,
            "default_timeout_ms": 30000,
            "timeout_action": "Reject",
            "yolo_lanes": [],
        },
        "permission_policy": {
            "deny": [],
            "allow": [{"rule": "Bash(cargo:*)"}],
            "ask": [],
            "default_decision": "ask",
            "enabled": True,
        },
        "queue_config": {"controlMaxConcurrency": 2, "laneHandlers": {}, "storagePath": None},
    }
    store.save(seed_session(config=config))
    store.update(ID, lambda session: setattr(session, "title", "Other"))
    store.append(ID, [Message.user("more")])
    assert members(store) == MEMBERS | {"config": config}
    assert b'"percent": 0.0005' in (home / f"sessions/{ID}/session.json").read_bytes()


def test_file_store_with_llm_config(store: Store, home: Path) -> None:
    """All but the API key, which is nowhere on disk. A document that contains one is rejected."""
    llm = {
        "provider": "anthropic",
        "model": "claude-3-5-sonnet-20241022",
        "api_key": "secret-of-mine",
        "base_url": None,
    }
    store.save(seed_session(llm_config=llm))
    stored = members(store)["llm_config"]
    assert stored["provider"] == "anthropic"
    assert stored["model"] == "claude-3-5-sonnet-20241022"
    assert "api_key" not in stored
    assert b'"secret"' not in b"".join(files_below(home).values())
    document = read_json(home / f"sessions/{ID}/session.json") | {"llm_config": llm}
    with pytest.raises(InvalidContent, match=r"llm_config\.api_key: API keys are not stored"):
        store.put_document(ID, "session.json", json.dumps(document).encode())


# -- memory store ---------------------------------------------------------------------------------------


def test_memory_store_save_load_and_delete_artifacts() -> None:
    """Artifacts are deleted with their session."""
    store = MemoryStore()
    store.save(seed_session())
    store.records.save_artifacts(ID, ArtifactSet.of([make_artifact()]))
    found = store.records.load_artifacts(ID)
    assert found is not None
    assert found.find("a3s://tool-output/test/a") is not None
    store.delete(ID)
    assert store.records.load_artifacts(ID) is None


def test_memory_store_save_load_and_delete_trace_events() -> None:
    store = MemoryStore()
    store.save(seed_session())
    event = make_event("grep", success=False, exit_code=1, duration_ms=2, output_bytes=24)
    store.records.save_traces(ID, [event])
    assert store.records.load_traces(ID) == [event]
    store.delete(ID)
    assert store.records.load_traces(ID) is None


def test_memory_store_save_load_and_delete_verification_reports() -> None:
    store = MemoryStore()
    store.save(seed_session())
    store.records.save_verification(ID, [make_report()])
    assert store.records.load_verification(ID) == [make_report()]
    store.delete(ID)
    assert store.records.load_verification(ID) is None


def test_memory_store_save_and_load() -> None:
    store = MemoryStore()
    session = seed_session()
    store.save(session)
    assert store.load(ID) == session


def test_memory_store_delete() -> None:
    store = MemoryStore()
    store.save(seed_session())
    assert store.exists(ID)
    assert store.delete(ID)
    assert not store.exists(ID)


def test_memory_store_list() -> None:
    store = MemoryStore()
    for number in (3, 1, 2):
        store.save(make_session(f"session-{number}"))
    assert store.ids() == ["session-1", "session-2", "session-3"]


# -- members ---------------------------------------------------------------------------------------


def test_session_data_serialization(store: Store, home: Path) -> None:
    """The parsed file equals the session."""
    session = seed_session()
    store.save(session)
    parsed = Session.model_validate(read_json(home / f"sessions/{ID}/session.json"))
    assert parsed == session
    assert len(parsed.messages) == 2


def test_tool_names_from_definitions(store: Store) -> None:
    """Names taken from definitions keep their order."""
    tools = [{"name": "bash", "description": "Execute bash"}, {"name": "read", "description": "Read file"}]
    store.save(seed_session(tool_names=[tool["name"] for tool in tools]))
    assert members(store)["tool_names"] == ["bash", "read"]


# -- ids ---------------------------------------------------------------------------------------------------------


def test_file_store_backslash_sanitization(store: Store, home: Path) -> None:
    """Rejected; the seed's file `foo_bar_baz` is not created."""
    with pytest.raises(InvalidName):
        store.save(make_session(r"foo\bar\baz"))
    assert files_below(home) == {}


def test_file_store_mixed_separator_sanitization(store: Store, home: Path) -> None:
    """Rejected; `foo_bar_baz_qux` is not created."""
    with pytest.raises(InvalidName):
        store.save(make_session(r"foo/bar\baz..qux"))
    assert files_below(home) == {}


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.warns
def test_file_store_corrupted_json_recovery(store: Store) -> None:
    """An error with the position; the file is unchanged."""
    assert "sessions/test-id/session.json:1:" in corrupt_and_unchanged(store, write_file(store, b"not valid json {{{"))


@pytest.mark.warns
def test_file_store_load_empty_file(store: Store) -> None:
    """An error, not None: the file exists."""
    assert "session.json" in corrupt_and_unchanged(store, write_file(store, b""))


@pytest.mark.warns
def test_file_store_load_partial_json(store: Store) -> None:
    """As after a crash during a write in another store."""
    assert "session.json:1:" in corrupt_and_unchanged(store, write_file(store, b'{"id":"test-id","message'))


# -- existence and health -----------------------------------------------------------------------------------------


def check_exists(backend: Backend) -> None:
    assert not backend.exists(ID)
    backend.save(seed_session())
    assert backend.exists(ID)
    backend.delete(ID)
    assert not backend.exists(ID)


def test_file_store_exists(store: Store) -> None:
    check_exists(store)


def test_memory_store_exists() -> None:
    check_exists(MemoryStore())


def test_file_store_health_check(store: Store, home: Path) -> None:
    """Healthy, and no probe file remains."""
    assert store.health().ok
    assert store.backend_name == store.health().backend == "local"
    assert not [path for path in home.rglob("*") if "probe" in path.name or "health" in path.name]


@pytest.mark.warns
def test_file_store_health_check_bad_dir(tmp_path: Path) -> None:
    """A home that was deleted is unhealthy; one that cannot be created is not opened."""
    store = Store.open(tmp_path / "home", background=False)
    shutil.rmtree(tmp_path / "home")
    assert not store.health().ok
    store.close()  # its final work fails with a warning
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Store.open(tmp_path / "file/home")


def test_memory_store_health_check() -> None:
    store = MemoryStore()
    assert store.health().ok
    assert store.backend_name == "memory"


# -- concurrency ------------------------------------------------------------------------------------------------


def test_file_store_concurrent_save(store: Store) -> None:
    """One of five copies is saved and four raise Conflict; with overwrite all are saved."""
    store.save(seed_session())
    copies = [store.load(ID) for _ in range(5)]
    conflicts: list[Conflict] = []

    def save(number: int, *, overwrite: bool) -> None:
        session = copies[number]
        assert session is not None
        session.title = f"title {number}"
        try:
            store.save(session, overwrite=overwrite)
        except Conflict as error:
            conflicts.append(error)

    for overwrite, expected in ((False, 4), (True, 4)):
        threads = [threading.Thread(target=save, args=(i,), kwargs={"overwrite": overwrite}) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(conflicts) == expected
    loaded = store.load(ID)
    assert loaded is not None
    assert loaded.title.startswith("title ")


def test_file_store_load_nonexistent_returns_none(store: Store) -> None:
    assert store.load("does-not-exist-at-all") is None
