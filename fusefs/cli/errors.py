"""Error reporting: one line on standard error that says what failed and what to do, and an exit code.

0 success; 1 rejected, or nothing found; 2 usage error; 130 interrupted. A bug keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import typer

from fusefs.cli.terminal import echo
from store.errors import StoreError, describe

REFUSED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_DELETE_INDEX = "unmount the home, end programs that use it, and delete index.db: it is rebuilt from the files"
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # click.UsageError, which typer does not export
_NOISE = re.compile(
    "^Invalid value: |Value error, "
)  # prefixes that typer (without an option to blame) and pydantic add
# Error type of pydantic → text.
_PROBLEMS = {
    "int_parsing": "expected a whole number, got {value!r}",
    "float_parsing": "expected a number, got {value!r}",
    "greater_than_equal": "expected at least {ge}, got {value}",
    "less_than_equal": "expected at most {le}, got {value}",
}


def run(command: Callable[[], object]) -> int:
    """Run a command in non-standalone mode, report its errors, and return the exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `| head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discards the rest of the buffer at exit
        return REFUSED
    except (_USAGE_ERROR, typer.Abort, KeyboardInterrupt) as error:
        return _report_usage(error)
    except StoreError as error:
        return print_error(str(error))
    except OSError as error:
        return print_error(error_text(error))
    except _damaged_index() as error:
        return print_error(f"index.db is damaged ({error}); {_DELETE_INDEX}")
    return code if isinstance(code, int) else 0


def error_text(error: BaseException) -> str:
    """What failed, and what to do about a disk that is full or read-only."""
    text = describe(error)
    number, name = getattr(error, "errno", None), str(getattr(error, "filename", None) or "")
    home, private, _ = name.partition("/.grovefs/")
    if not private:
        return text
    if number == errno.EROFS:
        return f"{text}; the index and the locks of a home are written. Copy {home}, and pass the copy with -H"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}; free space on this disk: `grovefs trash --empty` erases deleted sessions"
    return text


def _damaged_index() -> type[Exception]:
    """Imports apsw only when an exception is looked at: `--help` needs no database."""
    import apsw

    return apsw.CorruptError


def print_error(text: str, code: int = REFUSED) -> int:
    echo(f"grovefs: {text}", err=True)
    return code


def _report_usage(error: BaseException) -> int:
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return print_error("interrupted; unfinished operations were not applied", INTERRUPTED)
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was printed, or is the text of the error
        print(error, end="\n" if str(error) else "", file=sys.stderr)
        return WRONG_USAGE
    return print_error(_usage(error), WRONG_USAGE)


def _usage(error: Any) -> str:
    error.message = _plain_problem(error) or error.message
    text = " ".join(_NOISE.sub("", error.format_message()).split()).rstrip(".")
    where = error.ctx.command_path if error.ctx is not None else "grovefs"
    if not text[1:2].isupper():  # TEXT, the name of an argument
        text = f"{text[:1].lower()}{text[1:]}"
    if text.endswith("?"):  # it suggests what to write
        return text
    return f"{text}; {_dash_hint(error)}see `{where} --help`"


def _plain_problem(error: Any) -> str | None:
    """The problem that pydantic found in the value of an option, in plain words; None for other problems."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    problem = _PROBLEMS.get(found[0]["type"]) if found else None
    return problem.format(value=found[0]["input"], **found[0].get("ctx", {})) if problem else None


def _dash_hint(error: Any) -> str:
    """For an unknown option that may be an argument starting with a dash: how to pass it after `--`."""
    name, command = getattr(error, "option_name", None), error.ctx and error.ctx.command
    takes_words = command is not None and any(param.param_type_name == "argument" for param in command.params)
    if name is None or name.startswith("--") or getattr(error, "possibilities", None) or not takes_words:
        return ""
    at = next((place for place, given in enumerate(sys.argv) if place and given.startswith(name)), len(sys.argv))
    line = shlex.join(["grovefs", *sys.argv[1:at], "--", *sys.argv[at:]])
    return f"if {sys.argv[at] if sys.argv[at:] else name} is not an option, put -- before it: `{line}`; "
