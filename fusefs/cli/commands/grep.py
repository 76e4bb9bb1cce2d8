"""grovefs grep: finds in a moment what `grep -rn` would find in all files.

Reached without typer, pydantic or the store itself, for the time they take is longer than a search.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

HELP = """Usage: grovefs grep [--home DIR] [OPTION]... PATTERN

Search the files of all sessions for lines that match PATTERN: documents, logs,
attachments, whatever lies in sessions/. What is printed, and the exit code, are
those of `grep -rn PATTERN sessions` run in the home, but only files that can
match are read. OPTIONs are GNU grep's own:

  -i, -E, -F, -P, -w, -x, -e PATTERN, -f FILE    what matches
  -l, -L, -c, -o, -q, -h, -v, -m NUM, --color    what is printed
  -A, -B, -C NUM                                 lines around it
  --include=GLOB, --exclude=GLOB                 which files

-v, -c and -L tell of files without a match too, so all are read; so they are
for patterns of fewer than three letters in a row.

  --home DIR   the directory that holds the sessions
               [default: $GROVEFS_HOME, $BAMBOO_DATA_DIR or ~/.grovefs]

Files are searched as they are: in JSON a quote inside a text is \\", a new line \\n.
A mount, or any process that has the home open for long, watches the files; without
one each file's times are compared first, which takes longer.
Exit codes: 0 something was found, 1 nothing was, 2 something went wrong.
"""
TROUBLE = 2


def main(arguments: list[str]) -> int:
    """The command, from what stands behind `grovefs grep`. Becomes grep, or returns an exit code."""
    home, line = _home(arguments)
    if "--help" in line and "--" not in line[: line.index("--help")]:
        print(HELP, end="")
        return 0
    if home is None:
        print("grovefs: --home needs a directory", file=sys.stderr)
        return TROUBLE
    from store.search.grep import grep

    try:
        return grep.run([os.fsencode(part) for part in line], os.fsencode(home))
    except OSError as error:
        print(f"grovefs: {error.strerror}: {error.filename}", file=sys.stderr)
        return TROUBLE


def _home(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Our one option taken out of grep's; it may stand anywhere before `--`."""
    home: str | None = os.environ.get("GROVEFS_HOME") or os.environ.get("BAMBOO_DATA_DIR") or "~/.grovefs"
    line: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            line += [argument, *given]
        elif argument == "--home":
            home = next(given, None)
        elif argument.startswith("--home="):
            home = argument[len("--home=") :]
        else:
            line.append(argument)
    return os.path.expanduser(home) if home else None, line


def register(app: typer.Typer) -> None:
    """So that `grovefs --help` lists it; `main` is called before typer ever looks at the line."""

    @app.command("grep", add_help_option=False, context_settings={"ignore_unknown_options": True})
    def grep(arguments: list[str]) -> None:
        """Search the files themselves, as `grep -rn` would, reading only those that can match."""
        sys.exit(main(arguments))
