"""Indexed search of the files with grep's options and output: grep.

Runs without importing typer, pydantic or the store, which would take longer than the search.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

HELP = """Usage: grovefs grep [--home DIR] [OPTION]... PATTERN

Search the files of all sessions (documents, logs, attachments, everything in
sessions/) for lines that match PATTERN. Output and exit code are those of
`grep -rn PATTERN sessions` run in the home, but an index selects the files that
can match. The OPTIONs are those of GNU grep:

  -i, -E, -F, -P, -w, -x, -e PATTERN, -f FILE    matching
  -l, -L, -c, -o, -q, -h, -v, -m NUM, --color    output
  -A, -B, -C NUM                                 context lines
  --include=GLOB, --exclude=GLOB                 selection of files

All files are read for -v, -c and -L, which also report files without a match, and
for patterns with fewer than three consecutive literal characters.

  --home DIR   directory that holds the sessions
               [default: $GROVEFS_HOME, $BAMBOO_DATA_DIR or ~/.grovefs]

Files are searched as stored: inside a JSON string a quote is \\" and a newline \\n.
A mount, or another long-running process with the home open, keeps the index
current. Without one, grep first compares the times of all files, which is slower.
Exit codes: 0 match found, 1 no match, 2 error.
"""
ERROR = 2


def main(arguments: list[str]) -> int:
    """Run the command with the arguments after `grovefs grep`. Replaces the process by grep or returns an exit code."""
    home, line = _home(arguments)
    if "--help" in line and "--" not in line[: line.index("--help")]:
        print(HELP, end="")
        return 0
    if home is None:
        print("grovefs: --home needs a directory", file=sys.stderr)
        return ERROR
    from store.search.grep import grep

    words = [os.fsencode(part) for part in line]
    if grep.lacks_pattern(words):
        print(f"{HELP.partition(chr(10))[0]}\nTry 'grovefs grep --help' for more information.", file=sys.stderr)
        return ERROR
    try:
        return grep.run(words, os.fsencode(home))
    except OSError as error:
        print(f"grovefs: {error.strerror}: {error.filename}", file=sys.stderr)
        return ERROR


def _home(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Split off --home, the only option that is not grep's. It may appear anywhere before `--`."""
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
    """Register the command for `grovefs --help`; normally `main` is called before typer is imported."""

    @app.command("grep", add_help_option=False, context_settings={"ignore_unknown_options": True})
    def grep(arguments: list[str]) -> None:
        """Search the files with grep, using an index to read only files that can match."""
        sys.exit(main(arguments))
