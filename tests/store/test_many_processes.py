"""Two or more processes on one home: nothing lost, nothing torn, nobody deadlocked (rules 4, 7, 8)."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import Conflict, Cursor, Message, Session, Store
from tests.builders import make_document, make_session

processes = multiprocessing.get_context("fork")
DEADLINE_S = 60.0


def run_together(*jobs: Callable[[], Any]) -> None:
    """Each job in a process of its own; all must end well, and in time."""
    running = [processes.Process(target=job) for job in jobs]
    for process in running:
        process.start()
    deadline = time.monotonic() + DEADLINE_S
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
    late = [p for p in running if p.is_alive()]
    for process in late:
        process.kill()
        process.join()
    assert not late, "a deadlock"
    assert [p.exitcode for p in running] == [0] * len(running)


def test_appends_of_many_processes_are_each_there_once(store: Store, home: Path) -> None:
    """Four writers, forty messages each, on one session."""
    store.save(make_session(messages=0))

    def append(who: int) -> None:
        with Store.open(home, background=False) as mine:
            for i in range(40):
                mine.append("s1", [Message.user(f"{who}-{i}")])

    run_together(*(lambda who=who: append(who) for who in range(4)))
    session = store.load("s1")
    assert session is not None
    found = [m.content for m in session.messages]
    assert Counter(found) == Counter(f"{who}-{i}" for who in range(4) for i in range(40))
    for who in range(4):  # and each writer's own order is kept
        assert [c for c in found if c.startswith(f"{who}-")] == [f"{who}-{i}" for i in range(40)]


def test_updates_of_many_processes_count_up_without_a_gap(store: Store, home: Path) -> None:
    """update() is a read-modify-write under the lock: a counter shows every one of them."""
    store.save(make_session())

    def count(session: Session) -> None:
        session.metadata["n"] = str(int(session.metadata.get("n", "0")) + 1)

    def work() -> None:
        with Store.open(home, background=False) as mine:
            for _ in range(40):
                mine.update("s1", count)

    run_together(work, work, work, work)
    session = store.load("s1")
    assert session is not None
    assert session.metadata["n"] == "160"


def test_an_outdated_save_is_refused_in_another_process_too(store: Store, home: Path) -> None:
    """Rule 8: who saves from an old copy is told, and the newer version stands."""
    store.save(make_session())
    outdated = store.load("s1")
    assert outdated is not None

    def rival() -> None:
        with Store.open(home, background=False) as mine:
            mine.update("s1", lambda s: setattr(s, "title", "newer"))

    run_together(rival)
    outdated.title = "older"
    with pytest.raises(Conflict, match="changed by someone else"):
        store.save(outdated)
    session = store.load("s1")
    assert session is not None
    assert session.title == "newer"


def test_creating_and_deleting_at_once_ends_in_order(store: Store, home: Path) -> None:
    """Savers of children, and one that deletes their root again and again; index and files agree after."""

    def create(who: int) -> None:
        with Store.open(home, background=False) as mine:
            for i in range(30):
                root = mine.load("root")
                if root is None:
                    mine.save(make_session("root"), overwrite=True)
                mine.save(Session.new_child(f"c{who}-{i}", "root", "m", "t"))

    def delete() -> None:
        with Store.open(home, background=False) as mine:
            for _ in range(15):
                mine.delete("root")
                time.sleep(0.01)

    run_together(lambda: create(0), lambda: create(1), delete)
    if store.load("root") is None:
        store.save(make_session("root"))
    kinds = {f.kind for f in store.check().findings}
    assert kinds <= {"orphan-child"}, store.check().findings
    assert {e.id for e in store.entries(kind="child", limit=1000)} == {
        p.name for p in (home / "sessions/root/children").iterdir()
    }


def test_readers_see_whole_versions_while_writers_write(store: Store, home: Path) -> None:
    """Rule 4: title and message count are written together, and are never seen apart."""
    store.save(make_session(messages=0, title="0"))

    def write() -> None:
        with Store.open(home, background=False) as mine:
            for _ in range(60):

                def grow(session: Session) -> None:
                    session.add_message(Message.user("x" * 2000))
                    session.title = str(len(session.messages))

                mine.update("s1", grow)

    def read() -> None:
        with Store.open(home, background=False) as mine:
            path = home / "sessions/s1/session.json"
            while True:
                session = mine.load("s1")
                assert session is not None
                assert session.title == str(len(session.messages)), "control plane and messages of two versions"
                document = json.loads(path.read_bytes())
                assert document["title"] == str(len(document["messages"]))
                if session.title == "60":
                    return

    run_together(write, read, read)


def test_a_follower_sees_every_change_once_in_order(store: Store, home: Path) -> None:
    """Rule 7: another process follows the feed and misses nothing, repeats nothing, within a second."""
    cursor = store.feed.since().cursor

    def write() -> None:
        with Store.open(home, background=False) as mine:
            mine.save(make_session("f"))
            for i in range(50):
                mine.append("f", [Message.user(str(i))])
            mine.delete("f")

    writer = processes.Process(target=write)
    writer.start()
    seen: list[tuple[int, str]] = []
    deadline = time.monotonic() + DEADLINE_S
    while not (seen and seen[-1][1] == "deleted"):
        assert time.monotonic() < deadline
        changes = store.feed.wait(cursor, timeout_s=1.0)
        assert not changes.resync
        seen += [(c.seq, c.what) for c in changes.items]
        for change in changes.items:
            assert time.time_ns() - change.at_ns < DEADLINE_S * 1e9
        cursor = changes.cursor
    writer.join()
    assert [what for _, what in seen] == ["saved"] + ["appended"] * 50 + ["deleted"]
    assert [seq for seq, _ in seen] == list(range(seen[0][0], seen[0][0] + 52))


def test_a_killed_writer_leaves_nothing_for_others_to_stumble_over(store: Store, home: Path) -> None:
    """kill -9 at random moments, again and again, while this process goes on reading and writing."""
    store.save(make_session(messages=0))

    def write() -> None:
        with Store.open(home, background=False) as mine:
            while True:
                mine.append("s1", [Message.user("victim")])

    for round_ in range(8):
        victim = processes.Process(target=write)
        victim.start()
        before = store.feed.since().cursor
        store.feed.wait(before, timeout_s=10.0)
        time.sleep(0.005 * round_)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        store.append("s1", [Message.user("survivor")])
        report = store.check()
        # What the victim was still writing under tmp/ goes at the next opening; nothing else may be wrong.
        assert {f.kind for f in report.findings} <= {"temporary"}, report.findings
    session = store.load("s1")
    assert session is not None
    assert sum(m.content == "survivor" for m in session.messages) == 8
    assert store.check(repair=True).is_clean


def test_two_processes_opening_a_new_home_agree(home: Path) -> None:
    """One of them sets it up, the other waits for it."""
    (home / "sessions/a").mkdir(parents=True)
    (home / "sessions/a/session.json").write_bytes(make_document("a"))

    def open_it() -> None:
        with Store.open(home, background=False) as mine:
            assert mine.load("a") is not None
            assert mine.entry("a") is not None

    run_together(open_it, open_it, open_it, open_it)
    with Store.open(home, background=False) as store:
        assert store.check().findings == []


def test_the_present_cursor_means_nothing_new(store: Store) -> None:
    """A cursor taken now answers with later changes only."""
    store.save(make_session())
    changes = store.feed.since(store.feed.since().cursor)
    assert (changes.items, changes.resync) == ([], False)
    assert store.feed.since(Cursor("another epoch", 0)).resync
