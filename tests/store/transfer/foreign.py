"""Small synthetic import sources in the exact formats of other agents."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from store import Message
from store.transfer.formats.a3s_records import SessionConfig, SessionData
from store.transfer.formats.oxios_records import OxiosSession

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_TEXT = base64.b64encode(PNG).decode()


def write_lines(path: Path, records: list[Any], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records) + end)


def kept_metadata(message: Message, source: str) -> Any:
    """The fields of the source format that an import keeps in a message's metadata."""
    assert message.metadata is not None
    return message.metadata[source]


# -- Claude Code ---------------------------------------------------------------------------------------------

CLAUDE_ID = "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11"


def claude_line(kind: str, uuid: str, message: Any, at: str, **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/me/shop",
        "sessionId": CLAUDE_ID,
        "version": "2.1.12",
        "gitBranch": "main",
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": f"2026-02-18T09:{at}Z",
        **more,
    }


def claude_lines() -> list[dict[str, Any]]:
    ask = {"role": "user", "content": [{"type": "text", "text": "Why is the cart empty?"}, claude_image()]}
    look = {
        "model": "claude-sonnet-4-5",
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "The cookie, perhaps.", "signature": "EqQB"},
            {"type": "text", "text": "I'll look."},
            {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "cart.py"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 40, "service_tier": "standard"},
    }
    seen = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "def cart():\n    return []"}],
    }
    failed = {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "is_error": True,
                "content": [{"type": "text", "text": "no such file"}],
            }
        ],
    }
    done = {"model": "claude-sonnet-4-5", "role": "assistant", "content": [{"type": "text", "text": "Fixed: 漢字 ✓"}]}
    return [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}},
        {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
        claude_line("user", "u1", ask, "00:00.100"),
        claude_line("assistant", "u2", look, "00:03.250", parentUuid="u1", requestId="req_1"),
        claude_line("user", "u3", seen, "00:04", parentUuid="u2", toolUseResult={"type": "text", "file": {"n": 1}}),
        claude_line("user", "u4", failed, "00:05", parentUuid="u3", gitBranch="fix/cart"),
        claude_line("assistant", "u5", done, "00:09", parentUuid="u4"),
        {
            **claude_line("system", "u6", None, "00:10", parentUuid="u5"),
            "content": "Compacted",
            "subtype": "compact_boundary",
        },
        {"type": "summary", "summary": "Fix the cart", "leafUuid": "u5"},
    ]


def claude_image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}}


def make_claude(base: Path) -> Path:
    """A ~/.claude with one session that has sub-agents of all three kinds."""
    project = base / "projects/-home-me-shop"
    side = [
        {**claude_line("user", "s1", {"role": "user", "content": "Find all carts"}, "00:06"), "isSidechain": True},
        {
            **claude_line("assistant", "s2", {"role": "assistant", "content": "Two."}, "00:07", parentUuid="s1"),
            "isSidechain": True,
        },
    ]
    write_lines(project / f"{CLAUDE_ID}.jsonl", [*claude_lines(), *side])
    sibling = claude_line(
        "user", "b1", {"role": "user", "content": "Count"}, "01:00", isSidechain=True, agentId="beef01"
    )
    write_lines(project / "agent-beef01.jsonl", [sibling])
    below = project / CLAUDE_ID / "subagents"
    inner = claude_line("user", "c1", {"role": "user", "content": "Dig"}, "02:00", isSidechain=True, agentId="cafe02")
    write_lines(below / "agent-cafe02.jsonl", [inner])
    (below / "agent-cafe02.meta.json").write_text(
        json.dumps(
            {"agentType": "explorer", "description": "Dig for carts", "parentAgentId": "beef01", "spawnDepth": 2}
        )
    )
    results = project / CLAUDE_ID / "tool-results"
    results.mkdir()
    (results / "toolu_9.txt").write_text("a long output\n" * 1000)
    return base


# -- Codex ---------------------------------------------------------------------------------------------------

CODEX_ID = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
CODEX_CHILD = "019a2d7b-0000-7000-8000-000000000001"
CODEX_GRANDCHILD = "019a2d7b-0000-7000-8000-000000000002"
CODEX_OLD = "c3c4b301-27c8-4c70-b6e4-46b99fdf0236"


