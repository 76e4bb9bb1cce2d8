"""Cline tasks: the messages of the API, with times and token counts from the messages of the editor."""

from __future__ import annotations

import json
from pathlib import Path

from store import Store

TASK = "1794869373458"


def test_task_is_imported(store: Store, tmp_path: Path) -> None:
    task = tmp_path / f"tasks/{TASK}"
    task.mkdir(parents=True)
    call = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "x"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "body"}]}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "<task>\nFix the cart\n</task>"}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "Fixed."},
    ]
    (task / "api_conversation_history.json").write_text(json.dumps(messages))
    used = json.dumps({"request": "…", "tokensIn": 30, "tokensOut": 4, "cacheReads": 100, "cost": 0.5})
    shown = [{"ts": int(TASK) + 1000, "type": "say", "say": "api_req_started", "text": used}]
    (task / "ui_messages.json").write_text(json.dumps(shown))
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("cline", [], {"new": 1})
    session = store.load(TASK)
    assert session is not None
    assert session.title == "Fix the cart"
    assert [m.role for m in session.messages] == ["user", "assistant", "tool", "assistant"]
    assert store.trajectory.count(TASK) == 1
    total = store.usage.totals().total()
    assert (total.tokens["input_tokens"], total.cost) == (30, 0.5)
    assert store.imports.run(str(tmp_path)).counts == {"unchanged": 1}
