"""The catalog: entries, filters, paging. Rule 1: it can be deleted and rebuilt."""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from store import Location, Message, Session, Store, StoreError, Timestamp
from tests.builders import make_document, make_session, read_json
from tests.store.tables import dump_tables

_OPENED = [0]
sys.addaudithook(lambda event, _: _OPENED.__setitem__(0, _OPENED[0] + (event == "open")))


@contextmanager
def counted_opens() -> Iterator[list[int]]:
    """Count the files opened in the block; the list has the result as its only item."""
    found = [0]
    before = _OPENED[0]
    yield found
    found[0] = _OPENED[0] - before


def ids(entries: list[Any]) -> list[str]:
    return [entry.id for entry in entries]


def fill(store: Store) -> None:
    for i in range(10):
        session = make_session(f"s{i}", messages=i, title=f"Title {i % 3}", model=f"model-{i % 2}", pinned=i == 7)
        session.updated_at = Timestamp.from_ns(1_700_000_000_000_000_000 + i)
        session.last_run_status = "completed" if i % 2 else "error"
        if i % 5 == 0:
            session.project_id = "p"
        store.save(session)
    parent = store.load("s1")
    assert parent is not None
    child = Session.new_child_of("c1", parent, "m", "a child")
    child.updated_at = Timestamp.from_ns(1)
    store.save(child)


def test_entries_are_sorted_newest_first_by_nanoseconds(store: Store) -> None:
    """Differences below a microsecond count."""
    fill(store)
    assert ids(store.entries()) == [f"s{i}" for i in range(9, -1, -1)] + ["c1"]


def test_entries_are_filtered_sorted_and_paged_in_sql(store: Store) -> None:
    """Each filter alone, two combined, orders and pages."""
    fill(store)
    assert ids(store.entries(kind="child")) == ["c1"]
    assert ids(store.entries(kind="root", limit=3)) == ["s9", "s8", "s7"]
    assert ids(store.entries(limit=3, offset=3)) == ["s6", "s5", "s4"]
    assert ids(store.entries(pinned=True)) == ["s7"]
    assert ids(store.entries(status="error", model="model-0", limit=2)) == ["s8", "s6"]
    assert ids(store.entries(project="p")) == ["s5", "s0"]
    assert ids(store.entries(parent="s1")) == ["c1"]
    assert ids(store.entries(root="s1")) == ["s1", "c1"]
    assert ids(store.entries(title="TITLE 2")) == ["s8", "s5", "s2"]
    assert ids(store.entries(title="%")) == []
    assert ids(store.entries(order="messages", descending=False, limit=2)) == ["s0", "c1"]
    assert ids(store.entries(order="title", descending=False, limit=1)) == ["c1"]
    moment = Timestamp.from_ns(1_700_000_000_000_000_008)
    assert ids(store.entries(updated_since=moment)) == ["s9", "s8"]
    assert ids(store.entries(updated_before=moment, limit=1)) == ["s7"]


def test_runtime_save_updates_the_entry(store: Store) -> None:
    """Unlike in Bamboo, whose index is stale until the next full save."""
    store.save(make_session())
    session = store.load_runtime("s1")
    assert session is not None
    session.last_run_status = "error"
    session.title = "renamed"
    store.save_runtime(session)
    entry = store.entry("s1")
    assert entry is not None
    assert (entry.last_run_status, entry.title, entry.message_count) == ("error", "renamed", 2)


def test_has_attachments_is_set_by_the_first_save(store: Store) -> None:
    """The attachment was stored before the session was saved for the first time."""
    session = make_session()
    store.attach(session, b"x", "image/png")
    store.save(session)
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_attachments


def test_id_under_two_roots_is_ambiguous_and_root_child_is_exact(store: Store, home: Path) -> None:
    """A tree copied by a user has children with the same ids."""
    root = make_session("a")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "t"))
    other = make_session("b")
    store.save(other)
    store.save(Session.new_child_of("c", other, "m", "t"))
    with pytest.raises(StoreError, match=r"a/c, b/c"):
        store.load("c")
    exact = store.load("b/c")
    assert exact is not None
    assert exact.root_session_id == "b"


def test_session_created_by_another_program_is_found_by_its_id(store: Store, home: Path) -> None:
    """An id that is not in the index is looked up on disk."""
    directory = home / "sessions/outside"
    directory.mkdir()
    (directory / "session.json").write_bytes(make_document("outside"))
    assert store.load("outside") is not None
    assert store.entry("outside") is not None


