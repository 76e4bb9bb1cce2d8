"""Failures: interrupts, crashes, persistent disk errors, damaged index, nested deletions."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import apsw
import pytest

from store import Busy, Corrupt, Message, NotFound, Session, Store, StoreError, TooLarge
from store.documents.json_text import MAX_DOCUMENT_BYTES
from tests.builders import files_below, make_document, make_session

processes = multiprocessing.get_context("fork")


def _set_title(title: str, session: Session) -> None:
    session.title = title


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted generators and files warn
def test_store_works_after_interrupts_at_random_points(home: Path) -> None:
    """After Ctrl-C, later commits are durable and indexed, and no lock is left."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Store.open(home, background=False, durability="normal") as store:
            store.save(make_session())
            for round_ in range(150):
                with suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.00002 * (round_ % 100))
                    for _ in range(5):
                        store.update("s1", partial(_set_title, f"round {round_}"))
                signal.setitimer(signal.ITIMER_REAL, 0)
            store.update("s1", lambda s: setattr(s, "title", "final"))
            with Store.open(home, background=False) as other:
                entry = other.entry("s1")
                assert entry is not None
                assert entry.title == "final"
                other.append("s1", [Message.user("lock is free")])
            assert {f.kind for f in store.check().findings} <= {"temporary", "unfinished"}
            assert store.check(repair=True).is_clean
    finally:
        signal.signal(signal.SIGALRM, before)


def test_recovery_is_done_by_the_next_process_if_the_first_dies(home: Path) -> None:
    """Rule 7: the sweep after a crash is not skipped because a killed process had started it."""
    with Store.open(home, background=False, durability="normal") as store:
        for i in range(60):
            store.save(make_session(f"s{i}"))
        store._core.db.set_meta(clean=0)
        for i in range(60):
            path = home / f"sessions/s{i}/session.json"
            path.write_bytes(path.read_bytes().replace(b"msg-0", b"edited"))
        store._home.release()

    def die_in_recovery() -> None:
        def progress(done: int, total: int) -> None:
            if done == 10:
                time.sleep(0.3)  # let the other process wait for us
                os.kill(os.getpid(), signal.SIGKILL)

        Store.open(home, background=False, progress=progress)

    first = processes.Process(target=die_in_recovery)
    first.start()
    time.sleep(0.15)
    with Store.open(home, background=False) as store:
        assert store.check().findings == []
        assert len(store.search("edited", limit=100)) == 60
    first.join()


@pytest.mark.warns
@pytest.mark.parametrize("from_move", [1, 2])
def test_persistent_disk_error_is_reported_and_recovered_later(home: Path, from_move: int) -> None:
    """Rule 3: nothing was changed, or the error says that the commit will be completed."""
    moves = 0
    failing = False

    def step(name: str) -> None:
        nonlocal moves
        if failing and name == "move":
            moves += 1
            if moves >= from_move:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with Store.open(home, background=False, step=step) as store:
        store.save(make_session(title="old"))
        before = files_below(home)
        session = store.load("s1")
        assert session is not None
        session.title = "new"
        failing = True
        with pytest.raises(OSError, match="Read-only") as raised:
            store.save(session)
        failing = False
        if "nothing was changed" in str(raised.value):
            assert files_below(home) == before
        else:
            assert "will be finished" in str(raised.value)
        again = store.load("s1")
        assert again is not None
        assert again.title == ("old" if from_move == 1 else "new")
        store.check(repair=True)
        assert store.check().findings == []
        entry = store.entry("s1")
        assert entry is not None
        assert entry.title == again.title


def test_root_and_child_deleted_after_it_can_both_be_restored(store: Store) -> None:
    """The root first, despite empty directories left by the deletions."""
    store.save(make_session("r"))
    parent = store.load("r")
    assert parent is not None
    store.delete("r")
    store.save(Session.new_child_of("c", parent, "m", "t"))
    store.delete("c")
    child, root = store.trash.deleted()
    store.trash.undelete(root.name)
    store.trash.undelete(child.name)
    assert store.load("r/c") is not None