def codex_line(kind: str, payload: Any, second: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{second:02}.317Z", "type": kind, "payload": payload}


def codex_lines() -> list[dict[str, Any]]:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what is 2+2?"}]}
    context = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context/>"}]}
    picture = {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "and this?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_TEXT}"},
        ],
    }
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "**Adding**"}],
        "encrypted_content": "gAAAA",
    }
    call = {"type": "function_call", "name": "shell", "arguments": '{"command":["bc"]}', "call_id": "call_1"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    patch = {
        "type": "custom_tool_call",
        "call_id": "call_2",
        "name": "apply_patch",
        "input": "*** Begin",
        "status": "done",
    }
    failed = {"type": "custom_tool_call_output", "call_id": "call_2", "output": {"content": "bad", "success": False}}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    meta = {
        "id": CODEX_ID,
        "timestamp": "2026-03-01T10:00:00.308Z",
        "cwd": "/home/me/sums",
        "originator": "codex_cli_rs",
        "cli_version": "0.46.0",
        "source": "cli",
        "git": {"branch": "main"},
    }
    return [
        codex_line("session_meta", meta),
        codex_line("response_item", context, 1),
        codex_line("turn_context", {"model": "gpt-5-codex", "effort": "high"}, 1),
        codex_line("response_item", message, 2),
        codex_line("event_msg", {"type": "user_message", "message": "what is 2+2?"}, 2),
        codex_line("response_item", reasoning, 3),
        codex_line("response_item", call, 4),
        codex_line("response_item", output, 5),
        codex_line("response_item", patch, 6),
        codex_line("response_item", failed, 7),
        codex_line("response_item", picture, 8),
        codex_line("response_item", answer, 9),
        codex_line("event_msg", {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 9}}}, 9),
    ]


def codex_child(id: str, parent: str, depth: int) -> list[dict[str, Any]]:
    spawn = {"parent_thread_id": parent, "depth": depth, "agent_nickname": "Ada", "agent_role": "explorer"}
    say = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"I am {depth}"}]}
    return [
        codex_line(
            "session_meta", {"id": id, "cwd": "/home/me/sums", "source": {"subagent": {"thread_spawn": spawn}}}, 20
        ),
        codex_line("response_item", say, 21),
    ]


def make_codex(base: Path) -> Path:
    """A ~/.codex with a thread, its child, its grandchild, and a first-generation thread."""
    day = base / "sessions/2026/03/01"
    write_lines(day / f"rollout-2026-03-01T10-00-00-{CODEX_ID}.jsonl", codex_lines())
    write_lines(day / f"rollout-2026-03-01T10-00-20-{CODEX_CHILD}.jsonl", codex_child(CODEX_CHILD, CODEX_ID, 1))
    inner = codex_child(CODEX_GRANDCHILD, CODEX_CHILD, 2)
    write_lines(day / f"rollout-2026-03-01T10-00-21-{CODEX_GRANDCHILD}.jsonl", inner)
    old = [
        {"id": CODEX_OLD, "timestamp": "2025-09-02T17:17:41.762Z", "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "id": None, "role": "user", "content": [{"type": "input_text", "text": "hello codex"}]},
        {"type": "reasoning", "id": "rs_0", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
    ]
    write_lines(base / f"sessions/2025/09/02/rollout-2025-09-02T17-17-41-{CODEX_OLD}.jsonl", old)
    (base / "history.jsonl").write_text('{"session_id":"x"}\n')
    return base


# -- ChatGPT ---------------------------------------------------------------------------------------------------

CHAT_ID = "67a1b2c3-0000-8000-8000-000000000001"


def chat_node(id: str, parent: str | None, children: list[str], role: str, content: Any, at: float) -> dict[str, Any]:
    body = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message: dict[str, Any] = {
        "id": id,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "update_time": None,
        "content": body,
        "status": "finished_successfully",
        "end_turn": True,
        "weight": 1.0,
        "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
        "recipient": "all",
    }
    return {"id": id, "message": message, "parent": parent, "children": children}


def chat_conversation(id: str = CHAT_ID, current: str = "a2") -> dict[str, Any]:
    """root → q → a1, a2 (regenerated) → q2 → a3; and q' → a4, an edited question, with a branch a5."""
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-AbC123", "width": 1}
    picture = {"content_type": "multimodal_text", "parts": [pointer, "What is this?"]}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "A dot."}], "source": "x"}
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    nodes = [
        {"id": "top", "message": None, "parent": None, "children": ["q", "q'"]},
        chat_node("q", "top", ["a1", "t2"], "user", picture, 1_700_000_000.5),
        chat_node("a1", "q", [], "assistant", "A speck.", 1_700_000_001.0),
        chat_node("t2", "q", ["a2"], "assistant", thoughts, 1_700_000_001.5),
        chat_node("a2", "t2", [], "assistant", "A pixel.", 1_700_000_002.0),
        chat_node("q'", "top", ["a4", "a5"], "user", "What was that?", 1_700_000_003.0),
        chat_node("a4", "q'", [], "assistant", code, 1_700_000_004.123456),
        chat_node("a5", "q'", [], "assistant", "Nothing.", 1_700_000_005.0),
    ]
    return {
        "title": "A picture",
        "create_time": 1_700_000_000.25,
        "update_time": 1_700_000_009.0,
        "mapping": {node["id"]: node for node in nodes},
        "moderation_results": [],
        "current_node": current,
        "conversation_id": id,
        "is_archived": True,
        "default_model_slug": "gpt-4o",
        "id": id,
    }


