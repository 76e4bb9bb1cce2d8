"""Layout of `--help`."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from fusefs.cli import FAMILIES, load
from fusefs.cli.help import PANELS, reflow


def test_every_command_has_a_heading() -> None:
    commands = [command for names in FAMILIES.values() for command in names]
    assert sorted(commands) == sorted(name for names in PANELS.values() for name in names)


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
