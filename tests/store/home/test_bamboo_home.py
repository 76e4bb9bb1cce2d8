"""A home written by Bamboo opens unchanged, loses nothing, and is modified only where the caller modifies it.

The documents are written by hand in Bamboo's formats. The expected text after a rewrite is computed by
replacing strings, without code of the store.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import (
    Ambiguous,
    BambooAtWork,
    Conflict,
    Corrupt,
    InvalidContent,
    Location,
    Message,
    Protected,
    Session,
    Store,
    Timestamp,
)
from tests.builders import NINE_DIGITS, files_below, ids, make_document, make_session, pin, read_json

LATER = "2026-06-22T10:00:00.000000007Z"
LATEST = "2026-06-23T00:00:00Z"

# -- the documents -------------------------------------------------------------------------------------------

# Everything a rewrite could damage: unknown members at every level, unusual number formats, the old name
# of the task list, timestamps with nine digits, non-ASCII text.
RICH_MAIN = """\
{
  "id": "rich",
  "title": "Größe – 大小 🌳",
  "pinned": false,
  "title_version": 3,
  "metadata_version": 5,
  "x_top": {
    "price": 1.50,
    "count": 18446744073709551615,
    "exponent": 1E+5,
    "none": null
  },
  "kind": "root",
  "root_session_id": "rich",
  "spawn_depth": 0,
  "messages": [
    {
      "id": "m1",
      "role": "system",
      "content": "be brief / \\u00e9 \\/",
      "created_at": "2026-06-20T08:15:30.123456789Z"
    },
    {
      "id": "m2",
      "role": "user",
      "content": "see picture",
      "content_parts": [
        {
          "type": "image_url",
          "image_url": {
            "url": "bamboo-attachment://rich/a1",
            "x_url": "kept"
          },
          "x_part": 0.10
        }
      ],
      "x_message": [
        1e-7,
        50.0
      ],
      "created_at": "2026-06-20T08:15:31.000000001Z"
    },
    {
      "id": "m3",
      "role": "assistant",
      "content": "",
      "phase": "commentary",
      "tool_calls": [
        {
          "id": "call_1",
          "type": "function",
          "function": {
            "name": "Read",
            "arguments": "{\\"path\\":\\"a.rs\\"}",
            "x_function": true
          }
        }
      ],
      "created_at": "2026-06-20T08:15:32+00:00"
    }
  ],
  "created_at": "2026-06-20T08:15:30.123456789Z",
  "updated_at": "2026-06-20T08:15:32.987654321Z",
  "todo_list": {
    "session_id": "rich",
    "title": "Plan",
    "items": [
      {
        "id": "t1",
        "description": "look",
        "status": "pending",
        "depends_on": [],
        "notes": "",
        "activeForm": "looking",
        "x_item": 2
      }
    ],
    "created_at": "2026-06-20T08:15:30.123456789Z",
    "updated_at": "2026-06-20T08:15:30.123456789Z"
  },
  "model": "claude-sonnet-4",
  "model_ref": {
    "provider": "anthropic",
    "model": "claude-sonnet-4",
    "x_ref": "kept"
  },
  "metadata": {
    "zeta": "last",
    "last_run_status": "completed",
    "alpha": "first"
  },
  "compression_events": [
    {
      "id": "e1",
      "created_at": "2026-06-20T08:15:30.5Z",
      "messages_compressed": 1,
      "segments_removed": 0,
      "usage_before_percent": 50.0,
      "usage_after_percent": 1e-7,
      "x_event": 1.0
    }
  ],
  "agent_runtime_state": {
    "version": 1,
    "run_id": "run-1",
    "status": "completed",
    "round": {
      "current_round": 2,
      "max_rounds": 200,
      "total_tool_calls": 1,
      "total_prompt_tokens": 18446744073709551615,
      "total_completion_tokens": 50,
      "x_round": 0.0
    },
    "prompt": {},
    "tools": {
      "schemas_resolved": true,
      "disabled_tool_count": 0,
      "active_tool_calls": 0
    },
    "memory": {
      "external_memory_injected": false,
      "compression_events_count": 0,
      "overflow_recovery_total": 0,
      "overflow_recovery_consecutive": 0
    },
    "llm": {},
    "children": {},
    "bypass_permissions": false,
    "x_state": "kept"
  },
  "runtime_metadata": {
    "last_run_status": "completed",
    "x_runtime": []
  },
  "workspace": "/home/me/src",
  "x_after": {},
  "x_last": "kept"
}"""

MIXED = "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11"
PICTURE = "5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001"

# Mixed formatting: some inner objects on one line.
MIXED_MAIN = """\
{
  "id": "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11",
  "title": "Fix login bug",
  "pinned": false,
  "title_version": 1,
  "metadata_version": 1,
  "kind": "root",
  "root_session_id": "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11",
  "spawn_depth": 0,
  "messages": [
    {
      "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0001",
      "role": "user",
      "content": "see picture",
      "content_parts": [
        {"type": "text", "text": "see picture"},
        {"type": "image_url", "image_url": {"url": "bamboo-attachment://7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11/5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001"}}
      ],
      "created_at": "2026-06-20T08:15:30.123456789Z"
    },
    {
      "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0002",
      "role": "assistant",
      "content": "",
      "phase": "commentary",
      "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "Read", "arguments": "{\\"path\\":\\"a.rs\\"}"}}
      ],
      "created_at": "2026-06-20T08:15:32Z"
    },
    {
      "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0003",
      "role": "tool",
      "content": "fn main() {}",
      "tool_call_id": "call_1",
      "tool_success": true,
      "created_at": "2026-06-20T08:15:32.500Z",
      "metadata": {"elapsed_ms": 12, "tool_name": "Read"}
    }
  ],
  "created_at": "2026-06-20T08:15:30.123456789Z",
  "updated_at": "2026-06-20T08:15:32.500Z",
  "model": "claude-sonnet-4",
  "model_ref": {"provider": "anthropic", "model": "claude-sonnet-4"},
  "reasoning_effort": "high",
  "metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src"},
  "token_usage": {
    "system_tokens": 900, "summary_tokens": 0, "window_tokens": 120, "total_tokens": 1020,
    "max_context_tokens": 200000, "budget_limit": 180000, "truncation_occurred": false,
    "segments_removed": 0, "prompt_cached_tool_outputs": 0, "prompt_cached_tool_tokens_saved": 0,
    "thinking_tokens": 0, "cache_read_input_tokens": 0
  },
  "agent_runtime_state": {
    "version": 1, "run_id": "run-1", "status": "completed",
    "round": {"current_round": 2, "max_rounds": 200, "total_tool_calls": 1, "total_prompt_tokens": 2000, "total_completion_tokens": 50},
    "prompt": {}, "tools": {"schemas_resolved": true, "disabled_tool_count": 0, "active_tool_calls": 0},
    "memory": {"external_memory_injected": false, "compression_events_count": 0, "overflow_recovery_total": 0, "overflow_recovery_consecutive": 0},
    "llm": {}, "children": {}, "bypass_permissions": false
  },
  "runtime_metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src"}
}"""  # noqa: E501

MINIMAL = '{"id":"s-min","messages":[],"created_at":"2025-01-01T00:00:00Z","updated_at":"2025-01-01T00:00:00Z"}'


def without_messages(text: str) -> str:
    """The text of the sidecar: `messages` empty, everything else equal."""
    start = text.index('"messages": [')
    end = text.index("\n  ],", start)
    return text[:start] + '"messages": []' + text[end + len("\n  ]") :]


RICH_SIDE = without_messages(RICH_MAIN).replace(',\n  "x_last": "kept"', "")  # only session.json has it
MIXED_SIDE = without_messages(MIXED_MAIN)


def replaced(text: str, *pieces: tuple[str, str]) -> str:
    """`text` with each piece replaced; each must occur exactly once."""
    for old, new in pieces:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


def child_document(id: str, parent: str, depth: int, **members: Any) -> bytes:
    return make_document(
        id, kind="child", parent_session_id=parent, root_session_id="rich", spawn_depth=depth, **members
    )


# -- the home ------------------------------------------------------------------------------------------------

UUID = "0b8d5f1d-2c11-4c0e-9a5e-7d3c1f0e6a51"
LEFTOVERS = (
    f"sessions/rich/session.json.tmp.{UUID}",
    f"sessions/rich/children/kid/runtime.json.tmp.{UUID}",
    f"sessions/{MIXED}/attachments/{PICTURE}.png.tmp.{UUID}",
    f"sessions.json.tmp.{UUID}",
)
SESSION_IDS = {"rich", "kid", "grandkid", MIXED, "s-min"}


def index_entry(id: str, rel_path: str, **members: Any) -> dict[str, Any]:
    """An entry as Bamboo writes it, with an outdated title."""
    return {
        "id": id,
        "kind": "child" if "children" in rel_path else "root",
        "rel_path": rel_path,
        "title": "an outdated title",
        "title_version": 0,
        "pinned": False,
        "parent_session_id": None,
        "root_session_id": rel_path.split("/")[1],
        "spawn_depth": 0,
        "model": "",
        "created_at": NINE_DIGITS,
        "updated_at": NINE_DIGITS,
        "last_activity_at": NINE_DIGITS,
        "message_count": 0,
        "has_attachments": False,
        "has_pending_question": False,
        "bypass_permissions": False,
        **members,
    }


def index_file(version: int) -> bytes:
    new = {"x_badge": {"color": "green", "ratio": 2.5}, "x_none": None} if version > 2 else {}
    paths = {
        "rich": "sessions/rich",
        "kid": "sessions/rich/children/kid",
        "grandkid": "sessions/rich/children/grandkid",
        MIXED: f"sessions/{MIXED}",
        "s-min": "sessions/s-min",
    }
    index: dict[str, Any] = {"version": version, "updated_at": NINE_DIGITS}
    index["sessions"] = {id: index_entry(id, path, **new) for id, path in paths.items()}
    if version > 2:
        index |= {"rebuild_in_progress": False, "x_future": [1, {"a": "b"}]}
    return json.dumps(index, indent=2).encode()


def write_home(home: Path, *, version: int = 2, leftovers: bool = False) -> None:
    """A home with a root in each format, a child, a grandchild, and the other files of a server."""
    kid = child_document("kid", "rich", 1, title="The kid", updated_at="2026-06-20T09:00:00Z")
    kid_side = child_document(
        "kid",
        "rich",
        1,
        title="The kid, renamed",
        title_version=1,
        messages=[],
        metadata={"last_run_status": "running"},
        updated_at="2026-06-20T09:30:00.000000001Z",
    )
    grandkid = child_document("grandkid", "kid", 2, title="The kid's kid")
    files: dict[str, bytes] = {
        "sessions.json": index_file(version),
        "sessions/rich/session.json": RICH_MAIN.encode(),
        "sessions/rich/runtime.json": RICH_SIDE.encode(),
        "sessions/rich/token-usage.jsonl": b'{"round":1}\n{"round": 2}\n',
        "sessions/rich/attachments/a1.png": b"\x89PNG a1",
        "sessions/rich/children/kid/session.json": kid,
        "sessions/rich/children/kid/runtime.json": kid_side,
        "sessions/rich/children/grandkid/session.json": grandkid,
        "sessions/rich/children/grandkid/runtime.json": make_sidecar(grandkid),
        f"sessions/{MIXED}/session.json": MIXED_MAIN.encode(),
        f"sessions/{MIXED}/runtime.json": MIXED_SIDE.encode(),
        f"sessions/{MIXED}/attachments/{PICTURE}.png": b"\x89PNG picture",
        "sessions/s-min/session.json": MINIMAL.encode(),
        # Flat files of an older backend, which look like sessions but are not.
        "sessions/s-old.json": MINIMAL.replace("s-min", "s-old").encode(),
        "sessions/s-old.jsonl": b'{"type":"token"}\nnot JSON\n',
        ".bamboo_encryption_key": bytes(range(32)),
        "session_search.db": b"not SQLite at all \x00\xff",
        "session_search.db-wal": b"\x00" * 9,
        "config.json": b'{"provider": "anthropic"}',
        ".sessions-index.lock": b"",
        ".session-lifecycle.lock": b"",
        ".session-write-locks/rich.lock": b"pid 1\n",
    }
    if leftovers:
        files |= dict.fromkeys(LEFTOVERS, b"half a docum")
    for path, data in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)


def make_sidecar(document: bytes) -> bytes:
    return json.dumps({**json.loads(document), "messages": []}, indent=2, ensure_ascii=False).encode()


def snapshot(home: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, inode, mode and mtime of every file except .grovefs/ and sessions.json."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and name != "sessions.json" and not name.startswith(".grovefs/"):
            stat = path.stat()
            found[name] = (path.read_bytes(), stat.st_ino, stat.st_mode, stat.st_mtime_ns)
    return found


@pytest.fixture
def bamboo(home: Path) -> Path:
    """The home on disk. A test lists it before `store`, which then opens it."""
    write_home(home)
    return home


def text_of(home: Path, id: str, name: str = "session.json") -> str:
    return (home / "sessions" / id / name).read_text()


def get(store: Store, id: str) -> Session:
    session = store.load(id)
    assert session is not None
    return session


def put(store: Store, id: str, text: str, name: str = "session.json", **options: Any) -> bool:
    return store.put_document(id, name, text.encode(), **options)


# -- opening: nothing is lost or changed ---------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 4])
def test_every_session_is_found(home: Path, version: int) -> None:
    """Roots, children and grandchildren are listed; the flat files of an older backend are not."""
    write_home(home, version=version, leftovers=True)
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS
        assert [entry.id for entry in store.children("rich")] == ["kid"]
        assert [entry.id for entry in store.children("kid")] == ["grandkid"]
        assert store.load("s-old") is None


@pytest.mark.parametrize("version", [2, 4])
def test_opening_and_closing_changes_no_file(home: Path, version: int) -> None:
    """Except sessions.json and .grovefs/, every file keeps its inode, bytes and times."""
    write_home(home, version=version, leftovers=True)
    before = snapshot(home)
    with Store.open(home) as store:
        for id in SESSION_IDS:
            store.load(id)
            store.load_runtime(id)
        store.search("picture")
        store.check()
    assert snapshot(home) == before


def test_saving_an_unchanged_session_changes_no_file(bamboo: Path, store: Store) -> None:
    """With and without a sidecar."""
    before = snapshot(bamboo)
    for id in SESSION_IDS - {"s-min"}:
        store.save(get(store, id))
        store.save_runtime(get(store, id))
    store.save(get(store, "s-min"))
    assert snapshot(bamboo) == before


def test_version_2_of_sessions_json_is_kept_and_its_entries_updated(home: Path) -> None:
    """The export keeps the version it found, and its entries match the documents."""
    write_home(home, version=2)
    Store.open(home, background=False).close()
    index = read_json(home / "sessions.json")
    assert list(index) == ["version", "updated_at", "sessions"]
    assert index["version"] == 2
    assert set(index["sessions"]) == SESSION_IDS
    entry = index["sessions"][MIXED]
    assert (entry["title"], entry["message_count"], entry["has_attachments"]) == ("Fix login bug", 3, True)
    assert (entry["last_run_status"], entry["workspace_path"]) == ("completed", "/home/me/src")
    assert index["sessions"]["rich"]["created_at"] == NINE_DIGITS
    assert index["sessions"]["grandkid"]["parent_session_id"] == "kid"
    assert index["sessions"]["s-min"]["parent_session_id"] is None


def test_version_and_unknown_keys_of_sessions_json_survive(home: Path) -> None:
    """Unknown members at the top and in entries are written back, also after changes and reopening."""
    write_home(home, version=4)
    for title in ("first", "second"):
        with Store.open(home, background=False) as store:
            session = get(store, "kid")
            session.title = title
            store.save(session)
        index = read_json(home / "sessions.json")
        assert index["version"] == 4
        assert index["rebuild_in_progress"] is False
        assert index["x_future"] == [1, {"a": "b"}]
        assert index["sessions"]["kid"]["title"] == title
        for entry in index["sessions"].values():
            assert entry["x_badge"] == {"color": "green", "ratio": 2.5}
            assert entry["x_none"] is None


def test_unknown_keys_of_sessions_added_by_a_server_survive(home: Path) -> None:
    """A server adds a session and rewrites sessions.json while we have the home open."""
    write_home(home, version=4)
    with Store.open(home, background=False, beside_bamboo=True) as store:
        (home / "sessions/new").mkdir()
        (home / "sessions/new/session.json").write_bytes(make_document("new"))
        index = json.loads(index_file(4))
        index["sessions"]["new"] = index_entry("new", "sessions/new", x_badge="new")
        index["x_future"] = "changed"
        (home / "sessions.json").write_text(json.dumps(index))
        store.maintenance.export_sessions_json()
        exported = read_json(home / "sessions.json")
    assert exported["x_future"] == "changed"
    assert exported["sessions"]["new"]["x_badge"] == "new"
    assert exported["sessions"]["new"]["title"] == "A title"
    assert exported["sessions"]["rich"]["x_badge"] == {"color": "green", "ratio": 2.5}


@pytest.mark.parametrize("name", [".session-lifecycle.lock", ".sessions-index.lock"])
def test_writes_are_rejected_while_a_server_holds_its_lock(home: Path, name: str) -> None:
    """Reads work, writes fail with the reason, and succeed again once the lock is released."""
    write_home(home)
    before = snapshot(home)
    with Store.open(home, background=False) as store:
        with (home / name).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for write in (
                lambda: store.append("rich", [Message.user("x")]),
                lambda: store.delete("rich"),
                lambda: store.clear("rich"),
                lambda: store.prune.apply(store.prune.plan_cleanup("all")),
                lambda: store.usage.append("rich", {}),
                lambda: store.attach("rich", b"x"),
                lambda: put(store, "rich", MIXED_MAIN),
                store.maintenance.migrate_sidecars,
                store.maintenance.erase_all,
            ):
                with pytest.raises(BambooAtWork, match=name):
                    write()
            assert get(store, "rich").id == "rich"
        assert snapshot(home) == before
        deadline = time.monotonic() + 5
        while store.maintenance.status()["bamboo"] is not None:
            assert time.monotonic() < deadline
        assert store.usage.append("rich", {"round": 3})


def test_entry_members_are_filled_from_metadata(store: Store) -> None:
    """Schedule, connection, lifecycle and placement, as newer Bamboos write them."""
    session = make_session("s1")
    session.metadata |= {
        "created_by_schedule_id": "sched-1",
        "created_by_connect_key": "telegram:1:2",
        "schedule_run_id": "run-9",
        "gold_config": "{}",
        "lifecycle": "resident",
        "resident_name": "bob",
        "placement": '{"kind":"remote","host":"h1"}',
    }
    store.save(session)
    entry = store.entry("s1")
    assert entry is not None
    assert entry.created_by_schedule_id == "sched-1"
    assert entry.created_by_connect_key == "telegram:1:2"
    assert entry.schedule_run_id == "run-9"
    assert entry.gold_config_json == "{}"
    assert (entry.lifecycle, entry.resident_name) == ("resident", "bob")
    assert entry.placement == {"kind": "remote", "host": "h1"}


def test_empty_sessions_json_hides_no_session(home: Path) -> None:
    """Bamboo writes an empty index after losing the file; the files are the truth (rule 1)."""
    write_home(home)
    (home / "sessions.json").write_bytes(b'{"version": 2, "updated_at": "2026-06-20T00:00:00Z", "sessions": {}}')
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS


@pytest.mark.warns
def test_truncated_sessions_json_is_rebuilt(home: Path) -> None:
    """With a warning; the truncated file is kept in the trash."""
    write_home(home)
    half = index_file(2)[:200]
    (home / "sessions.json").write_bytes(half)
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS
    assert set(read_json(home / "sessions.json")["sessions"]) == SESSION_IDS
    assert [p.read_bytes() for p in (home / ".grovefs/trash").rglob("sessions.json")] == [half]


def test_temporary_files_of_a_crashed_server_are_found_and_repaired(home: Path) -> None:
    """`check` reports them; only `repair` moves them."""
    write_home(home, leftovers=True)
    with Store.open(home, background=False) as store:
        found = {f.path for f in store.check().findings if f.kind == "temporary"}
        assert found == set(LEFTOVERS)
        assert all((home / path).exists() for path in LEFTOVERS)
        assert store.check(repair=True).exit_code == 1
        assert not any((home / path).exists() for path in LEFTOVERS)
        assert store.check().is_clean


def test_temporary_file_is_not_read_as_the_attachment(home: Path) -> None:
    """The image is found with its type although a partial copy is next to it."""
    write_home(home, leftovers=True)
    with Store.open(home, background=False) as store:
        assert store.attachments.read(MIXED, PICTURE) == (b"\x89PNG picture", "image/png")
        url = get(store, MIXED).messages[0].content_parts[1].image_url.url  # type: ignore[index,union-attr]
        assert store.attachments.resolve(url) == (b"\x89PNG picture", "image/png")
        (home / f"sessions/{MIXED}/attachments/{PICTURE}.png").unlink()
        assert store.attachments.read(MIXED, PICTURE) is None


def test_usage_record_is_appended(bamboo: Path, store: Store) -> None:
    """The lines that Bamboo wrote keep their bytes."""
    store.usage.append("rich", {"round": 3})
    log = bamboo / "sessions/rich/token-usage.jsonl"
    assert log.read_bytes() == b'{"round":1}\n{"round": 2}\n{"round":3}\n'


# -- loading: session.json and sidecar -----------------------------------------------------------------------


def test_messages_come_from_session_json_and_the_rest_from_the_sidecar(bamboo: Path, store: Store) -> None:
    """A newer sidecar wins in everything except the messages, in the record and in the index."""
    kid = get(store, "kid")
    assert (kid.title, kid.title_version, kid.last_run_status) == ("The kid, renamed", 1, "running")
    assert kid.updated_at == "2026-06-20T09:30:00.000000001Z"
    assert [m.content for m in kid.messages] == ["hello"]
    entry = store.entry("kid")
    assert entry is not None
    assert (entry.title, entry.last_run_status, entry.message_count) == ("The kid, renamed", "running", 1)
    assert entry.updated_at == "2026-06-20T09:30:00.000000001Z"


def test_load_runtime_reads_the_sidecar_alone(bamboo: Path, store: Store) -> None:
    """Without messages; a session without a sidecar is loaded completely."""
    runtime = store.load_runtime("kid")
    assert runtime is not None
    assert (runtime.title, runtime.messages) == ("The kid, renamed", [])
    legacy = store.load_runtime("s-min")
    assert legacy is not None
    assert legacy.id == "s-min"


def test_values_are_loaded_with_full_precision(bamboo: Path, store: Store) -> None:
    """Nine digits, the largest u64, floats, and the task list under its old name."""
    rich = get(store, "rich")
    assert rich.created_at == NINE_DIGITS
    assert rich.updated_at.ns % 1_000_000_000 == 987_654_321
    assert rich.agent_runtime_state is not None
    assert rich.agent_runtime_state.round.total_prompt_tokens == 2**64 - 1
    assert rich.compression_events[0].usage_after_percent == 1e-7
    assert rich.task_list is not None
    assert rich.task_list.items[0].active_form == "looking"


def test_minimal_legacy_session_loads(bamboo: Path, store: Store) -> None:
    """Four members are enough; the others have defaults, and the path determines the kind."""
    session = get(store, "s-min")
    assert (session.title, session.kind, session.messages) == ("", "root", [])
    entry = store.entry("s-min")
    assert entry is not None
    assert (entry.kind, entry.root_session_id) == ("root", "s-min")


# -- editing through the API changes only what was edited ----------------------------------------------------

UPDATED = ('"updated_at": "2026-06-20T08:15:32.987654321Z"', f'"updated_at": "{LATER}"')


def set_title(session: Session) -> None:
    session.title = "Näme"


def set_pin(session: Session) -> None:
    session.pinned = True


def set_model(session: Session) -> None:
    session.model = "other"


def set_effort(session: Session) -> None:
    session.reasoning_effort = "max"


def drop_workspace(session: Session) -> None:
    session.workspace = None


def set_metadata(session: Session) -> None:
    session.metadata["alpha"] = 'a "quoted"\ttab'


def add_metadata(session: Session) -> None:
    session.metadata["new"] = "v"


def set_status(session: Session) -> None:
    session.last_run_status = "failed"


def set_round(session: Session) -> None:
    assert session.agent_runtime_state is not None
    session.agent_runtime_state.round.total_completion_tokens = 2**64 - 1


def set_item(session: Session) -> None:
    assert session.task_list is not None
    session.task_list.items[0].notes = "n"


def set_event(session: Session) -> None:
    session.compression_events[0].usage_after_percent = 12.0


def set_unknown(session: Session) -> None:
    assert session.model_extra is not None
    session.model_extra["x_top"] = {**session.model_extra["x_top"], "none": 1e16}


EDITS: list[tuple[Callable[[Session], None], list[tuple[str, str]]]] = [
    (
        set_title,
        [
            ('"title": "Größe – 大小 🌳"', '"title": "Näme"'),
            ('"title_version": 3', '"title_version": 4'),
            ('"metadata_version": 5', '"metadata_version": 6'),
        ],
    ),
    (set_pin, [('"pinned": false', '"pinned": true'), ('"metadata_version": 5', '"metadata_version": 6')]),
    (set_model, [('"model": "claude-sonnet-4",\n  "model_ref"', '"model": "other",\n  "model_ref"')]),
    (set_effort, [('"x_ref": "kept"\n  },\n', '"x_ref": "kept"\n  },\n  "reasoning_effort": "max",\n')]),
    (drop_workspace, [('  "workspace": "/home/me/src",\n', "")]),
    (set_metadata, [('"alpha": "first"', '"alpha": "a \\"quoted\\"\\ttab"')]),
    (add_metadata, [('"alpha": "first"\n', '"alpha": "first",\n    "new": "v"\n')]),
    (
        set_status,
        [
            ('"last_run_status": "completed",\n    "alpha"', '"last_run_status": "failed",\n    "alpha"'),
            ('"last_run_status": "completed",\n    "x_runtime"', '"last_run_status": "failed",\n    "x_runtime"'),
        ],
    ),
    (set_round, [('"total_completion_tokens": 50', '"total_completion_tokens": 18446744073709551615')]),
    (set_item, [('"notes": ""', '"notes": "n"')]),
    (set_event, [('"usage_after_percent": 1e-7', '"usage_after_percent": 12.0')]),
    (set_unknown, [('"none": null', '"none": 1e16')]),
]


@pytest.mark.parametrize(("edit", "pieces"), EDITS, ids=[edit.__name__ for edit, _ in EDITS])
def test_one_edit_changes_only_its_bytes_in_both_files(
    bamboo: Path, store: Store, edit: Callable[[Session], None], pieces: list[tuple[str, str]]
) -> None:
    """Unknown members, number formats, digits, order and the alias of the task list are unchanged."""
    session = get(store, "rich")
    edit(session)
    session.updated_at = Timestamp(LATER)
    store.save(session)
    assert text_of(bamboo, "rich") == replaced(RICH_MAIN, UPDATED, *pieces)
    assert text_of(bamboo, "rich", "runtime.json") == replaced(RICH_SIDE, UPDATED, *pieces)
    assert get(store, "rich") == session


@pytest.mark.parametrize(("edit", "pieces"), EDITS, ids=[edit.__name__ for edit, _ in EDITS])
def test_one_edit_saved_as_runtime_changes_only_the_sidecar(
    bamboo: Path, store: Store, edit: Callable[[Session], None], pieces: list[tuple[str, str]]
) -> None:
    """The same bytes change in runtime.json and none in session.json; the session loads with the change."""
    session = store.load_runtime("rich")
    assert session is not None
    edit(session)
    session.updated_at = Timestamp(LATER)
    store.save_runtime(session)
    assert text_of(bamboo, "rich") == RICH_MAIN
    assert text_of(bamboo, "rich", "runtime.json") == replaced(RICH_SIDE, UPDATED, *pieces)
    loaded = get(store, "rich")
    assert loaded.updated_at == LATER
    assert len(loaded.messages) == 3


def test_edit_keeps_mixed_formatting(bamboo: Path, store: Store) -> None:
    """Objects on one line stay on one line; added members follow the style around them."""
    session = get(store, MIXED)
    session.metadata["note"] = "n"
    session.last_run_error = "no"
    assert session.agent_runtime_state is not None
    session.agent_runtime_state.status = "failed"
    session.updated_at = Timestamp(LATER)
    store.save(session)
    pieces = [
        ('"updated_at": "2026-06-20T08:15:32.500Z"', f'"updated_at": "{LATER}"'),
        (
            '"metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src"}',
            '"metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src", '
            '"note": "n", "last_run_error": "no"}',
        ),
        ('"run_id": "run-1", "status": "completed"', '"run_id": "run-1", "status": "failed"'),
        (
            '"runtime_metadata": {"last_run_status": "completed", "workspace_path"',
            '"runtime_metadata": {"last_run_status": "completed", "last_run_error": "no", "workspace_path"',
        ),
    ]
    assert text_of(bamboo, MIXED) == replaced(MIXED_MAIN, *pieces)
    assert text_of(bamboo, MIXED, "runtime.json") == replaced(MIXED_SIDE, *pieces)


def test_edit_of_a_message_changes_it_alone_and_drops_the_token_usage(bamboo: Path, store: Store) -> None:
    """The text is replaced in place; the token usage, computed from it, is removed from both files."""
    session = get(store, MIXED)
    session.messages[2].content = "fn main() { todo!() }"
    session.updated_at = Timestamp(LATER)
    store.save(session)
    start = MIXED_MAIN.index('  "token_usage"')
    usage = MIXED_MAIN[start : MIXED_MAIN.index('  "agent_runtime_state"')]
    updated = ('"updated_at": "2026-06-20T08:15:32.500Z"', f'"updated_at": "{LATER}"')
    edited = ('"content": "fn main() {}"', '"content": "fn main() { todo!() }"')
    assert text_of(bamboo, MIXED) == replaced(MIXED_MAIN, updated, edited, (usage, ""))
    assert text_of(bamboo, MIXED, "runtime.json") == replaced(MIXED_SIDE, updated, (usage, ""))


def test_append_changes_nothing_else(bamboo: Path, store: Store) -> None:
    """The message is inserted after the last one with the same indentation; only updated_at changes too."""
    message = {"id": "m4", "role": "user", "content": "more", "x_new": 1e-7, "created_at": NINE_DIGITS}
    store.append("rich", [message])
    updated = store.load("rich").updated_at  # type: ignore[union-attr]
    addition = (
        '"created_at": "2026-06-20T08:15:32+00:00"\n    }\n',
        '"created_at": "2026-06-20T08:15:32+00:00"\n    },\n    {\n      "id": "m4",\n      "role": "user",\n'
        f'      "content": "more",\n      "created_at": "{NINE_DIGITS}",\n      "x_new": 1e-7\n    }}\n',
    )
    moved = (UPDATED[0], f'"updated_at": "{updated}"')
    assert text_of(bamboo, "rich") == replaced(RICH_MAIN, addition, moved)
    assert text_of(bamboo, "rich", "runtime.json") == replaced(RICH_SIDE, moved)


def test_save_updates_session_json_from_a_newer_sidecar(bamboo: Path, store: Store) -> None:
    """Values that only the sidecar had are written to session.json; the messages are unchanged."""
    store.update("kid", lambda kid: setattr(kid, "model", "m2"))
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich/children/kid", name))
        assert (document["title"], document["title_version"], document["model"]) == ("The kid, renamed", 1, "m2")
        assert document["metadata"] == {"last_run_status": "running"}
    assert len(get(store, "kid").messages) == 1


def test_unknown_members_of_either_file_survive_a_save(bamboo: Path, store: Store) -> None:
    """Members of session.json alone stay there; members of the sidecar alone are copied to session.json."""
    (bamboo / "sessions/rich/runtime.json").write_text(replaced(RICH_SIDE, ('"pinned"', '"x_side": 1.50, "pinned"')))
    store.update("rich", lambda session: setattr(session, "model", "m2"))
    main, side = text_of(bamboo, "rich"), text_of(bamboo, "rich", "runtime.json")
    assert '"x_last": "kept"' in main
    assert json.loads(main)["x_side"] == 1.5
    assert '"x_side": 1.50, "pinned"' in side
    assert "x_last" not in side


def test_first_save_of_a_minimal_session_adds_a_sidecar_and_the_changed_members(bamboo: Path, store: Store) -> None:
    """A legacy document gets the members that were set, at their declared position, and no defaults."""
    session = get(store, "s-min")
    session.title = "Named"
    session.updated_at = Timestamp(LATER)
    store.save(session)
    expected = (
        '{"id":"s-min","title":"Named","title_version":1,"metadata_version":1,"messages":[],'
        f'"created_at":"2025-01-01T00:00:00Z","updated_at":"{LATER}"}}'
    )
    assert text_of(bamboo, "s-min") == expected
    assert text_of(bamboo, "s-min", "runtime.json") == expected


def test_append_to_a_minimal_session_stays_on_one_line(bamboo: Path, store: Store) -> None:
    """A compact document stays compact and gets a sidecar."""
    store.append("s-min", [{"id": "m1", "role": "user", "content": "hi", "created_at": "2025-01-02T00:00:00Z"}])
    updated = get(store, "s-min").updated_at
    message = '{"id":"m1","role":"user","content":"hi","created_at":"2025-01-02T00:00:00Z"}'
    moved = ('"updated_at":"2025-01-01T00:00:00Z"', f'"updated_at":"{updated}"')
    assert text_of(bamboo, "s-min") == replaced(MINIMAL, ('"messages":[]', f'"messages":[{message}]'), moved)
    assert text_of(bamboo, "s-min", "runtime.json") == replaced(MINIMAL, moved)


def test_first_runtime_save_of_a_minimal_session_keeps_session_json(bamboo: Path, store: Store) -> None:
    """Only the sidecar is written: the text of session.json with the change."""
    session = get(store, "s-min")
    session.model = "m"
    session.updated_at = Timestamp(LATER)
    store.save_runtime(session)
    assert text_of(bamboo, "s-min") == MINIMAL
    moved = ('"updated_at":"2025-01-01T00:00:00Z"', f'"updated_at":"{LATER}","model":"m"')
    assert text_of(bamboo, "s-min", "runtime.json") == replaced(MINIMAL, moved)


def test_generated_message_ids_and_times_are_not_written(store: Store, home: Path) -> None:
    """Bamboo generates both at each load; a save of another change must not write them."""
    messages = [{"role": "user", "content": "no id"}, {"role": "assistant", "content": "nor I", "x": 1}]
    raw = make_document(messages=messages)
    store.put_document("s1", "session.json", raw)
    store.update("s1", lambda session: setattr(session, "model", "m"))
    assert read_json(home / "sessions/s1/session.json")["messages"] == messages


# -- homes of an older version with one level of children ----------------------------------------------------


def write_single_level_home(home: Path) -> None:
    """No sidecars, no `title_version`, children directly below their root."""
    documents = {
        "sessions/old": make_document("old", model="m", spawn_depth=0),
        "sessions/old/children/c1": make_document(
            "c1", kind="child", parent_session_id="old", root_session_id="old", spawn_depth=1
        ),
    }
    entries = {}
    for path, document in documents.items():
        (home / path / "attachments").mkdir(parents=True)
        (home / path / "session.json").write_bytes(document)
        id = path.rpartition("/")[2]
        entries[id] = {k: v for k, v in index_entry(id, path).items() if k != "title_version"}
    index = {"version": 2, "updated_at": NINE_DIGITS, "sessions": entries}
    (home / "sessions.json").write_text(json.dumps(index, indent=2))


@pytest.fixture
def single_level(home: Path) -> Path:
    write_single_level_home(home)
    return home


def test_single_level_home_opens_unchanged(single_level: Path) -> None:
    """Opening writes no sidecars."""
    before = snapshot(single_level)
    with Store.open(single_level, background=False) as store:
        assert {entry.id for entry in store.entries()} == {"old", "c1"}
        assert get(store, "c1").parent_session_id == "old"
    after = snapshot(single_level)
    del after[".sessions-index.lock"]  # created for the export, as Bamboo does
    assert after == before


@pytest.mark.parametrize("id", ["old", "c1"])
def test_saving_in_a_single_level_home_writes_the_sidecar(single_level: Path, store: Store, id: str) -> None:
    """The saved session gets a sidecar and a title_version; the other one is unchanged."""
    before = snapshot(single_level)
    store.update(id, lambda session: setattr(session, "title", "New name"))
    changed = {name for name, state in snapshot(single_level).items() if before.get(name) != state}
    directory = "sessions/old" if id == "old" else "sessions/old/children/c1"
    assert changed == {f"{directory}/session.json", f"{directory}/runtime.json"}
    for name in ("session.json", "runtime.json"):
        document = read_json(single_level / directory / name)
        assert (document["title"], document["title_version"], document["metadata_version"]) == ("New name", 1, 1)
    assert read_json(single_level / directory / "runtime.json")["messages"] == []


def test_migrating_a_single_level_home_writes_every_sidecar(single_level: Path, store: Store) -> None:
    """For roots and children, in the formatting of session.json, which is unchanged."""
    before = files_below(single_level)
    assert store.maintenance.migrate_sidecars() == 2
    after = files_below(single_level)
    assert {name: after[name] for name in before} == before
    for name in before:
        message = json.dumps(json.loads(before[name])["messages"], indent=2).replace("\n", "\n  ")
        assert after[name.replace("session.json", "runtime.json")] == before[name].replace(message.encode(), b"[]")


# -- put_document: bytes are stored as given -----------------------------------------------------------------


def test_putting_the_same_bytes_changes_nothing(bamboo: Path, store: Store) -> None:
    """Neither files, nor times, nor the feed, for documents in any formatting."""
    before = snapshot(bamboo)
    cursor = store.feed.since().cursor
    for id, text in (("rich", RICH_MAIN), (MIXED, MIXED_MAIN), ("s-min", MINIMAL)):
        assert put(store, id, text) is False
    assert put(store, "rich", RICH_SIDE, "runtime.json") is False
    assert snapshot(bamboo) == before
    assert store.feed.since(cursor).items == []


@pytest.mark.parametrize("reformat", [str.strip, lambda t: t.replace("\n", "\r\n  "), lambda t: f"\n{t} \n"])
def test_bytes_are_stored_as_given(bamboo: Path, store: Store, reformat: Callable[[str], str]) -> None:
    """Any white space is kept; the sidecar does not change."""
    text = reformat(replaced(RICH_MAIN, ('"content": "see picture"', '"content": "see  it"')))
    assert put(store, "rich", text) is True
    assert store.get_document("rich", "session.json") == text.encode()
    assert text_of(bamboo, "rich", "runtime.json") == RICH_SIDE


# -- put_document: updates of the sidecar --------------------------------------------------------------------

# A sidecar that is newer than its session.json in status, model and time.
FRESHER = [
    ('"status": "completed"', '"status": "running"'),
    ('"model": "claude-sonnet-4",\n  "model_ref"', '"model": "fresher",\n  "model_ref"'),
    (UPDATED[0], '"updated_at": "2026-06-21T00:00:00.000000001Z"'),
]
FRESH_SIDE = replaced(RICH_SIDE, *FRESHER)


@pytest.fixture
def fresh(bamboo: Path) -> Path:
    (bamboo / "sessions/rich/runtime.json").write_text(FRESH_SIDE)
    return bamboo


def test_changed_members_are_copied_to_the_sidecar_and_the_others_keep_their_newer_values(
    fresh: Path, store: Store
) -> None:
    """A title edited in session.json is copied; the newer members of the sidecar stay."""
    title = ('"title": "Größe – 大小 🌳"', '"title": "Edited"')
    assert put(store, "rich", replaced(RICH_MAIN, title))
    assert text_of(fresh, "rich") == replaced(RICH_MAIN, title)
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, title)
    session = get(store, "rich")
    assert (session.title, session.model) == ("Edited", "fresher")
    entry = store.entry("rich")
    assert entry is not None
    assert (entry.title, entry.model) == ("Edited", "fresher")


def test_changed_nested_member_is_copied_alone(fresh: Path, store: Store) -> None:
    """One member of the runtime state is copied; the one next to it keeps the value of the sidecar."""
    run = ('"run_id": "run-1"', '"run_id": "run-2"')
    item = ('"status": "pending"', '"status": "in_progress"')
    unknown = ('"x_round": 0.0', '"x_round": 0.50')
    put(store, "rich", replaced(RICH_MAIN, run, item, unknown))
    side = text_of(fresh, "rich", "runtime.json")
    # Values are compared, not their text: 0.50 equals 0.5.
    assert side == replaced(FRESH_SIDE, run, item, ('"x_round": 0.0', '"x_round": 0.5'))


def test_removed_member_is_removed_from_the_sidecar(fresh: Path, store: Store) -> None:
    """Known and unknown members."""
    gone = ('  "workspace": "/home/me/src",\n', "")
    nested = (',\n    "x_state": "kept"', "")
    put(store, "rich", replaced(RICH_MAIN, gone, nested))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, gone, nested)
    assert get(store, "rich").workspace is None


def test_added_member_is_added_to_the_sidecar(fresh: Path, store: Store) -> None:
    """Known and unknown members, at the same position."""
    effort = ('"x_ref": "kept"\n  },\n', '"x_ref": "kept"\n  },\n  "reasoning_effort": "low",\n')
    unknown = ('"zeta": "last",\n', '"zeta": "last",\n    "zeta2": "more",\n')
    put(store, "rich", replaced(RICH_MAIN, effort, unknown))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, effort, unknown)


def test_changed_updated_at_is_copied_to_the_sidecar(fresh: Path, store: Store) -> None:
    """A newer time in session.json becomes the time of the sidecar."""
    updated = (UPDATED[0], f'"updated_at": "{LATEST}"')
    put(store, "rich", replaced(RICH_MAIN, updated))
    old_side = '"updated_at": "2026-06-21T00:00:00.000000001Z"'
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, (old_side, updated[1]))


def test_messages_are_not_copied_to_the_sidecar(fresh: Path, store: Store) -> None:
    """An edit of the conversation changes no byte of the sidecar."""
    put(store, "rich", replaced(RICH_MAIN, ('"content": "see picture"', '"content": "look"')))
    assert text_of(fresh, "rich", "runtime.json") == FRESH_SIDE
    assert get(store, "rich").messages[1].content == "look"


def test_members_of_session_json_alone_are_not_copied(fresh: Path, store: Store) -> None:
    """The provider transcript and the admitted inbox ids are not in the sidecar, but are loaded."""
    transcript = ('  "x_last": "kept"', '  "provider_transcript": {\n    "items": []\n  },\n  "x_last": "kept"')
    admission = ('"x_runtime": []', '"session_inbox_admission": {"n": 1},\n    "x_runtime": []')
    put(store, "rich", replaced(RICH_MAIN, transcript, admission))
    assert text_of(fresh, "rich", "runtime.json") == FRESH_SIDE
    session = get(store, "rich")
    assert session.provider_transcript == {"items": []}
    assert session.runtime_metadata is not None
    assert session.runtime_metadata.session_inbox_admission == {"n": 1}


def test_change_is_copied_across_both_names_of_the_task_list(fresh: Path, store: Store) -> None:
    """session.json has todo_list, the sidecar task_list: the edit is copied, and no second list is added."""
    side = replaced(FRESH_SIDE, ('"todo_list"', '"task_list"'))
    put(store, "rich", side, "runtime.json")
    title = ('"title": "Plan"', '"title": "Better plan"')
    put(store, "rich", replaced(RICH_MAIN, title))
    assert text_of(fresh, "rich", "runtime.json") == replaced(side, title)


def test_change_is_copied_across_both_names_of_active_form(fresh: Path, store: Store) -> None:
    """session.json has activeForm, the sidecar active_form, as after Bamboo's own migration."""
    side = replaced(FRESH_SIDE, ('"activeForm"', '"active_form"'))
    put(store, "rich", side, "runtime.json")
    put(store, "rich", replaced(RICH_MAIN, ('"activeForm": "looking"', '"activeForm": "peering"')))
    assert text_of(fresh, "rich", "runtime.json") == replaced(side, ("looking", "peering"))