def test_append_indexes_an_unnoticed_outside_edit(store: Store, home: Path) -> None:
    """A row is updated partially only if it was built from the current files (compare-and-set)."""
    store.save(make_session(messages=1))
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"outside-edit"))
    store.append("s1", [Message.user("appended")])
    assert [hit.message_index for hit in store.search("outside-edit")] == [0]
    session = store.load("s1")
    assert session is not None
    assert [m.content for m in session.messages] == ["outside-edit", "appended"]


def random_operation(store: Store, rng: random.Random, home: Path) -> None:
    """Apply one random operation to one of a few sessions."""
    known = [entry.id for entry in store.entries(limit=1000)]
    id = rng.choice(known) if known else "s0"
    words = " ".join(rng.choices(["alpha", "beta", "gamma", "漢字", "src/main.rs"], k=5))
    match rng.randrange(13):
        case 0 | 1:
            store.save(make_session(f"s{rng.randrange(30)}", messages=rng.randrange(4), title=words))
        case 2:
            parent = store.load(id)
            if parent is not None:
                store.save(Session.new_child_of(f"c{rng.randrange(30)}", parent, "m", words))
        case 3 | 4 | 5:
            store.append(id, [Message.user(words), Message.assistant("answer " + words)])
        case 6:
            store.update(id, lambda s: setattr(s, "title", words))
        case 7:

            def rewrite_first(session: Session) -> None:
                if session.messages:
                    session.messages[0].content = words

            store.update(id, rewrite_first)
        case 8:
            session = store.load_runtime(id)
            if session is not None:
                session.last_run_status = words
                store.save_runtime(session)
        case 9:
            store.attach(id, words.encode(), "text/plain")
        case 10:
            store.clear(id)
        case 11:
            store.delete(id) if rng.random() < 0.5 else None
        case 12:
            location = store.location(id)
            if location is not None:
                path = home / location.path("session.json")
                path.write_bytes(path.read_bytes().replace(b"alpha", b"omega"))
                store.maintenance.sweep()


def test_updated_and_rebuilt_index_are_equal(home: Path, tmp_path: Path) -> None:
    """Rule 1, after 1,000 random operations: updated, rebuilt in place, and built from files."""
    rng = random.Random(20260620)
    with Store.open(home, background=False, durability="normal") as store:
        for _ in range(1000):
            with suppress(StoreError):  # a conflict or an ambiguous id: rejected, nothing changed
                random_operation(store, rng, home)
        assert store.check().findings == []
    kept = dump_tables(home)
    assert len(kept["sessions"]) > 5
    exported = read_json(home / "sessions.json")["sessions"]

    fresh = tmp_path / "fresh"
    shutil.copytree(home, fresh, ignore=shutil.ignore_patterns(".grovefs", "sessions.json"))
    with Store.open(fresh, background=False) as store:
        assert store.check().findings == []
    assert dump_tables(fresh) == kept
    assert read_json(fresh / "sessions.json")["sessions"] == exported

    with Store.open(home, background=False) as store:
        for _ in range(2):  # rebuild is idempotent
            store.maintenance.rebuild()
    assert dump_tables(home) == kept


def test_opening_after_a_crash_rereads_only_changed_sessions(home: Path) -> None:
    """The change feed lists the one session that was edited."""
    store = Store.open(home, background=False)
    for i in range(5):
        store.save(make_session(f"s{i}"))
    store._core.db.set_meta(clean=0)
    store._home.release()  # what a crash leaves: no clean shutdown is recorded
    path = home / "sessions/s3/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"msg-x"))
    with Store.open(home, background=False) as again:
        rows = again._core.db.reader.execute("SELECT root FROM changes WHERE what = 'reread'").fetchall()
        assert rows == [("s3",)]


def test_opening_after_a_clean_shutdown_reads_no_session(home: Path) -> None:
    """An edit made while the home was closed is found by `check` or a sweep."""
    with Store.open(home, background=False) as store:
        store.save(make_session())
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-1", b"msg-x"))
    with Store.open(home, background=False) as store:
        assert {f.kind for f in store.check().findings} == {"search-rows"}
        assert store.maintenance.sweep() == 1
        assert store.check().findings == []


def cost_of_a_save(home: Path, sessions: int) -> tuple[list[str], int, int]:
    """The disk steps, opened files and changed rows of one save."""
    steps: list[str] = []
    with Store.open(home, background=False, step=steps.append) as store:
        for i in range(sessions):
            store.save(make_session(f"s{i}"))
        session = store.load("s0")
        assert session is not None
        session.title = "changed"
        steps.clear()
        rows = store._core.db._writer.total_changes()
        with counted_opens() as opened:
            store.save(session)
        assert opened[0] > 2
        return list(steps), opened[0], store._core.db._writer.total_changes() - rows


