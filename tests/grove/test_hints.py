"""Hints between hosts: they only shorten the wait for the next poll of the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import Session
from store.grove import follower
from store.grove.connection import DeadlineConnection
from store.grove.hints import CHANNEL, MAX_PER_S, HintSender
from tests.grove.groves import assert_clean, create, hosts, wait_equal, wait_until

FOREVER_S = 3600.0


def test_a_hint_wakes_the_other_host(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the log is polled once an hour, so nothing else can."""
    monkeypatch.setattr(follower, "POLL_S", FOREVER_S)
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        for number in range(3):
            one.save(Session.new(f"s{number}", "m"))
            wait_until(lambda number=number: two.exists(f"s{number}"))  # type: ignore[misc]
        wait_equal(one, two)
        assert_clean(one, two)


def test_without_hints_the_log_is_polled(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and nothing is listened to."""
    monkeypatch.setenv("GROVEFS_HINTS", "off")
    with hosts(tmp_path, create(url), "one", "two") as (one, two), psycopg.connect(url) as connection:
        one.save(Session.new("s", "m"))
        wait_until(lambda: two.exists("s"))
        listening = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").fetchone()
        assert listening == (0,)
        wait_equal(one, two)
        assert_clean(one, two)


def test_many_commits_share_a_hint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most MAX_PER_S in a second after the first two, and one after the last commit."""
    sent: list[float] = []
    real = DeadlineConnection.execute

    def execute(self: DeadlineConnection, query: Any, *args: Any, **kwargs: Any) -> Any:
        if "pg_notify" in str(query):
            sent.append(time.monotonic())
        return real(self, query, *args, **kwargs)

    monkeypatch.setattr(DeadlineConnection, "execute", execute)
    sender = HintSender(url, "a-host")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        began = time.monotonic()
        while time.monotonic() < began + 0.5:
            sender.send()
        last = time.monotonic()
        sender.close()
        wait_until(lambda: sent and sent[-1] >= last)
        heard = [hint.payload for hint in listener.notifies(timeout=1, stop_after=1)]
    assert set(heard) == {"a-host"}
    assert len(sent) <= (sent[-1] - began) * MAX_PER_S + 3


def test_a_database_that_is_away_costs_a_commit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint that cannot be sent is dropped by its thread."""
    sender = HintSender("host=/nonexistent dbname=none", "a-host")
    began = time.monotonic()
    sender.send()
    assert time.monotonic() - began < 1
    sender.close()
    assert sender._connection is None
