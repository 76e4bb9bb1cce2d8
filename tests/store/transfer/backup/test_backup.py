"""Backup: a plain copy of the home, consistent per session, in which damage is detected."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store import (
    Busy,
    Conflict,
    Corrupt,
    InvalidName,
    Location,
    Message,
    NotEmpty,
    NotFound,
    ProjectSession,
    Session,
    Store,
)
from store.disk.file import RACY_NS
from store.transfer.backup import backup, tree, writer
from store.transfer.backup.backup import check
from tests.builders import files_below, make_session

PNG = b"\x89PNG\r\n\x1a\n not much of a picture"


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def fill(store: Store) -> None:
    """A root with a child, an attachment, a log; a second root; a project, a state document, a foreign file, a link."""
    root = make_session("root", messages=3, title="The root")
    store.save(root)
    store.save(Session.new_child_of("child", root, "m", "A child"))
    store.save(make_session("other"))
    store.attach("root", PNG, "image/png")
    store.usage.append("root", {"total_tokens": 3})
    store.projects.save(ProjectSession("k", "p"), {"title": "P"})
    store.state.save_json("facts", "f", "long standing")
    (store.home / "sessions/root/notes.txt").write_text("mine")
    (store.home / "sessions/root/away").symlink_to("/etc/passwd")
    os.mkdir(store.home / "sessions/root" / os.fsdecode(b"not utf-8 \xff"))
    (store.home / "sessions/root" / os.fsdecode(b"not utf-8 \xff") / "x").write_text("x")


def settle(store: Store) -> None:
    """Wait until stamps are settled: a file modified less than 50 ms before it is copied is copied again later."""
    newest = max(path.lstat().st_ctime_ns for path in store.home.rglob("*"))
    while time.time_ns() - newest <= RACY_NS:
        time.sleep(0.005)


def test_backup_is_a_plain_copy_of_the_home(store: Store, dest: Path) -> None:
    fill(store)
    summary = store.backup(dest)
    assert files_below(dest) == files_below(store.home)
    assert (dest / "sessions.json").read_bytes() == (store.home / "sessions.json").read_bytes()
    assert (summary.sessions, summary.copied_sessions, summary.problems) == (3, 3, [])
    assert os.readlink(dest / "sessions/root/away") == "/etc/passwd"
    assert not (dest / ".grovefs").exists()
    for path in files_below(store.home):
        here, there = store.home / "sessions" / path, dest / "sessions" / path
        if here.exists() and not here.is_symlink():
            assert (here.stat().st_mtime_ns, here.stat().st_mode) == (there.stat().st_mtime_ns, there.stat().st_mode)


def test_manifest_lists_every_file_and_session_version(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    manifest = json.loads((dest / "grovefs-backup.json").read_text())
    raw = (store.home / "sessions/root/session.json").read_bytes()
    listed = manifest["files"]["sessions/root/session.json"]
    assert (listed["size"], listed["sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
    entry = store.entry("root")
    assert entry is not None
    assert manifest["sessions"]["root"] == {"updated_at": entry.updated_at, "title": "The root"}
    assert set(manifest["sessions"]) == {"root", "root/child", "other"}
    assert check(dest) == []


def test_only_changed_files_are_copied(store: Store, dest: Path) -> None:
    fill(store)
    settle(store)
    store.backup(dest)
    inodes = {path: path.stat().st_ino for path in dest.rglob("session.json")}
    store.append("other", [Message.user("more")])
    settle(store)
    summary = store.backup(dest)
    assert (summary.copied_sessions, summary.copied_files) == (1, 3)  # two documents, and sessions.json
    moved = {path for path in dest.rglob("session.json") if path.stat().st_ino != inodes[path]}
    assert moved == {dest / "sessions/other/session.json"}
    again = store.backup(dest)
    assert (again.copied_files, again.gone_files) == (0, 0)
    assert again.unchanged_files == summary.unchanged_files + 3


def test_changed_inode_alone_is_not_copied(store: Store, dest: Path) -> None:
    """A home that was moved to another disk: every file is read, and none is copied."""
    fill(store)
    settle(store)
    store.backup(dest)
    note = store.home / "sessions/root/notes.txt"
    before, copied = note.stat(), (dest / "sessions/root/notes.txt").stat().st_ino
    note.rename(note.with_name("x"))
    note.write_text("mine")
    note.with_name("x").unlink()
    note.chmod(before.st_mode & 0o777)
    os.utime(note, ns=(before.st_mtime_ns, before.st_mtime_ns))
    settle(store)
    assert store.backup(dest).copied_files == 0
    assert (dest / "sessions/root/notes.txt").stat().st_ino == copied


def test_deleted_sessions_are_removed_unless_keep_deleted(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    store.delete("root")
    kept = store.backup(dest, keep_deleted=True)
    assert (kept.gone_files, kept.sessions) == (0, 3)
    assert (dest / "sessions/root/session.json").exists()
    store.state.delete("facts", "f")
    summary = store.backup(dest)
    assert summary.gone_sessions == 2
    assert files_below(dest) == files_below(store.home)
    assert not (dest / "sessions/root").exists()
    assert set(json.loads((dest / "grovefs-backup.json").read_text())["sessions"]) == {"other"}


@pytest.mark.warns
@pytest.mark.parametrize("keep_deleted", [False, True])
@pytest.mark.parametrize("corrupt", [lambda path: path.write_bytes(b'{"id": "other", "ti'), Path.unlink])
def test_corrupt_or_missing_session_keeps_its_previous_copy(
    store: Store, dest: Path, corrupt: Callable[[Path], None], keep_deleted: bool
) -> None:
    fill(store)
    store._home.services.backups.run(dest)
    good = files_below(dest / "sessions/other")
    corrupt(store.home / "sessions/other/session.json")
    store.append("root", [Message.user("one more")])
    for _ in range(2):
        summary = store._home.services.backups.run(dest, verify=True, keep_deleted=keep_deleted)
        assert [problem.path for problem in summary.problems] == ["sessions/other"]
        assert "the previous copy is kept" in summary.problems[0].reason
        assert (summary.gone_sessions, summary.gone_files) == (0, 0)
        assert files_below(dest / "sessions/other") == good
    assert not check(dest)
    store._home.services.restores.run(dest, ["other"])
    assert store.load("other") is not None


@pytest.mark.warns
def test_corrupt_sidecar_keeps_its_previous_copy(store: Store, dest: Path) -> None:
    """The rest of the session is backed up; `restore` then has a runtime.json that loads."""
    fill(store)
    store._home.services.backups.run(dest)
    good = (dest / "sessions/other/runtime.json").read_bytes()
    store.append("other", [Message.user("newer")])
    (store.home / "sessions/other/runtime.json").write_bytes(b'{"id": "oth')
    for _ in range(2):
        summary = store._home.services.backups.run(dest)
        assert [problem.path for problem in summary.problems] == ["sessions/other/runtime.json"]
        assert backup.PREVIOUS_COPY_KEPT in summary.problems[0].reason
        assert (dest / "sessions/other/runtime.json").read_bytes() == good
        assert b"newer" in (dest / "sessions/other/session.json").read_bytes()
    assert check(dest) == []
    assert store.check(repair=True).exit_code == 1


@pytest.mark.warns
def test_session_that_was_always_corrupt_is_copied_unchanged(store: Store, dest: Path) -> None:
    store.save(make_session("other"))
    document = store.home / "sessions/other/session.json"
    good = document.read_bytes()
    document.write_bytes(b"{ broken")
    assert not store._home.services.backups.run(dest).problems
    assert (dest / "sessions/other/session.json").read_bytes() == b"{ broken"
    document.write_bytes(good)
    store._core.refresh(Location("other"))


def test_file_replaced_by_directory_and_vice_versa(store: Store, dest: Path) -> None:
    store.save(make_session("s"))
    here = store.home / "sessions/s"
    (here / "a").mkdir()
    (here / "a/x").write_text("x")
    (here / "b").write_text("b")
    store.backup(dest)
    (here / "a/x").unlink()
    (here / "a").rmdir()
    (here / "a").write_text("a")
    (here / "b").unlink()
    (here / "b").mkdir()
    (here / "b/y").write_text("y")
    store.backup(dest)
    assert files_below(dest) == files_below(store.home)
    assert check(dest) == []


# -- damage ----------------------------------------------------------------------------------------------------


def corrupt(path: Path) -> None:
    """Change one byte and keep size and time: only the digest differs."""
    info, raw = path.stat(), bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))


def test_check_lists_files_that_differ(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    corrupt(dest / "sessions/other/session.json")
    (dest / "sessions/root/notes.txt").unlink()
    (dest / "sessions/root/away").unlink()
    (dest / "sessions/root/away").symlink_to("elsewhere")
    (dest / "state/facts/f.json").unlink()
    os.mkfifo(dest / "state/facts/f.json")
    assert {damage.path for damage in check(dest)} == {
        "sessions/other/session.json",
        "sessions/root/notes.txt",
        "sessions/root/away",
        "state/facts/f.json",
    }


def test_verify_copies_damaged_files_again(store: Store, dest: Path) -> None:
    fill(store)
    settle(store)
    store.backup(dest)
    corrupt(dest / "sessions/other/session.json")
    assert store.backup(dest).copied_files == 0  # the size still matches
    summary = store.backup(dest, verify=True)
    assert [damage.path for damage in summary.repaired] == ["sessions/other/session.json"]
    assert summary.copied_files == 1
    assert check(dest) == []


def test_files_missing_from_the_backup_are_copied_again(store: Store, dest: Path) -> None:
    fill(store)
    settle(store)
    store.backup(dest)
    (dest / "sessions/root/session.json").unlink()
    (dest / "sessions/other/session.json").write_text("{}")
    assert store.backup(dest).copied_files == 2
    assert files_below(dest) == files_below(store.home)


def test_damaged_manifest_is_an_error_and_can_be_deleted(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    (dest / "grovefs-backup.json").write_text("{")
    with pytest.raises(Corrupt, match=r"grovefs-backup\.json"):
        store.backup(dest)
    (dest / "grovefs-backup.json").unlink()
    store.backup(dest)
    assert check(dest) == []
    assert files_below(dest) == files_below(store.home)


def test_unreadable_directory_is_not_treated_as_deleted(
    store: Store, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error in the home must not empty the backup."""
    fill(store)
    store.backup(dest)
    looked_into = store._core.disk.directories

    def failing(path: str) -> list[str]:
        if path == "sessions/root/children":
            raise OSError(5, "Input/output error", path)
        return looked_into(path)

    monkeypatch.setattr(store._core.disk, "directories", failing)
    summary = store.backup(dest)
    assert [problem.path for problem in summary.problems] == ["sessions/root/children"]
    assert (dest / "sessions/root/children/child/session.json").exists()
    assert check(dest) == []


