"""Running GNU grep: replace this process by it, or run several one after the other.

Used by a short-lived process, so it imports little.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

TROUBLE = 2  # grep's exit code for errors


def environment() -> dict[bytes, bytes]:
    """The caller's environment. Python sets LC_CTYPE for itself in the C locale; grep must not inherit that."""
    found = dict(os.environb)
    if b"LC_CTYPE" in found:
        with open("/proc/self/environ", "rb") as original:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in original.read().split(b"\0")):
                del found[b"LC_CTYPE"]
    return found


def exec_grep(command: list[bytes]) -> NoReturn:
    """Replace this process by grep. Does not return."""
    # Not the `signal` module: importing it takes 5 ms.
    from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]

    for number in (SIGPIPE, SIGXFSZ):  # Python ignores these, and exec would pass that on
        signal(number, SIG_DFL)
    try:
        os.execvpe(command[0], command, environment())
    except FileNotFoundError:
        print("grovefs: GNU grep is not installed", file=sys.stderr)
        sys.exit(TROUBLE)


def run_serially(commands: list[list[bytes]]) -> int:
    return combine_exit_codes([_run(command) for command in commands])


def combine_exit_codes(codes: list[int]) -> int:
    """The exit code that a single grep over all files would have had."""
    worst = max(codes)
    return worst if worst >= TROUBLE else min(codes)


def _run(command: list[bytes]) -> int:
    from _signal import SIGPIPE, SIGXFSZ

    process = os.posix_spawnp(command[0], command, environment(), setsigdef=[SIGPIPE, SIGXFSZ])
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code