def test_deleted_orphan_can_be_restored(store: Store, home: Path) -> None:
    store.save(Session.new_child("c", "never-saved", "m", "t"))
    store.delete("c")
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.load("c") is not None
    store.save(make_session("never-saved"))


def test_cleared_session_can_be_restored(store: Store) -> None:
    """With messages, sidecar and attachments; the newer version is moved to the trash."""
    store.save(make_session(messages=4, title="precious"))
    attachment = store.attach("s1", b"x", "image/png")
    store.clear("s1")
    cleared = store.load("s1")
    assert cleared is not None
    assert cleared.messages == []
    store.trash.undelete(store.trash.deleted()[0].name)
    session = store.load("s1")
    assert session is not None
    assert len(session.messages) == 4
    assert store.attachments.read("s1", attachment.id) is not None
    assert [d.what for d in store.trash.deleted()] == ["displaced"]


@pytest.mark.warns
def test_damaged_index_page_is_rebuilt(home: Path) -> None:
    """Opening rebuilds the index from the sessions and keeps the damaged file."""
    with Store.open(home, background=False) as store:
        for i in range(5):
            store.save(make_session(f"s{i}"))
        page = store._core.db.reader.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'").get
        size = store._core.db.reader.execute("PRAGMA page_size").get
    path = home / ".grovefs/index.db"
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * size : page * size] = b"\xaa" * size
    path.write_bytes(raw)
    with Store.open(home, background=False) as store:
        assert store.count() == 5
        assert store.check().findings == []
    assert path.with_name("index.db.corrupt").exists()


@pytest.mark.warns
@pytest.mark.parametrize("name", ["session.json", "runtime.json", "."])
def test_home_with_an_unreadable_file_can_be_opened(home: Path, name: str) -> None:
    """By a process without root privileges, which cannot read every file."""
    with Store.open(home, background=False) as store:
        store.save(make_session("good"))
        store.save(make_session("bad"))
    for leftover in (home / ".grovefs").glob("index.db*"):
        leftover.unlink()
    if os.geteuid() == 0:
        for path in [home, *home.rglob("*")]:
            os.chown(path, 65534, 65534)
        for path in home.parents:
            if "pytest" in str(path):
                path.chmod(0o755)
    (home / "sessions/bad" / name).chmod(0)

    def open_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with Store.open(home, background=False) as store:
            assert store.load("good") is not None
            assert store.maintenance.sweep() >= 0
            store.check()

    child = processes.Process(target=open_as_nobody)
    child.start()
    child.join()
    (home / "sessions/bad" / name).chmod(0o700)
    assert child.exitcode == 0


def test_rejected_log_line_is_not_appended(store: Store, home: Path) -> None:
    """After Busy a retry must not append the line twice."""
    store.save(make_session())
    store._core.db._writer.set_busy_timeout(50)
    blocker = apsw.Connection(str(home / ".grovefs/index.db"))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        store.usage.append("s1", {"n": 1})
    assert not (home / "sessions/s1/token-usage.jsonl").exists()
    blocker.execute("ROLLBACK")
    blocker.close()
    assert store.usage.append("s1", {"n": 1})


def test_attaching_to_a_deleted_session_fails(store: Store, home: Path) -> None:
    """Even if it was deleted between lookup and lock."""
    store.save(make_session())
    session = store.load("s1")
    assert session is not None
    store.delete("s1")
    with pytest.raises(NotFound):
        store.attach(session, b"x", "image/png")
    assert not (home / "sessions/s1").exists()


