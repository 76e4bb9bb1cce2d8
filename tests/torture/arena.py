"""Attacks side by side, each in a process of its own, so many at a time as there are processors.

What needs longest begins first, what has no end comes last and takes the time that is left. Whatever happens to
an attack or to who watches it (Ctrl-C, SIGTERM, a hang), its mounts and its files go.
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

from tests.torture.attack import AROUND, Attack, Fall, Run, Tally
from tests.torture.ground import places_of

processes = multiprocessing.get_context("fork")
GENEROSITY = 2.0  # times its share an attack may take that has an end: the machine may be slower than it was thought
STUCK_S = 600.0  # in one case; each has shorter deadlines of its own, on whatever it waits for
PATIENCE_S = 60.0  # with an attack that was told to end, and takes its mounts away
LAST_WORDS = 4000  # bytes of what an attack printed that are shown if it fell


class Audience(Protocol):
    """Whoever is told what goes on."""

    def began(self, attack: Attack) -> None: ...
    def saw(self, tally: Tally, now: str) -> None: ...
    def fell(self, fall: Fall) -> None: ...
    def ended(self, tally: Tally) -> None: ...


def _live(attack: Attack, seed: int, until: float, only: str | None, line: Connection, output: int) -> None:
    """In the process of the attack. A session of its own: Ctrl-C is for who watches, who then tells us to end."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored by what we start, as in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no SystemExit: Hypothesis would take it for a failure
    os.dup2(output, 1)
    os.dup2(output, 2)
    tally = Run(attack, seed, until, only, line.send).all()
    line.send(tally)
    line.send(None)


@dataclass
class Fight:
    """One attack in its process, as seen from outside."""

    attack: Attack
    audience: Audience
    output: IO[bytes]
    process: Any
    line: Connection
    tally: Tally
    now: str = AROUND  # the case that is under way
    since: float = field(default_factory=time.monotonic)
    is_over: bool = False

    @classmethod
    def begin(cls, attack: Attack, seed: int, until: float, only: str | None, audience: Audience) -> Fight:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is over
        ours, theirs = processes.Pipe(duplex=False)
        arguments = (attack, seed, until, only, theirs, output.fileno())
        process = processes.Process(target=_live, args=arguments, name=attack.name)
        process.start()
        theirs.close()
        audience.began(attack)
        return cls(attack, audience, output, process, ours, Tally(attack.name, is_endless=attack.is_endless))

    def listen(self) -> None:
        """Take what it has said; it is over when it says so, or is dead."""
        is_dead = not self.process.is_alive()  # asked first: what it said before is read then
        with suppress(EOFError, OSError):  # the end, or that of a message half sent
            while self.line.poll():
                self._heard(self.line.recv())
        if is_dead and not self.is_over:
            self._fall(f"the attack itself died ({self.process.exitcode})")
            self.is_over = True

    def _heard(self, said: Tally | Fall | str | None) -> None:
        self.since = time.monotonic()
        if isinstance(said, Tally):
            self.tally = said
        elif isinstance(said, Fall):
            self.audience.fell(said)
        elif said is not None:
            self.now = said
        else:
            self.is_over = True
        self.audience.saw(self.tally, self.now)

    def _fall(self, how: str) -> None:
        self.tally.failures.append(self.now)
        self.audience.fell(Fall(self.attack.name, self.now, f"{how}\n{self.last_words()}"))

    def last_words(self) -> str:
        self.output.seek(-min(LAST_WORDS, self.output.seek(0, os.SEEK_END)), os.SEEK_END)
        return self.output.read().decode(errors="replace")

    def see_to_it(self, ends: float) -> None:
        """What stands still fell; what is at work when all time is up is stopped, and nothing is said against it."""
        now = time.monotonic()
        if now - self.since > STUCK_S:
            self._fall(f"it has stood still for {now - self.since:.0f} s")
            self.is_over = True
        elif now > ends:
            self.is_over = True

    def finish(self) -> Tally:
        """Gone, with all it had; what it said last is heard."""
        self.process.terminate()
        self.process.join(PATIENCE_S)
        with suppress(ProcessLookupError, PermissionError):  # also those it started, of its session
            os.killpg(self.process.pid, signal.SIGKILL)
        clear(self.process.pid)
        self.line.close()
        self.output.close()
        self.audience.ended(self.tally)
        return self.tally


def clear(session: int) -> None:
    """What an attack left behind that could not end by itself: mounts, and then files."""
    for place in places_of(session):
        for path in reversed(list(_mounts_below(place))):
            subprocess.run(["umount", "-f", path], capture_output=True)  # lets go of who waits; may be refused
            subprocess.run(["umount", "-l", path], capture_output=True)
        _remove(place)


def _remove(place: Path) -> None:
    """A daemon whose mount was taken away may still be putting its home in order."""
    deadline = time.monotonic() + PATIENCE_S
    while place.exists() and time.monotonic() < deadline:
        shutil.rmtree(place, ignore_errors=True)
        time.sleep(0.1)


def _mounts_below(place: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path = line.split()[4]
        if path.startswith(f"{place}/"):
            yield path


def in_order(attacks: list[Attack]) -> list[Attack]:
    return sorted(attacks, key=lambda attack: (attack.is_endless, -attack.minutes))


def share_s(attack: Attack, waiting: list[Attack], left_s: float, jobs: int) -> float:
    """How long it may take, if those that wait (it among them) are to have as much of the rest as they need."""
    part = attack.minutes / sum(other.minutes for other in waiting)
    return min(left_s, left_s * jobs * part * (1.0 if attack.is_endless else GENEROSITY))


def run_all(
    attacks: list[Attack], seed: int, seconds: float, only: str | None, jobs: int, audience: Audience
) -> list[Tally]:
    waiting, fights, tallies = in_order(attacks), list[Fight](), list[Tally]()
    ends = time.monotonic() + seconds
    with ExitStack() as stack:  # whatever happens, none goes on
        stack.callback(lambda: [fight.finish() for fight in fights])
        stack.callback(lambda: [fight.process.terminate() for fight in fights])
        while waiting or fights:
            while waiting and len(fights) < jobs:
                now = time.monotonic()
                until = now + share_s(waiting[0], waiting, ends - now, jobs)
                fights.append(Fight.begin(waiting.pop(0), seed, until, only, audience))
            wait_for([fight.line for fight in fights], timeout=0.5)
            for fight in fights:
                fight.listen()
                fight.see_to_it(ends)
            for fight in [fight for fight in fights if fight.is_over]:
                fights.remove(fight)
                tallies.append(fight.finish())
    return tallies
