"""`check` finds every kind of damage, changes nothing without `repair`, and repairs only derived data."""

import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from store import BambooAtWork, Location, Message, Report, Session, Store
from store.check.finding import NOTES, Finding, Kind
from store.check.fulltext import FulltextComparison
from store.model.message import ImageUrl, MessagePart
from store.path_kinds import classify_path
from tests.builders import files_below, location_of, make_document, make_session, read_json

UUID = "0b8d5f1d-2c11-4c0e-9a5e-7d3c1f0e6a51"
FOUND_BY_A_TEST: set[str] = set()


@pytest.fixture
def opened(home: Path) -> Iterator[Store]:
    """An undamaged home: root s1 with an attachment, child c1 and grandchild c2; root s2."""
    with Store.open(home, background=False, durability="normal") as store:
        root = make_session("s1", title="first")
        store.save(root)
        child = Session.new_child("c1", "s1", "m", "child")
        store.save(child)
        store.save(Session.new_child_of("c2", child, "m", "grandchild"))
        store.save(make_session("s2", title="second"))
        store.attach("s1", b"picture", "image/png")
        store.maintenance.export_sessions_json()
        assert store.check().exit_code == 0
        yield store


def everything(home: Path) -> dict[str, bytes]:
    """Every file except the databases and the locks."""
    private = ("index.db", "history.db", "locks", "open.lock", "export.lock")
    found = (p for p in home.rglob("*") if p.is_file() and not p.name.startswith(private))
    return {str(p.relative_to(home)): p.read_bytes() for p in found}


def rows(store: Store) -> dict[str, list[tuple[object, ...]]]:
    tables = ("sessions", "texts", "damaged", "marks", "changes", "meta")
    return {t: store._core.db.reader.execute(f"SELECT * FROM {t}").fetchall() for t in tables}


def session_files(home: Path) -> dict[str, bytes]:
    return {path: data for path, data in files_below(home).items() if path.endswith("session.json")}


def write(store: Store, sql: str, *values: object) -> None:
    with store._core.db.write() as db:
        db.execute(sql, values)


def assert_found(store: Store, kind: Kind, path: str, *others: Kind) -> Finding:
    """The damage is found, and `check` changes nothing."""
    files, derived = everything(store.home), rows(store)
    report = store.check()
    assert (everything(store.home), rows(store)) == (files, derived)
    assert report.exit_code == 4
    assert not report.is_clean
    assert {f.kind for f in report.findings} == {kind, *others}, report.findings
    finding = next(f for f in report.findings if f.kind == kind and f.path == path)
    assert finding.is_damage
    assert len(finding.text) > 5
    assert path in str(finding)
    assert kind in str(finding)
    FOUND_BY_A_TEST.add(kind)
    return finding


def assert_repaired(store: Store, kind: Kind, path: str, *others: Kind) -> Report:
    """The damage is found and repaired without changing a session.json; the next check is clean."""
    assert_found(store, kind, path, *others)
    before = session_files(store.home)
    report = store.check(repair=True)
    assert report.exit_code == 1, report.findings
    assert all(f.repaired for f in report.findings if f.kind not in NOTES)
    assert session_files(store.home) == before
    assert_clean(store)
    return report


def assert_not_repaired(store: Store, kind: Kind, path: str, *others: Kind) -> None:
    """Repair does not touch a conversation and reports that damage is left."""
    assert_found(store, kind, path, *others)
    files = everything(store.home)
    assert store.check(repair=True).exit_code == 4
    assert {k: v for k, v in everything(store.home).items() if k != "sessions.json"} == {
        k: v for k, v in files.items() if k != "sessions.json"
    }


def assert_clean(store: Store) -> None:
    report = store.check()
    assert report.exit_code == 0, report.findings


# -- the index ---------------------------------------------------------------------------------------


def test_missing_row_is_rebuilt(opened: Store) -> None:
    """The row of a session that is not indexed is built from its files."""
    with opened._core.db.write() as db:
        opened._core.index.remove(db, Location("s1"))
    assert_repaired(opened, "missing-row", "sessions/s1")
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "first"


def test_row_of_a_missing_directory_is_deleted(opened: Store) -> None:
    """Its search rows are deleted too."""
    (opened.home / "sessions/s2").rename(opened.home / "elsewhere")
    assert_repaired(opened, "extra-row", "sessions/s2")
    assert opened.entry("s2") is None
    assert all(location_of(hit).root != "s2" for hit in opened.search("msg"))


