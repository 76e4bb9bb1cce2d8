"""A home that Bamboo left behind opens as it is, loses nothing, and is changed only where someone changed it.

The documents are composed by hand after FORMATS A.11 and C. What a rewrite must look like is worked out
here by replacing pieces of text, with nothing of the store's own.
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
from tests.builders import NINE_DIGITS, files_below, make_document, make_session, read_json

LATER = "2026-06-22T10:00:00.000000007Z"
LATEST = "2026-06-23T00:00:00Z"

# -- the documents -------------------------------------------------------------------------------------------

# Everything that a rewrite could spoil: unknown members at every level, numbers in odd forms, the old name
# of the task list, nine digits, text beyond ASCII.
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

# As FORMATS A.11 prints it: some inner objects on one line.
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
}"""  # noqa: E501  # as it is printed there

MINIMAL = '{"id":"s-min","messages":[],"created_at":"2025-01-01T00:00:00Z","updated_at":"2025-01-01T00:00:00Z"}'


def without_messages(text: str) -> str:
    """The sidecar's text: `messages` empty, all else the same."""
    start = text.index('"messages": [')
    end = text.index("\n  ],", start)
    return text[:start] + '"messages": []' + text[end + len("\n  ]") :]


RICH_SIDE = without_messages(RICH_MAIN).replace(',\n  "x_last": "kept"', "")  # which only session.json has
MIXED_SIDE = without_messages(MIXED_MAIN)