def test_failed_open_leaks_no_descriptor(home: Path) -> None:
    Store.open(home, background=False).close()
    database = apsw.Connection(str(home / ".grovefs/index.db"))
    database.execute("PRAGMA user_version = 999")
    database.close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(StoreError, match="newer GroveFS"):
            Store.open(home, background=False)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "moment", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999999Z"]
)
def test_extreme_timestamps_are_accepted(store: Store, moment: str) -> None:
    store.put_document("s1", "session.json", make_document(updated_at=moment, created_at=moment))
    store.append("s1", [Message.user("x")])
    store.update("s1", lambda s: setattr(s, "title", "changed"))
    session = store.load("s1")
    assert session is not None
    assert (len(session.messages), session.title) == (2, "changed")


def test_id_with_surrounding_spaces_can_have_children(store: Store) -> None:
    root = make_session(" spaced ")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "t"))
    assert store.load(" spaced /c") is not None


@pytest.mark.warns
def test_document_over_the_size_limit_is_rejected_unread(store: Store, home: Path) -> None:
    """300 MB exceed the default limit of 256 MiB, as an argument and on disk."""
    with pytest.raises(TooLarge, match=str(MAX_DOCUMENT_BYTES)):
        store.put_document("s1", "session.json", b" " * 300_000_000)
    (home / "sessions/huge").mkdir()
    with (home / "sessions/huge/session.json").open("wb") as file:
        file.truncate(300_000_000)
    with pytest.raises(Corrupt, match="over the limit"):
        store.load("huge")
    (home / "sessions/huge/session.json").unlink()
    store.maintenance.sweep()


def test_interrupt_after_the_last_rename_is_not_rolled_back(home: Path) -> None:
    """The new version is in place; the journal entry makes recovery update the index."""

    class Interrupted(BaseException):
        pass

    with Store.open(home, background=False) as store:
        store.save(make_session(title="old"))
        move, moved = store._core.disk.move, []

        def interrupted_move(source: str, target: str) -> None:
            move(source, target)
            moved.append(target)
            if target.endswith("session.json"):
                raise Interrupted

        store._core.disk.move = interrupted_move  # type: ignore[method-assign]
        session = store.load("s1")
        assert session is not None
        session.title = "new"
        with pytest.raises(Interrupted):
            store.save(session)
        store._core.disk.move = move  # type: ignore[method-assign]
        again = store.load("s1")
        assert again is not None
        assert again.title == "new"
        assert store.check().findings == []


@pytest.mark.warns
@pytest.mark.parametrize("is_new", [True, False])
def test_session_deleted_before_indexing_is_not_indexed(home: Path, is_new: bool) -> None:
    """Another program deletes it on disk between the last rename and the index update."""

    def step(name: str) -> None:
        if name == "index" and (home / "sessions/s1/session.json").exists() and is_hostile:
            (home / "sessions/s1/session.json").unlink()

    is_hostile = False
    with Store.open(home, background=False, step=step) as store:
        if not is_new:
            store.save(make_session())
        is_hostile = True
        store.save(make_session(title="new"), overwrite=True)
        is_hostile = False
        assert store.load("s1") is None
        assert [f.kind for f in store.check(repair=True).findings if f.is_damage] == ["session-lost"]
        assert store.entries() == []
        store.save(make_session(title="again"), overwrite=True)
        assert store.check().findings == []


@pytest.mark.warns
def test_session_saved_on_a_full_disk_can_be_loaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index update is pending. Lookup of an unknown id fails, since the index may lack it."""
    is_full = False

    def step(name: str) -> None:
        if is_full and name == "index":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def recover(root: str, child: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store.open(home, background=False, step=step) as store:
        is_full = True
        with monkeypatch.context() as full:
            full.setattr(store._core.journal, "recover", recover)
            store.save(make_session(title="saved"))
            loaded = store.load("s1")
            assert loaded is not None
            assert loaded.title == "saved"
            with pytest.raises(OSError, match="No space left"):
                store.load("another")
        is_full = False
        assert store.load("another") is None
        assert store.check().is_clean
