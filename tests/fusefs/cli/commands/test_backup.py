"""grovefs backup and restore: output and exit codes."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.cli import main
from store import Message, Session, Store
from store.transfer.backup import backup
from tests.builders import files_below, make_session
from tests.fusefs.cli.test_cli import grovefs
from tests.store.transfer.backup.test_backup import corrupt


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    with Store.open(home, background=False) as store:
        root = make_session("fix-login", title="Fix the login")
        store.save(root)
        store.save(Session.new_child_of("child", root, "m", "A child"))
        store.save(make_session("other"))
    return home


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "usb"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, which is faster."""

    def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["grovefs", *arguments])
        monkeypatch.setenv("GROVEFS_HOME", str(home))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), *capfd.readouterr())

    return run


def versions_of(home: Path, here: Run) -> list[str]:
    """The numbers of the versions of a session, as `grovefs log` shows them."""
    return [line.partition("\t")[0] for line in here(home, "log", "fix-login").stdout.splitlines()]


def test_without_history_old_versions_are_neither_copied_nor_restored(
    home: Path, dest: Path, tmp_path: Path, here: Run
) -> None:
    """A backup without them also removes those in the destination."""
    copy = dest / ".grovefs-backup/history.db"
    assert here(home, "pin", "fix-login").returncode == 0
    assert here(home, "backup", str(dest)).returncode == 0
    assert copy.exists()
    assert here(tmp_path / "whole", "restore", str(dest)).returncode == 0
    assert versions_of(home, here) == ["2", "1"]
    assert versions_of(tmp_path / "whole", here) == ["3", "2", "1"]  # the restore is one
    assert here(tmp_path / "present", "restore", str(dest), "--without-history").returncode == 0
    assert versions_of(tmp_path / "present", here) == ["1"]
    assert here(home, "backup", str(dest), "--without-history").returncode == 0
    assert not copy.exists()
    assert here(tmp_path / "later", "restore", str(dest)).returncode == 0
    assert versions_of(tmp_path / "later", here) == ["1"]


def test_backup_and_restore_round_trip(home: Path, dest: Path, tmp_path: Path, here: Run) -> None:
    first = grovefs(home, "backup", str(dest))
    assert (first.returncode, first.stderr) == (0, "")
    assert re.fullmatch(
        rf"{dest}: 3 sessions, 3 copied; 7 files copied \([\d.]+ kB\), 0 unchanged, 0 removed\n",
        first.stdout,
    )
    printed = json.loads(here(home, "backup", "--verify", "--json", str(dest)).stdout)
    assert (printed["sessions"], printed["repaired"], printed["problems"]) == (3, [], [])
    assert here(home, "backup", "--check", str(dest)).stdout == f"{dest}: 0 files damaged\n"
    second = tmp_path / "second"
    assert here(second, "restore", "--dry-run", str(dest)).stdout.splitlines()[-1] == (
        "dry run: 3 restored, 0 same, 0 kept, 0 skipped"
    )
    assert not second.exists()
    result = grovefs(second, "restore", str(dest))
    assert result.stdout == (
        "restored\tfix-login\nrestored\tfix-login/child\nrestored\tother\n3 restored, 0 same, 0 kept, 0 skipped\n"
    )
    assert files_below(second) == files_below(home)
    assert here(second, "restore", str(dest)).stdout == "0 restored, 3 same, 0 kept, 0 skipped\n"
    assert here(second, "restore", str(dest), "fix").stdout.splitlines()[0] == "same\tfix-login"


def test_backup_reports_sessions_it_removed(home: Path, dest: Path, here: Run) -> None:
    """And names --keep-deleted: an accidental deletion also removes the copy."""
    here(home, "backup", str(dest))
    with Store.open(home, background=False) as store:
        store.delete("other")
    assert here(home, "backup", "--keep-deleted", str(dest)).stdout.count("\n") == 1
    assert here(home, "backup", str(dest)).stdout.splitlines()[1] == (
        "1 session deleted here and removed from the backup; --keep-deleted keeps them"
    )


