"""The change feed: each change once and in order, within a second, or resync."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from store import Cursor, FeedChange, Location, Message, Session, Store
from store.index import change_feed
from tests.builders import make_session


def changes_since(store: Store, cursor: Cursor) -> list[tuple[str, str]]:
    return [(str(change.location), change.what) for change in store.feed.since(cursor).items]


def test_each_change_is_reported_once_and_in_order(store: Store) -> None:
    """One row per change, with kind, location and time."""
    cursor = store.feed.since().cursor
    session = make_session("s1")
    store.save(session)
    store.append(session, [Message.user("more")])
    session.title = "renamed"
    store.save_runtime(session)
    store.save(Session.new_child("c1", "s1", "m", "child"))
    store.attach("s1", b"x", "image/png")
    store.usage.append("s1", {"tokens": 1})
    store.clear("s1")
    store.delete("s1/c1")
    store.trash.undelete(store.trash.deleted()[0].name)
    assert changes_since(store, cursor) == [
        ("s1", "saved"),
        ("s1", "appended"),
        ("s1", "runtime"),
        ("s1/c1", "saved"),
        ("s1", "attachment"),
        ("s1", "log"),
        ("s1", "cleared"),
        ("s1/c1", "deleted"),
        ("s1/c1", "reread"),
    ]
    changes = store.feed.since(cursor)
    assert [change.seq for change in changes.items] == sorted({change.seq for change in changes.items})
    assert all(before.at_ns <= after.at_ns for before, after in zip(changes.items, changes.items[1:], strict=False))
    assert store.feed.since(changes.cursor) == (changes.cursor, [], False)


def test_without_a_cursor_the_feed_starts_at_its_end(store: Store) -> None:
    """No earlier changes, and a cursor for later ones."""
    store.save(make_session("s1"))
    changes = store.feed.since()
    assert (changes.items, changes.resync) == ([], False)
    store.save(make_session("s2"))
    assert changes_since(store, changes.cursor) == [("s2", "saved")]


def test_save_without_changes_is_not_reported(store: Store) -> None:
    """Nor is a failed save."""
    session = make_session("s1")
    store.save(session)
    cursor = store.feed.since().cursor
    store.save(session)
    session.title = "\ud800"
    with pytest.raises(Exception, match=r"surrogate|UTF-8"):
        store.save(session)
    assert changes_since(store, cursor) == []


def test_pages_have_no_gaps_or_duplicates(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages add up to one large page."""
    cursor = store.feed.since().cursor
    for i in range(10):
        store.save(make_session(f"s{i}", messages=0))
    everything = store.feed.since(cursor).items
    monkeypatch.setattr(change_feed, "PAGE_ROWS", 3)
    pages: list[FeedChange] = []
    while (page := store.feed.since(cursor)).items:
        assert len(page.items) <= 3
        pages += page.items
        cursor = page.cursor
    assert pages == everything
    assert len(pages) == 10


def test_deleted_index_means_resync(home: Path) -> None:
    """A cursor of another epoch gets resync, once."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        cursor = store.feed.since().cursor
    for path in (home / ".grovefs").glob("index.db*"):
        path.unlink()
    with Store.open(home, background=False) as store:
        changes = store.feed.since(cursor)
        assert (changes.items, changes.resync) == ([], True)
        assert changes.cursor.epoch != cursor.epoch
        assert not store.feed.since(changes.cursor).resync
        store.save(make_session("s2"))
        assert changes_since(store, changes.cursor) == [("s2", "saved")]


def test_epoch_survives_a_clean_close_but_not_a_crash(home: Path) -> None:
    """After a kill, changes may have been missed."""
    with Store.open(home, background=False) as store:
        cursor = store.feed.since().cursor
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        assert changes_since(store, cursor) == [("s1", "saved")]
        cursor = store.feed.since().cursor
    code = "import os, sys; from store import Store; store = Store.open(sys.argv[1]); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(home)], check=False)
    with Store.open(home, background=False) as store:
        assert store.feed.since(cursor).resync


def test_rebuild_reports_every_session(store: Store) -> None:
    """Every row was rebuilt, so followers read each session again."""
    for name in ("s1", "s2"):
        store.save(make_session(name))
    cursor = store.feed.since().cursor
    store.maintenance.rebuild()
    sessions = [change for change in changes_since(store, cursor) if not change[0].startswith("/")]
    assert sessions == [("s1", "reread"), ("s2", "reread")]


def test_cursor_before_the_trimmed_feed_means_resync(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only cursors that would miss a deleted row get resync."""
    monkeypatch.setattr(change_feed, "KEPT_ROWS", 10)
    cursors = [store.feed.since().cursor]
    for i in range(20):
        store.save(make_session(f"s{i}", messages=0))
        cursors.append(store.feed.since().cursor)
    store._core.feed.trim()
    assert [store.feed.since(cursor).resync for cursor in cursors] == [True] * 10 + [False] * 11
    assert [len(store.feed.since(cursor).items) for cursor in cursors[10:]] == list(range(10, -1, -1))


