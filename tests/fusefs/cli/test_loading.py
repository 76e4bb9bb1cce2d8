"""Commands are imported only when they are needed: start-up time counts."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from fusefs.cli import FAMILIES, load, needed_families

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
def test_help_and_suggestions_need_all_families(arguments: list[str]) -> None:
    assert set(needed_families(arguments)) == set(FAMILIES)


def test_shell_completion_needs_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GROVEFS_COMPLETE", "complete_bash")
    assert set(needed_families(["ls"])) == set(FAMILIES)


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