def test_restore_keeps_and_reports_newer_sessions(home: Path, dest: Path, here: Run) -> None:
    here(home, "backup", str(dest))
    with Store.open(home, background=False) as store:
        store.append("other", [Message.user("precious")])
    result = here(home, "restore", str(dest))
    assert result.returncode == 1
    assert result.stdout.startswith("kept (newer here)\tother\tupdated at ")
    assert result.stdout.endswith("0 restored, 2 same, 1 kept, 0 skipped; pass --overwrite to replace kept sessions\n")
    printed = json.loads(here(home, "restore", "--json", str(dest)).stdout)
    assert printed["counts"] == {"restored": 0, "same": 2, "kept": 1, "skipped": 0}
    assert here(home, "restore", "--overwrite", str(dest), "other").returncode == 0
    assert files_below(home) == files_below(dest)
    assert "replaced by a restore" in here(home, "trash").stdout


def test_damage_is_reported_and_exits_with_1(home: Path, dest: Path, tmp_path: Path, here: Run) -> None:
    here(home, "backup", str(dest))
    corrupt(dest / "sessions/other/session.json")
    result = here(home, "backup", "--check", str(dest))
    assert (result.returncode, result.stdout) == (1, f"{dest}: 1 file damaged\n")
    report = "damaged: sessions/other/session.json: content differs from what was backed up\n"
    assert result.stderr == report
    result = here(tmp_path / "second", "restore", str(dest))
    assert result.returncode == 1
    assert result.stderr == report + f"grovefs: {dest}: sessions/other/session.json is damaged; " + (
        "nothing was restored; `--skip-damaged` restores the rest\n"
    )
    result = here(tmp_path / "second", "restore", "--skip-damaged", str(dest))
    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, "2 restored, 0 same, 0 kept, 1 skipped")


def test_errors_are_one_line(home: Path, dest: Path, tmp_path: Path, here: Run) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/x").touch()
    here(home, "backup", str(dest))
    with (dest / ".grovefs-backup/lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        errors = [here(home, "backup", str(dest))]
    errors += [
        here(home, "backup", str(tmp_path / "photos")),
        here(home, "backup", str(home / "sessions/backup")),
        here(home, "backup", str(tmp_path)),
        here(home, "restore", str(tmp_path / "photos")),
        here(home, "restore", str(dest), "nix"),
        here(tmp_path / "no-home", "backup", str(dest)),
    ]
    for result in errors:
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1), result
        assert result.stderr.startswith("grovefs: ")


def test_restore_without_a_manifest_is_reported_as_not_verified(
    home: Path, dest: Path, tmp_path: Path, here: Run
) -> None:
    here(home, "backup", str(dest))
    (dest / "grovefs-backup.json").unlink()
    result = here(tmp_path / "second", "restore", str(dest))
    assert result.stdout.endswith("3 restored, 0 same, 0 kept, 0 skipped; not verified: the backup has no manifest\n")
    assert here(home, "backup", "--check", str(dest)).returncode == 1


def test_interrupted_backup_is_continued_by_the_next_run(
    home: Path, dest: Path, here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = backup._BackupRun._copy_if_changed

    def taken(self: backup._BackupRun, unit: str) -> None:
        if unit == "sessions/other":
            raise KeyboardInterrupt
        take(self, unit)

    monkeypatch.setattr(backup, "BATCH_UNITS", 1)
    monkeypatch.setattr(backup._BackupRun, "_copy_if_changed", taken)
    result = here(home, "backup", str(dest))
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "interrupted; copied files are kept, and the next run continues from there\n"
    assert here(home, "backup", "--check", str(dest)).returncode == 0
    monkeypatch.setattr(backup._BackupRun, "_copy_if_changed", take)
    printed = json.loads(here(home, "backup", "--json", str(dest)).stdout)
    assert (printed["sessions"], printed["copied_sessions"], printed["unchanged_files"]) == (3, 1, 4)
    assert files_below(dest) == files_below(home)
