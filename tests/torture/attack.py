"""What an attack is: a name, what it tries, and cases without end or until nothing is left to try.

The suite runs the first few cases of each (the tests of this directory), `scripts/torture` all that fit into its time.
A case says what it does by name and raises if something fell. The stream may hold a mount or a home open between
its cases; it is closed at the end, whatever happened. Cases come in the same order for the same seed, so that
a seed and a name are enough to see a failure again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], None]


@dataclass(frozen=True)
class Attack:
    name: str
    about: str
    cases: Callable[[int], Iterator[Case]]  # of a seed
    minutes: float  # the most it may take of a full run; what is left when the cases end goes to the others
    cases_at_once: int = 1  # how many tries a case stands for, where one mount or process serves many