def replaced(text: str, *pieces: tuple[str, str]) -> str:
    """`text` with each piece replaced; a piece must be there exactly once."""
    for old, new in pieces:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
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
    """An entry as Bamboo writes it; what it says of the session is out of date, as it may be."""
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
    """A home with a root of each form, a child, its child, and all that a server leaves lying about."""
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
        # An older backend's flat files, which look like sessions and are none.
        "sessions/s-old.json": MINIMAL.replace("s-min", "s-old").encode(),
        "sessions/s-old.jsonl": b'{"type":"token"}\nnot JSON\n',
        ".bamboo_encryption_key": bytes(range(32)),
        "session_search.db": b"no SQLite at all \x00\xff",
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
    """Every file but ours and sessions.json: bytes, inode, mode and mtime."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and name != "sessions.json" and not name.startswith(".grovefs/"):
            stat = path.stat()
            found[name] = (path.read_bytes(), stat.st_ino, stat.st_mode, stat.st_mtime_ns)
    return found


@pytest.fixture
def bamboo(home: Path) -> Path:
    """The home on disk; name it before `store`, which then opens it."""
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


# -- opening: nothing is lost, nothing is touched ------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 4])
def test_every_session_is_found(home: Path, version: int) -> None:
    """Roots, children and grandchildren are listed, the flat files of an older backend are not."""
    write_home(home, version=version, leftovers=True)
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS
        assert [entry.id for entry in store.children("rich")] == ["kid"]
        assert [entry.id for entry in store.children("kid")] == ["grandkid"]
        assert store.load("s-old") is None


@pytest.mark.parametrize("version", [2, 4])
def test_opening_and_closing_changes_no_file(home: Path, version: int) -> None:
    """All but sessions.json and our own directory is the same file with the same bytes and times."""
    write_home(home, version=version, leftovers=True)
    before = snapshot(home)
    with Store.open(home) as store:
        for id in SESSION_IDS:
            store.load(id)
            store.load_runtime(id)
        store.search("picture")
        store.check()
    assert snapshot(home) == before


def test_saving_what_was_loaded_changes_no_file(bamboo: Path, store: Store) -> None:
    """A session that was loaded and not changed is not written, with its sidecar or without."""
    before = snapshot(bamboo)
    for id in SESSION_IDS - {"s-min"}:
        store.save(get(store, id))
        store.save_runtime(get(store, id))
    store.save(get(store, "s-min"))
    assert snapshot(bamboo) == before


def test_version_2_of_sessions_json_is_kept_and_its_entries_made_true(home: Path) -> None:
    """The export has the version that was found, and says what the documents say."""
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
    """What a newer Bamboo says at the top and in entries is given back, after changes and reopening too."""
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


def test_unknown_keys_written_beside_us_survive_for_new_sessions_too(home: Path) -> None:
    """A server that adds a session and rewrites sessions.json finds its keys again after our export."""
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
def test_nothing_is_written_while_a_server_holds_its_lock(home: Path, name: str) -> None:
    """Reading goes on, writing is refused with the reason, and works again once the lock is free."""
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


def test_every_member_of_an_entry_that_metadata_can_fill_is_filled(store: Store) -> None:
    """Schedule, connection, lifecycle and placement are told by the index, as newer Bamboos tell them."""
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


def test_sessions_json_without_its_sessions_costs_nothing(home: Path) -> None:
    """An empty index, as Bamboo leaves after losing the file, hides no session: the files are the truth."""
    write_home(home)
    (home / "sessions.json").write_bytes(b'{"version": 2, "updated_at": "2026-06-20T00:00:00Z", "sessions": {}}')
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS


@pytest.mark.warns
def test_broken_sessions_json_costs_nothing(home: Path) -> None:
    """Half a sessions.json is warned of, made anew, and kept in the trash."""
    write_home(home)
    half = index_file(2)[:200]
    (home / "sessions.json").write_bytes(half)
    with Store.open(home, background=False) as store:
        assert {entry.id for entry in store.entries()} == SESSION_IDS
    assert set(read_json(home / "sessions.json")["sessions"]) == SESSION_IDS
    assert [p.read_bytes() for p in (home / ".grovefs/trash").rglob("sessions.json")] == [half]


def test_leftover_temporaries_are_findings_and_can_be_tidied(home: Path) -> None:
    """What a crashed server left is found, left alone, and moved away when asked."""
    write_home(home, leftovers=True)
    with Store.open(home, background=False) as store:
        found = {f.path for f in store.check().findings if f.kind == "temporary"}
        assert found == set(LEFTOVERS)
        assert all((home / path).exists() for path in LEFTOVERS)
        assert store.check(repair=True).exit_code == 1
        assert not any((home / path).exists() for path in LEFTOVERS)
        assert store.check().is_clean


def test_a_leftover_temporary_is_not_taken_for_the_attachment(home: Path) -> None:
    """The picture is found with its type though half of another copy lies beside it."""
    write_home(home, leftovers=True)
    with Store.open(home, background=False) as store:
        assert store.attachments.read(MIXED, PICTURE) == (b"\x89PNG picture", "image/png")
        url = get(store, MIXED).messages[0].content_parts[1].image_url.url  # type: ignore[index,union-attr]
        assert store.attachments.resolve(url) == (b"\x89PNG picture", "image/png")
        (home / f"sessions/{MIXED}/attachments/{PICTURE}.png").unlink()
        assert store.attachments.read(MIXED, PICTURE) is None


def test_a_usage_record_goes_behind_those_that_are_there(bamboo: Path, store: Store) -> None:
    """Lines that Bamboo wrote keep their bytes."""
    store.usage.append("rich", {"round": 3})
    log = bamboo / "sessions/rich/token-usage.jsonl"
    assert log.read_bytes() == b'{"round":1}\n{"round": 2}\n{"round":3}\n'


# -- loading: the overlay ------------------------------------------------------------------------------------


def test_control_plane_is_the_sidecars_and_messages_are_session_jsons(bamboo: Path, store: Store) -> None:
    """A fresher sidecar wins in everything but the messages, for record and index."""
    kid = get(store, "kid")
    assert (kid.title, kid.title_version, kid.last_run_status) == ("The kid, renamed", 1, "running")
    assert kid.updated_at == "2026-06-20T09:30:00.000000001Z"
    assert [m.content for m in kid.messages] == ["hello"]
    entry = store.entry("kid")
    assert entry is not None
    assert (entry.title, entry.last_run_status, entry.message_count) == ("The kid, renamed", "running", 1)
    assert entry.updated_at == "2026-06-20T09:30:00.000000001Z"


def test_load_runtime_is_the_sidecar_alone(bamboo: Path, store: Store) -> None:
    """The control plane comes without messages; a session without sidecar is loaded whole."""
    runtime = store.load_runtime("kid")
    assert runtime is not None
    assert (runtime.title, runtime.messages) == ("The kid, renamed", [])
    legacy = store.load_runtime("s-min")
    assert legacy is not None
    assert legacy.id == "s-min"


def test_values_are_loaded_in_their_full_precision(bamboo: Path, store: Store) -> None:
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
    """Four members are a session; the rest has defaults, and its kind is told by where it lies."""
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
    """Unknown members, number forms, digits, order and the alias of the task list stay as they were."""
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
    """The same bytes change in runtime.json, none in session.json, and the session loads as changed."""
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


def test_edit_of_a_document_in_mixed_form_keeps_the_form(bamboo: Path, store: Store) -> None:
    """What stood on one line still does; what is added follows the style of its neighbours."""
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


def test_edit_of_a_message_changes_it_alone_and_drops_what_was_derived(bamboo: Path, store: Store) -> None:
    """The message's text is replaced in its place; token usage, worked out from it, leaves both files."""
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


def test_append_adds_to_the_text_and_touches_nothing_else(bamboo: Path, store: Store) -> None:
    """A message is cut in behind the last one, indented as they are; only updated_at changes besides."""
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


