"""Recording: every commit is a version, and before a version is replaced it is in the history (rules 1, 8 and 11)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from store import Location, Message, ProjectSession, Session, Store
from store.commit.write_request import WriteRequest
from store.history.authors import Author, acting_as
from store.history.database import HistoryDatabase
from store.history.history import History
from store.history.planning import MIN_STEP_BYTES
from store.history.steps import WHOLE
from store.history.versions import SavedVersion, VersionTexts
from store.path_kinds import classify_path
from tests.builders import make_document, make_session
from tests.records import make_event


def history_of(store: Store) -> History:
    return store._core.history


def texts_on_disk(home: Path, path: str) -> VersionTexts:
    def read(name: str) -> bytes | None:
        file = home / path / name if (home / path).is_dir() else home / path
        return file.read_bytes() if file.is_file() else None

    if path.startswith("sessions/") and not path.endswith(".json"):
        return VersionTexts(read("session.json"), read("runtime.json"))
    return VersionTexts(read(""), None)


def newest(store: Store, path: str) -> SavedVersion:
    found = history_of(store).newest(path)
    assert found is not None, path
    return found


def assert_newest_is_on_disk(store: Store, path: str) -> None:
    assert store.history.read(newest(store, path)) == texts_on_disk(store.home, path)


def kinds(store: Store, path: str) -> list[str]:
    """What the versions of a path are, oldest first."""
    return [version.what for version in reversed(history_of(store).log(path, limit=1000))]


def checkpointed(database: HistoryDatabase) -> bytes:
    """The file, once everything is in it and the WAL is empty."""
    assert database.reader.execute("PRAGMA wal_checkpoint(TRUNCATE)").get == (0, 0, 0)
    return database.path.read_bytes()


def append(store: Store, id: str, *texts: str) -> None:
    store.append(id, [Message.user(text) for text in texts])


# -- one session -----------------------------------------------------------------------------------


def test_every_change_of_a_session_is_a_version(store: Store) -> None:
    """Each version has both documents, byte for byte, as they were after its commit."""
    seen: list[VersionTexts] = []

    def note() -> None:
        seen.append(texts_on_disk(store.home, "sessions/s1"))

    store.save(make_session("s1"))
    note()
    append(store, "s1", "one more")
    note()
    session = store.load("s1")
    assert session is not None
    session.title = "new"
    store.save(session)
    note()
    session.last_run_status = "completed"
    store.save_runtime(session)
    note()
    store.put_document("s1", "session.json", make_document("s1", title="typed", updated_at="2030-01-01T00:00:00Z"))
    note()
    store.clear("s1")
    note()
    assert kinds(store, "sessions/s1") == ["saved", "appended", "saved", "runtime", "saved", "cleared"]
    log = history_of(store).log("sessions/s1")
    assert [version.number for version in log] == [6, 5, 4, 3, 2, 1]
    assert [store.history.read(version) for version in reversed(log)] == seen
    for version, texts in zip(reversed(log), seen, strict=True):
        assert texts.main is not None
        assert texts.side is not None
        assert (version.main_bytes, version.side_bytes) == (len(texts.main), len(texts.side))


def test_a_commit_that_changes_nothing_makes_no_version(store: Store) -> None:
    """The same bytes again are no commit."""
    raw = make_document("s1")
    store.put_document("s1", "session.json", raw)
    assert not store.put_document("s1", "session.json", raw)
    assert kinds(store, "sessions/s1") == ["saved"]


def test_times_grow_within_a_lineage_even_if_the_clock_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(make_session("s1"))
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns - 10**15)
    append(store, "s1", "earlier")
    append(store, "s1", "earlier still")
    times = [version.at_ns for version in reversed(history_of(store).log("sessions/s1"))]
    assert times == sorted(set(times))


def test_the_version_of_a_moment(store: Store) -> None:
    """The newest that is not later; none before the first."""
    store.save(make_session("s1"))
    append(store, "s1", "one")
    first, second = reversed(history_of(store).log("sessions/s1"))
    history = history_of(store)
    assert history.at("sessions/s1", first.at_ns - 1) is None
    assert history.at("sessions/s1", first.at_ns) == first
    assert history.at("sessions/s1", second.at_ns - 1) == first
    assert history.at("sessions/s1", second.at_ns + 10**12) == second


def test_versions_are_found_by_updated_at_and_by_stamp(store: Store) -> None:
    """Also after the file was touched."""
    store.save(make_session("s1"))
    append(store, "s1", "one")
    history, path = history_of(store), store.home / "sessions/s1/session.json"
    session = store.load("s1")
    assert session is not None
    [found] = history.with_updated_at("sessions/s1", "session.json", session.updated_at.ns)
    assert found.number == 2
    assert [v.number for v in history.with_updated_at("sessions/s1", "runtime.json", session.updated_at.ns)] == [2]
    stamp = store._core.disk.stamp("sessions/s1/session.json")
    assert stamp is not None
    assert history.with_stamp("sessions/s1", "session.json", stamp) == found
    os.utime(path, ns=(1, 1))
    touched = store._core.disk.stamp("sessions/s1/session.json")
    assert touched is not None
    assert history.with_stamp("sessions/s1", "session.json", touched) is None
    store._core.refresh(Location("s1"))
    again = history.with_stamp("sessions/s1", "session.json", touched)
    assert again is not None
    assert again.key == found.key
    assert kinds(store, "sessions/s1") == ["saved", "appended"]


@pytest.mark.parametrize("name", ["session.json", "runtime.json"])
def test_the_present_version_is_found_without_reading_all_others(store: Store, name: str) -> None:
    """The work of a save does not grow with the number of versions, by the instructions that SQLite executes."""
    history = history_of(store)

    def instructions() -> int:
        stamp = store._core.disk.stamp(f"sessions/s1/{name}")
        assert stamp is not None
        counted: list[None] = []

        def count() -> bool:
            counted.append(None)
            return False  # go on

        history.database.reader.set_progress_handler(count, 1)
        found = history.with_stamp("sessions/s1", name, stamp)
        history.database.reader.set_progress_handler(None)
        assert found is not None
        assert found.number == newest(store, "sessions/s1").number
        return len(counted)

    store.save(make_session("s1"))
    few = instructions()
    for number in range(60):
        append(store, "s1", f"text {number}")
    assert instructions() < 2 * few


def test_the_present_version_is_the_one_that_changed_the_document(store: Store) -> None:
    """Later versions, which changed only the sidecar, say nothing of session.json."""
    store.save(make_session("s1"))
    session = store.load("s1")
    assert session is not None
    session.last_run_status = "completed"
    store.save_runtime(session)
    for name, number in (("session.json", 1), ("runtime.json", 2)):
        stamp = store._core.disk.stamp(f"sessions/s1/{name}")
        assert stamp is not None
        found = history_of(store).with_stamp("sessions/s1", name, stamp)
        assert found is not None
        assert found.number == number


def test_a_long_run_of_steps_gets_a_new_whole_text(store: Store) -> None:
    """So that reading any version takes bounded time."""
    store.save(make_session("s1"))
    seed = os.urandom(20_000).hex()
    for number in range(12):
        append(store, "s1", f"{number} {seed[number * 100 :][:30_000]}", os.urandom(15_000).hex())
    query = "SELECT main_kind, length(main_data) FROM versions ORDER BY number"
    rows: list[Any] = history_of(store).database.reader.execute(query).fetchall()
    assert [kind for kind, _ in rows].count(WHOLE) > 1
    whole_bytes = step_bytes = 0
    for kind, size_bytes in rows:
        whole_bytes = size_bytes if kind == WHOLE else whole_bytes
        step_bytes = 0 if kind == WHOLE else step_bytes + size_bytes
        assert step_bytes <= max(whole_bytes, MIN_STEP_BYTES)
    assert_newest_is_on_disk(store, "sessions/s1")
    for version in history_of(store).log("sessions/s1", limit=100):
        assert store.history.read(version).main is not None


def test_a_document_that_is_not_json_any_more_is_kept_when_it_is_replaced(store: Store) -> None:
    """Whatever is replaced was somebody's text."""
    store.save(make_session("s1"))
    path = store.home / "sessions/s1/session.json"
    path.write_bytes(b"not json at all")
    store.put_document("s1", "session.json", make_document("s1", updated_at="2031-01-01T00:00:00Z"))
    assert b"not json at all" in [store.history.read(version).main for version in history_of(store).log("sessions/s1")]


