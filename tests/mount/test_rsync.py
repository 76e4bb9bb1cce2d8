"""Backup and restore with common tools: rsync in both directions, cp -a and tar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Store
from store.model.index_entry import IndexEntry
from tests.builders import make_session
from tests.mount.conftest import Mount, wait_until
from tests.mount.test_basics import edit, title

MountHome = Callable[..., Mount]
EXACT = ("-a", "--modify-window=-1")


def rsync(*arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run rsync and return its itemized changes; the exit code must be the expected one."""
    result = subprocess.run(["rsync", "-i", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert result.returncode == expected, result
    return result


def inside(directory: Path) -> str:
    """The path with a trailing slash: for rsync, the contents of the directory."""
    return f"{directory}/"


def facts(base: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, mtime and mode of every file below a directory, by path."""
    return {
        str(path.relative_to(base)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in base.rglob("*")
        if path.is_file()
    }


def entries(home: Path) -> list[IndexEntry]:
    """All index entries; `store.check` must be clean."""
    with Store.open(home, background=False) as store:
        report = store.check()
        assert report.is_clean, report.findings
        return store.entries(limit=-1, order="created")


@pytest.fixture
def backup(place: Path) -> Path:
    (place / "backup").mkdir()
    return place / "backup"


@pytest.fixture
def empty(place: Path, mount_home: MountHome) -> Mount:
    """A mount of an empty home."""
    return mount_home(place / "empty")


@pytest.fixture
def copied(filled: Path, backup: Path) -> Path:
    """The filled home's sessions, copied without a mount, with odd times."""
    subprocess.run(["cp", "-a", f"{filled}/sessions/.", backup], check=True)
    for number, path in enumerate(sorted(backup.rglob("*"))):
        if path.is_file():
            os.utime(path, ns=(0, 1_700_000_000_123_456_789 + number))
    return backup


# -- backup ----------------------------------------------------------------------------------------------------


def test_rsync_backup_is_exact_and_repeats_idle(mounted: Mount, backup: Path) -> None:
    """Bytes, times to the nanosecond, modes; also with -HAX and --numeric-ids."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    assert facts(backup) == facts(mounted.home / "sessions")
    assert rsync(*EXACT, inside(mounted.sessions), backup).stdout == ""
    assert rsync(*EXACT, "-HAX", "--numeric-ids", inside(mounted.sessions), backup).stdout == ""
    assert rsync(*EXACT, "-c", inside(mounted.sessions), backup).stdout == ""


def test_rsync_backup_copies_one_change(mounted: Mount, backup: Path) -> None:
    rsync(*EXACT, inside(mounted.sessions), backup)
    edit(mounted.sessions / "root/session.json", '"The root"', '"Changed."')
    moved = rsync(*EXACT, inside(mounted.sessions), backup).stdout.splitlines()
    assert {line.split()[1] for line in moved if line.startswith(">f")} == {"root/runtime.json", "root/session.json"}
    assert facts(backup) == facts(mounted.home / "sessions")


def test_the_whole_mount_can_be_copied(mounted: Mount, backup: Path) -> None:
    """No endless file, and no file that changes its size while it is read."""
    rsync("-a", inside(mounted.path), backup)
    assert json.loads((backup / "sessions.json").read_bytes())["sessions"].keys() >= {"root", "child"}
    assert (backup / ".grovefs/status.json").exists()


WRITER = """
import signal, sys
from store import Message, Store
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
with Store.open(sys.argv[1], background=False, durability="normal") as store:
    print(flush=True)
    while not stop:
        store.append("busy", [Message.user("x" * 500)])
"""


def test_copied_files_are_consistent_while_a_process_writes(mounted: Mount, backup: Path) -> None:
    with mounted.store() as store:
        store.save(make_session("busy", messages=400))
    with subprocess.Popen([sys.executable, "-c", WRITER, str(mounted.home)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            lengths: list[int] = []

            def copy_has_grown() -> bool:
                """Copy once more. On a busy machine the first append may come after many copies."""
                rsync("-a", "-I", inside(mounted.sessions / "busy"), backup)
                lengths.append(len(json.loads((backup / "session.json").read_bytes())["messages"]))
                json.loads((backup / "runtime.json").read_bytes())
                return len(lengths) >= 8 and lengths[-1] > lengths[0]

            wait_until(copy_has_grown)
        finally:
            writer.terminate()
    assert lengths == sorted(lengths)
    assert lengths[0] >= 400


# -- restore ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-HAX", "--numeric-ids"],
        ["--delay-updates"],
        ["--partial"],
        ["--partial-dir=.rsync-partial"],
        ["--inplace"],
        ["--append-verify"],
        ["-b"],
        ["--delete"],
    ],
    ids=" ".join,
)
def test_restore_into_an_empty_home_is_complete(filled: Path, copied: Path, empty: Mount, options: list[str]) -> None:
    """The same files, the same index; a second run moves nothing in either direction."""
    rsync(*EXACT, *options, inside(copied), empty.sessions)
    assert facts(empty.home / "sessions") == facts(copied)
    assert facts(empty.sessions) == facts(copied)
    assert rsync(*EXACT, *options, inside(copied), empty.sessions).stdout == ""
    assert rsync(*EXACT, *options, "-c", inside(empty.sessions), copied).stdout == ""
    assert entries(empty.home) == entries(filled)
    assert json.loads((empty.path / "sessions.json").read_bytes())["sessions"].keys() == {
        "root",
        "child",
        "grandchild",
        "pinned",
    }


@pytest.mark.parametrize(
    "command",
    [
        "cp -a {copied}/. .",
        "cp -r {copied}/. .",
        "cd {copied}; find . -depth | tar --format=posix -cf - --no-recursion -T - | tar xpf - -C {sessions}",
        "tar --format=posix -cf - -C {copied} . | tar xpf - -C {sessions}",
        "tar --format=posix -cf - -C {copied} --sort=name . | tar xpf - --unlink-first -C {sessions}",
    ],
)
def test_files_can_be_copied_in_any_order(filled: Path, copied: Path, empty: Mount, command: str) -> None:
    """Children before their root, the sidecar before or after its session: the index is the same at the end."""
    line = command.format(copied=copied, sessions=empty.sessions)
    result = subprocess.run(["sh", "-c", line], cwd=empty.sessions, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    was, now = facts(copied), facts(empty.home / "sessions")
    assert {path: data for path, (data, _, _) in now.items()} == {path: data for path, (data, _, _) in was.items()}
    if "cp -r" not in command:
        assert now == was
        unset = ["-O"] if "--unlink-first" in command else []  # then tar does not set the time of the topmost directory
        assert rsync(*EXACT, *unset, inside(copied), empty.sessions).stdout == ""
    assert entries(empty.home) == entries(filled)


def test_file_touched_in_the_backup_is_copied_once(mounted: Mount, backup: Path) -> None:
    """The same bytes with another mtime: the mtime is set, so the next run copies nothing."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    for name in ("session.json", "runtime.json"):
        os.utime(backup / "root" / name, ns=(0, 1_800_000_000_000_000_123))
        (backup / "root" / name).chmod(0o640)
    before = entries(mounted.home)
    assert rsync(*EXACT, inside(backup), mounted.sessions).stdout != ""
    assert facts(mounted.sessions) == facts(backup)
    assert rsync(*EXACT, inside(backup), mounted.sessions).stdout == ""
    assert entries(mounted.home) == before


def test_delete_removes_sessions_missing_from_the_backup(mounted: Mount, backup: Path) -> None:
    """Whole sessions go to the trash; a pinned one is kept, and rsync reports the error."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    with mounted.store() as store:
        store.save(make_session("later", messages=2))
        store.attach("later", b"bytes", "image/png")
        store.save(make_session("later-pinned", pinned=True))
    wait_until(lambda: (mounted.sessions / "later/session.json").exists())
    result = rsync(*EXACT, "--delete", inside(backup), mounted.sessions, expected=23)
    assert "later-pinned" in result.stderr
    assert "Operation not permitted" in result.stderr
    with mounted.store() as store:
        assert {e.id for e in store.entries()} == {"root", "child", "grandchild", "pinned", "later-pinned"}
        assert "later" in {d.session_id for d in store.trash.deleted()}
        store.update("later-pinned", lambda s: setattr(s, "pinned", False))
    wait_until(lambda: not json.loads((mounted.sessions / "later-pinned/session.json").read_bytes())["pinned"])
    rsync(*EXACT, "--delete", inside(backup), mounted.sessions)
    assert sorted(os.listdir(mounted.sessions)) == sorted(os.listdir(backup))
    assert rsync(*EXACT, "--delete", inside(backup), mounted.sessions).stdout == ""


# -- an older copy over a newer session ------------------------------------------------------------------------


def continue_session(mount: Mount) -> bytes:
    """Change the session after the backup; return its new content."""
    with mount.store() as store:
        session = store.load("root")
        assert session is not None
        session.title = "Newer"
        session.updated_at = type(session.updated_at).now()
        store.save(session)
    for name in ("session.json", "runtime.json"):
        wait_until(lambda name=name: title(mount.sessions / "root" / name) == "Newer")  # type: ignore[misc]
    return (mount.home / "sessions/root/session.json").read_bytes()


@pytest.mark.parametrize("options", [[], ["--delay-updates"], ["-b"], ["--partial"]], ids=" ".join)
def test_older_copy_is_rejected_with_the_reason(mounted: Mount, backup: Path, options: list[str]) -> None:
    """Exit code 23; the newer version is kept, with the reason next to it. All other files are restored."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    newer = continue_session(mounted)
    subprocess.run(["rm", "-r", mounted.sessions / "root/children/grandchild"], check=True)
    result = rsync(*EXACT, *options, inside(backup), mounted.sessions, expected=23)
    assert "Stale file handle" in result.stderr
    assert (mounted.sessions / "root/session.json").read_bytes() == newer
    assert "grovefs revert root@" in (mounted.sessions / "root/session.json.error").read_text()
    assert (mounted.sessions / "root/children/grandchild/session.json").exists()
    assert (mounted.sessions / "root/session.json.rejected").read_bytes() == (backup / "root/session.json").read_bytes()
    (mounted.sessions / "root/session.json.rejected").unlink()


@pytest.mark.parametrize("options", [["--inplace"], ["--append-verify"]], ids=" ".join)
def test_older_copy_written_in_place_is_rejected(mounted: Mount, backup: Path, options: list[str]) -> None:
    """rsync exits at once with 11, or with 23; the newer session is intact in both cases."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    newer = continue_session(mounted)
    command = ["rsync", *EXACT, *options, inside(backup), str(mounted.sessions)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if options == ["--inplace"]:
        assert result.returncode in (11, 23)
        assert "Stale file handle" in result.stderr
    assert (mounted.sessions / "root/session.json").read_bytes() == newer


@pytest.mark.parametrize("options", [[], ["--inplace"], ["--delay-updates"]], ids=" ".join)
def test_older_copy_is_restored_with_overwrite(
    filled: Path, mount_home: MountHome, backup: Path, options: list[str]
) -> None:
    """`--on-conflict overwrite` restores the state of the backup, and a second run copies nothing."""
    before = entries(filled)
    mount = mount_home(filled, "--on-conflict", "overwrite")
    rsync(*EXACT, inside(mount.sessions), backup)
    continue_session(mount)
    rsync(*EXACT, *options, inside(backup), mount.sessions)
    assert facts(mount.sessions) == facts(backup)
    assert rsync(*EXACT, *options, inside(backup), mount.sessions).stdout == ""
    assert entries(filled) == before


def test_restore_under_another_name_is_a_fork(mounted: Mount, backup: Path) -> None:
    """The document gets its new id, and reading it returns the committed bytes."""
    rsync(*EXACT, inside(mounted.sessions), backup)
    for name in ("a-longer-name", "toor"):
        rsync(*EXACT, inside(backup / "root"), mounted.sessions / name)
        for path in ("session.json", "runtime.json", "children/child/session.json"):
            seen, real = mounted.sessions / name / path, mounted.home / "sessions" / name / path
            assert seen.read_bytes() == real.read_bytes()
            assert json.loads(seen.read_bytes())["root_session_id"] == name