def test_a_save_brings_session_json_up_to_date_with_a_fresher_sidecar(bamboo: Path, store: Store) -> None:
    """What only the sidecar knew is written to session.json too; the messages stay."""
    store.update("kid", lambda kid: setattr(kid, "model", "m2"))
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich/children/kid", name))
        assert (document["title"], document["title_version"], document["model"]) == ("The kid, renamed", 1, "m2")
        assert document["metadata"] == {"last_run_status": "running"}
    assert len(get(store, "kid").messages) == 1


def test_unknown_members_of_either_file_survive_a_save(bamboo: Path, store: Store) -> None:
    """What only session.json had stays there; what only the sidecar had is told in session.json from now on."""
    (bamboo / "sessions/rich/runtime.json").write_text(replaced(RICH_SIDE, ('"pinned"', '"x_side": 1.50, "pinned"')))
    store.update("rich", lambda session: setattr(session, "model", "m2"))
    main, side = text_of(bamboo, "rich"), text_of(bamboo, "rich", "runtime.json")
    assert '"x_last": "kept"' in main
    assert json.loads(main)["x_side"] == 1.5
    assert '"x_side": 1.50, "pinned"' in side
    assert "x_last" not in side


def test_first_save_of_a_minimal_session_adds_a_sidecar_and_only_what_changed(bamboo: Path, store: Store) -> None:
    """A legacy document gains the members that were set, in their declared place, and no defaults."""
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
    """A compact document is added to compactly, and has a sidecar afterwards."""
    store.append("s-min", [{"id": "m1", "role": "user", "content": "hi", "created_at": "2025-01-02T00:00:00Z"}])
    updated = get(store, "s-min").updated_at
    message = '{"id":"m1","role":"user","content":"hi","created_at":"2025-01-02T00:00:00Z"}'
    moved = ('"updated_at":"2025-01-01T00:00:00Z"', f'"updated_at":"{updated}"')
    assert text_of(bamboo, "s-min") == replaced(MINIMAL, ('"messages":[]', f'"messages":[{message}]'), moved)
    assert text_of(bamboo, "s-min", "runtime.json") == replaced(MINIMAL, moved)


def test_first_runtime_save_of_a_minimal_session_leaves_session_json(bamboo: Path, store: Store) -> None:
    """Only a sidecar is made: session.json's text with the change in it."""
    session = get(store, "s-min")
    session.model = "m"
    session.updated_at = Timestamp(LATER)
    store.save_runtime(session)
    assert text_of(bamboo, "s-min") == MINIMAL
    moved = ('"updated_at":"2025-01-01T00:00:00Z"', f'"updated_at":"{LATER}","model":"m"')
    assert text_of(bamboo, "s-min", "runtime.json") == replaced(MINIMAL, moved)


def test_message_without_id_and_time_gains_neither_by_an_edit_elsewhere(store: Store, home: Path) -> None:
    """Bamboo makes both up at each load; a save of something else does not write what was made up."""
    messages = [{"role": "user", "content": "no id"}, {"role": "assistant", "content": "nor I", "x": 1}]
    raw = make_document(messages=messages)
    store.put_document("s1", "session.json", raw)
    store.update("s1", lambda session: setattr(session, "model", "m"))
    assert read_json(home / "sessions/s1/session.json")["messages"] == messages


# -- homes of seed 001's time --------------------------------------------------------------------------------


def write_single_level_home(home: Path) -> None:
    """No sidecars, no `title_version` anywhere, children directly below their root."""
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
    """Opening makes no sidecars: nothing was asked for."""
    before = snapshot(single_level)
    with Store.open(single_level, background=False) as store:
        assert {entry.id for entry in store.entries()} == {"old", "c1"}
        assert get(store, "c1").parent_session_id == "old"
    after = snapshot(single_level)
    del after[".sessions-index.lock"]  # made around the export, as Bamboo does
    assert after == before


@pytest.mark.parametrize("id", ["old", "c1"])
def test_saving_in_a_single_level_home_makes_the_sidecar(single_level: Path, store: Store, id: str) -> None:
    """The saved session has a sidecar and a title_version, the other one is as it was."""
    before = snapshot(single_level)
    store.update(id, lambda session: setattr(session, "title", "New name"))
    changed = {name for name, state in snapshot(single_level).items() if before.get(name) != state}
    directory = "sessions/old" if id == "old" else "sessions/old/children/c1"
    assert changed == {f"{directory}/session.json", f"{directory}/runtime.json"}
    for name in ("session.json", "runtime.json"):
        document = read_json(single_level / directory / name)
        assert (document["title"], document["title_version"], document["metadata_version"]) == ("New name", 1, 1)
    assert read_json(single_level / directory / "runtime.json")["messages"] == []