# -- authors ---------------------------------------------------------------------------------------


def test_the_author_is_the_one_named_when_the_store_was_opened(home: Path) -> None:
    with Store.open(home, background=False, author="planner") as store:
        store.save(make_session("s1"))
        author = newest(store, "sessions/s1").author
    assert author == Author("api", "planner", os.getpid(), os.getuid())


def test_acting_as_another_author(store: Store) -> None:
    """A mount names the process that wrote; the author of the store comes back afterwards."""
    with acting_as(Author("mount", "sed", 4711, 1000)):
        store.save(make_session("s1"))
    append(store, "s1", "by the store")
    second, first = history_of(store).log("sessions/s1")
    assert str(first.author) == "mount: sed (4711)"
    assert first.author.uid == 1000
    assert second.author.via == "api"


# -- outside edits ---------------------------------------------------------------------------------


def edit_outside(home: Path, title: str = "edited outside") -> bytes:
    raw = make_document("s1", title=title, updated_at="2029-01-01T00:00:00Z")
    (home / "sessions/s1/session.json").write_bytes(raw)
    return raw


def test_an_outside_edit_is_found_before_it_is_replaced(store: Store) -> None:
    """Author outside, and the time at which the file was written."""
    store.save(make_session("s1"))
    raw = edit_outside(store.home)
    at_ns = time.time_ns() - 10**10
    os.utime(store.home / "sessions/s1/session.json", ns=(at_ns, at_ns))
    first_ns = newest(store, "sessions/s1").at_ns
    store.put_document("s1", "session.json", make_document("s1", title="after", updated_at="2030-01-01T00:00:00Z"))
    assert kinds(store, "sessions/s1") == ["saved", "found", "saved"]
    found = history_of(store).find("sessions/s1", 2)
    assert found is not None
    assert store.history.read(found).main == raw
    assert found.author.via == "outside"
    assert found.at_ns == max(at_ns, first_ns + 1)


