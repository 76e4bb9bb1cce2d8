"""Check finds every kind of damage, changes nothing unless asked, and mends only what is derived."""

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
from tests.builders import files_below, location_of, make_document, make_session, read_json

UUID = "0b8d5f1d-2c11-4c0e-9a5e-7d3c1f0e6a51"
FOUND_BY_A_TEST: set[str] = set()


@pytest.fixture
def opened(home: Path) -> Iterator[Store]:
    """A healthy home: a root s1 with an attachment and two children, one below the other, and a root s2."""
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
    """All files but those SQLite and the locks keep to themselves."""
    private = ("index.db", "locks", "open.lock", "export.lock")
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


def see_found(store: Store, kind: Kind, path: str, *others: Kind) -> Finding:
    """The damage is found, and finding it changed nothing at all."""
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


def see_mended(store: Store, kind: Kind, path: str, *others: Kind) -> Report:
    """Found, mended by repair without a session.json changing, and gone."""
    see_found(store, kind, path, *others)
    before = session_files(store.home)
    report = store.check(repair=True)
    assert report.exit_code == 1, report.findings
    assert all(f.repaired for f in report.findings if f.kind not in NOTES)
    assert session_files(store.home) == before
    see_gone(store)
    return report


def see_left_alone(store: Store, kind: Kind, path: str, *others: Kind) -> None:
    """A conversation: repair must not touch it, and says that damage is left."""
    see_found(store, kind, path, *others)
    files = everything(store.home)
    assert store.check(repair=True).exit_code == 4
    assert {k: v for k, v in everything(store.home).items() if k != "sessions.json"} == {
        k: v for k, v in files.items() if k != "sessions.json"
    }


def see_gone(store: Store) -> None:
    report = store.check()
    assert report.exit_code == 0, report.findings


# -- the index ---------------------------------------------------------------------------------------


def test_missing_row_is_found_and_made_again(opened: Store) -> None:
    """A session without a row gets one from its files."""
    with opened._core.db.write() as db:
        opened._core.index.remove(db, Location("s1"))
    see_mended(opened, "missing-row", "sessions/s1")
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "first"


def test_extra_row_of_a_directory_that_is_gone_is_dropped(opened: Store) -> None:
    """A row without a directory goes, with its search rows."""
    (opened.home / "sessions/s2").rename(opened.home / "elsewhere")
    see_mended(opened, "extra-row", "sessions/s2")
    assert opened.entry("s2") is None
    assert all(location_of(hit).root != "s2" for hit in opened.search("msg"))


def test_extra_row_of_a_session_without_document_is_dropped(opened: Store) -> None:
    """A directory whose session.json is gone is incoming, and has no row."""
    (opened.home / "sessions/s2/session.json").unlink()
    see_mended(opened, "extra-row", "sessions/s2", "incoming")


def test_stale_row_is_made_anew(opened: Store) -> None:
    """A row that says something else than the files is corrected."""
    wrong = opened._core.index.find(Location("s1"))
    assert wrong is not None
    with opened._core.db.write() as db:
        opened._core.index.put_entry(db, wrong, wrong.entry.model_copy(update={"title": "wrong"}))
    see_mended(opened, "stale-row", "sessions/s1")
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "first"