def test_migrating_a_single_level_home_makes_every_sidecar(single_level: Path, store: Store) -> None:
    """Roots and children get one, in the text of their session.json, which stays."""
    before = files_below(single_level)
    assert store.maintenance.migrate_sidecars() == 2
    after = files_below(single_level)
    assert {name: after[name] for name in before} == before
    for name in before:
        message = json.dumps(json.loads(before[name])["messages"], indent=2).replace("\n", "\n  ")
        assert after[name.replace("session.json", "runtime.json")] == before[name].replace(message.encode(), b"[]")


# -- put_document: bytes as they are -------------------------------------------------------------------------


def test_putting_the_same_bytes_changes_nothing(bamboo: Path, store: Store) -> None:
    """Neither files nor their times nor the feed move, for documents in any form."""
    before = snapshot(bamboo)
    cursor = store.feed.since().cursor
    for id, text in (("rich", RICH_MAIN), (MIXED, MIXED_MAIN), ("s-min", MINIMAL)):
        assert put(store, id, text) is False
    assert put(store, "rich", RICH_SIDE, "runtime.json") is False
    assert snapshot(bamboo) == before
    assert store.feed.since(cursor).items == []


@pytest.mark.parametrize("reformat", [str.strip, lambda t: t.replace("\n", "\r\n  "), lambda t: f"\n{t} \n"])
def test_bytes_are_stored_as_they_were_given(bamboo: Path, store: Store, reformat: Callable[[str], str]) -> None:
    """White space that nobody would write is nobody's business; the sidecar has nothing to be told."""
    text = reformat(replaced(RICH_MAIN, ('"content": "see picture"', '"content": "see  it"')))
    assert put(store, "rich", text) is True
    assert store.get_document("rich", "session.json") == text.encode()
    assert text_of(bamboo, "rich", "runtime.json") == RICH_SIDE


# -- put_document: what it does to the sidecar (DESIGN 4) ----------------------------------------------------

# A sidecar that is fresher than its session.json in status, model and time.
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


def test_what_differs_is_carried_and_the_rest_keeps_the_fresher_value(fresh: Path, store: Store) -> None:
    """A title edited in session.json reaches the sidecar, whose own news stay."""
    title = ('"title": "Größe – 大小 🌳"', '"title": "Edited"')
    assert put(store, "rich", replaced(RICH_MAIN, title))
    assert text_of(fresh, "rich") == replaced(RICH_MAIN, title)
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, title)
    session = get(store, "rich")
    assert (session.title, session.model) == ("Edited", "fresher")
    entry = store.entry("rich")
    assert entry is not None
    assert (entry.title, entry.model) == ("Edited", "fresher")


def test_what_differs_deep_down_is_carried_alone(fresh: Path, store: Store) -> None:
    """One member of the runtime state is carried; its neighbour keeps the sidecar's value."""
    run = ('"run_id": "run-1"', '"run_id": "run-2"')
    item = ('"status": "pending"', '"status": "in_progress"')
    unknown = ('"x_round": 0.0', '"x_round": 0.50')
    put(store, "rich", replaced(RICH_MAIN, run, item, unknown))
    side = text_of(fresh, "rich", "runtime.json")
    # A value is carried as a value: 0.50 and 0.5 are one.
    assert side == replaced(FRESH_SIDE, run, item, ('"x_round": 0.0', '"x_round": 0.5'))


def test_a_member_taken_out_is_taken_out_of_the_sidecar(fresh: Path, store: Store) -> None:
    """Removing a member is a change like any other, known or unknown to us."""
    gone = ('  "workspace": "/home/me/src",\n', "")
    nested = (',\n    "x_state": "kept"', "")
    put(store, "rich", replaced(RICH_MAIN, gone, nested))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, gone, nested)
    assert get(store, "rich").workspace is None


def test_a_member_put_in_is_put_into_the_sidecar(fresh: Path, store: Store) -> None:
    """Adding a member, known or unknown, adds it there too, in the same place."""
    effort = ('"x_ref": "kept"\n  },\n', '"x_ref": "kept"\n  },\n  "reasoning_effort": "low",\n')
    unknown = ('"zeta": "last",\n', '"zeta": "last",\n    "zeta2": "more",\n')
    put(store, "rich", replaced(RICH_MAIN, effort, unknown))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, effort, unknown)


