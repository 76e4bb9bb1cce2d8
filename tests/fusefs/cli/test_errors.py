"""Error texts: plain English, what failed, and what to do."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs


@pytest.fixture
def filled(home: Path) -> Path:
    with Store.open(home, background=False) as store:
        store.save(make_session("s1", title="One", messages=2))
    return home


@pytest.fixture
def read_only(filled: Path, tmp_path: Path) -> Iterator[Path]:
    """The home on a read-only disk."""
    place = tmp_path / "read-only"
    place.mkdir()
    subprocess.run(["mount", "--bind", filled, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_editor_that_is_not_a_command_line(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", 'sed -i s/a/"/')
    monkeypatch.delenv("VISUAL", raising=False)
    done = grovefs(filled, "edit", "s1")
    assert done.returncode == 1
    assert "is not a command line: no closing quotation; set $EDITOR" in done.stderr
    assert "Traceback" not in done.stderr


def test_suggestion_ends_the_error(filled: Path) -> None:
    assert grovefs(filled, "shwo").stderr == "grovefs: no such command 'shwo'. Did you mean 'show'?\n"


def test_unmount_is_umount(filled: Path, tmp_path: Path) -> None:
    assert "no GroveFS mount at" in grovefs(filled, "unmount", str(tmp_path)).stderr


@pytest.mark.parametrize("command", [["ls"], ["check"], ["show", "s1"]])
def test_read_only_disk_says_what_to_do(read_only: Path, command: list[str]) -> None:
    done = grovefs(read_only, *command)
    assert done.returncode != 0
    assert done.stderr.startswith(f"grovefs: Read-only file system: {read_only}/.grovefs/")
    assert f"Copy {read_only}, and pass the copy with -H" in done.stderr


@pytest.mark.parametrize("command", ["status", "health"])
def test_no_error_number_is_shown(read_only: Path, command: str) -> None:
    assert "Errno" not in grovefs(read_only, command).stdout


def test_diff_without_a_difference_says_so(filled: Path) -> None:
    done = grovefs(filled, "diff", "s1@1", "@1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "no difference")


def test_check_counts_sessions_only(filled: Path) -> None:
    """A directory without a session.json is not a session."""
    (filled / "sessions/empty").mkdir()
    assert grovefs(filled, "check").stdout.splitlines()[-1].startswith("1 session: ")


@pytest.mark.parametrize("arguments", [[], ["-i"], ["--color=auto", "-n"]])
def test_grep_without_a_pattern_shows_its_own_usage(home: Path, arguments: list[str]) -> None:
    """GNU grep's usage line names another command and files, which `grovefs grep` does not take."""
    with Store.open(home, background=False):
        pass
    result = grovefs(home, "grep", *arguments)
    usage = "Usage: grovefs grep [--home DIR] [OPTION]... PATTERN\nTry 'grovefs grep --help' for more information.\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", usage)


def test_since_is_after_in_a_search(filled: Path) -> None:
    option = grovefs(filled, "search", "--since", "7d", "msg")
    assert (option.returncode, "write after:7d in the query" in option.stderr) == (2, True)
    assert "since: is not a filter" in grovefs(filled, "search", "msg since:7d").stderr
    assert grovefs(filled, "search", "msg after:7d").stderr == ""


def test_snapshot_is_not_named_like_a_time(filled: Path) -> None:
    done = grovefs(filled, "snapshot", "2h")
    assert (done.returncode, "'2h' reads as a time" in done.stderr) == (2, True)
    assert grovefs(filled, "snapshot", "before-cleanup").returncode == 0


def test_suggested_commands_can_be_pasted(filled: Path) -> None:
    """An id with spaces is quoted, and one that begins with a dash is not taken for an option."""
    for name, written in (("my session", "'my session'"), ("-dash", "-- -dash")):
        grovefs(filled, "new", "--", name)
        again = grovefs(filled, "new", "--", name)
        assert f"`grovefs append {written} …`" in again.stderr
        assert f"`grovefs log {written}`" in grovefs(filled, "revert", "--", name).stderr
        assert f"`grovefs undelete {written}`" in grovefs(filled, "rm", "--", name).stdout
        restored = grovefs(filled, "undelete", *shlex.split(written))
        assert (restored.returncode, restored.stdout) == (0, f"restored: {name}\n")


def test_an_empty_id_is_refused(filled: Path) -> None:
    """A shell variable that is not set must not create a session with a random id."""
    result = grovefs(filled, "new", "")
    assert (result.returncode, result.stderr) == (1, "grovefs: '' cannot be a session id: it is empty\n")


def test_name_of_an_argument_is_in_capitals(filled: Path) -> None:
    assert grovefs(filled, "append", "s1", "").stderr.startswith("grovefs: TEXT is empty")


@pytest.mark.parametrize("command", ["attach s1 {}/missing.png", "new s2 --from {}/missing.png"])
def test_file_that_cannot_be_read_changes_nothing(filled: Path, tmp_path: Path, command: str) -> None:
    done = grovefs(filled, *command.format(tmp_path).split())
    assert done.returncode == 1
    missing = tmp_path / "missing.png"
    assert done.stderr == f"grovefs: cannot read {missing}: No such file or directory; no session was changed\n"


def test_backup_to_a_place_where_no_directory_can_be_made(filled: Path) -> None:
    done = grovefs(filled, "backup", "/proc/backup")
    assert done.returncode == 1
    assert done.stderr == (
        "grovefs: cannot create the backup directory /proc/backup: No such file or directory; nothing was copied. "
        "Use another directory\n"
    )