def test_row_of_a_directory_without_session_json_is_deleted(opened: Store) -> None:
    """Nothing but its attachments is left: it counts as incoming and has no row."""
    opened.attach("s2", b"x", "image/png")
    for name in ("session.json", "runtime.json"):
        (opened.home / "sessions/s2" / name).unlink()
    assert_repaired(opened, "extra-row", "sessions/s2", "incoming")


def test_lost_session_json_stays_damage(opened: Store) -> None:
    """Its runtime.json and the history show that there was a session; a copy of its last version repairs it."""
    path = opened.home / "sessions/s2/session.json"
    good = path.read_bytes()
    path.unlink()
    assert "its last version is 1" in assert_found(opened, "session-lost", "sessions/s2", "extra-row").text
    assert opened.check(repair=True).exit_code == 4
    opened.maintenance.sweep()  # notices that it is gone
    assert_not_repaired(opened, "session-lost", "sessions/s2")
    path.write_bytes(good)
    opened.maintenance.sweep()
    assert_clean(opened)


def test_deleted_session_json_is_not_lost(opened: Store) -> None:
    """A session.json that was deleted in a mount is in the trash: nothing is damaged."""
    opened.names.remove_file(classify_path("sessions/s2/session.json"))
    report = opened.check()
    assert report.is_clean
    assert [(f.kind, f.path) for f in report.findings] == [("incoming", "sessions/s2")]


def test_stale_row_is_rebuilt(opened: Store) -> None:
    """A row that differs from the files is corrected."""
    wrong = opened._core.index.find(Location("s1"))
    assert wrong is not None
    with opened._core.db.write() as db:
        opened._core.index.put_entry(db, wrong, wrong.entry.model_copy(update={"title": "wrong"}))
    assert_repaired(opened, "stale-row", "sessions/s1")
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "first"