def test_updated_at_that_differs_is_carried(fresh: Path, store: Store) -> None:
    """A newer time in session.json is the sidecar's too."""
    updated = (UPDATED[0], f'"updated_at": "{LATEST}"')
    put(store, "rich", replaced(RICH_MAIN, updated))
    old_side = '"updated_at": "2026-06-21T00:00:00.000000001Z"'
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, (old_side, updated[1]))


def test_messages_are_not_carried(fresh: Path, store: Store) -> None:
    """An edit of the conversation leaves the sidecar byte for byte."""
    put(store, "rich", replaced(RICH_MAIN, ('"content": "see picture"', '"content": "look"')))
    assert text_of(fresh, "rich", "runtime.json") == FRESH_SIDE
    assert get(store, "rich").messages[1].content == "look"


def test_what_only_session_json_holds_is_not_carried(fresh: Path, store: Store) -> None:
    """The provider's transcript and the inbox's admission stay out of the sidecar, yet load."""
    transcript = ('  "x_last": "kept"', '  "provider_transcript": {\n    "items": []\n  },\n  "x_last": "kept"')
    admission = ('"x_runtime": []', '"session_inbox_admission": {"n": 1},\n    "x_runtime": []')
    put(store, "rich", replaced(RICH_MAIN, transcript, admission))
    assert text_of(fresh, "rich", "runtime.json") == FRESH_SIDE
    session = get(store, "rich")
    assert session.provider_transcript == {"items": []}
    assert session.runtime_metadata is not None
    assert session.runtime_metadata.session_inbox_admission == {"n": 1}


def test_a_change_is_carried_across_both_names_of_the_task_list(fresh: Path, store: Store) -> None:
    """session.json says todo_list, the sidecar task_list: the edit arrives, and no second list."""
    side = replaced(FRESH_SIDE, ('"todo_list"', '"task_list"'))
    put(store, "rich", side, "runtime.json")
    title = ('"title": "Plan"', '"title": "Better plan"')
    put(store, "rich", replaced(RICH_MAIN, title))
    assert text_of(fresh, "rich", "runtime.json") == replaced(side, title)


def test_a_change_is_carried_across_both_names_of_a_tasks_active_form(fresh: Path, store: Store) -> None:
    """session.json says activeForm, the sidecar active_form, as Bamboo's own migration leaves them."""
    side = replaced(FRESH_SIDE, ('"activeForm"', '"active_form"'))
    put(store, "rich", side, "runtime.json")
    put(store, "rich", replaced(RICH_MAIN, ('"activeForm": "looking"', '"activeForm": "peering"')))
    assert text_of(fresh, "rich", "runtime.json") == replaced(side, ("looking", "peering"))


def test_an_unknown_member_that_bears_an_aliass_name_is_carried_as_it_is(fresh: Path, store: Store) -> None:
    """`ref` and `activeForm` are aliases in a task list only."""
    unknown = ('"workspace"', '"ref": 1,\n  "activeForm": 2,\n  "workspace"')
    put(store, "rich", replaced(RICH_MAIN, unknown))
    assert text_of(fresh, "rich", "runtime.json") == replaced(FRESH_SIDE, unknown)


def test_new_session_json_beside_a_sidecar_leaves_it_alone(store: Store, home: Path) -> None:
    """Files that arrive sidecar first, as in a restore, speak for themselves."""
    (home / "sessions/rich/attachments").mkdir(parents=True)
    (home / "sessions/rich/attachments/a1.png").write_bytes(b"a1")
    put(store, "rich", FRESH_SIDE, "runtime.json")
    assert store.entry("rich") is None
    put(store, "rich", RICH_MAIN)
    assert text_of(home, "rich", "runtime.json") == FRESH_SIDE
    assert get(store, "rich").model == "fresher"


def test_session_json_going_back_in_time_is_refused(fresh: Path, store: Store) -> None:
    """An older document is an outdated copy, and both times are named."""
    before = snapshot(fresh)
    back = replaced(RICH_MAIN, (UPDATED[0], f'"updated_at": "{NINE_DIGITS}"'))
    with pytest.raises(Conflict, match=f"{NINE_DIGITS}.*2026-06-20T08:15:32.987654321Z"):
        put(store, "rich", back)
    assert snapshot(fresh) == before


def test_session_json_restored_to_an_older_one_leaves_the_sidecar_alone(fresh: Path, store: Store) -> None:
    """When going back is meant, the sidecar is not told of it: its own older file may follow."""
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


def test_runtime_json_touches_no_other_document_and_refreshes_the_index(bamboo: Path, store: Store) -> None:
    """Writing the sidecar is seen at once in record and index; session.json is the same file."""
    main = snapshot(bamboo)["sessions/rich/session.json"]
    assert put(store, "rich", FRESH_SIDE, "runtime.json")
    assert snapshot(bamboo)["sessions/rich/session.json"] == main
    assert get(store, "rich").model == "fresher"
    entry = store.entry("rich")
    assert entry is not None
    assert (entry.model, entry.updated_at) == ("fresher", "2026-06-21T00:00:00.000000001Z")


