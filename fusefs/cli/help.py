"""Layout of `--help`: commands in groups, paragraphs wrapped to the terminal, options and arguments without clutter."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

from fusefs.cli.overview import PANELS

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_ORDER = list(_PANEL_OF)
_VALUE_NAMES = {int: "N", float: "N", str: "TEXT", Path: "PATH"}


class PlainCommand(TyperCommand):
    """A command whose help shows `--json`, `--limit N` and `FILE`, not `--json <bool>`, `--limit <int>`, `{FILE}`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return list(map(_without_clutter, super().get_params(ctx)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar] if self.options_metavar else []
        return pieces + [_usage_piece(param) for param in self.get_params(ctx) if _is_argument(param)]


class PlainGroup(TyperGroup):
    """The same for a group of commands, which it lists under headings."""

    def get_params(self, ctx: Any) -> list[Any]:
        return list(map(_without_clutter, super().get_params(ctx)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in PANELS}
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(heading, []).append((name, (command.help or "").partition("\n")[0]))
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _without_clutter(param: Any) -> Any:
    """Adjust how typer shows a parameter: flags have no value, arguments and values are named in capitals."""
    if _is_argument(param):
        param.metavar = param.metavar or param.name.upper() + ("..." if param.nargs != 1 else "")
        if not param.type_descriptor.is_choice:
            param.display_type_rich = lambda ctx: None
    elif param.is_flag:
        param.metavar = ""
    elif param.metavar is None:
        param.metavar = _VALUE_NAMES.get(param.type_descriptor.annotation)
    return param


def _usage_piece(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def group_commands(app: typer.Typer) -> None:
    """Apply headings, order and layout to all registered commands, and the layout to those of groups."""
    for command in app.registered_commands:
        command.rich_help_panel = _PANEL_OF.get(_name(command))
    app.registered_commands.sort(key=_rank)
    for group in app.registered_groups:
        group.rich_help_panel = _PANEL_OF.get(group.name or "")
    _lay_out(app)


def _lay_out(app: typer.Typer) -> None:
    app.info.help = reflow(app.info.help or "")
    app.info.cls = PlainGroup
    for command in app.registered_commands:
        command.help = reflow(command.help or inspect.getdoc(command.callback) or "")
        command.cls = PlainCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _lay_out(group.typer_instance)


def _name(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _rank(command: CommandInfo) -> int:
    return _ORDER.index(_name(command)) if _name(command) in _ORDER else len(_ORDER)


def reflow(text: str) -> str:
    """Put each paragraph on one line. Otherwise typer keeps the line breaks of the source and wraps once more."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
