"""Running GNU grep: in our place, or several one after the other.

For a process of its own that is about to end; few imports.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

TROUBLE = 2


def environment() -> dict[bytes, bytes]:
    """As our caller gave it: Python sets LC_CTYPE for itself where it finds the C locale."""
    found = dict(os.environb)
    if b"LC_CTYPE" in found:
        with open("/proc/self/environ", "rb") as given:
            if not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0")):
                del found[b"LC_CTYPE"]
    return found


def exec_grep(command: list[bytes]) -> NoReturn:
    """Never returns: this process is grep from now on."""
    # The module above this one takes 5 ms to import.
    from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]

    for number in (SIGPIPE, SIGXFSZ):  # which Python ignores, and a program would inherit that
        signal(number, SIG_DFL)
    try:
        os.execvpe(command[0], command, environment())
    except FileNotFoundError:
        print("grovefs: GNU grep is not installed", file=sys.stderr)
        sys.exit(TROUBLE)


def run_serially(commands: list[list[bytes]]) -> int:
    return combined([_wait(_spawn(command)) for command in commands])


def combined(codes: list[int]) -> int:
    """The exit code of one grep that would have done what several did."""
    worst = max(codes)
    return worst if worst >= TROUBLE else min(codes)


def _spawn(command: list[bytes]) -> int:
    from _signal import SIGPIPE, SIGXFSZ

    return os.posix_spawnp(command[0], command, environment(), setsigdef=[SIGPIPE, SIGXFSZ])


def _wait(process: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code
