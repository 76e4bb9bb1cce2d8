"""Upkeep of the history: erased sessions, old versions, the size limit, and purging."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from store import InvalidContent, Message, PastFile, ProjectSession, Store, layout
from store.commit.write_request import WriteRequest
from store.disk.rejects import Rejects
from store.history import lineages
from store.history.database import HistoryDatabase
from store.history.retention import DAY_NS, Retention
from store.home.history_upkeep import HistoryUpkeep
from store.layout import Location
from store.path_kinds import classify_path
from tests.builders import make_document, make_session
from tests.mount.conftest import wait_until

SECRET = "hunter2-hunter2-hunter2"
KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


def numbers(store: Store, what: str) -> list[int]:
    return [version.number for version in reversed(store.history.log(what, limit=1000))]


def fill(store: Store, id: str, count: int) -> None:
    store.save(make_session(id))
    for number in range(count):
        store.append(id, [Message.user(f"message {number}")])


def make_older(store: Store, days: float) -> None:
    """Shift all versions into the past."""
    with store._core.history.database.write() as db:
        shift = int(days * DAY_NS)
        db.execute("UPDATE versions SET at_ns = at_ns - ?", (shift,))
        db.execute("UPDATE lineages SET at_ns = at_ns - ?", (shift,))


def holds(home: Path, text: str) -> list[str]:
    """The files below .grovefs/ that contain a text, as plain bytes."""
    files = [path for path in (home / ".grovefs").rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


# -- in the background ---------------------------------------------------------------------------------


@pytest.mark.warns
def test_the_background_thread_comes_again_until_missed_versions_are_recorded(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another change: nobody may save for hours."""
    monkeypatch.setattr("store.history.history.RETRY_S", 1.0)
    attempts: list[bool] = []
    catch_up = HistoryUpkeep.catch_up

    def noted(upkeep: HistoryUpkeep) -> bool:
        attempts.append(catch_up(upkeep))
        return attempts[-1]

    monkeypatch.setattr(HistoryUpkeep, "catch_up", noted)
    with Store.open(home) as store:
        store.save(make_session("s1"))
        other = HistoryDatabase(home / ".grovefs/history.db")
        with other.write():
            for text in ("one", "two", "three"):
                store.append("s1", [Message.user(text)])
            wait_until(lambda: False in attempts)
        other.close()
        wait_until(lambda: attempts[-1])
        newest = store.history.newest("s1")
        assert newest is not None
        assert store.history.load(newest).messages[-1].content == "three"


# -- thinning ------------------------------------------------------------------------------------------


def test_old_versions_are_thinned_out(store: Store) -> None:
    """The newest twenty stay; every version that stays has its bytes."""
    fill(store, "s1", 60)
    before = {version.number: store.history.read(version) for version in store.history.log("s1", limit=100)}
    make_older(store, 100)
    assert store.history.thin() >= 39  # the last of its day may be one more
    kept = store.history.log("s1", limit=100)
    assert {version.number for version in kept} >= set(range(42, 62))
    assert all(store.history.read(version) == before[version.number] for version in kept)
    assert store.history.thin() == 0
    store.append("s1", [Message.user("afterwards")])
    assert numbers(store, "s1")[-1] == 62


def test_recent_versions_and_snapshots_are_not_thinned(store: Store) -> None:
    fill(store, "s1", 30)
    assert store.history.thin() == 0
    fifth = store.history.find("s1", 5)
    assert fifth is not None
    with store._core.history.database.write() as db:
        db.execute("INSERT INTO snapshots VALUES ('then', ?)", (fifth.at_ns - 100 * DAY_NS,))
    make_older(store, 100)
    store.history.thin()
    assert 5 in numbers(store, "s1")
    assert 6 not in numbers(store, "s1")


def test_a_locked_session_is_thinned_later(store: Store) -> None:
    fill(store, "s1", 40)
    make_older(store, 100)
    location = store.location("s1")
    assert location is not None
    locks = store._core.locks
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.session(location):
            ready.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(60)
    assert store.history.thin() == 0
    done.set()
    thread.join()
    assert store.history.thin() > 0