def test_stale_row_of_a_corrupt_session_is_deleted(opened: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The index drops the version that no longer exists; the corrupt document is unchanged and still reported."""
    (opened.home / "sessions/s2/session.json").write_text("{")
    assert_found(opened, "stale-row", "sessions/s2", "unparsable")
    with caplog.at_level("ERROR"):
        report = opened.check(repair=True)
    assert report.exit_code == 4
    assert [f.kind for f in report.findings if f.repaired] == ["stale-row"]
    assert opened.check().exit_code == 4
    assert [f.kind for f in opened.check().findings] == ["unparsable"]


def test_edit_by_another_program_is_indexed(opened: Store) -> None:
    """An edit of session.json outside the store makes its row stale; repair indexes it."""
    path = opened.home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"edited by hand"))
    assert_repaired(opened, "stale-row", "sessions/s1")
    assert [location_of(hit).id for hit in opened.search('"edited by hand"')] == ["s1"]


def test_edit_of_the_same_length_is_found(opened: Store) -> None:
    """The row stays equal, but the digest in the search rows differs."""
    path = opened.home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-1", b"other"))
    assert_repaired(opened, "search-rows", "sessions/s1")
    assert len(opened.search("other")) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM texts WHERE role = 'user'",
        "UPDATE texts SET digest = 7 WHERE role = 'user'",
        "UPDATE texts SET role = 'tool' WHERE role = 'user'",
        "DELETE FROM search WHERE rowid IN (SELECT number FROM texts WHERE role = 'user')",
    ],
)
def test_wrong_search_rows_are_rewritten(opened: Store, damage: str) -> None:
    """Missing, wrong and extra search rows are replaced."""
    write(opened, damage)
    assert_repaired(opened, "search-rows", "sessions/s1")
    assert {location_of(hit).id for hit in opened.search('"msg-0" role:user')} == {"s1", "s2"}
    assert not opened._core.db.reader.execute("SELECT rowid FROM search WHERE search MATCH 'ghost'").fetchall()


@pytest.mark.parametrize("text", ["msg-0 ghost", "msg 1", "", "0-msg", "msg-0 msg-0", "MSG-0 ."])
def test_wrong_words_in_the_full_text_index_are_found(opened: Store, text: str) -> None:
    """The number of rows and the digests are right, but the words of one row are not."""
    number = opened._core.db.reader.execute("SELECT number FROM texts WHERE row & 0xffffff = 1 LIMIT 1").get
    write(opened, "DELETE FROM search WHERE rowid = ?", number)
    write(opened, "INSERT INTO search (rowid, text) VALUES (?, ?)", number, text)
    if text == "MSG-0 .":  # the same words
        assert opened.check().is_clean
        return
    assert "indexed words differ" in assert_found(opened, "search-rows", "sessions/s1").text
    assert_repaired(opened, "search-rows", "sessions/s1")
    assert {location_of(hit).id for hit in opened.search('"msg-0"') if hit.location} == {"s1", "s2"}
    assert opened.search("ghost") == []


def test_words_written_during_the_check_are_not_damage(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writers commit between the check of the files and the check of the words."""
    differing = FulltextComparison.differing

    def late(comparison: FulltextComparison) -> Any:
        opened.append("s1", [Message.user("late words")])
        session = opened.load("s2")
        assert session is not None
        session.messages[0].content = "other words"
        opened.save(session)
        opened.state.save_markdown("notes", "late", "words of a document")
        return differing(comparison)

    monkeypatch.setattr(FulltextComparison, "differing", late)
    assert opened.check().is_clean


@pytest.mark.parametrize(
    "damage",
    [
        "INSERT INTO texts VALUES (99 << 24, 1000, '', NULL, NULL, NULL, 1)",
        "INSERT INTO texts VALUES (-5, 1000, '', NULL, NULL, NULL, 1)",
        "INSERT INTO search (rowid, text) VALUES (1000, 'x')",
        "INSERT INTO search (rowid, text) SELECT number + 1000, 'ghost' FROM texts WHERE role = 'user'",
    ],
)
def test_search_rows_of_no_session_are_deleted(opened: Store, damage: str) -> None:
    """In either table."""
    write(opened, damage)
    assert_repaired(opened, "search-rows", ".grovefs/index.db")


@pytest.mark.warns
def test_unfinished_commit_is_found_and_finished(opened: Store) -> None:
    """A save whose index transaction failed is reported, and repair completes it."""
    opened._core.disk.step = _fail_at("index")
    opened.append("s1", [Message.user("late")])
    opened._core.disk.step = _nothing
    assert "made to fail" in assert_found(opened, "unfinished", "sessions/s1").text
    assert_repaired(opened, "unfinished", "sessions/s1")
    assert len(opened.search("late")) == 1
    assert opened.maintenance.status()["unfinished"] == {}


@pytest.mark.warns
def test_unfinished_deletion_is_found_and_finished(opened: Store) -> None:
    """The journal entry of a whole tree is reported under its root."""
    opened._core.disk.step = _fail_at("index")
    opened.delete("s1")
    opened._core.disk.step = _nothing
    assert_repaired(opened, "unfinished", "sessions/s1")
    assert opened.entry("s1") is None
    assert opened.maintenance.status()["unfinished"] == {}


def _nothing(name: str) -> None:
    pass


def _fail_at(wanted: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == wanted:
            raise OSError(5, "made to fail")

    return step


# -- sidecars: derived, but the replaced file is kept --------------------------------------------------


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"{garbage", b"[]", b"", b'{"id": "s1"}'])
def test_corrupt_sidecar_is_replaced_and_kept_in_the_trash(opened: Store, garbage: bytes) -> None:
    """A new sidecar is made from session.json; the bad one is in the trash."""
    path = opened.home / "sessions/s1/runtime.json"
    path.write_bytes(garbage)
    assert_repaired(opened, "sidecar-corrupt", "sessions/s1/runtime.json")
    assert read_json(path)["title"] == "first"
    assert read_json(path)["messages"] == []
    assert garbage in in_trash(opened, "runtime.json")


@pytest.mark.warns
def test_sidecar_of_another_session_is_replaced(opened: Store) -> None:
    """A sidecar with another id (rule 9) is replaced and kept in the trash."""
    stray = (opened.home / "sessions/s2/runtime.json").read_bytes()
    (opened.home / "sessions/s1/runtime.json").write_bytes(stray)
    assert_repaired(opened, "identity", "sessions/s1/runtime.json")
    assert read_json(opened.home / "sessions/s1/runtime.json")["id"] == "s1"
    assert stray in in_trash(opened, "runtime.json")