def test_unknown_member_with_the_name_of_an_alias_is_copied_unchanged(fresh: Path, store: Store) -> None:
    """`ref` and `activeForm` are aliases in a task list only."""
    unknown = ('"workspace"', '"ref": 1,\n  "activeForm": 2,\n  "workspace"')
    put(store, "rich", replaced(RICH_MAIN, unknown))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, unknown)


def test_new_session_json_does_not_change_an_existing_sidecar(store: Store, home: Path) -> None:
    """A restore may write the sidecar first."""
    (home / "sessions/rich/attachments").mkdir(parents=True)
    (home / "sessions/rich/attachments/a1.png").write_bytes(b"a1")
    put(store, "rich", FRESH_SIDE, "runtime.json")
    assert store.entry("rich") is None
    put(store, "rich", RICH_MAIN)
    assert text_of(home, "rich", "runtime.json") == FRESH_SIDE
    assert get(store, "rich").model == "fresher"


def test_session_json_with_an_older_time_is_rejected(fresh: Path, store: Store) -> None:
    """It is a stale copy; the error names both times."""
    before = snapshot(fresh)
    back = replaced(RICH_MAIN, (UPDATED[0], f'"updated_at": "{NINE_DIGITS}"'))
    with pytest.raises(Conflict, match=f"{NINE_DIGITS}.*2026-06-20T08:15:32.987654321Z"):
        put(store, "rich", back)
    assert snapshot(fresh) == before