def test_trim_keeps_a_short_feed(store: Store) -> None:
    """100,000 changes are kept."""
    cursor = store.feed.since().cursor
    store.save(make_session("s1"))
    store._core.feed.trim()
    assert changes_since(store, cursor) == [("s1", "saved")]


# -- waiting -----------------------------------------------------------------------------------------------

OTHER = """
import sys, time
from store import Message, Store
with Store.open(sys.argv[1], background=False) as store:
    print("ready", flush=True)
    for line in sys.stdin:
        store.append("s1", [Message.user(line)])
        print(time.monotonic(), flush=True)
"""


def test_wait_returns_within_a_second_of_another_process(store: Store) -> None:
    """Rule 7: a commit is visible to other processes within a second."""
    store.save(make_session("s1"))
    cursor = store.feed.since().cursor
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(store.home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        for i in range(3):
            process.stdin.write(f"line {i}\n")
            process.stdin.flush()
            changes = store.feed.wait(cursor, timeout_s=10)
            seen_at = time.monotonic()
            assert [(change.location, change.what) for change in changes.items] == [(Location("s1"), "appended")]
            assert seen_at - float(process.stdout.readline()) < 1.0
            cursor = changes.cursor
    finally:
        process.stdin.close()
        assert process.wait() == 0
        process.stdout.close()
    session = store.load("s1")
    assert session is not None
    assert len(session.messages) == 5


def test_wait_returns_on_a_commit_of_another_thread(store: Store) -> None:
    """In the same process."""
    cursor = store.feed.since().cursor
    thread = threading.Thread(target=lambda: store.save(make_session("s1")))
    thread.start()
    changes = store.feed.wait(cursor, timeout_s=10)
    thread.join()
    assert [str(change.location) for change in changes.items] == ["s1"]


def test_wait_without_a_change_ends_after_the_timeout(store: Store) -> None:
    """It returns the given cursor and no changes."""
    cursor = store.feed.since().cursor
    started = time.monotonic()
    assert store.feed.wait(cursor, timeout_s=0.15) == (cursor, [], False)
    assert 0.15 <= time.monotonic() - started < 5


def test_wait_returns_at_once_for_earlier_changes(store: Store) -> None:
    """And for resync."""
    cursor = store.feed.since().cursor
    store.save(make_session("s1"))
    started = time.monotonic()
    assert store.feed.wait(cursor, timeout_s=10).items
    assert store.feed.wait(Cursor("another", 0), timeout_s=10).resync
    assert time.monotonic() - started < 5


def test_concurrent_commits_are_reported_in_order(store: Store) -> None:
    """Each commit of four threads once, those of one thread in their order."""
    cursor = store.feed.since().cursor

    def work(name: str) -> None:
        store.save(make_session(name, messages=0))
        for i in range(10):
            store.append(name, [Message.user(str(i))])

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = changes_since(store, cursor)
    assert len(items) == 44
    for i in range(4):
        assert [what for place, what in items if place == f"t{i}"] == ["saved"] + ["appended"] * 10
