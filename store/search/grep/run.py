"""Running GNU grep: in our place, one after the other, or several at once with what they print in order.

For a process of its own that is about to end; few imports.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

TROUBLE = 2
_AHEAD = 2  # greps that may have ended before what they print is due
_CHUNK_BYTES = 1 << 20


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
    return combined([_wait(_spawn(command, [])) for command in commands])


def combined(codes: list[int]) -> int:
    """The exit code of one grep that would have done what several did."""
    worst = max(codes)
    return worst if worst >= TROUBLE else min(codes)


def can_be_shared() -> bool:
    """Whether grep would notice that its output goes through our hands: a terminal, /dev/null, a file it may read."""
    if len(os.sched_getaffinity(0)) < 2:
        return False
    info = os.fstat(1)
    if stat.S_ISREG(info.st_mode):
        return info.st_dev != os.stat(b".").st_dev
    return not stat.S_ISCHR(info.st_mode)


class DryRun:
    """A grep over nothing, begun at once: has it a message of its own? Each of several would print it."""

    def __init__(self, command: list[bytes]) -> None:
        self._kept = os.memfd_create("grep", os.MFD_CLOEXEC)
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._process = _spawn(command, [(os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, self._kept, 2)])
        os.close(nothing)

    def is_silent(self) -> bool:
        code = _wait(self._process)
        size = os.fstat(self._kept).st_size
        os.close(self._kept)
        return code < TROUBLE and size == 0


def run_parallel(commands: list[list[bytes]]) -> int:
    """Several greps at once. What they print comes in the order of the commands."""
    from _signal import SIG_DFL, SIGINT, SIGPIPE, signal

    running: list[_GrepRun] = []
    codes = []
    try:
        for run in _started(commands, running):
            codes.append(run.finish())
    except (BrokenPipeError, KeyboardInterrupt) as error:
        for run in running:
            run.end()
        number = SIGPIPE if isinstance(error, BrokenPipeError) else SIGINT
        signal(number, SIG_DFL)  # and so to our end, as grep would
        os.kill(os.getpid(), number)
    return combined(codes)


def _started(commands: list[list[bytes]], running: list[_GrepRun]) -> Iterator[_GrepRun]:
    at_once = len(os.sched_getaffinity(0)) + _AHEAD
    waiting = iter(commands)
    for command in waiting:
        running.append(_GrepRun(command))
        if len(running) >= at_once:
            yield running.pop(0)
    while running:
        yield running.pop(0)


class _GrepRun:
    """One grep, what it prints kept in memory until its turn."""

    def __init__(self, command: list[bytes]) -> None:
        self._kept = [os.memfd_create("grep", os.MFD_CLOEXEC) for _ in range(2)]
        self._process = _spawn(command, [(os.POSIX_SPAWN_DUP2, fd, i + 1) for i, fd in enumerate(self._kept)])

    def finish(self) -> int:
        code = _wait(self._process)
        for target, fd in ((1, self._kept[0]), (2, self._kept[1])):
            os.lseek(fd, 0, os.SEEK_SET)
            while data := os.read(fd, _CHUNK_BYTES):
                while data:
                    data = data[os.write(target, data) :]
            os.close(fd)
        return code

    def end(self) -> None:
        from _signal import SIGKILL

        os.kill(self._process, SIGKILL)
        os.waitpid(self._process, 0)


def _spawn(command: list[bytes], actions: list[tuple[int, int, int]]) -> int:
    from _signal import SIGPIPE, SIGXFSZ

    return os.posix_spawnp(command[0], command, environment(), file_actions=actions, setsigdef=[SIGPIPE, SIGXFSZ])


def _wait(process: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code
