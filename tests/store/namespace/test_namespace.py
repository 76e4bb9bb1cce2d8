"""Namespace and Moves: what a filesystem may do to a path, called without a mount."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from store import (
    AlreadyExists,
    Conflict,
    InvalidContent,
    InvalidName,
    Location,
    Message,
    NotEmpty,
    NotFound,
    Protected,
    Store,
)
from store.commit.core import Core
from store.commit.write_request import WriteRequest
from store.disk.file import Stamp
from store.errors import BambooAtWork, Busy, FileGone, MustBeCopied, StoreError
from store.namespace.moves import Moves
from store.namespace.namespace import Namespace
from store.path_kinds import PathInfo, PathKind, classify_path
from tests.builders import files_below, make_document, make_session

MAIN = classify_path("sessions/s1/session.json")
TIME_NS = 1_700_000_000_123_456_789


@pytest.fixture
def names(store: Store) -> Namespace:
    """A home with a session that has an attachment, and a pinned one."""
    store.save(make_session("s1", title="Good"))
    store.attach("s1", b"bytes", "image/png")
    store.save(make_session("pinned", pinned=True))
    store.attach("pinned", b"bytes", "image/png")
    return store.names


def attachment_of(store: Store, session_id: str) -> PathInfo:
    (name,) = os.listdir(store.home / f"sessions/{session_id}/attachments")
    return classify_path(f"sessions/{session_id}/attachments/{name}")


def test_state_directory_cannot_be_renamed_to_a_project(store: Store, names: Namespace) -> None:
    store.state.save_json("facts", "n", {"x": "whale"})
    for target in ("projects/k", "projects/k/sessions/p"):
        (store.home / "projects/k/sessions").mkdir(parents=True, exist_ok=True)
        with pytest.raises(MustBeCopied):
            store.moves.move(classify_path("state/facts"), classify_path(target))
    assert store.state.load_json("facts", "n") == {"x": "whale"}


def test_version_committed_while_the_removal_waits_for_the_lock_is_not_removed(
    store: Store, names: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, locked = Stamp.of((store.home / MAIN.path).stat()), Core.locked

    def append_first(core: Core, location: Location) -> AbstractContextManager[None]:
        monkeypatch.setattr(Core, "locked", locked)
        store.append("s1", [Message.user("answered")])
        return locked(core, location)

    monkeypatch.setattr(Core, "locked", append_first)
    names.remove_unchanged(MAIN, hidden)
    assert [entry.id for entry in store.entries() if entry.id == "s1"] == ["s1"]
    names.remove_unchanged(MAIN, Stamp.of((store.home / MAIN.path).stat()))
    assert not (store.home / MAIN.path).exists()


# -- rejected texts --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [MAIN.path, "sessions/s1/attachments/a.txt", "state/facts/n.md"])
@pytest.mark.parametrize("error", [BambooAtWork("at work"), Busy("locked")])
def test_text_is_kept_if_the_home_cannot_be_changed_now(
    store: Store, names: Namespace, monkeypatch: pytest.MonkeyPatch, path: str, error: StoreError
) -> None:
    """Rule 3: the file may have been opened before."""
    place = classify_path(path)
    store.state.save_markdown("facts", "n", "old")

    def refuse() -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(store.names.core, "check_writable", refuse)
        with pytest.raises(type(error)):
            names.commit(WriteRequest(place, b"typed"))
    kept = names.rejects.path(place.directory, f"{place.name}.rejected")
    assert kept is not None
    assert (store.home / kept).read_bytes() == b"typed"


def test_old_name_of_a_committed_file_is_removed_though_a_server_has_started_meanwhile(
    store: Store, names: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3: its bytes are committed under the new name, so the rename must not fail any more."""
    draft = store.home / "sessions/s1/draft"
    draft.write_bytes(b"text")

    def refuse() -> None:
        raise BambooAtWork("at work")

    monkeypatch.setattr(store.names.core, "check_writable", refuse)
    names.remove_moved(classify_path("sessions/s1/draft"))
    assert not draft.exists()