def test_cost_of_a_save_does_not_depend_on_the_number_of_sessions(tmp_path: Path) -> None:
    """Rule 10, by counting steps, opened files and changed rows."""
    assert cost_of_a_save(tmp_path / "small", 2) == cost_of_a_save(tmp_path / "large", 300)


# -- batches -----------------------------------------------------------------------------------------


def write_unindexed(home: Path, number: int) -> None:
    """Write sessions to disk that are not in the index."""
    for i in range(number):
        directory = home / f"sessions/s{i}"
        directory.mkdir(parents=True)
        (directory / "session.json").write_bytes(make_document(f"s{i}"))


def test_first_index_takes_few_transactions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds many sessions; the result equals that of one transaction per session."""
    write_unindexed(home, 25)
    monkeypatch.setattr("store.commit.reindex.BATCH", 10)
    reported: list[tuple[int, int]] = []
    with Store.open(home, background=False, progress=lambda done, total: reported.append((done, total))) as store:
        assert store.count() == 25
        assert store.check().is_clean
    assert reported == [(10, 25), (20, 25), (25, 25)]
    together = dump_tables(home)
    monkeypatch.setattr("store.commit.reindex.BATCH", 1)
    with Store.open(home, background=False) as store:
        store.maintenance.rebuild()
    assert dump_tables(home) == together


def test_batch_is_bounded_in_bytes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of large sessions is committed early."""
    write_unindexed(home, 5)
    monkeypatch.setattr("store.commit.reindex.BATCH_BYTES", 1)
    reported: list[int] = []
    with Store.open(home, background=False, progress=lambda done, total: reported.append(done)):
        assert reported == [1, 2, 3, 4, 5]


@pytest.mark.warns
def test_one_sweep_handles_new_changed_damaged_and_deleted_sessions(store: Store) -> None:
    """All in one transaction."""
    fill(store)
    sessions = store.home / "sessions"
    (sessions / "s2/session.json").write_bytes(b"{")
    shutil.rmtree(sessions / "s3")
    (sessions / "s4/session.json").write_bytes(make_document("s4"))
    (sessions / "new").mkdir()
    (sessions / "new/session.json").write_bytes(make_document("new"))
    assert store.maintenance.sweep() == 4
    assert set(store.maintenance.status()["damaged"]) == {"s2"}
    known = {entry.id for entry in store.entries()}
    assert "new" in known
    assert not {"s2", "s3"} & known
    assert {hit.location.id for hit in store.search("hello") if hit.location} == {"s4", "new"}
    (sessions / "s2/session.json").write_bytes(make_document("s2"))
    store.maintenance.sweep()


def test_sweep_holds_no_lock_while_it_waits_for_another(home: Path) -> None:
    """A writer holds one session and needs others.

    A sweep that held those while waiting would deadlock.
    """
    with Store.open(home, background=False) as store, Store.open(home, background=False) as other:
        for i in range(6):
            store.save(make_session(f"s{i}"))
        for i in range(6):
            path = home / f"sessions/s{i}/session.json"
            path.write_bytes(path.read_bytes().replace(b"msg-0", b"foreign"))
        is_locked, swept = threading.Event(), threading.Event()

        def write() -> None:
            with other._core.locked(Location("s3")):
                is_locked.set()
                swept.wait(0.3)  # by now the sweep has reached s3
                for i in (0, 1, 2, 4, 5):
                    other.append(f"s{i}", [Message.user("late")])

        writer = threading.Thread(target=write)
        writer.start()
        assert is_locked.wait(10)
        assert store.maintenance.sweep() >= 1
        swept.set()
        writer.join(30)
        assert not writer.is_alive()
        store.maintenance.sweep()
        assert len(store.search("late", limit=100)) == 5
        assert len(store.search("foreign", limit=100)) == 6
        assert store.check().is_clean


def test_root_and_child_with_equal_times_are_both_indexed(home: Path) -> None:
    """As after a copy that preserves or sets equal times."""
    with Store.open(home, background=False) as store:
        root = make_session("root")
        store.save(root)
        store.save(Session.new_child_of("child", root, "m", "A child"))
    (home / ".grovefs/index.db").unlink()
    for path in home.glob("sessions/**/session.json"):
        os.utime(path, ns=(10**18, 10**18))
    with Store.open(home, background=False) as store:
        assert store.count() == 2


def test_non_unicode_filter_matches_nothing(store: Store) -> None:
    """A shell may pass bytes that are not UTF-8."""
    store.save(make_session("s1"))
    assert store.entries(title="\udcff") == store.entries(model="\udcff") == []