def test_runtime_json_with_messages_is_refused(bamboo: Path, store: Store) -> None:
    """Messages in a sidecar would be read by nobody; the place is named."""
    before = snapshot(bamboo)
    with pytest.raises(InvalidContent, match="holds no messages") as refused:
        put(store, "rich", RICH_MAIN, "runtime.json")
    assert (refused.value.problem.field, refused.value.problem.line) == ("messages", 16)
    assert snapshot(bamboo) == before


def test_save_runtime_of_a_session_never_saved_is_a_full_save(store: Store, home: Path) -> None:
    """Both files are written, messages and all."""
    store.save_runtime(make_session("s1", messages=2))
    assert len(read_json(home / "sessions/s1/session.json")["messages"]) == 2
    assert read_json(home / "sessions/s1/runtime.json")["messages"] == []


def test_a_base_that_was_replaced_is_a_conflict(bamboo: Path, store: Store) -> None:
    """Who opened an older version is told so, though his times are newer."""
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
def test_what_bamboo_could_not_load_is_refused(
    bamboo: Path, store: Store, pieces: list[tuple[str, str]], field: str | None
) -> None:
    """The reason names the member; nothing has changed."""
    before = snapshot(bamboo)
    with pytest.raises(InvalidContent) as refused:
        put(store, "rich", replaced(RICH_MAIN, *pieces))
    assert field is None or refused.value.problem.field == field
    assert snapshot(bamboo) == before


# -- saving: what the API adds to a change (DESIGN 4) --------------------------------------------------------


def test_save_never_shortens_unless_asked(bamboo: Path, store: Store) -> None:
    """Fewer messages than on disk are a Conflict, and go through when they are meant."""
    session = get(store, "rich")
    del session.messages[1:]
    with pytest.raises(Conflict, match="would drop 2 messages"):
        store.save(session)
    assert text_of(bamboo, "rich") == RICH_MAIN
    store.save(session, shorten=True)
    assert [m.id for m in get(store, "rich").messages] == ["m1"]


def test_outdated_session_is_a_conflict_and_changes_nothing(bamboo: Path, store: Store) -> None:
    """The second of two writers is told, and finds his object usable after loading anew."""
    mine, theirs = get(store, "rich"), get(store, "rich")
    theirs.model = "theirs"
    store.save(theirs)
    mine.title = "mine"
    with pytest.raises(Conflict, match="changed by someone else"):
        store.save(mine)
    assert get(store, "rich").model == "theirs"
    store.update("rich", lambda session: setattr(session, "title", "mine"))
    assert (get(store, "rich").title, get(store, "rich").model) == ("mine", "theirs")


def test_typed_runtime_field_changed_in_place_keeps_its_mirror(bamboo: Path, store: Store) -> None:
    """Old readers see in metadata what new ones see in runtime_metadata; clearing clears both."""
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


def test_editing_a_message_clears_all_that_was_derived(bamboo: Path, store: Store) -> None:
    """Compression events, which tell of another text, are gone from both files; other unknown things stay."""
    session = get(store, "rich")
    session.messages[1].content = "look"
    store.save(session)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, "rich", name))
        assert "compression_events" not in document
        assert document["x_top"]["count"] == 2**64 - 1
    assert '"x_message": [\n        1e-7,\n        50.0\n      ]' in text_of(bamboo, "rich")


# -- Bamboo's sealed header (FORMATS C.6) --------------------------------------------------------------------


def sealed_document(*, title: str = "Sealed", payload_bytes: int | None = None, **changes: Any) -> bytes:
    """A session.json as the newest Bamboo frames it: a sealed copy of what matters, then the flat members."""
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
    """The sealed document, put in place as it is."""
    raw = sealed_document()
    assert store.put_document("sealed", "session.json", raw)
    return raw


def test_sealed_document_is_accepted_byte_for_byte(store: Store, home: Path, sealed: bytes) -> None:
    """It is stored as given; its sidecar has no seal."""
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed
    assert "_bamboo_main_authority" not in text_of(home, "sealed", "runtime.json")
    assert get(store, "sealed").title == "Sealed"


def test_saving_an_unchanged_sealed_session_keeps_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """Nothing is rewritten, so nothing is dropped."""
    store.save(get(store, "sealed"))
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed


