"""What a sceptical reviewer broke: interrupts, openers that die, failures that stay, trash in knots."""

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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is dropped half-way complains
def test_an_interrupt_anywhere_leaves_a_store_that_works(home: Path) -> None:
    """Ctrl-C at random moments: later commits are real, in the index, and nobody is locked out."""

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
            store.update("s1", lambda s: setattr(s, "title", "at last"))
            with Store.open(home, background=False) as other:
                entry = other.entry("s1")
                assert entry is not None
                assert entry.title == "at last"
                other.append("s1", [Message.user("not locked out")])
            assert {f.kind for f in store.check().findings} <= {"temporary", "unfinished"}
            assert store.check(repair=True).is_clean
    finally:
        signal.signal(signal.SIGALRM, before)


def test_who_waited_for_an_opener_that_died_recovers_himself(home: Path) -> None:
    """Rule 7: the sweep after an unclean end is not skipped because somebody else had begun it."""
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
                time.sleep(0.3)  # so that the other one waits
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
def test_a_failure_that_stays_is_told_truly_and_mended_later(home: Path, from_move: int) -> None:
    """Rule 3: either nothing was changed, or the error says that it will be finished, and it is."""
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


def test_a_root_and_a_child_deleted_after_it_can_both_be_had_back(store: Store) -> None:
    """In the order that makes sense, whatever empty directories were left."""
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


def test_an_orphan_that_was_deleted_can_be_had_back(store: Store, home: Path) -> None:
    store.save(Session.new_child("c", "never-saved", "m", "t"))
    store.delete("c")
    store.trash.undelete(store.trash.deleted()[0].name)
    assert store.load("c") is not None
    store.save(make_session("never-saved"))


def test_a_cleared_conversation_can_be_had_back(store: Store) -> None:
    """Messages, sidecar and attachments; what came after goes to the trash in turn."""
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
def test_a_damaged_page_of_the_index_costs_nothing(home: Path) -> None:
    """The sessions have it all: opening makes it anew, and keeps the damaged one."""
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
def test_one_unreadable_file_does_not_keep_the_home_shut(home: Path, name: str) -> None:
    """As a user who may not read everything: in a process that has given up root's privileges."""
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

    def look_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with Store.open(home, background=False) as store:
            assert store.load("good") is not None
            assert store.maintenance.sweep() >= 0
            store.check()

    child = processes.Process(target=look_as_nobody)
    child.start()
    child.join()
    (home / "sessions/bad" / name).chmod(0o700)
    assert child.exitcode == 0


def test_a_log_line_that_was_refused_is_not_there(store: Store, home: Path) -> None:
    """Busy means that nothing was appended, so that trying again repeats nothing."""
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


def test_nothing_is_attached_to_a_session_that_is_gone(store: Store, home: Path) -> None:
    """Also when it went between being found and being locked."""
    store.save(make_session())
    session = store.load("s1")
    assert session is not None
    store.delete("s1")
    with pytest.raises(NotFound):
        store.attach(session, b"x", "image/png")
    assert not (home / "sessions/s1").exists()


def test_a_failed_opening_leaks_no_descriptor(home: Path) -> None:
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
def test_times_at_the_ends_of_the_calendar_can_be_lived_with(store: Store, moment: str) -> None:
    store.put_document("s1", "session.json", make_document(updated_at=moment, created_at=moment))
    store.append("s1", [Message.user("x")])
    store.update("s1", lambda s: setattr(s, "title", "changed"))
    session = store.load("s1")
    assert session is not None
    assert (len(session.messages), session.title) == (2, "changed")


def test_an_id_with_spaces_around_it_can_have_children(store: Store) -> None:
    root = make_session(" spaced ")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "t"))
    assert store.load(" spaced /c") is not None


@pytest.mark.warns
def test_a_document_of_300_megabytes_is_refused_without_being_read(store: Store, home: Path) -> None:
    """Over the default limit of 256 MiB, given and lying on disk."""
    with pytest.raises(TooLarge, match=str(MAX_DOCUMENT_BYTES)):
        store.put_document("s1", "session.json", b" " * 300_000_000)
    (home / "sessions/huge").mkdir()
    with (home / "sessions/huge/session.json").open("wb") as file:
        file.truncate(300_000_000)
    with pytest.raises(Corrupt, match="over the limit"):
        store.load("huge")
    (home / "sessions/huge/session.json").unlink()
    store.maintenance.sweep()


def test_an_interrupt_behind_the_last_move_undoes_nothing(home: Path) -> None:
    """All is in place then; the mark sees to the index, and no old bytes are written over the new."""

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
def test_what_is_taken_away_before_it_is_indexed_is_no_session(home: Path, is_new: bool) -> None:
    """By somebody else, straight on the disk, between the last move and the index: the index follows the files."""

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
        assert store.check(repair=True).is_clean
        assert store.entries() == []
        store.save(make_session(title="again"), overwrite=True)
        assert store.check().findings == []


@pytest.mark.warns
def test_a_session_whose_row_waits_for_room_can_be_loaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved on a disk that is full by now: it is there, whoever else is not known to be there or not."""
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