def test_a_history_over_its_limit_loses_old_versions(store: Store) -> None:
    """Sessions that changed longest ago first; the newest versions stay."""
    for id in ("old", "new"):
        store.save(make_session(id))
        for _ in range(100):
            store.update(id, lambda session: setattr(session, "title", os.urandom(1000).hex()))
    upkeep = store._home.upkeep
    limit = int(upkeep._used_bytes() * 0.9)
    assert store.history.thin(Retention(limit_bytes=limit)) > 0
    assert upkeep._used_bytes() <= limit
    assert len(numbers(store, "old")) < len(numbers(store, "new"))
    assert numbers(store, "old")[-20:] == [*range(82, 102)]
    store.history.thin(Retention(limit_bytes=1))
    assert numbers(store, "old") == [*range(82, 102)]
    assert store.check().is_clean


def test_a_history_over_its_limit_keeps_what_snapshots_name(store: Store) -> None:
    """However many versions are newer."""
    fill(store, "s1", 3)
    text = (store.home / "sessions/s1/session.json").read_bytes()
    before = store.history.snapshot("before")
    for number in range(30):
        store.append("s1", [Message.user(f"later {number}")])
    store.history.thin(Retention(limit_bytes=1))
    assert numbers(store, "s1") == [4, *range(15, 35)]
    tree = store.history.tree_at(before.at_ns)
    found = tree.find("sessions/s1/session.json")
    assert isinstance(found, PastFile)
    assert tree.read(found) == text


def test_what_did_not_change_for_long_may_lose_all_versions(store: Store) -> None:
    """The file is recorded again before it is replaced, under a new number."""
    fill(store, "s1", 5)
    make_older(store, 100)
    store.history.thin(Retention(limit_bytes=1))
    assert numbers(store, "s1") == []
    before = (store.home / "sessions/s1/session.json").read_bytes()
    store.append("s1", [Message.user("afterwards")])
    assert numbers(store, "s1") == [7, 8]
    found = store.history.find("s1", 7)
    assert found is not None
    assert store.history.read(found).main == before


# -- what belongs to nothing -------------------------------------------------------------------------


def test_versions_of_a_vanished_trash_slot_are_dropped(store: Store) -> None:
    """Another program, or an older GroveFS, emptied the trash."""
    fill(store, "s1", 3)
    store.delete("s1")
    [slot] = store.trash.deleted()
    store._home.upkeep.tidy()
    assert len(list(store.history.between(0, 2**62))) == 4
    store._core.disk.remove_tree(f".grovefs/trash/{slot.name}")
    store._home.upkeep.tidy()
    assert not list(store.history.between(0, 2**62))


def test_versions_that_a_snapshot_names_outlive_the_trash(store: Store) -> None:
    fill(store, "s1", 3)
    store.history.snapshot("before")
    store.delete("s1")
    [slot] = store.trash.deleted()
    store._core.disk.remove_tree(f".grovefs/trash/{slot.name}")
    store._home.upkeep.tidy()
    assert len(list(store.history.between(0, 2**62))) == 4
    store.history.delete_snapshot("before")
    store._home.upkeep.tidy()
    assert not list(store.history.between(0, 2**62))


def test_a_snapshot_shows_sessions_whose_trash_was_emptied(store: Store) -> None:
    """Until the snapshot is deleted. What no snapshot names goes with the trash."""
    fill(store, "gone", 1)
    text = (store.home / "sessions/gone/session.json").read_bytes()
    before = store.history.snapshot("before")
    fill(store, "later", 1)
    store.delete("gone")
    store.delete("later")
    store.trash.empty()
    store._home.upkeep.tidy()
    tree = store.history.tree_at(before.at_ns)
    found = tree.find("sessions/gone/session.json")
    assert isinstance(found, PastFile)
    assert tree.read(found) == text
    assert len(list(store.history.between(0, 2**62))) == 2
    store.history.delete_snapshot("before")
    store._home.upkeep.tidy()
    assert not list(store.history.between(0, 2**62))
    assert store.check().is_clean


def test_a_snapshot_shows_sessions_whose_deletion_expired(store: Store) -> None:
    fill(store, "gone", 1)
    before = store.history.snapshot("before")
    store.delete("gone")
    store._home.services.deleter.purge([slot.name for slot in store.trash.deleted()])
    assert store.trash.deleted() == []
    assert list(store.history.tree_at(before.at_ns).iter_names("sessions")) == ["gone"]


def test_expired_drafts_are_dropped(store: Store) -> None:
    """A draft of a process that still runs is kept."""
    fill(store, "s1", 1)
    history = store._core.history
    key = history.add_draft("sessions/s1", "session.json", b"{}", (1, 0), 0, "m")
    kept = history.add_draft("sessions/s1", "session.json", b"[]", None, 0, "m")
    with history.database.write() as db:
        db.execute("UPDATE drafts SET at_ns = ? WHERE key = ?", (time.time_ns() - 8 * DAY_NS, key))
    store._home.upkeep.tidy()
    assert history.draft(key) is None
    draft = history.draft(kept)
    assert draft is not None
    assert draft.text == b"[]"


