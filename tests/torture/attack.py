"""An attack: a name, a description, and a stream of cases, endless or finite.

The test suite runs the first few cases of each; `scripts/torture` runs all that fit into its time. A case has a name
and raises if something failed. The stream may keep a mount or a home open between its cases; it is always closed at
the end. The same seed gives the same cases in the same order, so a seed and a name are enough to repeat a failure.
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
    cases: Callable[[int], Iterator[Case]]  # takes the seed
    minutes: float  # processor minutes it needs; for an endless attack, the minimum it should get
    cases_at_once: int = 1  # the number of tries in one case, where one mount or process serves many
    is_endless: bool = False  # uses the time that the others leave


@dataclass
class Tally:
    """Progress of an attack."""

    attack: str
    cases: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)  # names of the failed cases
    is_complete: bool = False  # all requested cases were run
    is_endless: bool = False
    longest_s: float = 0.0  # duration of the longest case so far
    longest: str = ""  # its name


@dataclass(frozen=True)
class Failure:
    """A failed case and its traceback."""

    attack: str
    case: str
    how: str

    def repeat_command(self, seed: int) -> str:
        alone = f" --case '{self.case}'" if self.case != AROUND else ""
        return f"scripts/torture {self.attack} --seed {seed}{alone}"


Report = Callable[["Tally | Failure | str"], object]  # progress, a failure, or the name of the case that starts


@dataclass
class Run:
    """A running attack; starts no case that is likely to end after `until` (monotonic time)."""

    attack: Attack
    seed: int
    until: float
    only: str | None  # run only the case with this name
    report: Report

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
            assert self.only is None or self.tally.cases, f"no case is named {self.only}"
            self.tally.is_complete = True
        finally:
            getattr(stream, "close", lambda: None)()

    def _case(self, case: Case) -> None:
        self.report(case.name)
        self.tally.cases += self.attack.cases_at_once
        began = time.monotonic()
        self._attempt(case.name, case.run)
        if (took := time.monotonic() - began) > self.tally.longest_s:
            self.tally.longest_s, self.tally.longest = took, case.name
        self.report(self.tally)

    def _attempt(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            self.tally.failures.append(name)
            self.report(Failure(self.attack.name, name, traceback.format_exc()))
        self.tally.seconds = time.monotonic() - self.began
