"""The derived catalogue: entries, filters, paging, and rule 1: it can be deleted and comes back the same."""

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
    """The number of files opened within, in a list of one."""
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


def test_entries_come_newest_first_to_the_nanosecond(store: Store) -> None:
    """Sorting survives differences below a microsecond."""
    fill(store)
    assert ids(store.entries()) == [f"s{i}" for i in range(9, -1, -1)] + ["c1"]


def test_entries_are_filtered_sorted_and_paged_in_sql(store: Store) -> None:
    """Every filter alone and together; the order; the pages."""
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


def test_a_runtime_save_refreshes_the_entry(store: Store) -> None:
    """Bamboo's index stays behind until the next full save; ours does not."""
    store.save(make_session())
    session = store.load_runtime("s1")
    assert session is not None
    session.last_run_status = "error"
    session.title = "renamed"
    store.save_runtime(session)
    entry = store.entry("s1")
    assert entry is not None
    assert (entry.last_run_status, entry.title, entry.message_count) == ("error", "renamed", 2)


def test_has_attachments_is_true_from_the_first(store: Store) -> None:
    """Also when the attachment was stored before its session was ever saved."""
    session = make_session()
    store.attach(session, b"x", "image/png")
    store.save(session)
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_attachments


def test_an_id_under_two_roots_is_ambiguous_until_said_exactly(store: Store, home: Path) -> None:
    """A tree copied by hand has children of the same id."""
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


def test_a_session_written_behind_our_back_is_found_by_its_id(store: Store, home: Path) -> None:
    """The directory is looked at where the index knows nothing."""
    directory = home / "sessions/outside"
    directory.mkdir()
    (directory / "session.json").write_bytes(make_document("outside"))
    assert store.load("outside") is not None
    assert store.entry("outside") is not None


def test_an_outside_edit_is_not_sealed_in_by_an_append(store: Store, home: Path) -> None:
    """A row is changed in part only if it was made from the files as they are (compare-and-set)."""
    store.save(make_session(messages=1))
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"outside-edit"))
    store.append("s1", [Message.user("appended")])
    assert [hit.message_index for hit in store.search("outside-edit")] == [0]
    session = store.load("s1")
    assert session is not None
    assert [m.content for m in session.messages] == ["outside-edit", "appended"]


def random_operation(store: Store, rng: random.Random, home: Path) -> None:
    """One of the things that happen to a store, on one of a few sessions."""
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


def test_upkeep_and_rebuild_agree_table_by_table(home: Path, tmp_path: Path) -> None:
    """After 1,000 random operations: as kept up, as rebuilt in place, and as made from files alone (rule 1)."""
    rng = random.Random(20260620)
    with Store.open(home, background=False, durability="normal") as store:
        for _ in range(1000):
            with suppress(StoreError):  # a conflict, an ambiguous id: refused, so nothing happened
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
        for _ in range(2):  # twice: it is idempotent
            store.maintenance.rebuild()
    assert dump_tables(home) == kept


def test_opening_after_an_unclean_end_rereads_only_what_differs(home: Path) -> None:
    """The feed tells which sessions were read again: exactly the one that was edited meanwhile."""
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


def test_a_clean_end_means_no_look_at_any_session(home: Path) -> None:
    """Opening a cleanly closed home reads no session: an edit made meanwhile is found by `check` or a sweep."""
    with Store.open(home, background=False) as store:
        store.save(make_session())
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-1", b"msg-x"))
    with Store.open(home, background=False) as store:
        assert {f.kind for f in store.check().findings} == {"search-rows"}
        assert store.maintenance.sweep() == 1
        assert store.check().findings == []


def cost_of_a_save(home: Path, sessions: int) -> tuple[list[str], int, int]:
    """What one save does: its durable steps, the files it opens, the rows it changes."""
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


def test_a_save_costs_the_same_in_a_home_of_any_size(tmp_path: Path) -> None:
    """Rule 10, counted: the same steps, the same files opened, the same rows changed."""
    assert cost_of_a_save(tmp_path / "small", 2) == cost_of_a_save(tmp_path / "large", 300)


# -- many at once -----------------------------------------------------------------------------------------


def homeless(home: Path, number: int) -> None:
    """Sessions on disk that no index knows."""
    for i in range(number):
        directory = home / f"sessions/s{i}"
        directory.mkdir(parents=True)
        (directory / "session.json").write_bytes(make_document(f"s{i}"))


def test_first_index_takes_few_transactions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many sessions in each; the progress tells of all, and the result is that of one by one."""
    homeless(home, 25)
    monkeypatch.setattr("store.commit.core.BATCH", 10)
    told: list[tuple[int, int]] = []
    with Store.open(home, background=False, progress=lambda done, total: told.append((done, total))) as store:
        assert store.count() == 25
        assert store.check().is_clean
    assert told == [(10, 25), (20, 25), (25, 25)]
    together = dump_tables(home)
    monkeypatch.setattr("store.commit.core.BATCH", 1)
    with Store.open(home, background=False) as store:
        store.maintenance.rebuild()
    assert dump_tables(home) == together


def test_batch_is_bounded_in_bytes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large sessions wait for nobody but themselves."""
    homeless(home, 5)
    monkeypatch.setattr("store.commit.core.BATCH_BYTES", 1)
    told: list[int] = []
    with Store.open(home, background=False, progress=lambda done, total: told.append(done)):
        assert told == [1, 2, 3, 4, 5]


@pytest.mark.warns
def test_damaged_and_gone_sessions_are_followed_among_others(store: Store) -> None:
    """One transaction may hold all kinds: new, changed, damaged, gone."""
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


def test_sweep_waits_for_a_writer_without_keeping_others_waiting(home: Path) -> None:
    """Someone holds one session and then needs another: a sweep that held that and waited would never end."""
    with Store.open(home, background=False) as store, Store.open(home, background=False) as other:
        for i in range(6):
            store.save(make_session(f"s{i}"))
        for i in range(6):
            path = home / f"sessions/s{i}/session.json"
            path.write_bytes(path.read_bytes().replace(b"msg-0", b"foreign"))
        has_it, swept = threading.Event(), threading.Event()

        def write() -> None:
            with other._core.locked(Location("s3")):
                has_it.set()
                swept.wait(0.3)  # by now the sweep has come to s3
                for i in (0, 1, 2, 4, 5):
                    other.append(f"s{i}", [Message.user("late")])

        writer = threading.Thread(target=write)
        writer.start()
        assert has_it.wait(10)
        assert store.maintenance.sweep() >= 1
        swept.set()
        writer.join(30)
        assert not writer.is_alive()
        store.maintenance.sweep()
        assert len(store.search("late", limit=100)) == 5
        assert len(store.search("foreign", limit=100)) == 6
        assert store.check().is_clean


def test_a_root_and_its_child_of_the_same_moment_are_swept(home: Path) -> None:
    """What a copy with its times kept looks like: nothing tells them apart but their names."""
    with Store.open(home, background=False) as store:
        root = make_session("root")
        store.save(root)
        store.save(Session.new_child_of("child", root, "m", "A child"))
    (home / ".grovefs/index.db").unlink()
    for path in home.glob("sessions/**/session.json"):
        os.utime(path, ns=(10**18, 10**18))
    with Store.open(home, background=False) as store:
        assert store.count() == 2


def test_a_filter_that_is_no_text_finds_nothing(store: Store) -> None:
    """What a shell gives for bytes that are no UTF-8."""
    store.save(make_session("s1"))
    assert store.entries(title="\udcff") == store.entries(model="\udcff") == []
