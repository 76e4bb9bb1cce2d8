"""The follower: what it takes for lost history, and what it does not."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Any

import pytest

from store import Message, Session
from store.errors import Unreachable
from store.grove import follower, log_query, queries
from store.grove.following import follow
from tests.grove.groves import wait_until
from tests.grove.homes import agreement_of, assert_same_and_clean, follower_of, texts, unfollowed_hosts


def test_a_commit_after_a_page_was_read_is_not_lost_history(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host commits between the query of its follower and the comparison: the page cannot have that row."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        followed = follow(a._core, background=False)
        real = log_query.read_page

        def read_and_commit(*args: Any) -> Any:
            page = real(*args)
            a.append("s", [Message.user("meanwhile")])
            return page

        monkeypatch.setattr(follower, "read_page", read_and_commit)
        followed.step()
        a.append("s", [Message.user("later")])
        assert texts(a, "s") == ["meanwhile", "later"]
        assert_same_and_clean(a)


def test_a_unit_that_was_behind_does_not_go_back(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This host commits between the query for a unit that is behind and the lock: its version stays in place."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        followed = follow(a._core, background=False)
        agreement_of(a).replica.note_behind("sessions/s", "the session was locked")
        real, saved = queries.rows_of_unit, list[bytes]()
        document = a.home / "sessions/s/session.json"

        def read_and_commit(*args: Any) -> Any:
            rows = real(*args)
            if not saved:
                a.append("s", [Message.user("meanwhile")])
                saved.append(document.read_bytes())
            return rows

        monkeypatch.setattr(queries, "rows_of_unit", read_and_commit)
        followed.fetch_unit("sessions/s")
        assert document.read_bytes() == saved[0]
        assert [version.agreed for version in a._core.history.log("sessions/s")] == [2, 1]
        assert not agreement_of(a).replica.behind()
        assert_same_and_clean(a)


def test_the_pause_after_a_page_grows_with_its_cost_and_its_rows(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pause after an empty page or a single row; page and pause together are limited, and so is one of many."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        followed = follower_of(a)
        waits: list[float] = []
        monkeypatch.setattr(followed, "_wait", lambda hints, seconds: waits.append(seconds))
        for rows, spent_s in ((0, 5.0), (1, 0.01), (3, 0.01), (50, 0.01), (50, 0.1), (50, 0.3), (50, 5.0)):
            followed._applied_rows = rows
            followed._pause(spent_s, has_more=False)
        followed._pause(0.5, has_more=True)
        left_s = follower.MAX_PAGE_S - 0.3
        limits = [follower.MAX_PAUSE_S, left_s, 0, follower.CATCHING_UP_S]
        assert waits == pytest.approx([0, 0, 0.02, 0.04, *limits])


def test_a_process_forgets_its_problem_while_another_one_follows(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: that one may only be trying."""
    monkeypatch.setattr(follower, "RETRY_S", 0.05)
    monkeypatch.setattr(follower, "ELSEWHERE_S", 1.0)
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        waiting = follower_of(a)
        waiting.problem = "the database does not answer"
        with (a.home / follower.FOLLOW_LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            began = time.monotonic()
            waiting.start()
            wait_until(lambda: not waiting.problem)
            assert time.monotonic() - began > 1.0
            waiting.stop()


def test_opening_a_home_without_its_database_is_a_problem_at_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that asks right away must not hear that changes arrive."""

    def fail(*args: Any) -> Any:
        raise Unreachable("down")

    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        monkeypatch.setattr(follower, "read_page", fail)
        assert follow(a._core, background=False).problem == "down"
