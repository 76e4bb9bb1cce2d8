"""Rules 2 and 3 across hosts: a host is killed at every step of every kind of change.

What the grove has agreed to is complete on all hosts afterwards; what it has not agreed to is absent
on all. Both homes have the same bytes and are clean.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from store import InboxMessage, Message, Session, Store
from store.grove.replica import LogPosition
from tests.grove.groves import wait_until
from tests.grove.homes import (
    agreement_of,
    assert_same_and_clean,
    follower_of,
    pull,
    rows_to_apply,
    texts,
    unfollowed_hosts,
)

MAX_STEPS = 200


class Change(NamedTuple):
    name: str
    make: Callable[[Store], object]


def _save(store: Store) -> None:
    session = store.load("s")
    assert session is not None
    session.title = f"changed {os.urandom(4).hex()}"
    store.save(session)


CHANGES = [
    Change("append", lambda store: store.append("s", [Message.user("new")])),
    Change("save", _save),
    Change("create", lambda store: store.save(Session.new("t", "m"))),
    Change("child", lambda store: store.new_child("s", "d")),
    Change("attach", lambda store: store.attach("s", os.urandom(400_000), "application/octet-stream")),
    Change("state", lambda store: store.state.save_json("memory", "n", [1, 2])),
    Change("deliver", lambda store: store.mail.at("s").deliver(InboxMessage.new("x", "reply", {}))),
    Change("drain", lambda store: store.mail.at("s").drain()),
    Change("delete", lambda store: store.delete("s")),
]


class KillAt:
    """A `step` function that kills the process at step `at` once armed."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.armed = False

    def __call__(self, name: str) -> None:
        self.left -= self.armed
        if self.armed and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_kill(home: Path, change: Change, at: int) -> bool:
    """Make a change in a child that is killed at step `at`; True if it reported success before."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            step = KillAt(at)
            store = Store.open(home, background=False, step=step)
            step.armed = True
            change.make(store)
            os.write(writer, b"done")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read() == b"done"


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM grove.log").fetchone()
    assert row is not None
    return int(row[0])


def backends(url: str) -> int:
    """How many connections of hosts the server has."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'grovefs'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def undo(store: Store, change: Change) -> None:
    """Make the same change possible again."""
    if change.name == "delete":
        store.trash.undelete(store.trash.deleted()[0].name)
    elif change.name == "create":
        store.delete("t")
    elif change.name == "child":
        store.delete("s/d")
    elif change.name == "state":
        store.state.delete("memory", "n")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_host_killed_at_any_step_agrees_with_the_others(change: Change, tmp_path: Path, url: str) -> None:
    """Also while the database works: the server then finishes a statement whose sender is gone."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.new_child("s", "c")
        a.mail.at("s").deliver(InboxMessage.new("x", "reply", {}))
        a.close()
        for at in range(1, MAX_STEPS):
            before, connected = rows(url), backends(url)
            reported = run_and_kill(tmp_path / "a", change, at)
            wait_until(lambda connected=connected: backends(url) <= connected)  # type: ignore[misc]
            is_agreed = rows(url) > before
            assert is_agreed or not reported, f"step {at}: success was reported, and the grove does not have it"
            with Store.open(tmp_path / "a", background=False) as again:
                for store in (again, b):
                    pull(store, "s", "t", "/state")
                assert_same_and_clean(again, b)
                if reported:
                    return
                if is_agreed and change.name in ("delete", "create", "child", "state"):
                    undo(again, change)
                if is_agreed and change.name == "drain":
                    again.mail.at("s").deliver(InboxMessage.new("x", "reply", {}))
        pytest.fail("the change never completed")


def skip_rows(store: Store) -> list[str]:
    """Let a home have read the log without applying it; returns the units that are behind then."""
    replica, rows = agreement_of(store).replica, rows_to_apply(store)
    replica.set_cursors({row.shard: LogPosition(row.seq, row.token) for row in rows})
    return [row.unit for row in rows]


def catch_up(store: Store, units: list[str]) -> None:
    """As a follower does that could get no lock while it read the log."""
    for unit in units:
        agreement_of(store).replica.note_behind(unit, "locked")
    follower_of(store).retry_behind()


def test_a_host_killed_while_it_catches_up_with_a_deletion_has_all_of_it_in_its_trash(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        b.close()
        for at in range(1, MAX_STEPS):
            name = f"s{at}"
            a.save(Session.new(name, "m"))
            with Store.open(b.home, background=False) as behind:
                a.append(name, [Message.user("last")])
                a.new_child(name, "c")
                a.mail.at(name).deliver(InboxMessage.new("x", "reply", {"n": 1}))
                a.delete(name)
                units = skip_rows(behind)
            change = Change("catch up", lambda store, units=units: catch_up(store, units))  # type: ignore[misc]
            is_complete = run_and_kill(b.home, change, at)
            with Store.open(b.home, background=False) as again:
                assert agreement_of(again).replica.behind() == []
                newest = max(slot.name for slot in again.trash.deleted() if slot.session_id == name)
                again.trash.undelete(newest)
                pull(a, name)
                assert texts(a, name) == ["last"], f"step {at}"
                assert a.exists(f"{name}/c"), f"step {at}"
                assert len(a.mail.at(name).pending()) == 1, f"step {at}"
                again.delete(name)
                pull(a, name)
                assert_same_and_clean(a, again)
            if is_complete:
                return
        pytest.fail("the deletion never completed")
