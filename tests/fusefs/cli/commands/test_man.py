"""grovefs man: the page documents every command and option and formats without warnings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fusefs.cli import FAMILIES
from fusefs.cli.app import app
from fusefs.cli.commands import man


@pytest.fixture(scope="module")
def page() -> str:
    code = "from fusefs.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code, "man"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def shown(page: str) -> str:
    """The formatted page, on one line."""
    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=200n", "-P-cbou"]
    result = subprocess.run(command, input=page, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return " ".join(re.sub("\u2010\n\\s*", "", result.stdout).replace("\u2010", "-").split())


def commands() -> Iterator[Any]:
    from importlib import import_module

    for family in FAMILIES:
        import_module(f"fusefs.cli.commands.{family}")
    group: Any = typer.main.get_command(app)
    waiting = [group]
    while waiting:
        found = waiting.pop()
        waiting += getattr(found, "commands", {}).values()
        if not hasattr(found, "commands"):
            yield found


def test_every_command_and_option_is_documented(shown: str) -> None:
    for command in commands():
        assert f"grovefs {command.name}" in shown or f" {command.name} " in shown, command.name
        for parameter in command.params:
            if not getattr(parameter, "hidden", False) and parameter.param_type_name == "option":
                for option in parameter.opts:
                    assert option in shown, (command.name, option)


def test_page_contains_the_help_texts(shown: str) -> None:
    for command in commands():
        if not command.hidden:
            assert " ".join((command.help or "").split())[:60].rstrip(".") in shown, command.name


def test_page_has_the_sections_of_a_manual_page(page: str) -> None:
    assert page.isascii()
    assert page.startswith('.TH GROVEFS 1 "" "grovefs ')
    sections = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)
    assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    macros = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert macros <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".nf", ".fi"}
    assert re.search(r"^grovefs \\- \S", page, re.MULTILINE)


@pytest.mark.parametrize("text", [".TH evil", "'tis", 'a\n.so "x"', "back\\slash", "漢字"])
def test_text_is_escaped_for_the_formatter(text: str) -> None:
    escaped = man._text(text)
    assert escaped.isascii()
    assert not re.search(r"^[.']", escaped, re.MULTILINE)
    assert '"' not in escaped


def test_page_can_be_installed(tmp_path: Path, page: str) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    code = "from fusefs.cli import main; main()"
    command = [sys.executable, "-c", code, "man", "--install"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    path = tmp_path / "man/man1/grovefs.1"
    assert result.stdout == f"{path}: written\n"
    assert path.read_text() == page