def make_chatgpt(base: Path, *conversations: Any) -> Path:
    base.mkdir(parents=True, exist_ok=True)
    found = list(conversations or [chat_conversation()])
    (base / "conversations.json").write_text(json.dumps(found, ensure_ascii=False, indent=1))
    (base / "file-AbC123-dot.png").write_bytes(PNG)
    (base / "user.json").write_text("{}")
    return base


# -- oxios -----------------------------------------------------------------------------------------------------


def oxios_session(id: str = "ox-1", **more: Any) -> dict[str, Any]:
    step = {
        "tool_name": "bash",
        "tool_args": {"command": "ls"},
        "output_summary": "a b",
        "duration_ms": 12,
        "is_error": False,
        "tool_call_id": "c1",
        "timestamp": "2026-05-01T10:00:01.5Z",
    }
    answer = {
        "content": "Two files.",
        "session_id": id,
        "seed_id": None,
        "phase_reached": "done",
        "evaluation_passed": True,
        "timestamp": "2026-05-01T10:00:02.123456789Z",
        "trajectory_range": {"start": 0, "end": 1},
    }
    return {
        "id": id,
        "user_id": "me",
        "user_messages": [
            {"content": "What is here?", "timestamp": "2026-05-01T10:00:00Z"},
            {"content": "Thanks", "timestamp": "2026-05-01T10:01:00Z"},
        ],
        "agent_responses": [answer],
        "trajectory_steps": [step],
        "reasoning_records": [{"content": "ls will do", "source": "thinking", "timestamp": "2026-05-01T10:00:01Z"}],
        "active_persona_id": "dev",
        "active_seed_id": "seed-9",
        "project_id": "p1",
        "created_at": "2026-05-01T10:00:00Z",
        "updated_at": "2026-05-01T10:01:00Z",
        "metadata": {"title": "Files", "compression": {"status": "done", "summary": "…"}},
        **more,
    }


def canonical_oxios(id: str = "ox-1", **more: Any) -> dict[str, Any]:
    """A session with its members in the order of oxios, as it writes them."""
    order = [*OxiosSession.model_fields]
    found = oxios_session(id, **more)
    return {key: found[key] for key in sorted(found, key=lambda key: order.index(key) if key in order else 99)}


def make_oxios(base: Path) -> Path:
    (base / "sessions").mkdir(parents=True)
    thread = oxios_session("ox-2", parent_session_id="ox-1", trajectory_steps=[], metadata={})
    for session in (oxios_session(), thread):
        (base / f"sessions/{session['id']}.json").write_text(json.dumps(session, indent=2, ensure_ascii=False))
    return base


# -- A3S -------------------------------------------------------------------------------------------------------


def a3s_session(id: str = "a3-1", **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "config": {
            "name": "demo",
            "workspace": "/w",
            "system_prompt": None,
            "max_context_length": 200000,
            "auto_compact": False,
            "storage_type": "file",
            "permission_policy": {"deny": [{"rule": "Bash(rm:*)"}], "default_decision": "ask", "enabled": True},
        },
        "state": "Active",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}, claude_image()]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"file_path": "a"}}],
                "reasoning_content": "Read it.",
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "text", "is_error": False},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": "no"}],
                        "is_error": True,
                    },
                ],
            },
        ],
        "context_usage": {"used_tokens": 10, "max_tokens": 200000, "percent": 0.0, "turns": 2},
        "total_usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
        "total_cost": 0.25,
        "model_name": "some-model",
        "tool_names": ["read"],
        "thinking_enabled": False,
        "thinking_budget": None,
        "created_at": 1700000000,
        "updated_at": 1700000100,
        "llm_config": {"provider": "p", "model": "m", "base_url": None, "api_key": "sk-very-secret"},
        "tasks": [{"id": "1", "content": "do", "status": "failed", "priority": "high"}],
        **more,
    }


def canonical_a3s(id: str = "a3-1", **more: Any) -> dict[str, Any]:
    """A session with all members, in the order of A3S, as it writes them."""
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    cost = {"model": "some-model", "provider": "p", **usage, "cost_usd": 0.25}
    found = a3s_session(id, **more)
    found["config"] |= {"auto_compact_threshold": 0.8, "planning_mode": "Auto", "goal_tracking": False}
    found["total_usage"] = {**usage, "cache_read_tokens": 2, "cache_write_tokens": None}
    found["cost_records"] = [{**cost, "timestamp": "2023-11-14T22:14:00Z", "session_id": id}]
    found["llm_config"] = {"provider": "p", "model": "m", "base_url": None}
    found["config"] = {key: found["config"][key] for key in SessionConfig.model_fields if key in found["config"]}
    return {key: found[key] for key in SessionData.model_fields if key in found}