def test_an_outside_edit_that_is_noticed_is_recorded_at_once(store: Store) -> None:
    store.save(make_session("s1"))
    raw = edit_outside(store.home)
    assert store._core.refresh(Location("s1"))
    assert kinds(store, "sessions/s1") == ["saved", "found"]
    assert store.history.read(newest(store, "sessions/s1")).main == raw


def test_main_and_sidecar_found_together_are_one_version(store: Store) -> None:
    """Files of a home that had no history yet, or that another program replaced."""
    store.save(make_session("s1"))
    raw = edit_outside(store.home)
    (store.home / "sessions/s1/runtime.json").write_bytes(make_document("s1", messages=[], title="side"))
    store._core.refresh(Location("s1"))
    found = newest(store, "sessions/s1")
    assert (found.what, found.number) == ("found", 2)
    texts = store.history.read(found)
    assert texts.main == raw
    assert texts.side is not None
    assert b'"side"' in texts.side


def test_touch_and_chmod_are_no_versions(store: Store) -> None:
    """The bytes are compared once; the next commit finds the stamp it expects."""
    store.save(make_session("s1"))
    path = store.home / "sessions/s1/session.json"
    os.utime(path, ns=(10**18, 10**18))
    path.chmod(0o640)
    append(store, "s1", "one")
    assert kinds(store, "sessions/s1") == ["saved", "appended"]


def test_a_session_from_before_the_history_is_recorded_when_it_is_first_changed(home: Path) -> None:
    """Both documents, as one version, before they are replaced."""
    with Store.open(home, background=False, history=False) as store:
        store.save(make_session("s1"))
        before = texts_on_disk(home, "sessions/s1")
        assert not (home / ".grovefs/history.db").exists()
    with Store.open(home, background=False) as store:
        append(store, "s1", "one")
        assert kinds(store, "sessions/s1") == ["found", "appended"]
        first = history_of(store).find("sessions/s1", 1)
        assert first is not None
        assert store.history.read(first) == before
        assert_newest_is_on_disk(store, "sessions/s1")