# -- kinds of paths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "location"),
    [
        ("sessions", PathKind.SESSIONS, None),
        ("sessions/a", PathKind.SESSION, Location("a")),
        ("sessions/a/children", PathKind.CHILDREN, Location("a")),
        ("sessions/a/children/b", PathKind.SESSION, Location("a", "b")),
        ("sessions/a/session.json", PathKind.DOCUMENT, Location("a")),
        ("sessions/a/children/b/runtime.json", PathKind.DOCUMENT, Location("a", "b")),
        ("sessions/a/token-usage.jsonl", PathKind.LOG, Location("a")),
        ("sessions/a/attachments", PathKind.ATTACHMENTS, Location("a")),
        ("sessions/a/attachments/x.png", PathKind.ATTACHMENT, Location("a")),
        ("sessions/a/attachments/sub/x.png", PathKind.FOREIGN, Location("a")),
        ("sessions/a/attachments/session.json", PathKind.ATTACHMENT, Location("a")),
        ("sessions/a/sub/session.json", PathKind.FOREIGN, Location("a")),
        ("sessions/a/sub/log.jsonl", PathKind.FOREIGN, Location("a")),
        ("sessions/a/.session.json.x7f2", PathKind.FOREIGN, Location("a")),
        ("sessions/a/children/b/children", PathKind.FOREIGN, Location("a", "b")),
        ("sessions/.~tmp~", PathKind.FOREIGN, None),
        ("sessions/.~tmp~/session.json", PathKind.FOREIGN, None),
        ("sessions/\udcff", PathKind.FOREIGN, None),
    ],
)
def test_path_is_classified(path: str, kind: PathKind, location: Location | None) -> None:
    assert classify_path(path) == PathInfo(path, kind, location, path.rpartition("/")[2])


# -- committing ------------------------------------------------------------------------------------


def test_document_is_committed_with_mode_and_mtime(store: Store, names: Namespace) -> None:
    raw = make_document("new")
    place = classify_path("sessions/new/session.json")
    assert names.commit(WriteRequest(place, raw, mode=0o640, mtime_ns=TIME_NS)).is_changed
    info = names.stat(place.path)
    assert info is not None
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o640, TIME_NS)
    assert not names.commit(WriteRequest(place, raw)).is_changed
    assert os.listdir(store.home / "sessions/new") == ["session.json"]
    assert store.entry("new") is not None


def test_rejected_document_changes_nothing(store: Store, names: Namespace) -> None:
    """Rules 3 and 8: invalid, with an older updated_at, or with a stale base."""
    before, base = files_below(store.home), store.version(Location("s1"))
    with pytest.raises(InvalidContent):
        names.commit(WriteRequest(MAIN, b"{"))
    with pytest.raises(Conflict, match="updated_at"):
        names.commit(WriteRequest(MAIN, make_document("s1", updated_at="2001-01-01T00:00:00Z")))
    assert files_below(store.home) == before
    store.update("s1", lambda s: setattr(s, "title", "Newer"))
    after = files_below(store.home)
    raw = after["s1/session.json"].replace(b"Newer", b"Mine")
    with pytest.raises(Conflict, match="changed by another writer"):
        names.commit(WriteRequest(MAIN, raw, base=base))
    assert files_below(store.home) == after
    assert names.commit(WriteRequest(MAIN, raw, base=base, on_conflict="overwrite")).is_changed


@pytest.mark.parametrize("name", ["session.json", "runtime.json", "goal.json", "attachments/a.txt"])
def test_save_of_a_deleted_file_says_that_it_was_deleted(store: Store, names: Namespace, name: str) -> None:
    """There is no newer version to read: the reason says where the deleted one is."""
    place = classify_path(f"sessions/s1/{name}")
    if names.stat(place.path) is None:
        names.commit(WriteRequest(place, b"{}"))
    base, raw = names.version(place), names.read(place)
    assert raw is not None
    store.delete("s1")
    with pytest.raises(FileGone, match="was deleted or renamed since this copy was opened"):
        names.commit(WriteRequest(place, raw + b" ", base=base))
    assert names.stat("sessions/s1") is None
    reason = (store.home / (names.rejects.path(place.directory, f"{place.name}.error") or "")).read_text()
    assert f"{place.path} was rejected; nothing was stored." in reason
    assert "`grovefs undelete`" in reason
    assert "Read the present version" not in reason


