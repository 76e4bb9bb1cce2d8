"""Restore: sessions are restored whole, newer ones are kept, and a damaged backup changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import (
    Ambiguous,
    DamagedBackup,
    InboxMessage,
    InvalidName,
    Location,
    Message,
    NotFound,
    ProjectSession,
    Session,
    Store,
    Timestamp,
)
from store.transfer.backup.restore import RestoreOutcome
from tests.builders import files_below, make_document, make_session
from tests.store.transfer.backup.test_backup import PNG, corrupt, fill


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "backup"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """A second, empty home."""
    with Store.open(tmp_path / "other", background=False) as opened:
        yield opened
        report = opened.check()
        assert report.is_clean, "\n".join(map(str, report.findings))


def restored(store: Store, source: Path, *names: str, **options: object) -> dict[str, str]:
    """Restore, and return the outcome of each name."""
    outcomes: list[RestoreOutcome] = []
    store.restore(source, *names, report=outcomes.append, **options)
    return {outcome.name: outcome.state for outcome in outcomes}


def times_below(home: Path) -> dict[str, int]:
    """The mtimes of all files; not of links, which rsync does not set."""
    found = [p for part in ("sessions", "projects", "state") for p in (home / part).rglob("*") if p.is_file()]
    return {str(p.relative_to(home)): p.stat().st_mtime_ns for p in found if p.name != "index.json"}


def test_everything_is_restored_with_its_times(store: Store, other: Store, dest: Path) -> None:
    """Index and search are updated too (rule 7)."""
    fill(store)
    store.backup(dest)
    found = restored(other, dest)
    assert set(found.values()) == {"restored", "same"}  # the index of the project is derived
    assert files_below(other.home) == files_below(store.home)
    assert times_below(other.home) == times_below(store.home)
    here, there = store.home / "sessions/root/away", other.home / "sessions/root/away"
    assert (os.readlink(there), there.lstat().st_mtime_ns) == ("/etc/passwd", here.lstat().st_mtime_ns)
    assert other.ids() == store.ids()
    assert [str(hit.location) for hit in other.search("msg-2")] == ["root"]
    assert other.state.load_json("facts", "f") == "long standing"
    assert [root.session_id for root in other.projects.roots("k")] == ["p"]
    entry = other.entry("root")
    assert entry is not None
    assert entry.has_attachments


def test_repeated_restore_changes_nothing(store: Store, other: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    restored(other, dest)
    before = {path: path.lstat().st_ino for path in other.home.rglob("*") if path.is_file()}
    assert set(restored(other, dest).values()) == {"same"}
    assert {path: path.lstat().st_ino for path in other.home.rglob("*") if path.is_file()}.items() >= {
        (path, inode) for path, inode in before.items() if ".grovefs" not in path.parts
    }


def test_dry_run_reports_the_same_and_changes_nothing(store: Store, other: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    reported = restored(other, dest, dry_run=True)
    assert files_below(other.home) == {}
    assert reported == restored(other, dest)


def test_named_session_is_restored_with_its_children_only(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    before = files_below(store.home)
    store.delete("root")
    store.append("other", [Message.user("later")])
    assert restored(store, dest, "root") == {"root": "restored", "root/child": "restored"}
    assert files_below(store.home)["root/session.json"] == before["root/session.json"]
    assert store.attachments.read("root", next((store.home / "sessions/root/attachments").iterdir()).stem) == (
        PNG,
        "image/png",
    )
    loaded = store.load("other")
    assert loaded is not None
    assert loaded.messages[-1].content == "later"


def test_session_is_selected_by_title_or_id_prefix(store: Store, other: Store, dest: Path) -> None:
    fill(store)
    store.save(make_session("oth2"))
    store.backup(dest)
    assert restored(other, dest, "the ROOT") == {"root": "restored", "root/child": "restored"}
    assert restored(other, dest, "othe") == {"other": "restored"}
    assert restored(other, dest, "root/ch") == {"root/child": "same"}
    with pytest.raises(Ambiguous):
        other.restore(dest, "oth")
    with pytest.raises(NotFound, match="no session 'nix'"):
        other.restore(dest, "nix")
    with pytest.raises(InvalidName, match="blank"):
        other.restore(dest, " ")


def test_child_is_restored_with_descendants_and_needs_its_root(store: Store, other: Store, dest: Path) -> None:
    root = make_session("r")
    child = Session.new_child_of("c", root, "m", "c")
    for session in (root, child, Session.new_child_of("g", child, "m", "g"), Session.new_child_of("d", root, "m", "d")):
        store.save(session)
    store.backup(dest)
    with pytest.raises(NotFound, match="Restore r"):
        other.restore(dest, "c")
    store.delete("c")
    assert restored(store, dest, "c") == {"r/c": "restored", "r/g": "restored"}
    other.restore(dest)


# -- newer sessions and files ------------------------------------------------------------------------------------------


def test_newer_session_is_kept_unless_overwrite(store: Store, dest: Path) -> None:
    """Rule 8; a replaced session can be restored from the trash."""
    fill(store)
    store.backup(dest)
    old = files_below(store.home)
    store.append("other", [Message.user("precious")])
    newer = files_below(store.home)
    outcomes: list[RestoreOutcome] = []
    store.restore(dest, "other", report=outcomes.append)
    assert [outcome.state for outcome in outcomes] == ["kept"]
    assert "updated at" in (outcomes[0].reason or "")
    assert files_below(store.home) == newer
    assert restored(store, dest, "other", overwrite=True) == {"other": "restored"}
    assert files_below(store.home) == old
    assert store.search("precious") == []
    slot = store.trash.deleted()[0]
    assert slot.what == "replaced by a restore"
    store.trash.undelete(slot.name)
    assert files_below(store.home) == newer
    assert len(store.search("precious")) == 1


def test_older_session_is_replaced(store: Store, other: Store, dest: Path) -> None:
    store.save(make_session("s"))
    store.backup(dest)
    restored(other, dest)
    store.append("s", [Message.user("later")])
    store.backup(dest)
    assert restored(other, dest) == {"s": "restored"}
    assert files_below(other.home) == files_below(store.home)


def test_edit_without_updated_at_is_detected_by_mtime(store: Store, dest: Path) -> None:
    store.put_document("s", "session.json", make_document("s"))
    store.backup(dest)
    store.put_document("s", "session.json", make_document("s", title="By hand"))
    assert restored(store, dest, "s") == {"s": "kept"}
    entry = store.entry("s")
    assert entry is not None
    assert entry.title == "By hand"


def test_session_with_a_grown_log_is_kept(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    store.usage.append("root", {"total_tokens": 4})
    assert restored(store, dest, "root") == {"root": "kept", "root/child": "same"}


def test_missing_attachment_is_restored(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    next((store.home / "sessions/root/attachments").iterdir()).unlink()
    store.maintenance.sweep()
    assert restored(store, dest, "root")["root"] == "restored"
    assert files_below(store.home) == files_below(dest)
    entry = store.entry("root")
    assert entry is not None
    assert entry.has_attachments


@pytest.mark.warns
def test_corrupt_session_is_replaced_by_its_copy(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    (store.home / "sessions/root/session.json").write_text('{"id": "ro')
    store.maintenance.sweep()
    assert restored(store, dest, "root")["root"] == "restored"
    assert files_below(store.home) == files_below(dest)


def test_files_only_in_the_home_are_left_alone(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    store.save(make_session("mine"))
    (store.home / "sessions/root/more.txt").write_text("mine")
    assert set(restored(store, dest).values()) == {"same"}
    assert store.exists("mine")
    assert (store.home / "sessions/root/more.txt").exists()


@pytest.mark.parametrize("path", ["state/notes.txt", "sessions/loose.txt", "state/k/d.md", "state/k/d.json"])
def test_replaced_file_outside_sessions_is_in_the_trash(store: Store, dest: Path, path: str) -> None:
    """`cp -p` of another text leaves an mtime before that of the backup, so the file is replaced."""
    fill(store)
    file = store.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"v": "in the backup"}')
    store.backup(dest)
    file.write_text('{"v": "typed later"}')
    os.utime(file, (1.7e9, 1.7e9))
    assert restored(store, dest)[path] == "restored"
    assert file.read_text() == '{"v": "in the backup"}'
    (slot,) = [slot for slot in store.trash.deleted() if slot.moves[0][0] == path]
    store.trash.undelete(slot.name)
    assert file.read_text() == '{"v": "typed later"}'


def test_newer_state_and_payloads_are_kept_unless_overwrite(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    store.state.save_json("facts", "f", "newer")
    store.projects.save(ProjectSession("k", "p"), {"title": "newer"})
    found = restored(store, dest)
    assert (found["state/facts/f.json"], found["projects/k/sessions/p/session.json"]) == ("kept", "kept")
    found = restored(store, dest, overwrite=True)
    assert (found["state/facts/f.json"], found["projects/k/sessions/p/session.json"]) == ("restored", "restored")
    assert store.state.load_json("facts", "f") == "long standing"
    assert store.projects.load(ProjectSession("k", "p")) == {"title": "P"}
    assert len(store.search("standing")) == 1


def test_read_mail_is_not_delivered_again(store: Store, other: Store, dest: Path) -> None:
    """Mail is restored only together with a deleted session."""
    store.save(make_session("s"))
    store.mail.at("s").deliver(InboxMessage.new("elsewhere", "task", "something to do"))
    store.backup(dest)
    for delivered in store.mail.at("s").drain():
        store.mail.at("s").ack_delivered(delivered)
    assert restored(store, dest) == {"s": "same"}
    assert store.mail.at("s").pending() == []
    restored(other, dest)
    assert [found.message.body for found in other.mail.at("s").pending()] == ["something to do"]


# -- damage and attacks -----------------------------------------------------------------------------------------


def test_damaged_backup_restores_nothing(store: Store, other: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    corrupt(dest / "sessions/root/session.json")
    with pytest.raises(DamagedBackup, match="nothing was restored") as raised:
        other.restore(dest)
    assert [damage.path for damage in raised.value.damages] == ["sessions/root/session.json"]
    assert files_below(other.home) == {}
    found = restored(other, dest, skip_damaged=True)
    assert (found["root"], found["root/child"], found["other"]) == ("skipped", "skipped", "restored")
    assert restored(other, dest, "other") == {"other": "same"}  # only named sessions are checked


def test_file_modified_between_check_and_restore_is_detected(
    store: Store, other: Store, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    store.backup(dest)
    commit = type(other._home.services.restores.commits).commit_session

    def late(self: object, *arguments: object, **options: object) -> None:
        monkeypatch.undo()
        corrupt(dest / "sessions/root/notes.txt")
        commit(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(type(other._home.services.restores.commits), "commit_session", late)
    assert restored(other, dest, "root") == {"root": "skipped", "root/child": "skipped"}
    assert files_below(other.home) == {}
    corrupt(dest / "sessions/root/notes.txt")  # undo: flips the same bit
    other.restore(dest, "root")


def test_links_and_pipes_in_a_plain_tree_are_not_followed(other: Store, dest: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(make_document("evil"))
    for name in ("evil", "pipe", "good"):
        (dest / f"sessions/{name}").mkdir(parents=True)
    (dest / "sessions/evil/session.json").symlink_to(secret)
    os.mkfifo(dest / "sessions/pipe/session.json")
    (dest / "sessions/good/session.json").write_bytes(make_document("good"))
    (dest / "sessions/good/attachments").symlink_to(tmp_path)
    (dest / "sessions/linked").symlink_to(dest / "sessions/good")
    found = restored(other, dest)
    assert found["evil"] == "skipped"
    assert found["good"] == "restored"
    assert other.ids() == ["good"]
    assert not (other.home / "sessions/good/attachments").is_symlink()
    assert not (other.home / "sessions/evil").exists()


def test_manifest_path_outside_the_backup_is_rejected(store: Store, other: Store, dest: Path) -> None:
    store.save(make_session("s"))
    store.backup(dest)
    path = dest / "grovefs-backup.json"
    path.write_text(path.read_text().replace("sessions/s/session.json", "sessions/../../escaped"))
    with pytest.raises(Exception, match="not a path in a home"):
        other.restore(dest)


def test_invalid_document_is_skipped(other: Store, dest: Path) -> None:
    """Rules 6 and 9 hold for documents of a backup too."""
    for name, raw in {"bad": b'{"id": 1}', "torn": b'{"id": "to', "moved": make_document("s")}.items():
        (dest / f"sessions/{name}").mkdir(parents=True)
        (dest / f"sessions/{name}/session.json").write_bytes(raw)
    assert restored(other, dest) == {"bad": "skipped", "torn": "skipped", "moved": "skipped"}
    assert files_below(other.home) == {}


def test_api_key_in_a_document_is_removed(other: Store, dest: Path) -> None:
    (dest / "sessions/s").mkdir(parents=True)
    raw = make_document("s", llm_config={"api_key": "sk-secret", "model": "m"})
    (dest / "sessions/s/session.json").write_bytes(raw)
    assert restored(other, dest) == {"s": "restored"}
    assert b"sk-secret" not in (other.home / "sessions/s/session.json").read_bytes()
    assert restored(other, dest) == {"s": "same"}


def test_session_with_a_corrupt_sidecar_is_restored(store: Store, other: Store, dest: Path) -> None:
    store.save(make_session("s"))
    store.backup(dest)
    (dest / "grovefs-backup.json").unlink()
    (dest / "sessions/s/runtime.json").write_text("{")
    outcomes: list[RestoreOutcome] = []
    other.restore(dest, report=outcomes.append)
    assert [(outcome.state, "rebuilt" in (outcome.reason or "")) for outcome in outcomes] == [("restored", True)]
    assert other.load("s") is not None


def test_failed_restore_rolls_back(store: Store, dest: Path) -> None:
    """Rule 3: the disk becomes full halfway through a session with many files."""
    fill(store)
    store.backup(dest)
    store.append("root", [Message.user("newer")])
    (store.home / "sessions/root/notes.txt").write_text("newer")
    before = files_below(store.home)
    for at in range(1, 12):
        moved: list[int] = []

        def step(name: str, at: int = at, moved: list[int] = moved) -> None:
            moved.extend([1] * (name == "move"))
            if name == "move" and len(moved) == at:
                raise OSError(errno.ENOSPC, "No space left on device")

        store._core.disk.step = step
        try:
            store.restore(dest, "root", overwrite=True)
        except OSError:
            assert files_below(store.home) == before
        else:
            break
        finally:
            store._core.disk.step = lambda name: None
    assert at > 3
    assert files_below(store.home) == files_below(dest)


# -- trees without a manifest -----------------------------------------------------------------------------------


def test_rsync_copy_can_be_restored(store: Store, other: Store, dest: Path) -> None:
    fill(store)
    subprocess.run(["rsync", "-a", "--exclude=.grovefs", f"{store.home}/", f"{dest}/"], check=True)
    summary = other.restore(dest)
    assert not summary.has_manifest
    assert files_below(other.home) == files_below(store.home)
    assert times_below(other.home) == times_below(store.home)


def test_session_copied_back_by_hand_is_found(store: Store, other: Store, dest: Path) -> None:
    """A backup can be used without GroveFS."""
    fill(store)
    store.backup(dest)
    shutil.copytree(dest / "sessions/root", other.home / "sessions/root", symlinks=True)
    other.maintenance.sweep()
    assert other.location("child") == Location("root", "child")


@pytest.mark.parametrize("path", ["projects/-home-ada-work/48fd.jsonl", "sessions/2026/11/16/rollout-1.jsonl"])
def test_directory_of_another_agent_is_not_a_backup(store: Store, dest: Path, path: str) -> None:
    """~/.claude has projects/, ~/.codex has sessions/: their logs must not be copied into the home."""
    (dest / path).parent.mkdir(parents=True)
    (dest / path).write_text("{}\n")
    with pytest.raises(NotFound, match="grovefs import"):
        store.restore(dest)
    assert not (store.home / path).exists()


def test_directory_that_is_not_a_backup_is_rejected(store: Store, dest: Path) -> None:
    with pytest.raises(NotFound, match="no backup at"):
        store.restore(dest)
    dest.mkdir()
    with pytest.raises(NotFound, match="neither a backup nor a home"):
        store.restore(dest)
    with pytest.raises(InvalidName, match="inside"):
        store.restore(store.home)


def test_restore_writes_nothing_to_the_backup(store: Store, other: Store, dest: Path) -> None:
    """No ctime in the backup changes, so a read-only disk works."""
    fill(store)
    store.backup(dest)
    before = {path: path.lstat().st_ctime_ns for path in dest.rglob("*")}
    other.restore(dest)
    assert {path: path.lstat().st_ctime_ns for path in dest.rglob("*")} == before


def test_restored_session_keeps_created_at(store: Store, other: Store, dest: Path) -> None:
    session = make_session("s")
    session.created_at = Timestamp("2020-01-01T00:00:00.123456789Z")
    store.save(session)
    store.backup(dest)
    other.restore(dest)
    assert [entry.created_at for entry in other.entries()] == ["2020-01-01T00:00:00.123456789Z"]
