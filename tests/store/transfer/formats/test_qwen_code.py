"""Qwen Code chats: Claude's envelope around the parts of Gemini."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store import Store
from tests.store.transfer.foreign import write_lines


def line(uuid: str, kind: str, *parts: Any, **more: Any) -> dict[str, Any]:
    base = {"uuid": uuid, "parentUuid": None, "sessionId": "q1", "timestamp": "2026-03-01T10:00:00Z", "type": kind}
    return {**base, "cwd": "/home/me/shop", "message": {"role": "x", "parts": list(parts)}, **more}


def test_chat_is_imported(store: Store, tmp_path: Path) -> None:
    call = {"functionCall": {"id": "c1", "name": "shell", "args": {"command": "false"}}}
    result = {"functionResponse": {"id": "c1", "name": "shell", "response": {"error": "exit 1"}}}
    usage = {"promptTokenCount": 900, "candidatesTokenCount": 50, "cachedContentTokenCount": 100}
    records = [
        line("1", "user", {"text": "run it"}),
        {"uuid": "t", "sessionId": "q1", "type": "system", "subtype": "ui_telemetry", "systemPayload": {}},
        line("2", "assistant", {"text": "Hm", "thought": True}, call, model="qwen3", usageMetadata=usage),
        line("3", "tool_result", result, toolCallResult={"callId": "c1", "status": "error"}),
        line("4", "assistant", {"text": "It failed."}, model="qwen3"),
    ]
    write_lines(tmp_path / "projects/-shop/chats/q1.jsonl", records)
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("qwen-code", [], {"new": 1})
    session = store.load("q1")
    assert session is not None
    assert [(m.role, m.content) for m in session.messages] == [
        ("user", "run it"),
        ("assistant", ""),
        ("tool", "exit 1"),
        ("assistant", "It failed."),
    ]
    assert session.messages[2].tool_success is False
    assert (session.model, session.project_id) == ("qwen3", "shop")
    assert store.usage.totals().total().tokens["cache_read_input_tokens"] == 100
