"""Runs attacks in parallel, each in its own process, one per processor at a time.

The longest attacks start first; endless ones come last and use the remaining time. Whatever happens to an attack or
to this process (Ctrl-C, SIGTERM, a hang), its mounts and files are removed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import IO, Any, Protocol

from tests.torture.attack import AROUND, Attack, Failure, Run, Tally
from tests.torture.places import places_of

processes = multiprocessing.get_context("fork")
GENEROSITY = 2.0  # a finite attack may take this multiple of its share: the machine may be slower than expected
STUCK_S = 1800.0  # for one case: 3,000 updates by three hosts take long on a busy machine
PATIENCE_S = 60.0  # for an attack that was asked to end and is unmounting
LAST_WORDS = 4000  # bytes of an attack's output that are shown if it failed


class Listener(Protocol):
    """Receives progress reports."""

    def started(self, attack: Attack) -> None: ...
    def progressed(self, tally: Tally, now: str) -> None: ...
    def failed(self, failure: Failure) -> None: ...
    def ended(self, tally: Tally) -> None: ...


def _live(attack: Attack, seed: int, until: float, only: str | None, line: Connection, output: int) -> None:
    """Run an attack, in its process. A new session: Ctrl-C reaches only the parent, which then ends the attack."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit "ignored"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # not SystemExit: Hypothesis would report it as a failure
    os.dup2(output, 1)
    os.dup2(output, 2)
    tally = Run(attack, seed, until, only, line.send).all()
    line.send(tally)
    line.send(None)


@dataclass
class AttackProcess:
    """An attack process, seen from the parent."""

    attack: Attack
    listener: Listener
    output: IO[bytes]
    process: Any
    line: Connection
    tally: Tally
    now: str = AROUND  # the current case
    since: float = field(default_factory=time.monotonic)
    is_over: bool = False

    @classmethod
    def begin(cls, attack: Attack, seed: int, until: float, only: str | None, listener: Listener) -> AttackProcess:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is over
        ours, theirs = processes.Pipe(duplex=False)
        arguments = (attack, seed, until, only, theirs, output.fileno())
        process = processes.Process(target=_live, args=arguments, name=attack.name)
        process.start()
        theirs.close()
        listener.started(attack)
        return cls(attack, listener, output, process, ours, Tally(attack.name, is_endless=attack.is_endless))

    def listen(self) -> None:
        """Read its messages; it has ended when it says so or is dead."""
        is_dead = not self.process.is_alive()  # checked first, so that everything it sent before is still read
        with suppress(EOFError, OSError):  # EOF, or a partial message
            while self.line.poll():
                self._heard(self.line.recv())
        if is_dead and not self.is_over:
            self._fall(f"the attack process died ({self.process.exitcode})")
            self.is_over = True

    def _heard(self, said: Tally | Failure | str | None) -> None:
        self.since = time.monotonic()
        if isinstance(said, Tally):
            self.tally = said
        elif isinstance(said, Failure):
            self.listener.failed(said)
        elif said is not None:
            self.now = said
        else:
            self.is_over = True
        self.listener.progressed(self.tally, self.now)

    def _fall(self, how: str) -> None:
        self.tally.failures.append(self.now)
        self.listener.failed(Failure(self.attack.name, self.now, f"{how}\n{self.last_output()}"))

    def last_output(self) -> str:
        self.output.seek(-min(LAST_WORDS, self.output.seek(0, os.SEEK_END)), os.SEEK_END)
        return self.output.read().decode(errors="replace")

    def check_deadlines(self, ends: float) -> None:
        """Fail an attack that is stuck; stop one that is still running when all time is up, without a failure."""
        now = time.monotonic()
        if now - self.since > STUCK_S:
            self._fall(f"no progress for {now - self.since:.0f} s")
            self.is_over = True
        elif now > ends:
            self.is_over = True

    def finish(self) -> Tally:
        """End the process and its children, and read its last messages."""
        self.process.terminate()
        self.process.join(PATIENCE_S)
        with suppress(ProcessLookupError, PermissionError):  # including the processes it started, in its session
            os.killpg(self.process.pid, signal.SIGKILL)
        clear(self.process.pid)
        self.line.close()
        self.output.close()
        self.listener.ended(self.tally)
        return self.tally


def clear(session: int) -> None:
    """Remove what an attack could not clean up itself: first mounts, then files."""
    for place in places_of(session):
        for path in reversed(list(_mounts_below(place))):
            subprocess.run(["umount", "-f", path], capture_output=True)  # releases waiting processes; may be refused
            subprocess.run(["umount", "-l", path], capture_output=True)
        _remove(place)


def _remove(place: Path) -> None:
    """Remove a directory; retried, because a daemon that lost its mount may still be writing to its home."""
    deadline = time.monotonic() + PATIENCE_S
    while place.exists() and time.monotonic() < deadline:
        shutil.rmtree(place, ignore_errors=True)
        time.sleep(0.1)


def _mounts_below(place: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path = line.split()[4]
        if path.startswith(f"{place}/"):
            yield path


def longest_first(attacks: list[Attack]) -> list[Attack]:
    return sorted(attacks, key=lambda attack: (attack.is_endless, -attack.minutes))


def share_s(attack: Attack, waiting: list[Attack], left_s: float, jobs: int) -> float:
    """The time an attack may take, if all waiting attacks (this one included) are to get their share."""
    part = attack.minutes / sum(other.minutes for other in waiting)
    return min(left_s, left_s * jobs * part * (1.0 if attack.is_endless else GENEROSITY))


def run_all(
    attacks: list[Attack], seed: int, seconds: float, only: str | None, jobs: int, listener: Listener
) -> list[Tally]:
    waiting, running, tallies = longest_first(attacks), list[AttackProcess](), list[Tally]()
    ends = time.monotonic() + seconds
    with ExitStack() as stack:  # end all of them, whatever happens
        stack.callback(lambda: [process.finish() for process in running])
        stack.callback(lambda: [process.process.terminate() for process in running])
        while waiting or running:
            while waiting and len(running) < jobs:
                now = time.monotonic()
                until = now + share_s(waiting[0], waiting, ends - now, jobs)
                running.append(AttackProcess.begin(waiting.pop(0), seed, until, only, listener))
            wait_for([process.line for process in running], timeout=0.5)
            for process in running:
                process.listen()
                process.check_deadlines(ends)
            for process in [process for process in running if process.is_over]:
                running.remove(process)
                tallies.append(process.finish())
    return tallies