def test_a13_stale_sidecar_is_replaced_and_kept_in_the_trash(opened: Store) -> None:
    """Another program wrote session.json later; the sidecar takes its members."""
    path = opened.home / "sessions/s1/session.json"
    path.write_bytes(make_document(**read_json(path) | {"title": "new", "updated_at": "2037-01-01T00:00:00Z"}))
    opened.maintenance.sweep()
    (note,) = opened.check().findings
    assert (note.kind, note.path, note.is_damage) == ("sidecar-stale", "sessions/s1/runtime.json", False)
    assert opened.check(repair=True).exit_code == 1
    assert_clean(opened)
    assert read_json(path.with_name("runtime.json"))["title"] == "new"
    assert [slot.what for slot in opened.trash.deleted()] == ["bad sidecar"]


def test_only_the_messages_are_removed_from_a_sidecar(opened: Store) -> None:
    """Messages in a sidecar are never read; the other members, newer than session.json, are kept."""
    path = opened.home / "sessions/s1/runtime.json"
    data = read_json(path) | {"title": "fresher", "unknown": [1], "messages": [{"role": "user", "content": "x"}]}
    path.write_bytes(bad := make_document(**data))
    opened.maintenance.sweep()
    assert_repaired(opened, "sidecar-messages", "sessions/s1/runtime.json")
    assert read_json(path) == data | {"messages": []}
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "fresher"
    assert bad in in_trash(opened, "runtime.json")


def in_trash(store: Store, name: str) -> list[bytes]:
    return [p.read_bytes() for p in (store.home / ".grovefs/trash").rglob(name) if p.is_file()]


# -- temporary files ---------------------------------------------------------------------------------------


def test_temporary_file_of_a_dead_process_is_removed(opened: Store, dead_pid: int) -> None:
    """In .grovefs/tmp, where only this program writes."""
    path = opened.home / f".grovefs/tmp/{dead_pid}-abc"
    path.write_bytes(b"half")
    assert_repaired(opened, "temporary", f".grovefs/tmp/{dead_pid}-abc")
    assert not path.exists()


def test_temporary_file_of_a_live_process_is_kept(opened: Store) -> None:
    """It may be in use right now and is not damage."""
    path = opened.home / f".grovefs/tmp/{os.getpid()}-abc"
    path.write_bytes(b"half")
    assert opened.check(repair=True).exit_code == 0
    assert path.exists()


@pytest.mark.parametrize(
    "path",
    [
        f"sessions/s1/session.json.tmp.{UUID}",
        f"sessions/s1/runtime.json.tmp.{UUID}",
        f"sessions/s1/children/c1/session.json.tmp.{UUID}",
        f"sessions/s1/attachments/a.png.tmp.{UUID}",
        f"sessions.json.tmp.{UUID}",
        f".runtime_sidecar_migrated.tmp.{UUID}",
    ],
)
def test_temporary_file_of_bamboo_goes_to_the_trash(opened: Store, path: str) -> None:
    """A crashed Bamboo may have left the only copy of something in it."""
    (opened.home / path).write_bytes(b"half a session")
    assert_repaired(opened, "temporary", path)
    assert not (opened.home / path).exists()
    assert b"half a session" in in_trash(opened, "*")


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# -- the export ------------------------------------------------------------------------------------------


def test_missing_export_is_found_and_written(opened: Store) -> None:
    """A deleted sessions.json is exported again."""
    path = opened.home / "sessions.json"
    before = read_json(path)["sessions"]
    path.unlink()
    assert_repaired(opened, "export", "sessions.json")
    assert read_json(path)["sessions"] == before


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"{", b"[]", b"", b'{"version": 2}'])
def test_invalid_export_is_replaced_and_kept(opened: Store, garbage: bytes) -> None:
    """An invalid sessions.json is rebuilt; the old one is in the trash."""
    path = opened.home / "sessions.json"
    path.write_bytes(garbage)
    assert_repaired(opened, "export", "sessions.json")
    assert set(read_json(path)["sessions"]) == {"s1", "s2", "c1", "c2"}
    assert not garbage or garbage in in_trash(opened, "sessions.json")