def test_session_json_restored_to_an_older_version_keeps_the_sidecar(fresh: Path, store: Store) -> None:
    """With on_conflict="overwrite" the sidecar is not changed: its own older file may follow."""
    title = ('"title": "Größe – 大小 🌳"', '"title": "Of old"')
    back = replaced(RICH_MAIN, title, (UPDATED[0], f'"updated_at": "{NINE_DIGITS}"'))
    assert put(store, "rich", back, on_conflict="overwrite")
    assert text_of(fresh, "rich") == back
    assert text_of(fresh, "rich", "runtime.json") == FRESH_SIDE


def test_session_json_without_a_sidecar_gets_one(store: Store, home: Path) -> None:
    """The sidecar is the text of session.json without its messages."""
    (home / "sessions/rich/attachments").mkdir(parents=True)
    (home / "sessions/rich/attachments/a1.png").write_bytes(b"a1")
    put(store, "rich", RICH_MAIN)
    assert text_of(home, "rich") == RICH_MAIN
    assert text_of(home, "rich", "runtime.json") == without_messages(RICH_MAIN)


def test_runtime_json_changes_no_other_document_and_updates_the_index(bamboo: Path, store: Store) -> None:
    """Record and index change at once; session.json is the same file."""
    main = snapshot(bamboo)["sessions/rich/session.json"]
    assert put(store, "rich", FRESH_SIDE, "runtime.json")
    assert snapshot(bamboo)["sessions/rich/session.json"] == main
    assert get(store, "rich").model == "fresher"
    entry = store.entry("rich")
    assert entry is not None
    assert (entry.model, entry.updated_at) == ("fresher", "2026-06-21T00:00:00.000000001Z")


