"""A process under strace, struck at one system call: killed before it, or answered an error instead of it.

It is forked from this warm process, prepares itself and waits; strace takes hold of it, and only then it acts: so the
calls that are counted are those of the act alone, in a single thread. It speaks through a socket, by calls that are not
among those that are counted.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.torture.forked import PATIENCE_S

# What changes the disk.
CALLS = (
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("write", "pwrite64", "writev", "pwritev", "ftruncate", "fsync", "fdatasync", "sync_file_range"),
)
LONGEST = 100_000  # bytes of what a child may say


class Blow(NamedTuple):
    """What befalls a process at the `number`th call of a name; an error may last from then on."""

    call: str
    number: int
    what: str  # "kill", or the error's name
    is_lasting: bool = False

    def __str__(self) -> str:
        return f"{self.what}{' from' if self.is_lasting else ' at'} {self.call} {self.number}"

    @property
    def rule(self) -> str:
        """As strace wants it."""
        how = "signal=KILL" if self.what == "kill" else f"error={self.what}"
        return f"inject={self.call}:{how}:when={self.number}{'+' if self.is_lasting else ''}"


@contextmanager
def held(pid: int, log: Path, blow: Blow | None = None) -> Iterator[None]:
    """strace has hold of a process, and lets it go at the end."""
    wanted = ",".join(f"?{call}" for call in CALLS)
    with attached(pid, "-y", "-o", str(log), "-e", f"trace={wanted}", *(["-e", blow.rule] if blow else [])):
        yield


@contextmanager
def attached(pid: int, *options: str) -> Iterator[None]:
    strace = subprocess.Popen(["strace", *options, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    assert strace.stderr is not None
    try:
        said = strace.stderr.readline()
        assert "attached" in said, f"strace: {said.strip()}"
        yield
    finally:
        strace.terminate()
        strace.communicate()


class Act(NamedTuple):
    """What is done under strace, and how its doer judges it afterwards, alone again: by raising, if all is not well."""

    do: Callable[[], object]
    judge: Callable[[Exception | None], None] | None = None


class Outcome(NamedTuple):
    said: str | None  # of the act: "over", or its error; None if it was killed
    verdict: str | None = None  # of the judge: "well", or what is wrong


def hush() -> None:
    """In a child: what the store warns of is expected there."""
    logging.getLogger("grovefs").setLevel(logging.CRITICAL)


def _live(prepare: Callable[[], Act], line: socket.socket) -> NoReturn:
    hush()
    error: Exception | None = None
    held_on_to: object = None
    try:
        act = prepare()
        line.send(b"ready")
        line.recv(1)
        try:
            held_on_to = act.do()  # a store that it opened is not to be closed while strace still counts
        except Exception as answered:
            error = answered
        line.send(b"over" if error is None else f"error: {error!r}".encode()[:LONGEST])
        line.recv(1)  # strace is gone by then
        del held_on_to
        if act.judge is not None:
            act.judge(error)
        line.send(b"well")
    except BaseException:
        line.send(traceback.format_exc().encode()[-LONGEST:])
    finally:
        os._exit(0)


def run(prepare: Callable[[], Act], log: Path, blow: Blow | None = None, *, is_judged: bool = False) -> Outcome:
    """Prepare and act in a process of its own, under a blow; killed in the end, also if it has reported success."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _live(prepare, theirs)
    theirs.close()
    try:
        with ours:
            ours.settimeout(PATIENCE_S)
            assert (begun := ours.recv(LONGEST)) == b"ready", begun.decode()
            with held(pid, log, blow):
                ours.send(b"!")
                said = ours.recv(LONGEST).decode() or None
            if said is None or not is_judged:
                return Outcome(said)
            ours.send(b"!")
            return Outcome(said, ours.recv(LONGEST).decode())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Call(NamedTuple):
    """One that an act makes if nothing befalls it: the `number`th of its name, on a file if it is given one."""

    name: str
    number: int
    file: str
    is_between: bool  # the one before it and the one after it are of the same name, on the same file


def calls(prepare: Callable[[], Act], log: Path) -> list[Call]:
    """Those that change the disk, in their order."""
    outcome = run(prepare, log)
    assert outcome.said == "over", outcome
    made = re.findall(r"^(\w+)\((?:\d+<([^>]*)>)?", log.read_text(), re.MULTILINE)
    so_far: Counter[str] = Counter()
    found = []
    for before, (name, file), after in zip([None, *made], made, [*made[1:], None], strict=False):
        so_far[name] += 1
        found.append(Call(name, so_far[name], file, bool(file) and before == (name, file) == after))
    return found