def test_old_version_is_accepted_after_an_unlink(store: Store, names: Namespace) -> None:
    """git checkout, tar and unzip restore: the text is one that was stored before, byte for byte."""
    old = names.read(MAIN)
    assert old is not None
    store.append("s1", [Message.user("newer")])
    with pytest.raises(Conflict):
        names.commit(WriteRequest(MAIN, old))
    assert names.commit(WriteRequest(MAIN, old, unlinked_first=True)).is_changed
    assert names.read(MAIN) == old
    replaced = store.history.log("s1")[1]
    assert b"newer" in (store.history.read(replaced).main or b"")


def test_a1_stale_edit_is_rejected_after_an_unlink(store: Store, names: Namespace) -> None:
    """jq, a message by another writer, mv across filesystems: unlink and create must not bypass rule 8."""
    old = names.read(MAIN)
    assert old is not None
    store.append("s1", [Message.user("newer")])
    with pytest.raises(Conflict, match="the newer version is kept"):
        names.commit(WriteRequest(MAIN, old.replace(b'"title": "', b'"title": "edited '), unlinked_first=True))
    assert b"newer" in (names.read(MAIN) or b"")


def test_attachment_can_be_any_bytes(store: Store, names: Namespace) -> None:
    place = classify_path("sessions/s1/attachments/new.bin")
    names.commit(WriteRequest(place, b"\0\xff", mode=0o644, mtime_ns=TIME_NS))
    info = names.stat(place.path)
    assert info is not None
    assert (names.read(place), stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (b"\0\xff", 0o644, TIME_NS)
    names.commit(WriteRequest(place, b""))
    assert names.read(place) == b""


# -- directories -----------------------------------------------------------------------------------


def test_empty_directory_is_not_a_session(store: Store, names: Namespace) -> None:
    names.make_dir(classify_path("sessions/new"))
    assert store.entry("new") is None
    with pytest.raises(FileExistsError):
        names.make_dir(classify_path("sessions/new"))
    names.remove_dir(classify_path("sessions/new"))
    assert names.stat("sessions/new") is None


@pytest.mark.parametrize("name", ["a\nb", "x" * 256, "a\\b", "a..b"])
def test_invalid_id_does_not_become_a_session(names: Namespace, name: str) -> None:
    """The directory is rejected, or is foreign."""
    place = classify_path(f"sessions/{name}")
    if place.kind is PathKind.FOREIGN:
        names.make_dir(place)
        names.remove_dir(place)
        return
    with pytest.raises(InvalidName):
        names.make_dir(place)


def test_child_cannot_have_a_children_directory(names: Namespace) -> None:
    names.make_dir(classify_path("sessions/s1/children/c"))
    with pytest.raises(Protected):
        names.make_dir(classify_path("sessions/s1/children/c/children"))
    names.remove_dir(classify_path("sessions/s1/children/c"))


def test_directory_that_is_not_empty_is_not_removed(names: Namespace) -> None:
    with pytest.raises(NotEmpty):
        names.remove_dir(classify_path("sessions/s1"))
    with pytest.raises(NotEmpty):
        names.remove_dir(classify_path("sessions/s1/attachments"))


def test_removing_the_directory_deletes_the_session(store: Store, names: Namespace) -> None:
    """`hidden` lists files that count as removed. They go to the trash and can be restored."""
    names.remove_file(attachment_of(store, "s1"))
    for name in ("attachments", "children"):
        names.remove_dir(classify_path(f"sessions/s1/{name}"))
    names.remove_file(classify_path("sessions/s1/runtime.json"))
    names.remove_dir(classify_path("sessions/s1"), ["session.json"])
    assert store.entry("s1") is None
    assert names.stat("sessions/s1") is None
    deleted = next(d for d in store.trash.deleted() if d.session_id == "s1" and d.moves[0][0] == "sessions/s1")
    store.trash.undelete(deleted.name)
    assert store.entry("s1") is not None


def test_pinned_session_cannot_be_removed_or_moved(store: Store, names: Namespace) -> None:
    """Neither its documents and attachments nor its directory."""
    before = files_below(store.home)
    for place in (
        classify_path("sessions/pinned/session.json"),
        classify_path("sessions/pinned/runtime.json"),
        classify_path("sessions/pinned/.import.json"),  # without it the session no longer grows from its source
        attachment_of(store, "pinned"),
    ):
        with pytest.raises(Protected, match="pinned"):
            names.remove_file(place)
    with pytest.raises(Protected, match="pinned"):
        names.remove_dir(classify_path("sessions/pinned/children"))
    with pytest.raises(Protected, match="pinned"):
        store.moves.move(classify_path("sessions/pinned"), classify_path("sessions/free"))
    with pytest.raises(Protected, match="pinned"):
        store.moves.move(attachment_of(store, "pinned"), classify_path("sessions/s1/attachments/stolen"))
    assert files_below(store.home) == before


# -- files -----------------------------------------------------------------------------------------


def test_removed_document_is_in_the_trash(store: Store, names: Namespace) -> None:
    names.remove_file(MAIN)
    assert store.entry("s1") is None
    assert any(d.moves[0][0] == MAIN.path for d in store.trash.deleted())
    with pytest.raises(NotFound):
        names.remove_file(MAIN)
    names.commit(WriteRequest(MAIN, make_document("s1")))


def test_attachments_flag_follows_moves_and_removals(store: Store, names: Namespace) -> None:
    """The flag in the index changes when the only attachment is moved away, back, and removed."""
    place = attachment_of(store, "s1")

    def has_attachments() -> bool:
        entry = store.entry("s1")
        assert entry is not None
        return entry.has_attachments

    assert has_attachments()
    foreign = classify_path("sessions/s1/elsewhere")
    store.moves.move(place, foreign)
    assert not has_attachments()
    store.moves.move(foreign, place)
    assert has_attachments()
    names.remove_file(place)
    assert not has_attachments()


def test_foreign_files_and_links_can_be_created_moved_and_removed(store: Store, names: Namespace) -> None:
    place, link = classify_path("sessions/s1/notes.txt"), classify_path("sessions/s1/.#lock")
    like = os.stat(store.home)
    names.write_copy(place, b"text", like)
    names.symlink(link, "nowhere")
    assert (names.read(place), names.read_link(link)) == (b"text", "nowhere")
    store.moves.move(place, classify_path("sessions/s1/more.txt"))
    with pytest.raises(AlreadyExists):
        store.moves.move(classify_path("sessions/s1/more.txt"), link, replace=False)
    names.remove_file(classify_path("sessions/s1/more.txt"))
    names.remove_file(link)


def test_only_foreign_files_can_be_links(names: Namespace) -> None:
    for path in ("sessions/new", "sessions/s1/session.json", "sessions/s1/attachments/x", "sessions/s1/log.jsonl"):
        with pytest.raises(Protected):
            names.symlink(classify_path(path), "/etc/passwd")


def test_directory_replaced_by_a_link_is_not_followed(names: Namespace, tmp_path: Path) -> None:
    """Neither to read nor to remove a file."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    (names.core.home / "sessions/s1/link").symlink_to(tmp_path / "outside")
    assert names.stat("sessions/s1/link/file") is None
    place = classify_path("sessions/s1/link/file")
    for work in (lambda: names.open(place, os.O_RDONLY), lambda: names.remove_file(place), lambda: names.read(place)):
        with pytest.raises(Exception, match="links are not followed"):
            work()
    assert (tmp_path / "outside/file").read_text() == "secret"
    (names.core.home / "sessions/s1/link").unlink()


# -- moves and attributes --------------------------------------------------------------------------


def test_session_directories_can_only_become_sessions(store: Store, names: Namespace) -> None:
    for source, target in (
        ("sessions/s1", "sessions/pinned/attachments/x"),
        ("sessions/s1", "sessions/.hidden"),
        ("sessions/s1/children", "sessions/s1/kids"),
        ("sessions/s1/attachments", "sessions/s1/files"),
    ):
        with pytest.raises(Protected):
            store.moves.move(classify_path(source), classify_path(target))
    with pytest.raises(NotFound):
        store.moves.move(classify_path("sessions/nobody"), classify_path("sessions/somebody"))


def test_foreign_directory_becomes_a_session_by_rename(store: Store, names: Namespace) -> None:
    """A tool builds it under a foreign name and renames it into place; it is indexed at once."""
    hidden = classify_path("sessions/.building")
    names.make_dir(hidden)
    (store.home / "sessions/.building/session.json").write_bytes(make_document("built"))
    with pytest.raises(InvalidName):
        store.moves.move(hidden, classify_path("sessions/a\nb"))
    store.moves.move(hidden, classify_path("sessions/built"))
    assert store.entry("built") is not None


def test_changing_mode_and_times_keeps_the_version(store: Store, names: Namespace) -> None:
    """The row gets the new stamp: the next sweep reads nothing."""
    names.set_attributes(MAIN, mode=0o640, times_ns=(TIME_NS, TIME_NS))
    info = names.stat(MAIN.path)
    assert info is not None
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o640, TIME_NS)
    assert store.maintenance.sweep() == 0
    names.set_attributes(classify_path("sessions/s1"), times_ns=(TIME_NS, TIME_NS))
    assert (store.home / "sessions/s1").stat().st_mtime_ns == TIME_NS


def test_rename_is_durable(home: Path) -> None:
    """Rule 2: both directories of a moved attachment and the directory of a copy are synced."""
    steps: list[str] = []
    with Store.open(home, background=False, step=steps.append) as store:
        store.save(make_session("s1"))
        attached = home / "sessions/s1/attachments"
        (attached / "a.txt").write_text("x")
        steps.clear()
        store.moves.move(classify_path("sessions/s1/attachments/a.txt"), classify_path("sessions/s1/b.txt"))
        assert steps.count("sync-dir") == 2
        steps.clear()
        store.names.write_copy(classify_path("sessions/s1/copy"), b"x", attached.stat())
        assert steps[-1] == "sync-dir"


@pytest.mark.parametrize("foreign", ["sessions/.kept", "sessions/root/kept"])
@pytest.mark.parametrize("target", ["sessions/other", "sessions/root/children/other"])
@pytest.mark.parametrize("document", [make_document("root"), b"{", b""], ids=["of another", "broken", "empty"])
def test_foreign_directory_with_an_invalid_document_must_be_copied(
    foreign: str, target: str, document: bytes, store: Store
) -> None:
    """`mv` then copies it file by file, and each document is checked or forked."""
    store.save(make_session("root"))
    for path in (foreign, "sessions/root/children"):
        (store.home / path).mkdir(exist_ok=True)
    (store.home / foreign / "session.json").write_bytes(document)
    with pytest.raises(MustBeCopied):
        store.moves.move(classify_path(foreign), classify_path(target))
    assert (store.home / foreign / "session.json").read_bytes() == document
    assert not (store.home / target).exists()
    shutil.rmtree(store.home / foreign)


def test_document_changed_after_the_check_undoes_the_rename(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is valid when it is checked and invalid just before the rename."""
    store.names.make_dir(classify_path("sessions/.new"))
    document = store.home / "sessions/.new/session.json"
    document.write_bytes(make_document("other"))
    rename = Moves._rename

    def late(moves: Moves, source: PathInfo, target: PathInfo) -> None:
        if source.path == "sessions/.new":
            document.write_bytes(b"{")
        rename(moves, source, target)

    monkeypatch.setattr(Moves, "_rename", late)
    with pytest.raises(MustBeCopied):
        store.moves.move(classify_path("sessions/.new"), classify_path("sessions/other"))
    assert document.read_bytes() == b"{"
    assert not store.exists("other")
    document.write_bytes(make_document("other"))
    monkeypatch.undo()
    store.moves.move(classify_path("sessions/.new"), classify_path("sessions/other"))
    assert store.exists("other")


def test_foreign_directory_without_documents_can_be_renamed_to_a_session(store: Store) -> None:
    store.names.make_dir(classify_path("sessions/.new"))
    (store.home / "sessions/.new/notes.txt").write_text("mine")
    store.moves.move(classify_path("sessions/.new"), classify_path("sessions/other"))
    assert (store.home / "sessions/other/notes.txt").read_text() == "mine"


def test_version_is_found_by_its_stamp_after_chmod(store: Store, names: Namespace) -> None:
    """Also once another version has replaced it: a writer that opened it may save then."""
    path = store.home / MAIN.path
    text = path.read_bytes()
    before = Stamp.of(path.stat())
    names.set_attributes(MAIN, mode=stat.S_IMODE(path.stat().st_mode))
    assert Stamp.of(path.stat()) == before, "the mode it has already"
    names.set_attributes(MAIN, mode=0o640)
    opened = Stamp.of(path.stat())
    assert opened != before
    store.save(make_session("s1", title="Second"), overwrite=True, shorten=True)
    found = names.core.history.with_stamp("sessions/s1", "session.json", opened)
    assert found is not None
    assert names.core.history.read(found).main == text