def test_runtime_json_with_messages_is_rejected(bamboo: Path, store: Store) -> None:
    """Messages in a sidecar would never be read; the error gives the position."""
    before = snapshot(bamboo)
    with pytest.raises(InvalidContent, match="must not have messages") as refused:
        put(store, "rich", RICH_MAIN, "runtime.json")
    assert (refused.value.problem.field, refused.value.problem.line) == ("messages", 16)
    assert snapshot(bamboo) == before


def test_save_runtime_of_a_session_never_saved_is_a_full_save(store: Store, home: Path) -> None:
    """Both files are written, including the messages."""
    store.save_runtime(make_session("s1", messages=2))
    assert len(read_json(home / "sessions/s1/session.json")["messages"]) == 2
    assert read_json(home / "sessions/s1/runtime.json")["messages"] == []


def test_replaced_base_is_a_conflict(bamboo: Path, store: Store) -> None:
    """Even if the stale document has a newer time."""
    base = store.version(Location("rich"))
    store.append("rich", [Message.user("in between")])
    with pytest.raises(Conflict):
        put(store, "rich", replaced(RICH_MAIN, (UPDATED[0], '"updated_at": "2099-01-01T00:00:00Z"')), base=base)
    assert get(store, "rich").messages[-1].content == "in between"