def test_save_drops_the_seal_and_nothing_else(store: Store, home: Path, sealed: bytes) -> None:
    """A seal that no longer fits would make Bamboo refuse the document; without it, it is a legacy one."""
    session = get(store, "sealed")
    session.model = "m"
    session.updated_at = Timestamp(LATER)
    store.save(session)
    updated = (f'"updated_at":"{NINE_DIGITS}"', f'"updated_at":"{LATER}","model":"m"')
    assert text_of(home, "sealed") == replaced(unsealed(sealed), updated)


def test_append_drops_the_seal_and_nothing_else(store: Store, home: Path, sealed: bytes) -> None:
    """Also the fast way of adding a message looks for the seal."""
    message = {"id": "m2", "role": "user", "content": "more", "created_at": LATER}
    store.append("sealed", [message])
    updated = get(store, "sealed").updated_at
    pieces = [(f'"updated_at":"{NINE_DIGITS}"', f'"updated_at":"{updated}"'), ("}],", "}," + compact(message) + "],")]
    assert text_of(home, "sealed") == replaced(unsealed(sealed), *pieces)


def test_clear_drops_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """Clearing rewrites the document like any save."""
    assert store.clear("sealed")
    assert "_bamboo_main_authority" not in text_of(home, "sealed")


def test_runtime_save_leaves_the_seal(store: Store, home: Path, sealed: bytes) -> None:
    """session.json is not rewritten, so its seal holds."""
    session = get(store, "sealed")
    session.last_run_status = "running"
    store.save_runtime(session)
    assert (home / "sessions/sealed/session.json").read_bytes() == sealed


def test_fork_of_a_sealed_document_has_no_seal(store: Store, home: Path, sealed: bytes) -> None:
    """The seal says who the document was; the fork is someone else."""
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
def test_broken_seal_is_refused_and_the_reason_says_to_delete_it(store: Store, home: Path, raw: bytes) -> None:
    """Bamboo would refuse the document; the same one without the member is accepted."""
    with pytest.raises(InvalidContent, match="delete the member '_bamboo_main_authority'") as refused:
        store.put_document("sealed", "session.json", raw)
    assert refused.value.problem.field == "_bamboo_main_authority"
    assert refused.value.problem.line is not None
    assert files_below(home) == {}
    advised = {k: v for k, v in json.loads(raw).items() if k != "_bamboo_main_authority"}
    assert store.put_document("sealed", "session.json", json.dumps(advised, indent=2).encode())


def test_sidecar_with_a_seal_is_refused(store: Store, sealed: bytes) -> None:
    """It belongs in session.json only."""
    document = {**json.loads(sealed), "messages": []}
    with pytest.raises(InvalidContent, match=r"session\.json only.*delete the member"):
        store.put_document("sealed", "runtime.json", compact(document).encode())


# -- deleting, cleaning up, clearing -------------------------------------------------------------------------


def pin(store: Store, id: str) -> None:
    store.update(id, lambda session: setattr(session, "pinned", True))


def ids(store: Store) -> set[str]:
    return {entry.id for entry in store.entries()}


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


def test_cleanup_all_spares_a_pinned_grandchild_and_its_ancestors(grove: Store) -> None:
    """The chain up to the root stays, for its directory holds the pinned one; the rest goes."""
    pin(grove, "a2")
    result = grove.prune.apply(grove.prune.plan_cleanup("all"))
    assert result.deleted_session_ids == ["b", "b1", "c", "c1"]
    assert result.deleted_count == 4
    assert ids(grove) == {"a", "a1", "a2"}


def test_cleanup_all_without_keeping_pinned_takes_everything(grove: Store, home: Path) -> None:
    """Pins count only while they are to be kept."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("all", keep_pinned=False)).deleted_count == 7
    assert ids(grove) == set()
    assert files_below(home) == {}


def test_cleanup_all_deletes_unpinned_children_of_a_kept_root(grove: Store) -> None:
    """A pinned root protects itself, not its descendants."""
    pin(grove, "a")
    grove.prune.apply(grove.prune.plan_cleanup("all"))
    assert ids(grove) == {"a"}


def test_cleanup_empty_spares_a_pinned_grandchild_and_its_ancestors(grove: Store) -> None:
    """Empty ones go, but for the chain above the pin; a root with work stays, its empty child goes."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("empty")).deleted_session_ids == ["b1", "c", "c1"]
    assert ids(grove) == {"a", "a1", "a2", "b"}


def test_cleanup_empty_spares_an_empty_root_whose_grandchild_holds_work(grove: Store) -> None:
    """Unlike Bamboo's: the work of a descendant does not go with its empty ancestors."""
    grove.append("a2", [Message.user("one"), Message.assistant("two")])
    grove.prune.apply(grove.prune.plan_cleanup("empty"))
    assert ids(grove) == {"a", "a1", "a2", "b"}