def test_an_edit_in_the_same_clock_tick_and_of_the_same_size_is_found_by_the_next_sweep(store: Store) -> None:
    """Its inode number differs, because editors replace files."""
    store.save(make_session("s1", title="aaaa"))
    path = store.home / "sessions/s1/session.json"
    info = path.stat()
    changed = path.read_bytes().replace(b"aaaa", b"bbbb")
    copy = path.with_name("copy")
    copy.write_bytes(changed)
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))
    copy.rename(path)
    append(store, "s1", "one")
    assert kinds(store, "sessions/s1") == ["saved", "found", "appended"]


# -- moves -----------------------------------------------------------------------------------------


def test_a_renamed_session_keeps_its_versions(store: Store) -> None:
    """Children too. The rename is a version, because ids in the documents change."""
    root = make_session("a")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "child"))
    store.rename("a", "b")
    assert kinds(store, "sessions/b") == ["saved", "moved"]
    assert kinds(store, "sessions/b/children/c") == ["saved", "moved"]
    assert not history_of(store).log("sessions/a")
    assert_newest_is_on_disk(store, "sessions/b")
    assert_newest_is_on_disk(store, "sessions/b/children/c")


def test_a_deleted_session_takes_its_versions_to_the_trash_and_back(store: Store) -> None:
    store.save(make_session("s1"))
    append(store, "s1", "one")
    store.delete("s1")
    [slot] = store.trash.deleted()
    assert not history_of(store).log("sessions/s1")
    assert kinds(store, f".grovefs/trash/{slot.name}/0") == ["saved", "appended"]
    store.trash.undelete(slot.name)
    assert kinds(store, "sessions/s1") == ["saved", "appended"]
    append(store, "s1", "two")
    assert kinds(store, "sessions/s1") == ["saved", "appended", "appended"]


def test_an_erased_session_is_erased_from_the_history(store: Store) -> None:
    """Its bytes are gone from the file as well, once the WAL is checkpointed."""
    store.save(make_session("s1"))
    append(store, "s1", os.urandom(500).hex())
    database = history_of(store).database
    rows = database.reader.execute("SELECT main_data, side_data FROM versions").fetchall()
    stored = [data for row in rows for data in row if isinstance(data, bytes)]
    assert len(stored) == 4
    assert all(data in checkpointed(database) for data in stored)
    store.delete("s1")
    store.trash.empty()
    assert not [data for data in stored if data in checkpointed(database)]
    assert database.reader.execute("SELECT count(*) FROM versions").get == 0
    assert database.reader.execute("SELECT count(*) FROM lineages").get == 0


def test_a_fork_begins_a_lineage_that_names_its_source(store: Store) -> None:
    root = make_session("a")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "child"))
    append(store, "a", "one")
    root_copy, child_copy = store.fork("a", "b")
    [version] = history_of(store).log(root_copy)
    assert (version.number, version.what, version.note) == (1, "forked", "forked from a@2")
    [child] = history_of(store).log(child_copy)
    assert child.note == "forked from a/c@1"
    assert_newest_is_on_disk(store, "sessions/b")


def test_a_new_session_with_the_id_of_a_deleted_one_begins_a_lineage(store: Store) -> None:
    """Restoring the deleted one under its path is refused, so the two never meet."""
    store.save(make_session("s1", title="first"))
    store.delete("s1")
    store.save(make_session("s1", title="second"))
    assert kinds(store, "sessions/s1") == ["saved"]
    assert len(list(history_of(store).between(0, 2**62))) == 2


def test_a_lineage_in_the_way_of_a_move_is_renamed_aside(store: Store) -> None:
    """Its session was removed by another program; its versions are still kept."""
    store.save(make_session("a"))
    store.save(make_session("b", title="the lost one"))
    for name in ("session.json", "runtime.json"):
        (store.home / "sessions/b" / name).unlink()
    for name in ("attachments", "children"):
        (store.home / "sessions/b" / name).rmdir()
    (store.home / "sessions/b").rmdir()
    store.rename("a", "b")
    assert kinds(store, "sessions/b") == ["saved", "moved"]
    aside = [v for v in history_of(store).between(0, 2**62) if v.path.startswith(".grovefs/aside/")]
    assert any(b"the lost one" in (store.history.read(version).main or b"") for version in aside)