def test_stale_row_of_a_spoiled_session_is_dropped(opened: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The index forgets a version that is gone; the document itself stays as it is, damage left."""
    (opened.home / "sessions/s2/session.json").write_text("{")
    see_found(opened, "stale-row", "sessions/s2", "unparsable")
    with caplog.at_level("ERROR"):
        report = opened.check(repair=True)
    assert report.exit_code == 4
    assert [f.kind for f in report.findings if f.repaired] == ["stale-row"]
    assert opened.check().exit_code == 4
    assert [f.kind for f in opened.check().findings] == ["unparsable"]


def test_edit_straight_on_disk_is_found_as_stale_and_mended(opened: Store) -> None:
    """Who edits session.json behind our back is found out, and the index follows."""
    path = opened.home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"edited by hand"))
    see_mended(opened, "stale-row", "sessions/s1")
    assert [location_of(hit).id for hit in opened.search('"edited by hand"')] == ["s1"]


def test_edit_that_changes_no_length_is_found_too(opened: Store) -> None:
    """An edit of the same length, which the row cannot tell, is told by the search rows."""
    path = opened.home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-1", b"other"))
    see_mended(opened, "search-rows", "sessions/s1")
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
def test_search_rows_are_made_again(opened: Store, damage: str) -> None:
    """Search rows that are missing, wrong or too many are replaced by what the files say."""
    write(opened, damage)
    see_mended(opened, "search-rows", "sessions/s1")
    assert {location_of(hit).id for hit in opened.search('"msg-0" role:user')} == {"s1", "s2"}
    assert not opened._core.db.reader.execute("SELECT rowid FROM search WHERE search MATCH 'ghost'").fetchall()


@pytest.mark.parametrize("text", ["msg-0 ghost", "msg 1", "", "0-msg", "msg-0 msg-0", "MSG-0 ."])
def test_words_that_are_not_those_of_the_file_are_found(opened: Store, text: str) -> None:
    """As many rows, each with the right digest, but other words in one: that too is told, and made again."""
    number = opened._core.db.reader.execute("SELECT number FROM texts WHERE row & 0xffffff = 1 LIMIT 1").get
    write(opened, "DELETE FROM search WHERE rowid = ?", number)
    write(opened, "INSERT INTO search (rowid, text) VALUES (?, ?)", number, text)
    if text == "MSG-0 .":  # the same words
        assert opened.check().is_clean
        return
    assert "indexed words differ" in see_found(opened, "search-rows", "sessions/s1").text
    see_mended(opened, "search-rows", "sessions/s1")
    assert {location_of(hit).id for hit in opened.search('"msg-0"') if hit.location} == {"s1", "s2"}
    assert opened.search("ghost") == []


def test_words_written_during_the_check_are_no_damage(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking at the files and at the words others go on working."""
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
        "INSERT INTO texts VALUES (99 << 24, 1000, '', NULL, NULL, 1)",
        "INSERT INTO texts VALUES (-5, 1000, '', NULL, NULL, 1)",
        "INSERT INTO search (rowid, text) VALUES (1000, 'x')",
        "INSERT INTO search (rowid, text) SELECT number + 1000, 'ghost' FROM texts WHERE role = 'user'",
    ],
)
def test_search_rows_of_nobody_are_removed(opened: Store, damage: str) -> None:
    """Rows of a session that is not indexed, in either table, go."""
    write(opened, damage)
    see_mended(opened, "search-rows", ".grovefs/index.db")


@pytest.mark.warns
def test_unfinished_commit_is_found_and_finished(opened: Store) -> None:
    """A save whose index transaction failed is told of, and repair completes it."""
    opened._core.disk.step = _fail_at("index")
    opened.append("s1", [Message.user("late")])
    opened._core.disk.step = _nothing
    assert "made to fail" in see_found(opened, "unfinished", "sessions/s1").text
    see_mended(opened, "unfinished", "sessions/s1")
    assert len(opened.search("late")) == 1
    assert opened.maintenance.status()["unfinished"] == {}


@pytest.mark.warns
def test_unfinished_deletion_is_found_and_finished(opened: Store) -> None:
    """The mark of a whole tree is told of under the name of its root."""
    opened._core.disk.step = _fail_at("index")
    opened.delete("s1")
    opened._core.disk.step = _nothing
    see_mended(opened, "unfinished", "sessions/s1")
    assert opened.entry("s1") is None
    assert opened.maintenance.status()["unfinished"] == {}


def _nothing(name: str) -> None:
    pass


def _fail_at(wanted: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == wanted:
            raise OSError(5, "made to fail")

    return step


# -- sidecars: derived, but what is replaced is kept --------------------------------------------------


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"{garbage", b"[]", b"", b'{"id": "s1"}'])
def test_corrupt_sidecar_is_replaced_and_kept_in_the_trash(opened: Store, garbage: bytes) -> None:
    """session.json makes a new sidecar; the bad one can still be looked at."""
    path = opened.home / "sessions/s1/runtime.json"
    path.write_bytes(garbage)
    see_mended(opened, "sidecar-corrupt", "sessions/s1/runtime.json")
    assert read_json(path)["title"] == "first"
    assert read_json(path)["messages"] == []
    assert garbage in in_trash(opened, "runtime.json")