@pytest.mark.parametrize(
    ("pieces", "field"),
    [
        ([('"id": "rich"', '"id": "poor"')], "id"),
        ([('"kind": "root"', '"kind": "child"')], "kind"),
        ([('"root_session_id": "rich"', '"root_session_id": "poor"')], "root_session_id"),
        ([('"alpha": "first"', '"alpha": 1')], "metadata.alpha"),
        ([('"role": "user"', '"role": "robot"')], "messages[1].role"),
        ([('"spawn_depth": 0', '"spawn_depth": 0.0')], "spawn_depth"),
        ([('"title_version": 3', '"title_version": 18446744073709551616')], "title_version"),
        ([('"pinned": false', '"pinned": null')], "pinned"),
        ([('"x_last"', '"task_list": null, "x_last"')], None),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_document_that_bamboo_could_not_load_is_rejected(
    bamboo: Path, store: Store, pieces: list[tuple[str, str]], field: str | None
) -> None:
    """The error names the member; nothing is changed."""
    before = snapshot(bamboo)
    with pytest.raises(InvalidContent) as refused:
        put(store, "rich", replaced(RICH_MAIN, *pieces))
    assert field is None or refused.value.problem.field == field
    assert snapshot(bamboo) == before


# -- saving through the API ----------------------------------------------------------------------------------


def test_save_never_shortens_unless_asked(bamboo: Path, store: Store) -> None:
    """Fewer messages than on disk are a Conflict unless shorten=True."""
    session = get(store, "rich")
    del session.messages[1:]
    with pytest.raises(Conflict, match="would drop 2 messages"):
        store.save(session)
    assert text_of(bamboo, "rich") == RICH_MAIN
    store.save(session, shorten=True)
    assert [m.id for m in get(store, "rich").messages] == ["m1"]


def test_stale_session_is_a_conflict_and_changes_nothing(bamboo: Path, store: Store) -> None:
    """The second of two writers gets Conflict and can save after loading again."""
    mine, theirs = get(store, "rich"), get(store, "rich")
    theirs.model = "theirs"
    store.save(theirs)
    mine.title = "mine"
    with pytest.raises(Conflict, match="changed by another writer"):
        store.save(mine)
    assert get(store, "rich").model == "theirs"
    store.update("rich", lambda session: setattr(session, "title", "mine"))
    assert (get(store, "rich").title, get(store, "rich").model) == ("mine", "theirs")


def test_typed_runtime_field_changed_in_place_keeps_its_mirror(bamboo: Path, store: Store) -> None:
    """Old readers use metadata, new ones runtime_metadata; both are set and cleared."""
    session = get(store, "rich")
    assert session.runtime_metadata is not None
    session.runtime_metadata.last_run_status = "failed"
    session.runtime_metadata.selected_skill_ids = ["a", "b"]
    store.save(session)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich", name))
        assert document["metadata"]["last_run_status"] == "failed"
        assert document["metadata"]["selected_skill_ids"] == '["a","b"]'
    session.last_run_status = None
    store.save(session)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich", name))
        assert "last_run_status" not in document["metadata"]
        assert "last_run_status" not in document["runtime_metadata"]


def test_editing_a_message_removes_derived_members(bamboo: Path, store: Store) -> None:
    """Compression events, which describe another text, are removed from both files; unknown members stay."""
    session = get(store, "rich")
    session.messages[1].content = "look"
    store.save(session)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich", name))
        assert "compression_events" not in document
        assert document["x_top"]["count"] == 2**64 - 1
    assert '"x_message": [\n        1e-7,\n        50.0\n      ]' in text_of(bamboo, "rich")


# -- Bamboo's sealed header ----------------------------------------------------------------------------------


def sealed_document(*, title: str = "Sealed", payload_bytes: int | None = None, **changes: Any) -> bytes:
    """A session.json as the newest Bamboo writes it: a sealed copy of the main members, then the members themselves."""
    flat: dict[str, Any] = {
        "id": "sealed",
        "title": title,
        "metadata_version": 2,
        "kind": "root",
        "root_session_id": "sealed",
        "spawn_depth": 0,
        "messages": [{"id": "m1", "role": "user", "content": "hi", "created_at": NINE_DIGITS}],
        "created_at": NINE_DIGITS,
        "updated_at": NINE_DIGITS,
        "x_flat": 1,
    }
    payload = {
        "id": "sealed",
        "created_at": NINE_DIGITS,
        "kind": "root",
        "parent_session_id": None,
        "root_session_id": "sealed",
        "spawn_depth": 0,
        "authority_identity": "ordinary",
        "metadata_version": 2,
        "project_id": None,
        "root_orchestration_only": False,
        "root_tool_authority_revision": 0,
        "root_mode_transition_epoch": 0,
        "root_mode_operations": [],
        "supervisor_management": None,
        "title_label": "Sealed",
        **changes,
    }
    inside = compact(payload)
    size = len(inside.encode()) if payload_bytes is None else payload_bytes
    seal = f'{{"_bamboo_main_authority":{{"version":1,"payload_bytes":"{size:010d}","payload":{inside}}},'
    return (seal + compact(flat)[1:]).encode()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def unsealed(raw: bytes) -> str:
    return "{" + raw.decode()[raw.decode().index('}},"id"') + 3 :]


@pytest.fixture
def sealed(store: Store, home: Path) -> bytes:
    """The sealed document, stored as given."""
    raw = sealed_document()
    assert store.put_document("sealed", "session.json", raw)
    return raw


def test_sealed_document_is_accepted_byte_for_byte(store: Store, home: Path, sealed: bytes) -> None:
    """Its sidecar has no seal."""
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed
    assert "_bamboo_main_authority" not in text_of(home, "sealed", "runtime.json")
    assert get(store, "sealed").title == "Sealed"


def test_saving_an_unchanged_sealed_session_keeps_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """Nothing is rewritten."""
    store.save(get(store, "sealed"))
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed


def test_save_drops_the_seal_and_nothing_else(store: Store, home: Path, sealed: bytes) -> None:
    """Bamboo would reject a seal that does not match; without one the document is a legacy document."""
    session = get(store, "sealed")
    session.model = "m"
    session.updated_at = Timestamp(LATER)
    store.save(session)
    updated = (f'"updated_at":"{NINE_DIGITS}"', f'"updated_at":"{LATER}","model":"m"')
    assert text_of(home, "sealed") == replaced(unsealed(sealed), updated)


def test_append_drops_the_seal_and_nothing_else(store: Store, home: Path, sealed: bytes) -> None:
    """The fast append path removes it too."""
    message = {"id": "m2", "role": "user", "content": "more", "created_at": LATER}
    store.append("sealed", [message])
    updated = get(store, "sealed").updated_at
    pieces = [(f'"updated_at":"{NINE_DIGITS}"', f'"updated_at":"{updated}"'), ("}],", "}," + compact(message) + "],")]
    assert text_of(home, "sealed") == replaced(unsealed(sealed), *pieces)


def test_clear_drops_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """Clearing rewrites the document like any save."""
    assert store.clear("sealed")
    assert "_bamboo_main_authority" not in text_of(home, "sealed")


def test_runtime_save_keeps_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """session.json is not rewritten, so its seal still matches."""
    session = get(store, "sealed")
    session.last_run_status = "running"
    store.save_runtime(session)
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed


def test_fork_of_a_sealed_document_has_no_seal(store: Store, home: Path, sealed: bytes) -> None:
    """The seal contains the id, and the fork has another one."""
    store.put_document("forked", "session.json", sealed)
    assert text_of(home, "forked") == unsealed(sealed).replace('"sealed"', '"forked"')


BAD_SEALS = {
    "re-indented": json.dumps(json.loads(sealed_document()), indent=2).encode(),
    "re-spaced": json.dumps(json.loads(sealed_document())).encode(),
    "white space in front": b" " + sealed_document(),
    "moved to the end": compact(
        dict(sorted(json.loads(sealed_document()).items(), key=lambda kv: kv[0].startswith("_")))
    ).encode(),
    "no object": b'{"_bamboo_main_authority":1,' + unsealed(sealed_document())[1:].encode(),
    "wrong length": sealed_document(payload_bytes=17),
    "length beyond the end": sealed_document(payload_bytes=9_999_999_999),
    "another id": sealed_document(id="other"),
    "another time": sealed_document(created_at=LATER),
    "another kind": sealed_document(kind="child"),
    "another parent": sealed_document(parent_session_id="p"),
    "another root": sealed_document(root_session_id="other"),
    "another depth": sealed_document(spawn_depth=1),
    "another version": sealed_document(metadata_version=3),
    "another title": sealed_document(title="Edited by hand"),
    "another authority": sealed_document(root_orchestration_only=True),
    "another revision": sealed_document(root_tool_authority_revision=7),
    "another project": sealed_document(project_id="p1"),
}


@pytest.mark.parametrize("raw", BAD_SEALS.values(), ids=BAD_SEALS.keys())
def test_broken_seal_is_rejected_and_the_error_says_to_delete_it(store: Store, home: Path, raw: bytes) -> None:
    """Bamboo would reject the document; without the member it is accepted."""
    with pytest.raises(InvalidContent, match="delete the member '_bamboo_main_authority'") as refused:
        store.put_document("sealed", "session.json", raw)
    assert refused.value.problem.field == "_bamboo_main_authority"
    assert refused.value.problem.line is not None
    assert files_below(home) == {}
    advised = {k: v for k, v in json.loads(raw).items() if k != "_bamboo_main_authority"}
    assert store.put_document("sealed", "session.json", json.dumps(advised, indent=2).encode())


def test_sidecar_with_a_seal_is_rejected(store: Store, sealed: bytes) -> None:
    """The seal belongs in session.json only."""
    document = {**json.loads(sealed), "messages": []}
    with pytest.raises(InvalidContent, match=r"session\.json only.*delete the member"):
        store.put_document("sealed", "runtime.json", compact(document).encode())


# -- deleting, cleaning up, clearing -------------------------------------------------------------------------


@pytest.fixture
def grove(store: Store) -> Store:
    """a: empty root with child a1 (empty) and its child a2; b: root with work and an empty child b1;
    c: empty root with an empty child c1."""
    for root, messages in (("a", 1), ("b", 3), ("c", 0)):
        store.save(make_session(root, messages=messages))
    a, b, c = (get(store, id) for id in "abc")
    a1 = Session.new_child_of("a1", a, "m", "a1")
    for child in (a1, Session.new_child_of("a2", a1, "m", "a2")):
        store.save(child)
    store.save(Session.new_child_of("b1", b, "m", "b1"))
    store.save(Session.new_child_of("c1", c, "m", "c1"))
    return store


def test_cleanup_all_keeps_a_pinned_grandchild_and_its_ancestors(grove: Store) -> None:
    """The ancestors up to the root stay, because its directory contains the pinned session."""
    pin(grove, "a2")
    result = grove.prune.apply(grove.prune.plan_cleanup("all"))
    assert result.deleted_session_ids == ["b", "b1", "c", "c1"]
    assert result.deleted_count == 4
    assert ids(grove) == {"a", "a1", "a2"}


def test_cleanup_all_without_keep_pinned_deletes_everything(grove: Store, home: Path) -> None:
    """Pins protect only with keep_pinned."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("all", keep_pinned=False)).deleted_count == 7
    assert ids(grove) == set()
    assert files_below(home) == {}


def test_cleanup_all_deletes_unpinned_children_of_a_kept_root(grove: Store) -> None:
    """A pinned root protects itself, not its descendants."""
    pin(grove, "a")
    grove.prune.apply(grove.prune.plan_cleanup("all"))
    assert ids(grove) == {"a"}


def test_cleanup_empty_keeps_a_pinned_grandchild_and_its_ancestors(grove: Store) -> None:
    """Other empty sessions are deleted; a root with messages stays, its empty child does not."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("empty")).deleted_session_ids == ["b1", "c", "c1"]
    assert ids(grove) == {"a", "a1", "a2", "b"}


def test_cleanup_empty_keeps_an_empty_root_whose_grandchild_has_messages(grove: Store) -> None:
    """Unlike Bamboo, which deletes the descendants of an empty session."""
    grove.append("a2", [Message.user("one"), Message.assistant("two")])
    grove.prune.apply(grove.prune.plan_cleanup("empty"))
    assert ids(grove) == {"a", "a1", "a2", "b"}


def test_cleanup_children_keeps_a_pinned_grandchild_and_its_parent(grove: Store) -> None:
    """All roots stay; of the children only the pinned one and its ancestors."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("children")).deleted_session_ids == ["b1", "c1"]
    assert ids(grove) == {"a", "a1", "a2", "b", "c"}


def test_cleanup_children_deletes_nested_children(grove: Store) -> None:
    """At any depth."""
    grove.prune.apply(grove.prune.plan_cleanup("children"))
    assert ids(grove) == {"a", "b", "c"}


def test_plan_lists_what_cleanup_deletes(grove: Store) -> None:
    """Planning changes nothing; a session pinned afterwards is kept."""
    plan = grove.prune.plan_cleanup("children")
    assert plan.session_ids == ["a1", "a2", "b1", "c1"]
    assert len(ids(grove)) == 7
    pin(grove, "a2")
    assert grove.prune.apply(plan).deleted_session_ids == ["b1", "c1"]


def test_deleting_a_nested_child_deletes_its_descendants(bamboo: Path, store: Store) -> None:
    """Although their directories are siblings; the root and other sessions stay."""
    assert store.delete("kid")
    assert ids(store) == SESSION_IDS - {"kid", "grandkid"}
    assert list((bamboo / "sessions/rich/children").iterdir()) == []
    assert store.load("grandkid") is None


def test_deleting_is_rejected_while_a_descendant_is_pinned(bamboo: Path, store: Store) -> None:
    """The error names it; force=True deletes it, and undelete restores it byte for byte."""
    pin(store, "grandkid")
    before = files_below(bamboo)
    with pytest.raises(Protected, match="rich/grandkid"):
        store.delete("rich")
    with pytest.raises(Protected):
        store.delete("kid")
    assert files_below(bamboo) == before
    assert store.delete("kid", force=True)
    [deleted] = store.trash.deleted()
    assert {str(location) for location in store.trash.undelete(deleted.name)} == {"rich/kid", "rich/grandkid"}
    assert files_below(bamboo) == before


def test_deleting_a_root_deletes_its_whole_tree(bamboo: Path, store: Store) -> None:
    """Children and grandchildren too; the flat file of the older backend stays."""
    assert store.delete("rich")
    assert ids(store) == {MIXED, "s-min"}
    assert sorted(p.name for p in (bamboo / "sessions").iterdir()) == sorted(
        [MIXED, "s-min", "s-old.json", "s-old.jsonl"]
    )


def test_clear_keeps_the_first_system_message(bamboo: Path, store: Store) -> None:
    """Messages and attachments are removed; the other members of both documents keep their position."""
    assert store.clear("rich")
    session = get(store, "rich")
    assert [m.id for m in session.messages] == ["m1"]
    start = RICH_MAIN.index(',\n    {\n      "id": "m2"')
    others = RICH_MAIN[start : RICH_MAIN.index("\n  ],\n", start)]
    events = RICH_MAIN[RICH_MAIN.index('  "compression_events"') : RICH_MAIN.index('  "agent_runtime_state"')]
    updated = (UPDATED[0], f'"updated_at": "{session.updated_at}"')
    assert text_of(bamboo, "rich") == replaced(RICH_MAIN, (others, ""), (events, ""), updated)
    assert text_of(bamboo, "rich", "runtime.json") == replaced(RICH_SIDE, (events, ""), updated)
    assert list((bamboo / "sessions/rich").glob("attachments/*")) == []
    entry = store.entry("rich")
    assert entry is not None
    assert (entry.message_count, entry.has_attachments) == (1, False)
    assert ids(store) == SESSION_IDS


def test_clear_removes_usage_from_both_files(bamboo: Path, store: Store) -> None:
    """Without a system message no message is left."""
    assert store.clear(MIXED)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, MIXED, name))
        assert document["messages"] == []
        assert "token_usage" not in document
        assert document["metadata"] == {"last_run_status": "completed", "workspace_path": "/home/me/src"}


def test_clear_of_an_unknown_id_is_false(bamboo: Path, store: Store) -> None:
    """Nothing is changed."""
    before = snapshot(bamboo)
    assert store.clear("nobody") is False
    assert snapshot(bamboo) == before


# -- child ids used under several roots ----------------------------------------------------------------------


def copy_tree(home: Path, *, corrected: bool) -> None:
    """`cp -r sessions/rich sessions/copy`; if `corrected`, with the new root in each document."""
    shutil.copytree(home / "sessions/rich", home / "sessions/copy")
    if corrected:
        for path in (home / "sessions/copy").rglob("*.json"):
            path.write_text(path.read_text().replace('"rich"', '"copy"').replace("//rich/", "//copy/"))


def test_child_under_two_roots_is_ambiguous_and_its_exact_name_is_not(bamboo: Path, store: Store) -> None:
    """The error lists the candidates, each of which can be used as an id."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    for ask in (store.load, store.load_runtime, store.entry, store.location, store.delete, store.clear, store.children):
        with pytest.raises(Ambiguous) as error:
            ask("kid")
        assert error.value.candidates == ["copy/kid", "rich/kid"]
    assert get(store, "rich/kid").root_session_id == "rich"
    assert get(store, "copy/kid").root_session_id == "copy"
    entry = store.entry("copy/kid")
    assert entry is not None
    assert entry.rel_path == "sessions/copy/children/kid"


def test_loaded_copy_is_saved_to_its_own_location(bamboo: Path, store: Store) -> None:
    """A Session knows its root, so saving and appending are never ambiguous."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    session = get(store, "copy/kid")
    session.model = "only the copy"
    store.save(session)
    store.append(session, [Message.user("for the copy")])
    store.append("copy/kid", [Message.user("by name")])
    assert len(get(store, "copy/kid").messages) == 3
    assert get(store, "rich/kid").model == ""
    assert len(get(store, "rich/kid").messages) == 1


def test_deleting_one_of_two_resolves_the_ambiguity(bamboo: Path, store: Store) -> None:
    """Only descendants in the named tree are deleted."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    assert store.delete("copy/kid")
    assert get(store, "kid").root_session_id == "rich"
    assert get(store, "grandkid").root_session_id == "rich"
    assert not (bamboo / "sessions/copy/children/grandkid").exists()


def test_export_has_an_ambiguous_id_once(bamboo: Path, store: Store) -> None:
    """sessions.json is keyed by id; it stays valid."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    store.maintenance.export_sessions_json()
    assert set(read_json(bamboo / "sessions.json")["sessions"]) == SESSION_IDS | {"copy"}


@pytest.mark.warns
def test_plain_copy_is_reported_and_not_loaded_as_the_original(home: Path) -> None:
    """A document with another id than its path is a finding, loading it raises Corrupt, the original is unchanged."""
    write_home(home)
    before = snapshot(home)
    copy_tree(home, corrected=False)
    with Store.open(home, background=False) as store:
        with pytest.raises(Corrupt, match="as in the path"):
            store.load("copy")
        assert get(store, "rich").title == "Größe – 大小 🌳"
        with pytest.raises(Ambiguous):
            store.load("kid")
        found = {finding.path.split("/")[1] for finding in store.check().findings if finding.kind == "identity"}
        assert found == {"copy"}
        assert store.delete("copy")
        assert store.check().is_clean
        assert get(store, "kid").root_session_id == "rich"
    assert snapshot(home) == before
