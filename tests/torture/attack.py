"""What an attack is: a name, what it tries, and cases without end or until nothing is left to try.

The suite runs the first few cases of each (the tests of this directory), `scripts/torture` all that fit into its time.
A case says what it does by name and raises if something fell. The stream may hold a mount or a home open between
its cases; it is closed at the end, whatever happened. Cases come in the same order for the same seed, so that
a seed and a name are enough to see a failure again.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

AROUND = "before the first case, between two, or after the last"


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Attack:
    name: str
    about: str
    cases: Callable[[int], Iterator[Case]]  # of a seed
    minutes: float  # what it takes of one processor; of one without end, what it should have at least
    cases_at_once: int = 1  # how many tries a case stands for, where one mount or process serves many
    is_endless: bool = False  # it takes what time the others leave


@dataclass
class Tally:
    """How far an attack has come."""

    attack: str
    cases: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)  # the names of the cases that fell
    is_complete: bool = False  # nothing was left to try of what was wanted
    is_endless: bool = False
    longest_s: float = 0.0  # of the cases so far
    longest: str = ""  # which that was


@dataclass(frozen=True)
class Fall:
    """What fell, and how."""

    attack: str
    case: str
    how: str

    def again(self, seed: int) -> str:
        alone = f" --case '{self.case}'" if self.case != AROUND else ""
        return f"scripts/torture {self.attack} --seed {seed}{alone}"


Tell = Callable[["Tally | Fall | str"], object]  # how far it has come, what fell, or the name of the case that begins


@dataclass
class Run:
    """An attack under way, from a seed; nothing is begun that is likely to end after `until` (monotonic)."""

    attack: Attack
    seed: int
    until: float
    only: str | None  # the one case that is wanted
    tell: Tell

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.tally = Tally(self.attack.name, is_endless=self.attack.is_endless)

    def all(self) -> Tally:
        self._attempt(AROUND, self._cases)
        return self.tally

    def _cases(self) -> None:
        stream = self.attack.cases(self.seed)
        try:
            for case in stream:
                if time.monotonic() + self.tally.longest_s > self.until:
                    return
                if self.only in (None, case.name):
                    self._case(case)
                if self.only == case.name:
                    break
            assert self.only is None or self.tally.cases, f"no case is called {self.only}"
            self.tally.is_complete = True
        finally:
            getattr(stream, "close", lambda: None)()

    def _case(self, case: Case) -> None:
        self.tell(case.name)
        self.tally.cases += self.attack.cases_at_once
        began = time.monotonic()
        self._attempt(case.name, case.run)
        if (took := time.monotonic() - began) > self.tally.longest_s:
            self.tally.longest_s, self.tally.longest = took, case.name
        self.tell(self.tally)

    def _attempt(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            self.tally.failures.append(name)
            self.tell(Fall(self.attack.name, name, traceback.format_exc()))
        self.tally.seconds = time.monotonic() - self.began