# -- rejected targets --------------------------------------------------------------------------------------------------


def test_backup_must_be_outside_the_home(store: Store, tmp_path: Path) -> None:
    for place in (store.home, store.home / "sessions", store.home / "b", tmp_path):
        with pytest.raises(InvalidName, match="inside"):
            store.backup(place)
    (tmp_path / "link").symlink_to(store.home)
    with pytest.raises(InvalidName, match="inside"):
        store.backup(tmp_path / "link" / "b")


def test_nonempty_directory_is_rejected(store: Store, dest: Path) -> None:
    dest.mkdir()
    (dest / "photo.jpg").write_text("mine")
    with pytest.raises(NotEmpty, match="not empty and not a backup"):
        store.backup(dest)
    assert [path.name for path in dest.iterdir()] == ["photo.jpg"]


def test_missing_parent_directory_is_rejected(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is the disk mounted"):
        store.backup(tmp_path / "usb/grove")
    assert not (tmp_path / "usb").exists()


def test_lost_and_found_does_not_make_a_directory_nonempty(store: Store, dest: Path) -> None:
    (dest / "lost+found").mkdir(parents=True)
    store.save(make_session("s"))
    assert store.backup(dest).sessions == 1


def test_concurrent_use_raises_busy(store: Store, dest: Path) -> None:
    store.save(make_session("s"))
    store.backup(dest)
    with (dest / ".grovefs-backup/lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="in use by another process"):
            store.backup(dest)
        with pytest.raises(Busy, match="in use by another process"):
            check(dest)


def test_backup_of_another_home_is_rejected_without_force(store: Store, dest: Path, tmp_path: Path) -> None:
    fill(store)
    store.backup(dest)
    with Store.open(tmp_path / "second", background=False) as second:
        second.save(make_session("s"))
        with pytest.raises(Conflict, match="is a backup of"):
            second.backup(dest)
        assert (dest / "sessions/root/session.json").exists()
        second.backup(dest, force=True)
    assert not (dest / "sessions/root").exists()


def test_empty_home_does_not_empty_its_backup_without_force(store: Store, dest: Path) -> None:
    fill(store)
    store.backup(dest)
    store.delete("root")
    store.delete("other")
    with pytest.raises(Conflict, match="has no sessions"):
        store.backup(dest)
    assert (dest / "sessions/root/session.json").exists()
    assert store.backup(dest, force=True).sessions == 0


def test_grovefs_mount_is_detected_in_mountinfo(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"36 35 {number} / /mnt rw,noatime - fuse.grovefs grovefs rw\n")
    assert tree.is_grovefs_mount(tmp_path, mountinfo)
    mountinfo.write_text(f"36 35 {number} / /mnt rw,noatime - ext4 /dev/sda rw\n36 35 0:1 / / rw - fuse.grovefs x rw\n")
    assert not tree.is_grovefs_mount(tmp_path, mountinfo)


# -- concurrent writers ----------------------------------------------------------------------------------------


def test_file_modified_while_read_is_read_again(store: Store, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign file is modified in place; the copy is one version of it."""
    store.save(make_session("s"))
    note = store.home / "sessions/s/note"
    note.write_bytes(b"old" * 1000)
    read = os.pread
    times: list[int] = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        found = read(fd, size, offset)
        if found.startswith(b"old") and not times:
            times.append(1)
            note.write_bytes(b"new" * 1000)
            os.utime(note, ns=(1, 1))
        return found

    monkeypatch.setattr(os, "pread", pread)
    summary = store.backup(dest)
    assert not summary.problems
    assert (dest / "sessions/s/note").read_bytes() == b"new" * 1000
    assert not list((dest / ".grovefs-backup/tmp").iterdir())


def test_constantly_modified_file_is_a_problem_and_keeps_its_copy(
    store: Store, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(make_session("s"))
    note = store.home / "sessions/s/note"
    note.write_bytes(b"0")
    store.backup(dest)
    read = os.pread
    number = iter(range(1, 1000))

    def pread(fd: int, size: int, offset: int) -> bytes:
        found = read(fd, size, offset)
        if found.isdigit():
            note.write_bytes(b"1" * next(number))
        return found

    note.write_bytes(b"11")
    monkeypatch.setattr(os, "pread", pread)
    summary = store.backup(dest)
    assert [problem.path for problem in summary.problems] == ["sessions/s"]
    assert "faster than it can be copied" in summary.problems[0].reason
    assert (dest / "sessions/s/note").read_bytes() == b"0"
    assert check(dest) == []


WRITER = """
import sys
from store import Store
with Store.open(sys.argv[1], background=False) as store:
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        def change(session):
            session.title = f"title {number}"
            session.messages[0].content = f"title {number} " + "x" * 300_000
            session.metadata["number"] = str(number)
        store.update("busy", change, shorten=True)
        store.usage.append("busy", {"number": number})
"""


def test_backup_is_consistent_while_a_process_writes(store: Store, dest: Path) -> None:
    """Document and sidecar in a backup are of the same version, and the log ends with a complete line."""
    store.save(make_session("busy"))
    with subprocess.Popen([sys.executable, "-c", WRITER, str(store.home)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            for _ in range(12):
                summary = store.backup(dest)
                assert not summary.problems
                main = json.loads((dest / "sessions/busy/session.json").read_bytes())
                side = json.loads((dest / "sessions/busy/runtime.json").read_bytes())
                assert main["title"] == side["title"]
                assert main["messages"][0]["content"].split(" x")[0] in (main["title"], "msg-0")
                log = dest / "sessions/busy/token-usage.jsonl"
                assert not log.exists() or log.read_bytes().endswith(b"\n")
                assert check(dest) == []
        finally:
            process.kill()
    store.backup(dest)  # recovers the commit of the killed process
    assert files_below(dest) == files_below(store.home)
    assert not [f for f in store.check(repair=True).findings if f.kind != "temporary"]  # left by the killed process


def test_lock_is_not_held_while_the_copy_is_written(store: Store, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process can commit to the session while the backup writes its copy."""
    store.save(make_session("s"))
    written = writer.BackupWriter.write
    saved: list[bool] = []

    def write(self: writer.BackupWriter, *arguments: object) -> tuple[str, str]:
        def save() -> None:
            with Store.open(store.home, background=False, lock_timeout_s=5) as other:
                other.append("s", [Message.user("meanwhile")])
            saved.append(True)

        if not saved:
            thread = threading.Thread(target=save)
            thread.start()
            thread.join()
        return written(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writer.BackupWriter, "write", write)
    before = (store.home / "sessions/s/session.json").read_bytes()
    store.backup(dest)
    assert saved == [True]
    assert (dest / "sessions/s/session.json").read_bytes() == before
    monkeypatch.undo()
    store.backup(dest)
    assert files_below(dest) == files_below(store.home)


def test_session_renamed_during_backup_is_in_it(store: Store, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "m", "z"):
        store.save(make_session(name))
    copy_if_changed = backup._BackupRun._copy_if_changed

    def rename_first(self: backup._BackupRun, unit: str) -> None:
        if unit == "sessions/m" and store.exists("z"):
            store.rename("z", "b")
        copy_if_changed(self, unit)

    monkeypatch.setattr(backup._BackupRun, "_copy_if_changed", rename_first)
    store.backup(dest)
    assert files_below(dest) == files_below(store.home)