def test_removing_a_document_is_a_version(store: Store) -> None:
    """`rm session.json` in a mount, and its restoration from the trash."""
    store.save(make_session("s1"))
    store.names.remove_file(classify_path("sessions/s1/session.json"))
    assert kinds(store, "sessions/s1") == ["saved", "deleted"]
    gone = newest(store, "sessions/s1")
    assert (gone.main_bytes, store.history.read(gone).main) == (None, None)
    assert store.history.read(gone).side is not None
    store.trash.undelete(store.trash.deleted()[0].name)
    assert kinds(store, "sessions/s1") == ["saved", "deleted", "restored"]
    assert_newest_is_on_disk(store, "sessions/s1")


def test_names_of_the_past(store: Store) -> None:
    """A session is listed under the name it had at a moment; deleted ones are listed while they existed."""
    store.save(make_session("a"))
    first_ns = time.time_ns()
    store.rename("a", "b")
    second_ns = time.time_ns()
    store.delete("b")
    history = history_of(store)
    assert [(path, version.number) for path, version in history.paths_at(first_ns)] == [("sessions/a", 1)]
    assert [(path, version.number) for path, version in history.paths_at(second_ns)] == [("sessions/b", 2)]
    assert not list(history.paths_at(time.time_ns()))
    assert not list(history.paths_at(first_ns - 10**12))


# -- other kept files ------------------------------------------------------------------------------


def test_records_state_documents_and_payloads_are_kept(store: Store) -> None:
    store.save(make_session("s1"))
    store.records.save_traces("s1", [make_event("one")])
    store.records.add_traces("s1", [make_event("two")])
    store.state.save_markdown("notes", "plan", "first")
    store.state.save_markdown("notes", "plan", "second")
    store.state.save_json("notes", "facts", [1])
    store.projects.save(ProjectSession("k", "p"), {"title": "P", "updated_at": "2026-01-01T00:00:00Z"})
    for path, number in (
        ("sessions/s1/traces.json", 2),
        ("state/notes/plan.md", 2),
        ("state/notes/facts.json", 1),
        ("projects/k/sessions/p/session.json", 1),
    ):
        assert newest(store, path).number == number
        assert_newest_is_on_disk(store, path)


def test_other_files_are_not_kept(store: Store) -> None:
    """Attachments, logs, mail and derived files."""
    store.save(make_session("s1"))
    store.attach("s1", b"{}", "application/json")
    store.usage.append("s1", {"a": 1})
    store.projects.save(ProjectSession("k", "p"), {"title": "P", "updated_at": "2026-01-01T00:00:00Z"})
    rows = history_of(store).database.reader.execute("SELECT dir FROM lineages ORDER BY dir")
    assert [bytes(path) for (path,) in rows] == [b"projects/k/sessions/p/session.json", b"sessions/s1"]


def test_a_deleted_state_document_takes_its_versions_to_the_trash_and_back(store: Store) -> None:
    store.state.save_markdown("notes", "plan", "first")
    store.state.delete("notes", "plan")
    assert not history_of(store).log("state/notes/plan.md")
    store.trash.undelete(store.trash.deleted()[0].name)
    assert kinds(store, "state/notes/plan.md") == ["state"]


def test_a_state_document_renamed_to_a_foreign_name_is_removed_and_continues(store: Store) -> None:
    """vim saves this way: rename to a backup name, write a new file."""
    store.state.save_markdown("notes", "plan", "first")
    store.moves.move(classify_path("state/notes/plan.md"), classify_path("state/notes/plan.md~"))
    store.names.commit(WriteRequest(classify_path("state/notes/plan.md"), b"second"))
    assert kinds(store, "state/notes/plan.md")[0] == "state"
    assert [store.history.read(v).main for v in history_of(store).log("state/notes/plan.md")] == [
        b"second",
        None,
        b"first",
    ]


def test_an_outside_edit_of_a_state_document_is_recorded_at_once(store: Store) -> None:
    store.state.save_markdown("notes", "plan", "first")
    (store.home / "state/notes/plan.md").write_text("by hand")
    store.maintenance.sweep()
    assert kinds(store, "state/notes/plan.md") == ["state", "found"]


