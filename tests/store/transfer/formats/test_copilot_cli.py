"""Copilot CLI events: messages, tool calls with results, usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store import Store
from tests.store.transfer.foreign import write_lines


def event(kind: str, number: int, **data: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "id": f"e{number}",
        "timestamp": f"2026-03-01T10:00:0{number}Z",
        "parentId": None,
        "data": data,
    }


def test_session_is_imported(store: Store, tmp_path: Path) -> None:
    usage = {"model": "gpt-5", "inputTokens": 900, "outputTokens": 50, "cacheReadTokens": 100, "apiCallId": "a1"}
    request = {"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}, "type": "function"}
    records = [
        event("session.start", 0, sessionId="cop-1", selectedModel="gpt-5", context={"cwd": "/home/me/shop"}),
        event("user.message", 1, content="list it", transformedContent="<x/>list it"),
        event("session.usage_record", 2, usage=usage),
        event("assistant.message", 3, content="", reasoningText="ls", toolRequests=[request], model="gpt-5"),
        event("tool.execution_complete", 5, toolCallId="c1", success=True, result={"content": "a b"}),
        event("assistant.message", 6, content="Two.", toolRequests=[]),
    ]
    write_lines(tmp_path / "session-state/cop-1/events.jsonl", records)
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("copilot-cli", [], {"new": 1})
    session = store.load("cop-1")
    assert session is not None
    assert [(m.role, m.content) for m in session.messages] == [
        ("user", "list it"),
        ("assistant", ""),
        ("tool", "a b"),
        ("assistant", "Two."),
    ]
    assert (session.title, session.model, session.last_run_status) == ("list it", "gpt-5", "completed")
    steps = store.trajectory.read("cop-1")
    assert steps is not None
    assert (steps[0].tool_name, steps[0].duration_ms) == ("bash", 2000)
    assert store.usage.totals().total().tokens["input_tokens"] == 800
