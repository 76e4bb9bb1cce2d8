"""grovefs ls: which sessions are at work, and which wait for an answer."""

from __future__ import annotations

import time
from pathlib import Path

from store import PendingQuestion, Store, Timestamp
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs


def test_running_and_waiting_sessions(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for id in ("works", "killed", "asks", "done"):
            session = make_session(id)
            session.last_run_status = "running" if id in ("works", "killed") else "completed"
            if id == "asks":
                question = PendingQuestion(tool_call_id="t", question="Which?", options=["a"], allow_custom=True)
                session.set_pending_question(question)
            age_s = 7200 if id == "killed" else 0
            session.updated_at = Timestamp.from_ns(time.time_ns() - age_s * 10**9)
            store.save(session)
    running = grovefs(home, "ls", "--running").stdout
    assert [line.split("\t")[1] for line in running.splitlines()] == ["works"]
    waiting = grovefs(home, "ls", "--waiting").stdout
    assert [line.split("\t")[1] for line in waiting.splitlines()] == ["asks"]
    assert grovefs(home, "ls", "--running", "--status", "error").returncode == 2
