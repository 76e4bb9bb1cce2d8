"""Runs a process under strace with a fault at one system call: killed before it, or an error instead of it.

The process is forked, prepares itself and waits until strace is attached; only then it acts. So the counted calls are
those of the action alone, in a single thread. It reports through a socket, with calls that are not counted.
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

# The system calls that change the disk.
CALLS = (
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("write", "pwrite64", "writev", "pwritev", "ftruncate", "fsync", "fdatasync", "sync_file_range"),
)
LONGEST = 100_000  # maximum size of a message from a child


class Fault(NamedTuple):
    """A fault at the `number`th call of a name; an error may be permanent."""

    call: str
    number: int
    what: str  # "kill", or the name of the error
    is_lasting: bool = False

    def __str__(self) -> str:
        return f"{self.what}{' from' if self.is_lasting else ' at'} {self.call} {self.number}"

    @property
    def rule(self) -> str:
        """The option for strace."""
        how = "signal=KILL" if self.what == "kill" else f"error={self.what}"
        return f"inject={self.call}:{how}:when={self.number}{'+' if self.is_lasting else ''}"


@contextmanager
def held(pid: int, log: Path, blow: Fault | None = None) -> Iterator[None]:
    """Attach strace to a process; detach at the end."""
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
    """An action under strace, and the judgement by the same process afterwards, which raises if something is wrong."""

    do: Callable[[], object]
    judge: Callable[[Exception | None], None] | None = None


class Outcome(NamedTuple):
    said: str | None  # of the action: "over", or its error; None if killed
    verdict: str | None = None  # of the judgement: "well", or what is wrong


def silence_warnings() -> None:
    """In a child: silence the expected warnings of the store."""
    logging.getLogger("grovefs").setLevel(logging.CRITICAL)


def _live(prepare: Callable[[], Act], line: socket.socket) -> NoReturn:
    silence_warnings()
    error: Exception | None = None
    held_on_to: object = None
    try:
        act = prepare()
        line.send(b"ready")
        line.recv(1)
        try:
            held_on_to = act.do()  # the store must not be closed while strace still counts
        except Exception as answered:
            error = answered
        line.send(b"over" if error is None else f"error: {error!r}".encode()[:LONGEST])
        line.recv(1)  # strace is detached by now
        del held_on_to
        if act.judge is not None:
            act.judge(error)
        line.send(b"well")
    except BaseException:
        line.send(traceback.format_exc().encode()[-LONGEST:])
    finally:
        os._exit(0)


def run(prepare: Callable[[], Act], log: Path, blow: Fault | None = None, *, is_judged: bool = False) -> Outcome:
    """Prepare and act in a new process, under a fault; the process is killed at the end, also after success."""
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
    """A call that an action makes without a fault: the `number`th of its name, and its file if it has one."""

    name: str
    number: int
    file: str
    is_between: bool  # the calls before and after have the same name and file


def calls(prepare: Callable[[], Act], log: Path) -> list[Call]:
    """The calls that change the disk, in order."""
    outcome = run(prepare, log)
    assert outcome.said == "over", outcome
    made = re.findall(r"^(\w+)\((?:\d+<([^>]*)>)?", log.read_text(), re.MULTILINE)
    so_far: Counter[str] = Counter()
    found = []
    for before, (name, file), after in zip([None, *made], made, [*made[1:], None], strict=False):
        so_far[name] += 1
        found.append(Call(name, so_far[name], file, bool(file) and before == (name, file) == after))
    return found
