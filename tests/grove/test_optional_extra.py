"""PostgreSQL is optional: a home that has not joined a grove needs no psycopg."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_PSYCOPG = """
import importlib.abc, sys


class Forbidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")


sys.meta_path.insert(0, Forbidden())
from fusefs.cli import main
main()
"""


def run_without_psycopg(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with an import system that has no psycopg, and refuses to look for it."""
    command = [sys.executable, "-c", WITHOUT_PSYCOPG, "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "arguments", [["ls"], ["search", "hello"], ["log", "s1"], ["check"], ["append", "s1", "more"], ["status"]]
)
def test_commands_work_without_psycopg(arguments: list[str], tmp_path: Path) -> None:
    """Nothing looks for it, not even to see whether it is installed."""
    assert run_without_psycopg(tmp_path / "home", "new", "s1", "-m", "hello").returncode == 0
    result = run_without_psycopg(tmp_path / "home", *arguments)
    assert (result.returncode, result.stderr) == (0, "")


def test_joining_without_psycopg_says_what_to_install(tmp_path: Path) -> None:
    result = run_without_psycopg(tmp_path / "home", "grove", "join", "postgresql:///nowhere")
    assert result.returncode != 0
    assert "pip install 'grovefs[grove]'" in result.stderr
    assert "Traceback" not in result.stderr
