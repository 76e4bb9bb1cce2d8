"""Several processes on one home: no lost updates, torn reads or deadlocks (rules 4, 7, 8)."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import Conflict, Cursor, Message, Session, Store
from store.commit import session_reader
from store.disk.disk import Disk
from store.disk.file import File
from store.layout import Location
from tests.builders import make_document, make_session

processes = multiprocessing.get_context("fork")
DEADLINE_S = 60.0


def run_together(*jobs: Callable[[], Any]) -> None:
    """Run each job in its own process; all must succeed before the deadline."""
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


def test_concurrent_appends_are_all_stored_once(store: Store, home: Path) -> None:
    """Four processes append forty messages each to one session."""
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
    for who in range(4):  # the order of each writer is kept
        assert [c for c in found if c.startswith(f"{who}-")] == [f"{who}-{i}" for i in range(40)]


def test_concurrent_updates_lose_no_increment(store: Store, home: Path) -> None:
    """update() is a read-modify-write under the lock."""
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


def test_stale_save_conflicts_with_another_process(store: Store, home: Path) -> None:
    """Rule 8: saving a stale copy raises Conflict, and the newer version is kept."""
    store.save(make_session())
    stale = store.load("s1")
    assert stale is not None

    def rival() -> None:
        with Store.open(home, background=False) as mine:
            mine.update("s1", lambda s: setattr(s, "title", "newer"))

    run_together(rival)
    stale.title = "older"
    with pytest.raises(Conflict, match="changed by another writer"):
        store.save(stale)
    session = store.load("s1")
    assert session is not None
    assert session.title == "newer"


def test_concurrent_create_and_delete_keep_the_index_correct(store: Store, home: Path) -> None:
    """Two processes save children while another deletes their root repeatedly."""

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


def test_readers_never_see_a_mix_of_two_versions(store: Store, home: Path) -> None:
    """Rule 4: title and message count are written together and always match."""
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
                assert session.title == str(len(session.messages)), "fields and messages of different versions"
                document = json.loads(path.read_bytes())
                assert document["title"] == str(len(document["messages"]))
                if session.title == "60":
                    return

    run_together(write, read, read)


def test_commit_that_ends_during_a_read_is_not_mixed_in(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar is read after its rename, session.json before: the reader must notice."""
    store.save(make_session(messages=0, title="0"))
    sidecar_renamed, finish = threading.Event(), threading.Event()
    with Store.open(home, background=False) as reader, Store.open(home, background=False) as writer:
        move = writer._core.disk.move

        def pause_after_sidecar(source: str, target: str) -> None:
            move(source, target)
            if target.endswith("runtime.json"):
                sidecar_renamed.set()
                assert finish.wait(DEADLINE_S)

        def grow(session: Session) -> None:
            session.add_message(Message.user("x"))
            session.title = "1"

        monkeypatch.setattr(writer._core.disk, "move", pause_after_sidecar)
        writing = threading.Thread(target=writer.update, args=("s1", grow))
        pending = reader._core.journal.pending

        def pending_after_commit(root: str) -> list[str]:
            finish.set()
            writing.join()
            return pending(root)

        read_side = session_reader._read_side

        def read_side_during_commit(disk: Disk, location: Location, limit: int) -> File | None:
            if disk is reader._core.disk and not sidecar_renamed.is_set():
                writing.start()
                assert sidecar_renamed.wait(DEADLINE_S)
            return read_side(disk, location, limit)

        monkeypatch.setattr(session_reader, "_read_side", read_side_during_commit)
        monkeypatch.setattr(reader._core.journal, "pending", pending_after_commit)
        session = reader.load("s1")
    assert session is not None
    assert (session.title, len(session.messages)) == ("1", 1)


def test_follower_gets_every_change_once_and_in_order(store: Store, home: Path) -> None:
    """Rule 7: the change feed as seen by another process has no gaps and no duplicates."""
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


def test_killed_writer_does_not_affect_other_processes(store: Store, home: Path) -> None:
    """kill -9 at random points, while this process keeps reading and writing."""
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
        # Temp files of the victim remain until the home is opened again; nothing else may be wrong.
        assert {f.kind for f in report.findings} <= {"temporary"}, report.findings
    session = store.load("s1")
    assert session is not None
    assert sum(m.content == "survivor" for m in session.messages) == 8
    assert store.check(repair=True).is_clean


def test_several_processes_can_open_a_new_home_at_once(home: Path) -> None:
    """One of them sets it up while the others wait."""
    (home / "sessions/a").mkdir(parents=True)
    (home / "sessions/a/session.json").write_bytes(make_document("a"))

    def open_it() -> None:
        with Store.open(home, background=False) as mine:
            assert mine.load("a") is not None
            assert mine.entry("a") is not None

    run_together(open_it, open_it, open_it, open_it)
    with Store.open(home, background=False) as store:
        assert store.check().findings == []


def test_current_cursor_returns_no_changes(store: Store) -> None:
    """Only later changes are returned; a cursor of another epoch means resync."""
    store.save(make_session())
    changes = store.feed.since(store.feed.since().cursor)
    assert (changes.items, changes.resync) == ([], False)
    assert store.feed.since(Cursor("another epoch", 0)).resync