def test_an_outside_edit_of_a_payload_is_recorded_at_once(store: Store) -> None:
    store.projects.save(ProjectSession("k", "p"), {"title": "P", "updated_at": "2026-01-01T00:00:00Z"})
    path = "projects/k/sessions/p/session.json"
    (store.home / path).write_text('{"title": "by hand", "updated_at": "2026-02-01T00:00:00Z"}')
    store.maintenance.sweep()
    assert kinds(store, path) == ["project", "found"]
    assert_newest_is_on_disk(store, path)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.warns
def test_a_locked_history_does_not_stop_a_save(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status says so; after the pause the gap is closed by a found version."""
    store.save(make_session("s1"))
    history = history_of(store)
    other = HistoryDatabase(history.database.path)
    with other.write():
        append(store, "s1", "one")
        assert not history.state().is_working
        append(store, "s1", "two")
        append(store, "s1", "more")
        state = history.state()
        assert not state.is_working
        assert "locked" in state.problem
        assert state.since_ns is not None
        assert store.maintenance.status()["history"]["problem"] == state.problem
    other.close()
    append(store, "s1", "three")
    assert kinds(store, "sessions/s1") == ["saved"]  # for thirty seconds it is not tried
    monkeypatch.setattr(history, "_retry_at", 0.0)
    append(store, "s1", "four")
    assert kinds(store, "sessions/s1") == ["saved", "found", "appended"]
    assert history.state().is_working
    assert_newest_is_on_disk(store, "sessions/s1")


def test_a_history_that_is_locked_for_a_moment_is_tried_again_at_once(store: Store) -> None:
    """Another process may just have been slow; the gap is one found version."""
    store.save(make_session("s1"))
    other = HistoryDatabase(history_of(store).database.path)
    with other.write():
        append(store, "s1", "one")
    other.close()
    append(store, "s1", "two")
    assert kinds(store, "sessions/s1") == ["saved", "found", "appended"]
    assert history_of(store).state().is_working


@pytest.mark.warns
def test_moves_missed_by_the_history_are_made_up_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the next process, and before anything else is recorded under these names."""
    with Store.open(home, background=False) as store:
        store.save(make_session("a"))
        monkeypatch.setattr(history_of(store), "_retry_at", time.monotonic() + 1000)
        store.rename("a", "b")
        store.save(make_session("a", title="another"))
        assert kinds(store, "sessions/a") == ["saved"]
    with Store.open(home, background=False) as store:
        append(store, "b", "one")
        append(store, "a", "one")
        assert kinds(store, "sessions/b") == ["saved", "found", "appended"]
        assert kinds(store, "sessions/a") == ["found", "appended"]


@pytest.mark.warns
def test_a_history_that_cannot_be_opened_does_not_stop_a_save(home: Path) -> None:
    """Something else has its name."""
    (home / ".grovefs/history.db").mkdir(parents=True)
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        assert store.load("s1") is not None
        assert not history_of(store).state().is_working


@pytest.mark.warns
@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000])
def test_a_deleted_or_damaged_history_is_created_again(home: Path, damage: bytes) -> None:
    """Sessions are untouched (rule 1)."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    path = home / ".grovefs/history.db"
    path.unlink()
    if damage:
        path.write_bytes(damage)
    with Store.open(home, background=False) as store:
        append(store, "s1", "one")
        assert kinds(store, "sessions/s1") == ["found", "appended"]
        assert store.check().is_clean


def test_history_can_be_turned_off(home: Path) -> None:
    with Store.open(home, background=False, history=False) as store:
        store.save(make_session("s1"))
        assert history_of(store).state().problem == "turned off"
        assert not history_of(store).log("sessions/s1")


def test_many_threads_record_every_commit(store: Store) -> None:
    """Each append is one version of its session."""
    for number in range(4):
        store.save(make_session(f"s{number}"))

    def work(number: int) -> None:
        for text in range(15):
            append(store, f"s{number % 4}", f"{number} {text}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert kinds(store, f"sessions/s{number}") == ["saved", *["appended"] * 30]
        assert_newest_is_on_disk(store, f"sessions/s{number}")
