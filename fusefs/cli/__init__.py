"""The command `grovefs`: arguments and exit codes, one file per family of commands."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

# Importing a family registers its commands. One a line: they come from many hands.
FAMILIES = (
    "create",
    "backup",
    "check",
    "modify",
    "edit",
    "search",
    "health",
    "mail",
    "man",
    "mount",
    "projects",
    "prune",
    "delete",
    "schema",
    "list",
    "show",
    "state",
    "stats",
    "status",
    "tail",
    "import_export",
    "trash",
)


def main() -> None:
    """Run the command line. What goes wrong is one line and an exit code; a bug keeps its traceback."""
    if sys.argv[1:2] == ["grep"]:  # before anything that takes time is imported
        from fusefs.cli.commands.grep import main as grep_main

        sys.exit(grep_main(sys.argv[2:]))
    if len(sys.argv) > 2 and ("/" in sys.argv[1] or "/mount." in sys.argv[0]):
        from fusefs.cli import fstab

        if fstab.is_call(sys.argv):
            sys.argv[1:] = fstab.run(sys.argv[1:])
    from fusefs.cli.errors import run

    app = load()
    sys.exit(run(lambda: app(prog_name="grovefs", standalone_mode=False)))


def load() -> typer.Typer:
    """The application with all its commands."""
    from fusefs.cli.app import app
    from fusefs.cli.help import group_commands

    for family in FAMILIES:
        import_module(f"fusefs.cli.commands.{family}")
    import_module("fusefs.cli.commands.grep").register(app)
    group_commands(app)
    return app
