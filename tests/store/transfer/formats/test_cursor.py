"""Cursor: exported Markdown and agent transcripts."""

from __future__ import annotations

from pathlib import Path

from store import Store
from tests.store.transfer.foreign import write_lines

EXPORT = """# Fix the cart
_Exported on 3/1/2026 at 10:00:00 GMT+1 from Cursor (1.2.2)_

---

**User**

Why is it empty?

---

**Cursor**

Because of the cookie.

---

**User**

Thanks
"""


def test_exported_chat_is_imported(store: Store, tmp_path: Path) -> None:
    (tmp_path / "cursor_fix_the_cart.md").write_text(EXPORT)
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("cursor", [], {"new": 1})
    session = store.load(store.entries()[0].id)
    assert session is not None
    assert session.title == "Fix the cart"
    assert [(m.role, m.content) for m in session.messages] == [
        ("user", "Why is it empty?"),
        ("assistant", "Because of the cookie."),
        ("user", "Thanks"),
    ]


def test_agent_transcript_is_imported(store: Store, tmp_path: Path) -> None:
    query = {"type": "text", "text": "<user_query>\nfix it\n</user_query>"}
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "x"}}
    records = [
        {"role": "user", "message": {"content": [query]}},
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "Reading."}, call]}},
    ]
    write_lines(tmp_path / "projects/home-me-shop/agent-transcripts/cur-1/cur-1.jsonl", records)
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("cursor", [], {"new": 1})
    session = store.load("cur-1")
    assert session is not None
    assert [(m.role, m.content) for m in session.messages] == [("user", "fix it"), ("assistant", "Reading.")]
    assert session.title == "fix it"