@pytest.mark.warns
def test_link_in_place_of_the_export_is_replaced(opened: Store) -> None:
    """The link is neither read nor written through; the link itself goes to the trash."""
    path = opened.home / "sessions.json"
    path.unlink()
    path.symlink_to(opened.home / "elsewhere.json")
    assert_repaired(opened, "export", "sessions.json")
    assert not path.is_symlink()
    assert not (opened.home / "elsewhere.json").exists()


# -- conversations: reported, never changed -----------------------------------------------------------------


@pytest.mark.warns
@pytest.mark.parametrize(
    ("raw", "reason"),
    [(b'{\n  "id": nonsense}', "2:"), (b"", ""), (b'{"id": "s2"}', "missing"), (b"\xff", "UTF-8")],
)
def test_unparsable_session_is_not_repaired(opened: Store, raw: bytes, reason: str) -> None:
    """A corrupt conversation is reported with the position of the error and not changed."""
    path = opened.home / "sessions/s2/session.json"
    good = path.read_bytes()
    path.write_bytes(raw)
    opened.maintenance.sweep()
    assert reason in assert_found(opened, "unparsable", "sessions/s2/session.json").text
    assert_not_repaired(opened, "unparsable", "sessions/s2/session.json")
    path.write_bytes(good)
    assert opened.check(repair=True).exit_code == 1
    assert_clean(opened)


@pytest.mark.warns
def test_link_in_place_of_a_session_is_unparsable(opened: Store) -> None:
    """session.json must be a regular file; a link is damage, whatever it points to."""
    path = opened.home / "sessions/s2/session.json"
    path.rename(opened.home / "elsewhere")
    path.symlink_to(opened.home / "elsewhere")
    opened.maintenance.sweep()
    assert_not_repaired(opened, "unparsable", "sessions/s2/session.json")
    path.unlink()
    (opened.home / "elsewhere").rename(path)
    assert opened.check(repair=True).exit_code == 1
    assert_clean(opened)


@pytest.mark.parametrize("member", ["id", "root_session_id"])
def test_identity_that_contradicts_the_path_is_not_repaired(opened: Store, member: str) -> None:
    """Rule 9: a document with another id than its path is reported with both ids."""
    path = opened.home / "sessions/s2/session.json"
    good = path.read_bytes()
    path.write_bytes(good.replace(f'"{member}": "s2"'.encode(), f'"{member}": "other"'.encode()))
    opened.maintenance.sweep()
    finding = assert_found(opened, "identity", "sessions/s2/session.json")
    assert "'other'" in finding.text
    assert "'s2'" in finding.text
    assert_not_repaired(opened, "identity", "sessions/s2/session.json")
    path.write_bytes(good)
    assert opened.check(repair=True).exit_code == 1
    assert_clean(opened)


def test_child_without_its_parent_is_an_orphan(opened: Store) -> None:
    """A grandchild whose parent does not exist is found; restoring the parent resolves it."""
    parent = opened.home / "sessions/s1/children/c1"
    parent.rename(opened.home / "kept")
    opened.maintenance.sweep()
    assert "'c1'" in assert_found(opened, "orphan-child", "sessions/s1/children/c2").text
    assert_not_repaired(opened, "orphan-child", "sessions/s1/children/c2")
    (opened.home / "kept").rename(parent)
    opened.maintenance.sweep()
    assert_clean(opened)


def test_directories_of_a_killed_creation_are_no_orphans(opened: Store) -> None:
    """A host was killed while it created a child of a session that another host had deleted."""
    (opened.home / "sessions/gone/children/c1/attachments").mkdir(parents=True)
    assert opened.check().is_clean
    (opened.home / "sessions/gone/children/c1/attachments/a.png").write_bytes(b"png")
    assert "1 child" in assert_found(opened, "orphan-child", "sessions/gone", "incoming").text


def test_children_of_a_directory_without_session_are_orphans(opened: Store) -> None:
    """A root without session.json but with children is reported, and so is each of its direct children."""
    path = opened.home / "sessions/s1/session.json"
    good = path.read_bytes()
    path.unlink()
    opened.maintenance.sweep()
    assert "2 children" in assert_found(opened, "orphan-child", "sessions/s1", "session-lost").text
    assert_not_repaired(opened, "orphan-child", "sessions/s1/children/c1", "session-lost")
    path.write_bytes(good)
    opened.maintenance.sweep()
    assert_clean(opened)


