"""Sources to import from, as other agents leave them: small, made up, and true to their formats."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_TEXT = base64.b64encode(PNG).decode()


def write_lines(path: Path, records: list[Any], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records) + end)


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
        {"type": "summary", "summary": "Mend the cart", "leafUuid": "u5"},
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
    beside = claude_line(
        "user", "b1", {"role": "user", "content": "Count"}, "01:00", isSidechain=True, agentId="beef01"
    )
    write_lines(project / "agent-beef01.jsonl", [beside])
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
