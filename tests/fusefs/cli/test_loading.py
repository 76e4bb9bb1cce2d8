"""Commands are imported only when they are needed: start-up time counts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from fusefs.cli import FAMILIES, load, needed_families
from store import Store
from tests.builders import make_session

PREFIX = "fusefs.cli.commands."
IMPORTED = """
import atexit, sys
atexit.register(lambda: print(*(m for m in sys.modules if m.startswith("fusefs.cli.commands."))))
from fusefs.cli import main
main()
"""


def imported_families(*arguments: str) -> set[str]:
    """The families that a real command line imports."""
    result = subprocess.run([sys.executable, "-c", IMPORTED, *arguments], capture_output=True, text=True, timeout=60)
    return {name.removeprefix(PREFIX) for name in result.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("arguments", [["ls"], ["--home", "show", "ls"], ["-H", "show", "ls"], ["--home=show", "ls"]])
def test_only_the_family_of_the_command_is_imported(arguments: list[str], tmp_path: Path) -> None:
    """`--home` may come before the command; its value is not taken for one."""
    assert list(needed_families(arguments)) == ["list"]
    assert imported_families("--home", str(tmp_path), "ls") == {"list"}


def test_version_imports_no_family() -> None:
    assert imported_families("--version") == set()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["no-such-command"], ["--home", "x", "--help"]])
def test_help_and_suggestions_need_no_family(arguments: list[str]) -> None:
    """Names and summaries are in a table."""
    assert list(needed_families(arguments)) == []
    assert imported_families(*arguments) == set()


@pytest.mark.parametrize("variable", ["COMP_WORDS", "_TYPER_COMPLETE_ARGS"])
def test_shell_completion_needs_the_family_on_the_line(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """bash passes the line in another variable than the other shells. The name of a command needs no family."""
    monkeypatch.setenv("_GROVEFS_COMPLETE", "complete_bash")
    monkeypatch.setenv(variable, "grovefs --home x show ab")
    assert list(needed_families([])) == ["show"]
    monkeypatch.setenv(variable, "grovefs sh")
    assert list(needed_families([])) == []


# Each of these takes longer to import than printing the help.
SLOW = (
    "store.sessions",
    "store.model",
    "store.index",
    "pydantic",
    "numpy",
    "trio",
    "pyfuse3",
    "rich",
    "apsw",
    "orjson",
)


def test_help_imports_nothing_slow() -> None:
    assert slow_imports("--help") == []


# What listing and searching do not need. Together these would take as long as the rest of the command.
UNUSED_BY_LS = (
    *("numpy", "trio", "pyfuse3", "store.transfer", "store.undo", "store.workspace", "store.namespace"),
    *("store.history.history", "store.commit.session_reader", "store.commit.reindex", "store.model.record"),
    *("store.documents.document", "store.documents.merge", "store.index.fulltext", "store.home.watcher"),
)


@pytest.mark.parametrize("command", [["ls"], ["search", "login"]])
def test_listing_and_searching_import_no_other_operations(command: list[str], tmp_path: Path) -> None:
    with Store.open(tmp_path, background=False) as store:
        store.save(make_session("one", messages=2))
    assert imported("--home", str(tmp_path), *command).isdisjoint(UNUSED_BY_LS)


def test_umount_imports_neither_the_store_nor_libfuse(tmp_path: Path) -> None:
    assert slow_imports("umount", str(tmp_path)) == ["pydantic"]  # typer needs it for arguments


def test_mount_imports_them_in_the_daemon(filled_home: Path, tmp_path: Path) -> None:
    """In a session of its own: a busy terminal session does not delay a daemon that loads there."""
    mountpoint = tmp_path / "mnt"
    try:
        loaded = imported("mount", "--home", str(filled_home), str(mountpoint))
        assert os.path.ismount(mountpoint)
        assert loaded.isdisjoint({"pyfuse3", "trio", "apsw", "store.index.database"})
    finally:
        subprocess.run(["fusermount3", "-u", str(mountpoint)], check=True)


@pytest.fixture
def filled_home(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "home", background=False) as store:
        store.save(make_session("one"))
    return tmp_path / "home"


def slow_imports(*arguments: str) -> list[str]:
    """The packages in SLOW that a command line imports."""
    return sorted(imported(*arguments).intersection(SLOW))


def imported(*arguments: str) -> set[str]:
    """All modules that a command line imports."""
    code = IMPORTED.replace('if m.startswith("fusefs.cli.commands.")', "")
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    found = set(result.stdout.splitlines()[-1].split())
    assert "fusefs.cli.overview" in found, result.stderr  # otherwise the command line did not run
    return found


def test_families_list_the_commands_they_register() -> None:
    """A command missing here would exist in `--help` only."""
    app = load()
    found = defaultdict(set)
    for command in app.registered_commands:
        assert command.callback is not None
        found[command.callback.__module__].add(command.name or command.callback.__name__)
    for group in app.registered_groups:
        found[f"{PREFIX}{group.name}"].add(group.name or "")
    assert found == {f"{PREFIX}{family}": set(commands) for family, commands in FAMILIES.items()}


AT_EXIT = """
import atexit, gc
atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count()))
from fusefs.cli import main
main()
"""


@pytest.mark.parametrize("arguments", [["ls"], ["show", "absent"]])
def test_exit_scans_no_imported_module(arguments: list[str], tmp_path: Path) -> None:
    """The interpreter collects garbage at exit: that would be a sixth of the CPU time of a short command."""
    command = [sys.executable, "-c", AT_EXIT, "--home", str(tmp_path), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "True"
