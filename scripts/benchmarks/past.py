"""Reading the past: the newest versions of a session, and all sessions at a moment."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.rows import Row, Target, timed
from fusefs.views.page_cache import PageCache
from fusefs.views.past import PastView
from store import Message, Session, Store, Timestamp

LOG_TARGET_MS = 300
LISTING_TARGET_MS = 1_000
ROUNDS = 7


def measure_log(home: Path, session: Session, versions: int, text: Callable[[int], str]) -> list[Row]:
    """The newest 20 versions of a session that got a message in each version."""
    with Store.open(home, durability="normal", background=False) as store:
        store.save(session)
        for _ in range(versions - 1):
            store.append(session.id, [Message.user(text(790))])
        log = timed(lambda: store.history.summaries(store.history.log(session.id, limit=20)))
        samples = [log() for _ in range(ROUNDS)]
    command = [sys.executable, "-m", "fusefs.cli", "log", "-n", "20", session.id]
    environment = {**os.environ, "GROVEFS_HOME": str(home)}
    run = timed(lambda: subprocess.run(command, env=environment, check=True, capture_output=True))
    what = f"log -n 20 of {versions:,} versions"
    return [
        Row(f"8  {what}", statistics.median(samples), target=Target(LOG_TARGET_MS), samples=ROUNDS),
        Row("8  … the command, starting Python", statistics.median(run() for _ in range(ROUNDS)), samples=ROUNDS),
    ]


def measure_listing(home: Path, number: int) -> list[Row]:
    """All sessions at a moment, listed by a mount that has not been asked for that moment before."""
    with Store.open(home, durability="normal", background=False) as store:
        for place in range(number):
            store.save(Session.new(f"{place:08x}-session", "some-model"))

        def list_all() -> None:
            moment = Timestamp.from_ns(time.time_ns())
            found = dict(PastView(store, PageCache()).iter_items(f"{moment}/sessions"))
            assert len(found) == number

        listing = timed(list_all)
        samples = [listing() for _ in range(ROUNDS)]
    what = f"9  at/ listing of {number:,} sessions"
    return [Row(what, statistics.median(samples), target=Target(LISTING_TARGET_MS), samples=ROUNDS)]