@pytest.mark.warns
def test_sidecar_of_another_session_is_replaced(opened: Store) -> None:
    """A sidecar that says it belongs elsewhere (rule 9) is derived: it is made anew and kept."""
    stray = (opened.home / "sessions/s2/runtime.json").read_bytes()
    (opened.home / "sessions/s1/runtime.json").write_bytes(stray)
    see_mended(opened, "identity", "sessions/s1/runtime.json")
    assert read_json(opened.home / "sessions/s1/runtime.json")["id"] == "s1"
    assert stray in in_trash(opened, "runtime.json")


def test_sidecar_with_messages_loses_only_those(opened: Store) -> None:
    """Messages in a sidecar are read by nobody; the rest of it, fresher than session.json, stays."""
    path = opened.home / "sessions/s1/runtime.json"
    data = read_json(path) | {"title": "fresher", "unknown": [1], "messages": [{"role": "user", "content": "x"}]}
    path.write_bytes(bad := make_document(**data))
    opened.maintenance.sweep()
    see_mended(opened, "sidecar-messages", "sessions/s1/runtime.json")
    assert read_json(path) == data | {"messages": []}
    entry = opened.entry("s1")
    assert entry is not None
    assert entry.title == "fresher"
    assert bad in in_trash(opened, "runtime.json")


def in_trash(store: Store, name: str) -> list[bytes]:
    return [p.read_bytes() for p in (store.home / ".grovefs/trash").rglob(name) if p.is_file()]


# -- temporaries ---------------------------------------------------------------------------------------


def test_our_temporary_of_a_dead_process_is_removed(opened: Store, dead_pid: int) -> None:
    """What a crashed process of ours left under tmp/ goes."""
    path = opened.home / f".grovefs/tmp/{dead_pid}-abc"
    path.write_bytes(b"half")
    see_mended(opened, "temporary", f".grovefs/tmp/{dead_pid}-abc")
    assert not path.exists()


def test_temporary_of_a_live_process_is_left_alone(opened: Store) -> None:
    """A file that someone is writing right now is no damage."""
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
def test_bamboos_temporary_goes_to_the_trash(opened: Store, path: str) -> None:
    """What a crashed Bamboo left is moved away, but may hold the only copy of something: it is kept."""
    (opened.home / path).write_bytes(b"half a session")
    see_mended(opened, "temporary", path)
    assert not (opened.home / path).exists()
    assert b"half a session" in in_trash(opened, "*")


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# -- the export ------------------------------------------------------------------------------------------


def test_missing_export_is_found_and_written(opened: Store) -> None:
    """A deleted sessions.json is made again."""
    path = opened.home / "sessions.json"
    before = read_json(path)["sessions"]
    path.unlink()
    see_mended(opened, "export", "sessions.json")
    assert read_json(path)["sessions"] == before


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"{", b"[]", b"", b'{"version": 2}'])
def test_garbage_in_the_export_is_replaced_and_kept(opened: Store, garbage: bytes) -> None:
    """A spoiled sessions.json costs nothing, and what was in it stays in the trash."""
    path = opened.home / "sessions.json"
    path.write_bytes(garbage)
    see_mended(opened, "export", "sessions.json")
    assert set(read_json(path)["sessions"]) == {"s1", "s2", "c1", "c2"}
    assert not garbage or garbage in in_trash(opened, "sessions.json")


@pytest.mark.warns
def test_link_in_place_of_the_export_is_replaced(opened: Store) -> None:
    """A link is not followed, neither by reading nor by writing; it goes to the trash itself."""
    path = opened.home / "sessions.json"
    path.unlink()
    path.symlink_to(opened.home / "elsewhere.json")
    see_mended(opened, "export", "sessions.json")
    assert not path.is_symlink()
    assert not (opened.home / "elsewhere.json").exists()


# -- conversations: told of, never touched -----------------------------------------------------------------


