"""The command `grovefs`: arguments and exit codes, one module per command family."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

# Module in fusefs/cli/commands → the commands it registers when imported.
FAMILIES = {
    "backup": ("backup", "restore"),
    "check": ("check", "health", "rebuild"),
    "create": ("new", "append", "attach"),
    "delete": ("rm", "cleanup"),
    "diff": ("diff",),
    "edit": ("edit",),
    "exports": ("export",),
    "grep": ("grep",),
    "grove": ("grove",),
    "history": ("history",),
    "imports": ("import",),
    "list": ("ls",),
    "log": ("log",),
    "mail": ("mail",),
    "man": ("man",),
    "modify": ("mv", "fork", "pin", "unpin", "clear"),
    "mount": ("mount", "umount"),
    "open": ("open",),
    "projects": ("projects",),
    "prune": ("prune",),
    "resume": ("resume",),
    "revert": ("revert",),
    "schema": ("schema",),
    "search": ("search",),
    "show": ("show",),
    "snapshot": ("snapshot",),
    "state": ("state",),
    "stats": ("stats",),
    "status": ("status",),
    "tail": ("tail",),
    "topics": ("help",),
    "trash": ("trash", "undelete"),
    "undo": ("undo",),
}
_FAMILY_OF = {command: family for family, commands in FAMILIES.items() for command in commands}

# For commands and for the daemon, which `mount` runs. A large document becomes hundreds of
# thousands of objects without reference cycles. With the default thresholds (700, 10, 10) the
# garbage collector scans them repeatedly while they are created; a save then takes 1.4 times
# as long.
GC_THRESHOLDS = (50_000, 20, 20)


def main() -> None:
    """Run the command line. Expected errors print one line and set the exit code; a bug keeps its traceback."""
    if sys.argv[1:2] == ["grep"]:  # before any slow import: a search is faster than importing typer
        from fusefs.cli.commands.grep import main as grep_main

        sys.exit(grep_main(sys.argv[2:]))
    gc.set_threshold(*GC_THRESHOLDS)
    if len(sys.argv) > 2 and ("/" in sys.argv[1] or "/mount." in sys.argv[0]):
        from fusefs.cli import fstab

        if fstab.is_call(sys.argv):
            sys.argv[1:] = fstab.run(sys.argv[1:])
    from fusefs.cli.errors import run

    code = run(_run_command)
    gc.freeze()  # or the interpreter scans all imported modules at exit: a sixth of the CPU time of a short command
    sys.exit(code)


def _run_command() -> object:
    _replace_alias(sys.argv)
    app = load(needed_families(sys.argv[1:]))
    return app(prog_name="grovefs", standalone_mode=False)


def _replace_alias(line: list[str]) -> None:
    """Accept `unmount` for `umount`."""
    for place, word in enumerate(line[1:], 1):
        if not word.startswith("-") and line[place - 1] not in ("--home", "-H"):
            line[place] = "umount" if word == "unmount" else word
            return


def needed_families(arguments: Sequence[str]) -> Iterable[str]:
    """The family of the command in `arguments`, or of the line that a shell completes; none without a known command."""
    words = iter(_completed_line() if "_GROVEFS_COMPLETE" in os.environ else arguments)
    for word in words:
        if word in ("--home", "-H"):
            next(words, None)
        elif not word.startswith("-"):
            return [_FAMILY_OF[word]] if word in _FAMILY_OF else ()
    return ()


def _completed_line() -> list[str]:
    """The words after `grovefs` on the line to complete; bash and the other shells pass it in different variables."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


def load(families: Iterable[str] = FAMILIES) -> typer.Typer:
    """The application with the commands of `families`; the others are known by name and summary only."""
    from fusefs.cli.app import app
    from fusefs.cli.help import group_commands
    from fusefs.cli.overview import add_placeholders

    for family in families:
        module = import_module(f"fusefs.cli.commands.{family}")
        if family == "grep":  # must not import typer, so it cannot register itself
            module.register(app)
    add_placeholders(app)
    group_commands(app)
    return app
