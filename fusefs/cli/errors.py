"""What goes wrong, told: one line on standard error that says what and what to do, and an exit code.

0 fine; 1 refused, or nothing found; 2 wrong usage; 130 interrupted. A bug keeps its traceback.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import apsw
import typer

from fusefs.cli.terminal import echo
from store.errors import StoreError

REFUSED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # typer shows no other name for it
_NOISE = re.compile("^Invalid value: |Value error, ")  # typer's, where no option is to blame, and pydantic's


def run(command: Callable[[], object]) -> int:
    """Run a command that typer was told to leave its errors; its exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still in the buffer goes nowhere
        return REFUSED
    except (_USAGE_ERROR, typer.Abort, KeyboardInterrupt) as error:
        return _not_done(error)
    except StoreError as error:
        return print_error(str(error))
    except OSError as error:
        return print_error(f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error))
    except apsw.CorruptError as error:
        return print_error(f"index.db is damaged ({error}); delete it, it is made anew from the sessions")
    return code if isinstance(code, int) else 0


def print_error(text: str, code: int = REFUSED) -> int:
    echo(f"grovefs: {text}", err=True)
    return code


def _not_done(error: BaseException) -> int:
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return print_error("interrupted; what was not finished did not happen", INTERRUPTED)
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already, or is its text
        print(error, end="\n" if str(error) else "", file=sys.stderr)
        return WRONG_USAGE
    return print_error(_usage(error), WRONG_USAGE)


def _usage(error: Any) -> str:
    said = " ".join(_NOISE.sub("", error.format_message()).split()).rstrip(".")
    where = error.ctx.command_path if error.ctx is not None else "grovefs"
    return f"{said[:1].lower()}{said[1:]}; {_as_a_word(error)}`{where} --help` explains"


def _as_a_word(error: Any) -> str:
    """What begins with a minus may be meant as a word: how that is said, where words are taken."""
    name, command = getattr(error, "option_name", None), error.ctx and error.ctx.command
    takes_words = command is not None and any(param.param_type_name == "argument" for param in command.params)
    if name is None or name.startswith("--") or getattr(error, "possibilities", None) or not takes_words:
        return ""
    at = next((place for place, given in enumerate(sys.argv) if place and given.startswith(name)), len(sys.argv))
    line = shlex.join(["grovefs", *sys.argv[1:at], "--", *sys.argv[at:]])
    return f"if {sys.argv[at] if sys.argv[at:] else name} is no option, put -- before it: `{line}`; "