@pytest.mark.warns
@pytest.mark.parametrize(
    ("raw", "reason"),
    [(b'{\n  "id": nonsense}', "2:"), (b"", ""), (b'{"id": "s2"}', "missing"), (b"\xff", "UTF-8")],
)
def test_unparsable_session_is_left_to_a_person(opened: Store, raw: bytes, reason: str) -> None:
    """A spoiled conversation is named with the place of the fault, and not touched."""
    path = opened.home / "sessions/s2/session.json"
    good = path.read_bytes()
    path.write_bytes(raw)
    opened.maintenance.sweep()
    assert reason in see_found(opened, "unparsable", "sessions/s2/session.json").text
    see_left_alone(opened, "unparsable", "sessions/s2/session.json")
    path.write_bytes(good)
    assert opened.check(repair=True).exit_code == 1
    see_gone(opened)


@pytest.mark.warns
def test_link_in_place_of_a_session_is_unparsable(opened: Store) -> None:
    """session.json must be a plain file; a link is damage, whatever it leads to."""
    path = opened.home / "sessions/s2/session.json"
    path.rename(opened.home / "elsewhere")
    path.symlink_to(opened.home / "elsewhere")
    opened.maintenance.sweep()
    see_left_alone(opened, "unparsable", "sessions/s2/session.json")
    path.unlink()
    (opened.home / "elsewhere").rename(path)
    assert opened.check(repair=True).exit_code == 1
    see_gone(opened)


@pytest.mark.parametrize("member", ["id", "root_session_id"])
def test_identity_that_contradicts_the_path_is_left_to_a_person(opened: Store, member: str) -> None:
    """Rule 9: a document that says it lies elsewhere is told of, with both names."""
    path = opened.home / "sessions/s2/session.json"
    good = path.read_bytes()
    path.write_bytes(good.replace(f'"{member}": "s2"'.encode(), f'"{member}": "other"'.encode()))
    opened.maintenance.sweep()
    finding = see_found(opened, "identity", "sessions/s2/session.json")
    assert "'other'" in finding.text
    assert "'s2'" in finding.text
    see_left_alone(opened, "identity", "sessions/s2/session.json")
    path.write_bytes(good)
    assert opened.check(repair=True).exit_code == 1
    see_gone(opened)


def test_child_without_its_parent_is_an_orphan(opened: Store) -> None:
    """A grandchild whose parent's directory is gone is found; putting the parent back mends it."""
    parent = opened.home / "sessions/s1/children/c1"
    parent.rename(opened.home / "kept")
    opened.maintenance.sweep()
    assert "'c1'" in see_found(opened, "orphan-child", "sessions/s1/children/c2").text
    see_left_alone(opened, "orphan-child", "sessions/s1/children/c2")
    (opened.home / "kept").rename(parent)
    opened.maintenance.sweep()
    see_gone(opened)


def test_children_of_a_directory_without_session_are_orphans(opened: Store) -> None:
    """A root without session.json but with children is told of, and so is each child directly below it."""
    path = opened.home / "sessions/s1/session.json"
    good = path.read_bytes()
    path.unlink()
    opened.maintenance.sweep()
    assert "2 children" in see_found(opened, "orphan-child", "sessions/s1", "incoming").text
    see_left_alone(opened, "orphan-child", "sessions/s1/children/c1", "incoming")
    path.write_bytes(good)
    opened.maintenance.sweep()
    see_gone(opened)


def test_dangling_attachment_is_left_to_a_person(opened: Store) -> None:
    """A message that refers to an attachment which is not there is told of, once per attachment."""
    url = f"bamboo-attachment://s1/{UUID}"
    session = opened.load("s1")
    assert session is not None
    message = Message.user("look")
    message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url))] * 2
    opened.append(session, [message])
    assert url in see_found(opened, "dangling-attachment", "sessions/s1/session.json").text
    assert len(opened.check().findings) == 1
    see_left_alone(opened, "dangling-attachment", "sessions/s1/session.json")
    (opened.home / f"sessions/s1/attachments/{UUID}.png").write_bytes(b"here it is")
    see_gone(opened)


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
def test_link_is_not_followed_but_told_of(opened: Store, path: str) -> None:
    """Whatever should be a plain file or directory and is a link is damage that only a person can judge."""
    place = opened.home / path
    if place.is_dir():
        place.rmdir()
    kept = place.read_bytes() if place.exists() else None
    place.unlink(missing_ok=True)
    place.symlink_to("/etc")
    if path.endswith(("runtime.json", "link.png")) and "s2" in path:
        with opened._core.locked(Location("s2")):
            opened._core.reread(Location("s2"))
    see_found(opened, "not-plain", path)
    opened.check(repair=True)
    assert place.is_symlink()
    place.unlink()
    if kept is not None:
        place.write_bytes(kept)
    opened.check(repair=True)
    see_gone(opened)


