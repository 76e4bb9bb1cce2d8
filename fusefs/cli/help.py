"""How `--help` reads: commands in groups by what one wants to do, and paragraphs that flow to the terminal's width."""

from __future__ import annotations

import inspect

import typer
from typer.models import CommandInfo

# What one wants to do → the commands for it, in this order. A command that stands nowhere comes last.
PANELS = {
    "Mount": ("mount", "umount", "status"),
    "Read and find": ("ls", "show", "tail", "search", "grep", "stats"),
    "Make and change": ("new", "append", "attach", "edit", "mv", "fork", "pin", "unpin"),
    "Take away, and have back": ("rm", "clear", "cleanup", "prune", "trash", "undelete"),
    "Come, go and keep": ("import", "export", "backup", "restore"),
    "Care": ("check", "rebuild", "health", "schema", "man"),
    "Beside the conversations": ("mail", "state", "projects"),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_ORDER = list(_PANEL_OF)


def group_commands(app: typer.Typer) -> None:
    """Once all commands are registered, those of groups too."""
    app.info.help = reflow(app.info.help or "")
    for command in app.registered_commands:
        command.help = reflow(command.help or inspect.getdoc(command.callback) or "")
        command.rich_help_panel = _PANEL_OF.get(_name(command))
    app.registered_commands.sort(key=_rank)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.rich_help_panel = _PANEL_OF.get(group.name or "")
            group_commands(group.typer_instance)


def _name(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _rank(command: CommandInfo) -> int:
    return _ORDER.index(_name(command)) if _name(command) in _ORDER else len(_ORDER)


def reflow(text: str) -> str:
    """Each paragraph one line: typer breaks lines where the source does, else, and again at the terminal's edge."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