def a3s_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def make_a3s(base: Path) -> Path:
    """A store of the first layout: a session with all kinds of content, and a child of it."""
    for directory in ("artifacts/a3-1", "traces", "verification"):
        (base / directory).mkdir(parents=True)
    (base / "a3-1.json").write_text(json.dumps(a3s_session(), indent=2))
    (base / "a3-2.json").write_text(json.dumps(a3s_session("a3-2", parent_id="a3-1", llm_config=None), indent=2))
    (base / "artifacts/a3-1/artifacts.json").write_text(json.dumps({"artifacts": [a3s_artifact()]}, indent=2))
    (base / "traces/a3-1.json").write_text(json.dumps([a3s_trace()], indent=2))
    (base / "verification/a3-1.json").write_text(json.dumps([a3s_report()], indent=2))
    return base


def a3s_artifact() -> dict[str, Any]:
    uri = "a3s://tool-output/read/abc"
    sizes = {"original_bytes": 9, "shown_bytes": 4}
    return {"artifact_id": "abc", "artifact_uri": uri, "tool_name": "read", "content": "long text", **sizes}


def a3s_trace() -> dict[str, Any]:
    counts = {"exit_code": 0, "duration_ms": 5, "output_bytes": 9}
    return {"schema": "a3s.trace_event.v1", "kind": "tool_execution", "name": "read", "success": True, **counts}


def a3s_report() -> dict[str, Any]:
    check = {"id": "c", "kind": "test", "description": "tests pass", "status": "passed", "required": True}
    return {"schema": "a3s.verification_report.v1", "subject": "it", "status": "passed", "checks": [check]}


def make_a3s_v1(base: Path) -> Path:
    def name(id: str) -> str:
        return "id_" + base64.urlsafe_b64encode(id.encode()).decode().rstrip("=")

    sessions = base / "v1/sessions"
    sessions.mkdir(parents=True)
    snapshot = {
        "schema_version": 1,
        "session": a3s_session("odd/id"),
        "artifacts": [a3s_artifact()],
        "retained_artifact_uris": [],
        "trace_events": [a3s_trace()],
        "run_records": [{"run": 1}],
        "verification_reports": [a3s_report()],
        "subagent_tasks": [],
    }
    (sessions / f"{name('odd/id')}.json").write_text(json.dumps(snapshot))
    (sessions / f"{name('sealed')}.json").write_bytes(b"A3SE\x01" + b"\x07" * 60)
    return base


# -- Bamboo ----------------------------------------------------------------------------------------------------


def bamboo_document(id: str, **more: Any) -> bytes:
    data: dict[str, Any] = {
        "id": id,
        "title": f"Title of {id}",
        "kind": "root",
        "root_session_id": id,
        "messages": [{"id": "m1", "role": "user", "content": "hello", "created_at": "2026-06-20T08:15:30.123456789Z"}],
        "created_at": "2026-06-20T08:15:30.123456789Z",
        "updated_at": "2026-06-20T08:15:32.5Z",
        "a_field_of_tomorrow": {"x": 1.0},
        **more,
    }
    return json.dumps(data, indent=2, ensure_ascii=False).encode()


def make_bamboo(base: Path) -> Path:
    """A home with a tree whose sidecar is newer than session.json, an older session, and a flat one."""
    tree = base / "sessions/tree"
    child = tree / "children/kid"
    for directory in (tree / "attachments", tree / "mailbox/new", child, base / "sessions/older"):
        directory.mkdir(parents=True)
    (tree / "session.json").write_bytes(bamboo_document("tree"))
    (tree / "runtime.json").write_bytes(bamboo_document("tree", messages=[], title="Fresher"))
    (tree / "token-usage.jsonl").write_text('{"ts":"2026-06-20T08:15:32Z","total_tokens":3}\n')
    (tree / "attachments/5c2f7a54.png").write_bytes(PNG)
    (tree / "notes.txt").write_text("mine\n")
    (tree / "session.json.tmp.5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001").write_text("{")
    above = {"kind": "child", "root_session_id": "tree", "parent_session_id": "tree", "spawn_depth": 1}
    (child / "session.json").write_bytes(bamboo_document("kid", **above))
    (base / "sessions/older/session.json").write_bytes(bamboo_document("older"))
    (base / "sessions/flat.json").write_bytes(bamboo_document("flat", root_session_id=""))
    (base / "sessions/flat.jsonl").write_text('{"event":1}\n')
    below = {"kind": "child", "root_session_id": "flat", "parent_session_id": "flat", "spawn_depth": 1}
    (base / "sessions/flat-kid.json").write_bytes(bamboo_document("flat-kid", **below))
    (base / "sessions.json").write_text('{"version": 2, "sessions": {}}')
    (base / "config.json").write_text("{}")
    return base