def test_cleanup_children_spares_a_pinned_grandchild_and_its_parent(grove: Store) -> None:
    """All roots stay; of the children only the chain above the pin."""
    pin(grove, "a2")
    assert grove.prune.apply(grove.prune.plan_cleanup("children")).deleted_session_ids == ["b1", "c1"]
    assert ids(grove) == {"a", "a1", "a2", "b", "c"}


def test_cleanup_children_takes_nested_ones_too(grove: Store) -> None:
    """Without a pin no child is left at any depth."""
    grove.prune.apply(grove.prune.plan_cleanup("children"))
    assert ids(grove) == {"a", "b", "c"}


def test_a_plan_tells_what_cleanup_will_do(grove: Store) -> None:
    """The plan changes nothing; what was pinned after it was made is spared."""
    plan = grove.prune.plan_cleanup("children")
    assert plan.session_ids == ["a1", "a2", "b1", "c1"]
    assert len(ids(grove)) == 7
    pin(grove, "a2")
    assert grove.prune.apply(plan).deleted_session_ids == ["b1", "c1"]


def test_deleting_a_nested_child_takes_its_descendants(bamboo: Path, store: Store) -> None:
    """Its child goes along though it lies beside it; root and sessions elsewhere stay."""
    assert store.delete("kid")
    assert ids(store) == SESSION_IDS - {"kid", "grandkid"}
    assert list((bamboo / "sessions/rich/children").iterdir()) == []
    assert store.load("grandkid") is None


def test_deleting_is_refused_while_a_descendant_is_pinned(bamboo: Path, store: Store) -> None:
    """The reason names it; forcing deletes all the same, and it can be had back byte for byte."""
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


def test_deleting_a_root_takes_its_whole_tree(bamboo: Path, store: Store) -> None:
    """Children and grandchildren go with it; the flat file of the older backend is not ours to delete."""
    assert store.delete("rich")
    assert ids(store) == {MIXED, "s-min"}
    assert sorted(p.name for p in (bamboo / "sessions").iterdir()) == sorted(
        [MIXED, "s-min", "s-old.json", "s-old.jsonl"]
    )


def test_clear_keeps_the_first_system_message(bamboo: Path, store: Store) -> None:
    """Messages and attachments go, the rest of both documents stays in its place."""
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
    """Without a system message nothing is left of the conversation."""
    assert store.clear(MIXED)
    for name in ("session.json", "runtime.json"):
        document = json.loads(text_of(bamboo, MIXED, name))
        assert document["messages"] == []
        assert "token_usage" not in document
        assert document["metadata"] == {"last_run_status": "completed", "workspace_path": "/home/me/src"}


def test_clear_of_an_unknown_id_is_false(bamboo: Path, store: Store) -> None:
    """There was nothing to clear."""
    before = snapshot(bamboo)
    assert store.clear("nobody") is False
    assert snapshot(bamboo) == before


# -- ids that lie under several roots ------------------------------------------------------------------------


def copy_tree(home: Path, *, corrected: bool) -> None:
    """`cp -r sessions/rich sessions/copy`, and if `corrected` each document told its new root."""
    shutil.copytree(home / "sessions/rich", home / "sessions/copy")
    if corrected:
        for path in (home / "sessions/copy").rglob("*.json"):
            path.write_text(path.read_text().replace('"rich"', '"copy"').replace("//rich/", "//copy/"))


def test_child_under_two_roots_is_ambiguous_and_its_exact_name_is_not(bamboo: Path, store: Store) -> None:
    """The error names the candidates, each of which can be used in its place."""
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


def test_a_loaded_copy_is_saved_to_its_own_place(bamboo: Path, store: Store) -> None:
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


def test_deleting_one_of_two_ends_the_ambiguity(bamboo: Path, store: Store) -> None:
    """Descendants are taken only from the tree that was named."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    assert store.delete("copy/kid")
    assert get(store, "kid").root_session_id == "rich"
    assert get(store, "grandkid").root_session_id == "rich"
    assert not (bamboo / "sessions/copy/children/grandkid").exists()


def test_export_tells_an_ambiguous_id_once(bamboo: Path, store: Store) -> None:
    """sessions.json is keyed by id and has no room for two; it stays readable."""
    copy_tree(bamboo, corrected=True)
    store.maintenance.sweep()
    store.maintenance.export_sessions_json()
    assert set(read_json(bamboo / "sessions.json")["sessions"]) == SESSION_IDS | {"copy"}


@pytest.mark.warns
def test_plain_copy_is_found_and_not_handed_out_as_the_original(home: Path) -> None:
    """Documents that say they are others are findings, loading one is Corrupt, the original is untouched."""
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
