"""Layout of `--help`."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from fusefs.cli import FAMILIES, load
from fusefs.cli.help import reflow
from fusefs.cli.overview import PANELS


def test_every_command_has_a_heading() -> None:
    commands = [command for names in FAMILIES.values() for command in names]
    assert sorted(commands) == sorted(name for names in PANELS.values() for name in names)


def test_summaries_are_those_of_the_commands() -> None:
    """`grovefs --help` prints them without importing the commands."""
    group: Any = get_command(load())
    told = {name: command.help.partition("\n")[0] for name, command in group.commands.items()}
    assert told == {name: summary for summaries in PANELS.values() for name, summary in summaries.items()}


def test_commands_are_listed_under_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """In a group, a command of the same name as one at the top has no heading of its own."""
    group: Any = get_command(load())
    group(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert [shown.index(f"\n{heading}:\n") for heading in PANELS] == sorted(
        shown.index(f"\n{heading}:\n") for heading in PANELS
    )
    group(["grove", "--help"], standalone_mode=False)
    assert "\nMount:\n" not in capsys.readouterr().out


def records(*names: str) -> dict[str, str]:
    """The options and arguments of a command as its help shows them."""
    command: Any = get_command(load())
    context = command.make_context("grovefs", [], resilient_parsing=True)
    for name in names:
        command = command.get_command(context, name)
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    shown = [param.get_help_record(context) for param in command.get_params(context)]
    return {"usage": " ".join(command.collect_usage_pieces(context)), **dict(record for record in shown if record)}


def test_flags_are_shown_without_a_type() -> None:
    assert {"--json", "--pinned", "--help", "-n, --limit N", "--title TEXT"} <= set(records("ls"))


def test_arguments_are_shown_by_name() -> None:
    assert records("rm")["usage"] == "[OPTIONS] SESSION..."
    assert records("new")["usage"] == "[OPTIONS] [ID]"
    assert records("search")["usage"] == "[OPTIONS] QUERY..."
    assert {"PROJECT", "SESSION"} <= set(records("projects", "show"))


def test_paragraphs_are_put_on_one_line() -> None:
    assert reflow("First\n    line.\n\n    Second\n    one.") == "First line.\n\nSecond one."
