"""Output for people. Titles, names and messages come from agents and may try to control the terminal.

Everything the commands print goes through `echo` or through `print_table` and `print_json` in `app`. Only data that is
piped as it is stored (`show`, `tail`, `state show`, `export -`) does not.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

# C0 and C1 controls (escape sequences begin with one), bidirectional embeddings, overrides and isolates, which make
# text look different from its content, and surrogates (bytes of a file name that are not UTF-8).
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAKS = re.compile(r"[\t\n]+")


def clean(text: str) -> str:
    r"""Replace characters that control a terminal by their JSON escapes, such as \u001b. Newlines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\r\n", "\n"))


def clean_cell(text: str) -> str:
    """The same for one cell of a table, which is one line."""
    return clean(_LINE_BREAKS.sub(" ", text))


def page(text: str) -> None:
    """Show text that is already clean through $PAGER, or less, if a person is at the terminal; else print it."""
    pager = shlex.split(os.environ.get("PAGER") or "less")
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if is_interactive and pager and shutil.which(pager[0]):
        # F: do not page what fits on the screen; R: show colours; X: leave the text on the screen
        environment = {"LESS": "FRX", **os.environ}
        subprocess.run(pager, input=text.encode(errors="replace"), env=environment, check=False)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def echo(text: str, *, err: bool = False) -> None:
    """Print one or more lines to standard output or standard error."""
    print(clean(text), file=sys.stderr if err else sys.stdout, flush=True)


def as_argument(name: str) -> str:
    """A name as it is written in a command line that an error or a hint suggests."""
    quoted = shlex.quote(name)
    return f"-- {quoted}" if name.startswith("-") else quoted