# -- notes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["sessions/s1/notes.txt", "sessions/README", "sessions/s1/children/README", "sessions/s1/\udcff"]
)
def test_foreign_file_is_a_note_and_no_damage(opened: Store, path: str) -> None:
    """What people put beside their sessions is mentioned, readably, and left alone; all is clean."""
    (opened.home / path).write_text("mine")
    for report in (opened.check(), opened.check(repair=True)):
        assert report.is_clean
        assert report.exit_code == 0
        assert [f.kind for f in report.findings] == ["foreign-file"]
        assert str(report.findings[0]).encode()
    assert (opened.home / path).read_text() == "mine"
    FOUND_BY_A_TEST.add("foreign-file")


def test_incoming_files_without_a_session_are_a_note(opened: Store) -> None:
    """A restore may be under way: what waits for its session.json is mentioned, and no damage."""
    (opened.home / "sessions/new/attachments").mkdir(parents=True)
    (opened.home / "sessions/new/attachments/a.png").write_bytes(b"x")
    report = opened.check()
    assert report.is_clean
    assert [(f.kind, f.path) for f in report.findings] == [("incoming", "sessions/new")]
    FOUND_BY_A_TEST.add("incoming")


# -- the report ----------------------------------------------------------------------------------------------


def test_report_counts_sessions_and_tells_progress(opened: Store) -> None:
    """Progress is told session by session, up to the number in the report."""
    seen: list[tuple[int, int]] = []
    report = opened.check(progress=lambda done, total: seen.append((done, total)))
    assert report.sessions == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_cannot_be_mended_is_damage_left(opened: Store) -> None:
    """A mend that the disk refuses is reported with the reason, not as mended."""
    (opened.home / "sessions.json").unlink()
    opened._core.disk.step = _fail_at("move")
    report = opened.check(repair=True)
    opened._core.disk.step = _nothing
    assert report.exit_code == 4
    assert "made to fail" in report.findings[0].text
    assert opened.check(repair=True).exit_code == 1


def test_nothing_is_mended_while_bamboo_is_at_work(opened: Store) -> None:
    """A server's own temporaries must not be moved away from under it."""
    path = opened.home / f"sessions/s1/session.json.tmp.{UUID}"
    path.write_bytes(b"being written")
    opened._home.bamboo.note_rewrite()
    with pytest.raises(BambooAtWork):
        opened.check(repair=True)
    assert path.exists()
    assert opened.check().exit_code == 4


def test_check_while_others_save_reports_no_false_damage(opened: Store) -> None:
    """Sessions made, changed and deleted by another thread meanwhile are no damage."""
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


def test_repair_in_another_process_leaves_a_clean_home(opened: Store) -> None:
    """Damage in index.db made by a plain SQLite connection is mended like any other."""
    with sqlite3.connect(opened.home / ".grovefs/index.db") as db:
        db.execute("DELETE FROM texts")
    db.close()
    assert opened.check().exit_code == 4
    with Store.open(opened.home, background=False) as other:
        assert other.check(repair=True).exit_code == 1
    see_gone(opened)


# Found by the tests of those parts: test_mailbox.py, test_projects.py, test_check_plants.py.
OF_OTHER_PARTS = {"trigrams", "message", "set-aside", "derived", "secret", "hard-link"}


def test_every_kind_of_damage_has_a_test() -> None:
    """The tests above, run together, have found each kind that there is."""
    if len(FOUND_BY_A_TEST) > 10:  # not when a single test is asked for
        assert set(get_args(Kind)) - OF_OTHER_PARTS == FOUND_BY_A_TEST


def test_a_copy_in_a_dot_directory_is_foreign_and_no_damage(opened: Store) -> None:
    """As in the mount: `sessions/.x` is nobody's session, though it may hold a copy of one."""
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