def test_dangling_attachment_is_not_repaired(opened: Store) -> None:
    """A reference to a missing attachment is reported once per attachment."""
    url = f"bamboo-attachment://s1/{UUID}"
    session = opened.load("s1")
    assert session is not None
    message = Message.user("look")
    message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url))] * 2
    opened.append(session, [message])
    assert url in assert_found(opened, "dangling-attachment", "sessions/s1/session.json").text
    assert len(opened.check().findings) == 1
    assert_not_repaired(opened, "dangling-attachment", "sessions/s1/session.json")
    (opened.home / f"sessions/s1/attachments/{UUID}.png").write_bytes(b"here it is")
    assert_clean(opened)


@pytest.mark.warns
@pytest.mark.parametrize(
    "path",
    [
        "sessions/s2/runtime.json",
        "sessions/s2/token-usage.jsonl",
        "sessions/s2/attachments",
        "sessions/s2/attachments/link.png",
        "sessions/s2/children",
        "sessions/link",
        "sessions/s1/children/link",
    ],
)
def test_link_is_reported_and_not_followed(opened: Store, path: str) -> None:
    """A link in place of a file or directory is damage that repair does not change."""
    place = opened.home / path
    if place.is_dir():
        place.rmdir()
    kept = place.read_bytes() if place.exists() else None
    place.unlink(missing_ok=True)
    place.symlink_to("/etc")
    if path.endswith(("runtime.json", "link.png")) and "s2" in path:
        with opened._core.locked(Location("s2")):
            opened._core.reread(Location("s2"))
    assert_found(opened, "not-plain", path)
    opened.check(repair=True)
    assert place.is_symlink()
    place.unlink()
    if kept is not None:
        place.write_bytes(kept)
    opened.check(repair=True)
    assert_clean(opened)


# -- notes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["sessions/s1/notes.txt", "sessions/README", "sessions/s1/children/README", "sessions/s1/\udcff"]
)
def test_foreign_file_is_reported_but_not_damage(opened: Store, path: str) -> None:
    """It is listed with a printable path and not changed; the report is clean."""
    (opened.home / path).write_text("mine")
    for report in (opened.check(), opened.check(repair=True)):
        assert report.is_clean
        assert report.exit_code == 0
        assert [f.kind for f in report.findings] == ["foreign-file"]
        assert str(report.findings[0]).encode()
    assert (opened.home / path).read_text() == "mine"
    FOUND_BY_A_TEST.add("foreign-file")


@pytest.mark.warns
def test_lines_of_a_trajectory_that_readers_skip_are_reported_but_not_damage(opened: Store) -> None:
    """A torn line, or one of another program. It stays as it is: whoever wrote it may know what it was."""
    step = {"tool_name": "Bash", "tool_args": {}, "output_summary": "", "duration_ms": 1, "is_error": False}
    opened.trajectory.append("s1", [{**step, "tool_call_id": "c", "timestamp": "2026-01-01T00:00:00Z"}])
    path = opened.home / "sessions/s1/trajectory.jsonl"
    assert opened.check().findings == []
    path.write_bytes(b"\n" + path.read_bytes() + b'{"tool_name": "Ba\n{"tool_name": 1}\n[]')
    report = opened.check(repair=True)
    assert report.is_clean
    (found,) = report.findings
    assert (found.kind, found.path) == ("log-line", "sessions/s1/trajectory.jsonl")
    assert found.text.startswith("line 3: ")
    assert found.text.endswith(" (and 2 more); readers skip it")
    assert len(opened.trajectory.read("s1") or []) == 1
    FOUND_BY_A_TEST.add("log-line")


def test_incoming_files_are_reported_but_not_damage(opened: Store) -> None:
    """A restore may be in progress: files without their session.json yet are not damage."""
    (opened.home / "sessions/new/attachments").mkdir(parents=True)
    (opened.home / "sessions/new/attachments/a.png").write_bytes(b"x")
    report = opened.check()
    assert report.is_clean
    assert [(f.kind, f.path) for f in report.findings] == [("incoming", "sessions/new")]
    FOUND_BY_A_TEST.add("incoming")


# -- the report ----------------------------------------------------------------------------------------------


