"""OpenCode's database: read while another program has it open, and never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

from store import Store

TABLES = """
CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, agent TEXT,
    time_created INTEGER, time_updated INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
"""
AT = 1794869379000


def fill(db: apsw.Connection) -> None:
    db.execute(TABLES)

    def add(table: str, *values: Any) -> None:
        marks = ", ".join("?" * len(values))
        db.execute(
            f"INSERT INTO {table} VALUES ({marks})", [json.dumps(v) if isinstance(v, dict) else v for v in values]
        )

    add("session", "ses_1", None, "/home/me/shop", "Fix the cart", "build", AT, AT + 9000)
    add("session", "ses_2", "ses_1", "/home/me/shop", "Look", "explore", AT + 3000, AT + 4000)
    tokens = {"input": 800, "output": 50, "reasoning": 5, "cache": {"write": 0, "read": 100}}
    add("message", "msg_1", "ses_1", AT, {"role": "user"})
    add("part", "prt_1", "msg_1", "ses_1", {"type": "text", "text": "fix it"})
    add("message", "msg_2", "ses_1", AT + 1000, {"role": "assistant", "modelID": "big", "tokens": tokens, "cost": 0.25})
    add("part", "prt_2", "msg_2", "ses_1", {"type": "reasoning", "text": "ls first"})
    state = {
        "status": "completed",
        "input": {"command": "ls"},
        "output": "a b",
        "time": {"start": AT, "end": AT + 2000},
    }
    add("part", "prt_3", "msg_2", "ses_1", {"type": "tool", "callID": "c1", "tool": "bash", "state": state})
    add("part", "prt_4", "msg_2", "ses_1", {"type": "text", "text": "Done."})
    add("message", "msg_3", "ses_2", AT + 3000, {"role": "user"})
    add("part", "prt_5", "msg_3", "ses_2", {"type": "text", "text": "look around"})


def test_sessions_are_imported_while_the_database_is_open(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "opencode"
    directory.mkdir()
    db = apsw.Connection(str(directory / "opencode.db"))
    db.execute("PRAGMA journal_mode = wal")
    fill(db)
    db.execute("BEGIN IMMEDIATE")  # a writer at work
    before = (directory / "opencode.db").read_bytes()
    summary = store.imports.run(str(directory))
    assert (summary.format, summary.problems, summary.counts) == ("opencode", [], {"new": 2})
    db.execute("ROLLBACK")
    assert (directory / "opencode.db").read_bytes() == before
    session, child = store.load("ses_1"), store.load("ses_1/ses_2")
    assert session is not None
    assert child is not None
    assert [(m.role, m.content) for m in session.messages] == [
        ("user", "fix it"),
        ("assistant", "Done."),
        ("tool", "a b"),
    ]
    assert (session.title, session.model, session.project_id) == ("Fix the cart", "big", "shop")
    assert (child.parent_session_id, child.subagent_type) == ("ses_1", "explore")
    used = store.usage.totals().by_model()["big"]
    assert (used.tokens["output_tokens"], used.cost) == (55, 0.25)
    assert store.trajectory.count("ses_1") == 1
    db.execute("UPDATE session SET title = 'Fixed' WHERE id = 'ses_1'")
    assert store.imports.run(str(directory)).counts == {"updated": 1, "unchanged": 1}
    db.close()
