"""Claude.ai exports."""

from __future__ import annotations

import json
from pathlib import Path

from store import Store


def test_conversations_are_imported(store: Store, tmp_path: Path) -> None:
    ask = {"uuid": "m1", "sender": "human", "text": "Read it", "created_at": "2026-03-01T10:00:00Z"}
    ask["attachments"] = [{"file_name": "plan.txt", "extracted_content": "Buy bread"}]  # type: ignore[assignment]
    blocks = [
        {"type": "thinking", "thinking": "Hm", "start_timestamp": None},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "bread"}},
        {"type": "tool_result", "tool_use_id": "t1", "content": "found", "is_error": False},
        {"type": "text", "text": "Done.", "citations": []},
    ]
    answer = {"uuid": "m2", "sender": "assistant", "text": "Done.", "content": blocks}
    chat = {"uuid": "chat-1", "name": "Bread", "created_at": "2026-03-01T10:00:00Z", "chat_messages": [ask, answer]}
    (tmp_path / "conversations.json").write_text(json.dumps([chat, {"uuid": "x"}]))
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.counts) == ("claude-ai", {"new": 1})
    assert len(summary.problems) == 1
    session = store.load("chat-1")
    assert session is not None
    assert session.title == "Bread"
    assert [(m.role, m.content) for m in session.messages] == [
        ("user", "Read it\n\n[plan.txt]\nBuy bread"),
        ("assistant", "Done."),
        ("tool", "found"),
    ]