def test_report_counts_sessions_and_progress_is_called(opened: Store) -> None:
    """Once per session, up to the number in the report."""
    seen: list[tuple[int, int]] = []
    report = opened.check(progress=lambda done, total: seen.append((done, total)))
    assert report.sessions == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_failed_repair_is_reported_as_damage(opened: Store) -> None:
    """A repair that fails is reported with the reason, not as repaired."""
    (opened.home / "sessions.json").unlink()
    opened._core.disk.step = _fail_at("move")
    report = opened.check(repair=True)
    opened._core.disk.step = _nothing
    assert report.exit_code == 4
    assert "made to fail" in report.findings[0].text
    assert opened.check(repair=True).exit_code == 1


def test_repair_is_rejected_while_a_bamboo_server_is_running(opened: Store) -> None:
    """The server's temporary files must not be moved."""
    path = opened.home / f"sessions/s1/session.json.tmp.{UUID}"
    path.write_bytes(b"being written")
    opened._home.bamboo.note_rewrite()
    with pytest.raises(BambooAtWork):
        opened.check(repair=True)
    assert path.exists()
    assert opened.check().exit_code == 4


def test_check_while_others_save_reports_no_false_damage(opened: Store) -> None:
    """Sessions created, changed and deleted by another thread during the check are not damage."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(40):
                opened.save(make_session(f"w{number}"))
                opened.append(f"w{number}", [Message.user("more")])
                opened.append("s1", [Message.user("more")])
                opened.save(Session.new_child(f"k{number}", "s1", "m", "child"))
                if number > 3:
                    opened.delete(f"w{number - 3}")
                    opened.delete(f"k{number - 3}")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    reports = [opened.check()]
    while thread.is_alive():
        reports.append(opened.check(repair=len(reports) % 2 == 1))
    thread.join()
    assert not errors
    assert len(reports) > 5
    assert [f for report in reports for f in report.findings] == []


def test_repair_in_another_store_is_visible_in_the_first(opened: Store) -> None:
    """Damage made in index.db with a plain SQLite connection is repaired like any other."""
    with sqlite3.connect(opened.home / ".grovefs/index.db") as db:
        db.execute("DELETE FROM texts")
    db.close()
    assert opened.check().exit_code == 4
    with Store.open(opened.home, background=False) as other:
        assert other.check(repair=True).exit_code == 1
    assert_clean(opened)


# Found by test_mailbox.py, test_projects.py, test_secrets.py, test_maintenance.py, test_unexpected_files.py.
TESTED_ELSEWHERE = {
    "history",
    "history-behind",
    "secret-in-history",
    "trigrams",
    "message",
    "set-aside",
    "derived",
    "secret",
    "hard-link",
    "duplicate-id",
    "sidecar-stale",
}


def test_every_kind_of_damage_has_a_test() -> None:
    """Together the tests above have found every kind."""
    if len(FOUND_BY_A_TEST) > 10:  # not when single tests are selected
        assert set(get_args(Kind)) - TESTED_ELSEWHERE == FOUND_BY_A_TEST


def test_copy_in_a_dot_directory_is_foreign_and_not_damage(opened: Store) -> None:
    """As in the mount, `sessions/.x` is not a session, even if it contains a copy of one."""
    for place in ("sessions/.x", "sessions/s1/children/.x"):
        shutil.copytree(opened.home / "sessions/s2", opened.home / place)
    opened.maintenance.sweep()
    ids = opened.ids()
    assert not [name for name in ids if ".x" in name]
    found = {finding.path: finding.kind for finding in opened.check().findings}
    assert found == {"sessions/.x": "foreign-file", "sessions/s1/children/.x": "foreign-file"}
    assert opened.check().is_clean
    assert opened.maintenance.rebuild() == len(ids)
    for place in ("sessions/.x", "sessions/s1/children/.x"):
        shutil.rmtree(opened.home / place)


def test_b7_secrets_in_the_search_index_of_bamboo_are_mentioned(opened: Store) -> None:
    """A redacted text stays there until Bamboo builds it again."""
    path = opened.home / "session_search.db"
    path.write_bytes(b"")
    found = [f for f in opened.check(secrets=True).findings if f.path == path.name]
    assert [(f.kind, f.is_damage) for f in found] == [("foreign-file", False)]
    assert "stop Bamboo and delete this file" in found[0].text
    recipes = (Path(__file__).parents[3] / "fusefs/cli/topics/recipes.md").read_text()
    assert path.name in recipes
    assert not opened.check().findings