def test_the_log_is_truncated_when_idle(store: Store) -> None:
    """It would otherwise stay as large as after the busiest moment."""
    fill(store, "s1", 1)
    log = store.home / ".grovefs/history.db-wal"
    while log.stat().st_size <= 1 << 20:
        store.append("s1", [Message.user("x" * 50_000)])
    store._home.upkeep.tidy()
    assert log.stat().st_size == 0


# -- catching up ---------------------------------------------------------------------------------------


def fail_history(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a failed attempt: it is left alone for a while."""
    monkeypatch.setattr(store._core.history, "_retry_at", time.monotonic() + 1000)


def what_and_who(store: Store, path: str) -> list[tuple[str, str]]:
    return [(version.what, version.author.via) for version in reversed(store._core.history.log(path, limit=100))]


def test_versions_missed_by_the_history_are_recorded_when_it_works_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another save, with their author. Nothing is recorded twice."""
    fill(store, "s1", 1)
    store.state.save_markdown("notes", "plan", "first")
    fail_history(store, monkeypatch)
    store.append("s1", [Message.user("missed")])
    store.state.save_markdown("notes", "plan", "second")
    store.save(make_session("s2"))
    assert store._home.upkeep.tidy() is not None  # it wants to run again
    assert what_and_who(store, "sessions/s1") == [("saved", "api"), ("appended", "api")]
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    assert store._home.upkeep.tidy() is None
    assert what_and_who(store, "sessions/s1") == [("saved", "api"), ("appended", "api"), ("appended", "api")]
    assert what_and_who(store, "state/notes/plan.md") == [("state", "api"), ("state", "api")]
    assert what_and_who(store, "sessions/s2") == [("saved", "api")]
    assert store._core.journal.missed.versions() == []
    assert store._home.upkeep.tidy() is None
    assert len(numbers(store, "s1")) == 3


def test_a_missed_version_is_recorded_by_the_next_process(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one ended before its history worked again."""
    with Store.open(home, background=False) as store:
        fill(store, "s1", 0)
        fail_history(store, monkeypatch)
        store.append("s1", [Message.user("missed")])
    with Store.open(home, background=False) as store:
        store._home.upkeep.tidy()
        assert what_and_who(store, "sessions/s1") == [("saved", "api"), ("appended", "api")]


def test_a_file_edited_outside_after_a_missed_version_is_not_attributed_to_its_author(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, "s1", 0)
    fail_history(store, monkeypatch)
    store.append("s1", [Message.user("missed")])
    path = store.home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"missed", b"edited"))
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    store._home.upkeep.tidy()
    assert what_and_who(store, "sessions/s1") == [("saved", "api"), ("found", "outside")]
    store.maintenance.sweep()


def test_the_next_save_is_recorded_after_a_missed_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save records what it replaces; catching up then finds nothing to do."""
    fill(store, "s1", 0)
    fail_history(store, monkeypatch)
    store.append("s1", [Message.user("missed")])
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    store.append("s1", [Message.user("next")])
    store._home.upkeep.tidy()
    assert [what for what, _ in what_and_who(store, "sessions/s1")] == ["saved", "found", "appended"]
    assert store._core.journal.missed.versions() == []


@pytest.mark.warns
def test_a_commit_finished_by_recovery_is_recorded_when_the_history_works_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk neither the index nor the history can be written; recovery may come before the history."""
    fill(store, "s1", 0)
    fail_history(store, monkeypatch)
    monkeypatch.setattr(store._core.history, "_problem", "full")
    append_unindexed(store, monkeypatch)
    store._core.recover_all()
    assert store._core.journal.all_pending() == []
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    store._home.upkeep.tidy()
    assert [what for what, _ in what_and_who(store, "sessions/s1")] == ["saved", "found"]


def append_unindexed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        if name == "index":
            raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(store._core.disk, "step", fail)
        store.append("s1", [Message.user("missed")])
    assert store._core.journal.all_pending()


@pytest.mark.warns
@pytest.mark.parametrize("is_waiting", [True, False], ids=["in the pause after a failure", "while it fails"])
def test_edits_on_disk_missed_by_the_history_are_recorded_when_it_works_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_waiting: bool
) -> None:
    """Several sessions, state documents and project payloads, which the index knows already. Once."""
    payloads = [ProjectSession("k", "p"), ProjectSession("k", "q")]
    for number, payload in enumerate(payloads):
        store.save(make_session(f"s{number}", title="as saved"))
        store.state.save_markdown("notes", f"n{number}", "as saved")
        store.projects.save(payload, {"title": "as saved", "updated_at": "2026-01-01T00:00:00Z"})
    directories = [f"sessions/s{number}" for number in range(2)]
    names = [f"state/notes/n{number}.md" for number in range(2)] + [payload.payload for payload in payloads]
    if is_waiting:
        fail_history(store, monkeypatch)
    else:
        monkeypatch.setattr(store._core.disk, "step", _fail_in_history)
    for path in [*(f"{directory}/session.json" for directory in directories), *names]:
        edit(store.home / path, "as saved", "edited!!")
    store.maintenance.sweep()
    for payload in payloads:
        store._core.refresh(layout.project_location("k"))
        assert store.projects.load(payload) is not None
    assert len(store.search("edited")) == 2  # those of the state documents; a title is that of runtime.json
    monkeypatch.undo()
    store._core.history._retry_at = 0.0
    assert store._home.upkeep.tidy() is None
    assert store.check().findings == []
    assert [len(what_and_who(store, path)) for path in (*directories, *names)] == [2] * 6
    assert store._home.upkeep.tidy() is None
    assert store._core.journal.missed.edits_at_ns() == 0
    assert [len(what_and_who(store, path)) for path in (*directories, *names)] == [2] * 6


def _fail_in_history(name: str) -> None:
    if name.startswith("history-"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def edit(path: Path, old: str, new: str) -> None:
    """Edit a file on disk, past the store."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_rereading_a_session_keeps_the_author_of_its_missed_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted and restored while the history does not work: the append is still by the API."""
    fill(store, "s1", 0)
    fail_history(store, monkeypatch)
    store.append("s1", [Message.user("missed")])
    store.delete("s1")
    store.trash.undelete(store.trash.deleted()[0].name)
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    assert store._home.upkeep.tidy() is None
    assert what_and_who(store, "sessions/s1") == [("saved", "api"), ("appended", "api")]


def test_commits_of_one_transaction_are_all_kept_as_missed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = store._core.journal.missed
    with store._core.db.write():
        for number in range(3):
            missed.store_recovered([(f"a{number}", f"b{number}")], [f"sessions/s{number}"])
    assert [version.lineage for version in missed.versions()] == [f"sessions/s{number}" for number in range(3)]


def test_a_locked_session_catches_up_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, "s1", 0)
    fail_history(store, monkeypatch)
    store.append("s1", [Message.user("missed")])
    monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
    is_locked, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._core.locked(Location("s1")):
            is_locked.set()
            is_done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_locked.wait(60)
    assert store._home.upkeep.tidy() is not None
    is_done.set()
    holder.join()
    assert store._home.upkeep.tidy() is None
    assert len(numbers(store, "s1")) == 2


# -- purging -------------------------------------------------------------------------------------------


def with_secret(store: Store) -> None:
    """A secret in versions 2 and 3 of s1, in a rejected text, in the trash and in a draft."""
    store.save(make_session("s1"))
    store.append("s1", [Message.user(SECRET)])
    store.append("s1", [Message.user("more")])
    session = store.load("s1")
    assert session is not None
    session.messages[-2].content = "redacted"
    store.save(session)
    place = classify_path("sessions/s1/session.json")
    with suppress(InvalidContent):
        store.names.commit(WriteRequest(place, f'{{"broken {SECRET}'.encode()))
    store.save(make_session("gone", title=SECRET))
    store.delete("gone")
    store._core.history.add_draft("sessions/s1", "session.json", SECRET.encode(), None, 0, "m")
    (store.home / ".grovefs/history.db.corrupt-20260101T000000").write_text(f"damaged {SECRET}")


def test_purging_a_secret_removes_every_copy(home: Path) -> None:
    """Versions that do not hold it stay, under their numbers."""
    with Store.open(home, background=False) as store:
        with_secret(store)
        report = store.history.purge(matching="hunter2-[a-z0-9-]+")
        assert report.is_complete, report
        assert (report.versions, report.drafts, report.rejected, report.trash_slots, report.set_aside) == (
            2,
            1,
            1,
            1,
            1,
        )
        assert numbers(store, "s1") == [1, 4]
        assert store.trash.deleted() == []
        assert not Rejects(store._core.disk).names("sessions/s1")
        assert store.check(secrets=True).is_clean
        newest = store.history.newest("s1")
        assert newest is not None
        assert store.history.read(newest).main == (home / "sessions/s1/session.json").read_bytes()
    assert holds(home, SECRET) == []


def test_purging_a_session_keeps_its_present_version_only(store: Store) -> None:
    """Other sessions are not touched."""
    with_secret(store)
    fill(store, "s2", 3)
    report = store.history.purge("s1")
    assert report.is_complete
    assert report.versions == 3
    assert numbers(store, "s1") == [4]
    assert numbers(store, "s2") == [1, 2, 3, 4]
    assert len(store.trash.deleted()) == 1  # of another session
    store.append("s1", [Message.user("afterwards")])
    assert numbers(store, "s1") == [4, 5]


@pytest.mark.parametrize("is_emptied", [True, False])
def test_purging_removes_what_snapshots_name(store: Store, *, is_emptied: bool) -> None:
    """By a pattern, or by the name of a session that is deleted."""
    for id in ("s1", "s2"):
        store.save(make_session(id, title=KEY))
    store.history.snapshot("before")
    for id in ("s1", "s2"):
        store.delete(id)
    if is_emptied:
        store.trash.empty()
        assert [finding.kind for finding in store.check(secrets=True).findings] == ["secret-in-history"] * 2
    assert store.history.purge("s1").is_complete
    assert [version.number for version in store.history.between(0, 2**62)] == [1]
    assert store.history.purge(matching=KEY).is_complete
    assert not list(store.history.between(0, 2**62))
    assert store.check(secrets=True).is_clean


@pytest.mark.parametrize("what", [["s1"], []])
def test_purging_removes_versions_that_others_displaced(store: Store, what: list[str]) -> None:
    """Of files that were removed without the history knowing; they have no present version."""
    store.save(make_session("s1", title=SECRET))
    store.save(make_session("s2"))
    with store._core.history.database.write() as db:
        lineages.move_lineages(db, "sessions/s2", "sessions/s1", time.time_ns())
    store.put_document("s1", "session.json", make_document("s1", updated_at="2030-01-01T00:00:00Z"))
    report = store.history.purge(*what, matching=SECRET)
    assert report.versions == 2  # the displaced one, and the file as it was found
    assert not [v for v in store.history.between(0, 2**62) if SECRET.encode() in (store.history.read(v).main or b"")]


def test_a_secret_in_the_present_file_is_reported(store: Store) -> None:
    """Purging never changes a present file."""
    store.save(make_session("s1", title=SECRET))
    store.append("s1", [Message.user("one")])
    report = store.history.purge(matching=SECRET)
    assert not report.is_complete
    assert report.present == ["sessions/s1"]
    assert numbers(store, "s1") == [2]


def test_a_reader_that_prevents_erasing_the_log_is_reported(store: Store) -> None:
    """Its transaction may need the pages that hold the text."""
    with_secret(store)
    other = apsw.Connection(str(store.home / ".grovefs/history.db"))
    cursor = other.execute("BEGIN; SELECT * FROM versions")
    next(cursor)
    report = store.history.purge(matching=SECRET)
    assert not report.is_log_erased
    assert not report.is_complete
    other.close()
    assert store.history.purge(matching=SECRET).is_complete


def test_purging_everything_needs_a_pattern(store: Store) -> None:
    with pytest.raises(ValueError, match="name paths"):
        store.history.purge()


def test_a_purge_is_in_the_change_feed(store: Store) -> None:
    """Mounts drop what they show of the past."""
    fill(store, "s1", 3)
    cursor = store.feed.cursor()
    store.history.purge("s1")
    changes = store.feed.since(cursor).items
    assert [str(change.location) for change in changes] == ["s1"]


def test_a_damaged_lineage_can_be_purged(store: Store) -> None:
    """What cannot be read may hold the secret."""
    fill(store, "s1", 5)
    with store._core.history.database.write() as db:
        db.execute("UPDATE versions SET main_data = x'ff' WHERE number = 3")
    report = store.history.purge("s1", matching=SECRET)
    assert report.versions == 4
    store.put_document("s1", "session.json", make_document("s1", updated_at="2030-01-01T00:00:00Z"))
    assert numbers(store, "s1") == [1, 2, 7, 8]
