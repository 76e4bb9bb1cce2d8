"""Aider chat histories: one session per heading."""

from __future__ import annotations

from pathlib import Path

from store import Store

HISTORY = """
# aider chat started at 2026-03-01 10:00:00

> Aider v0.80
> Main model: sonnet with diff edit format

#### fix the cart
#### and the tests

I changed cart.py:

```python
x = 1
```

> Applied edit to cart.py

# aider chat started at 2026-03-02 11:00:00

#### hello

Hi!
"""


def test_sessions_are_imported(store: Store, tmp_path: Path) -> None:
    (tmp_path / ".aider.chat.history.md").write_text(HISTORY)
    summary = store.imports.run(str(tmp_path))
    assert (summary.format, summary.problems, summary.counts) == ("aider", [], {"new": 2})
    newer, older = store.entries()
    assert (newer.title, older.title) == ("hello", "fix the cart")
    session = store.load(older.id)
    assert session is not None
    assert [m.role for m in session.messages] == ["system", "user", "assistant", "system"]
    assert session.messages[1].content == "fix the cart\nand the tests"
    assert session.messages[2].content.endswith("x = 1\n```")
    assert (session.model, session.created_at) == ("sonnet", "2026-03-01T10:00:00Z")
