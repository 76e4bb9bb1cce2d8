"""Two faults in one change: a step fails, and during the rollback the disk fails permanently.

Uses the steps that the store announces, for every pair of them. The caller gets an error; once the disk works again,
the change is complete or absent, however far the rollback came.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial

from store import Store
from tests.crash.scenarios import Scenario
from tests.torture.attack import Case
from tests.torture.places import flaws, scratch, tree_below
from tests.torture.syscalls import IN_PARTS, FaultInjector, changes
from tests.torture.traced import silence_warnings

UNTOUCHED = 200  # more than any change has


class Bomb:
    """Fails one step, lets some pass, then fails all until disarmed."""

    def __init__(self, at: int, passing: int) -> None:
        self.at, self.passing = at, passing
        self.is_armed = self.was_armed = False
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        if not self.is_armed:
            return
        self.seen.append(name)
        number = len(self.seen)
        if number == self.at or number > self.at + self.passing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def __str__(self) -> str:
        return f"failing at {self.seen[self.at - 1 : self.at]}, and from {self.seen[self.at + self.passing :]} on"


def fail_twice(here: FaultInjector, scenario: Scenario, bomb: Bomb) -> None:
    with here.home() as home, Store.open(home, background=False, step=bomb) as store:
        before = tree_below(home)
        error = _under(bomb, lambda: scenario.change(store))
        where = f"{bomb}: {error!r}"
        store.check(repair=True)
        assert not flaws(store), f"{where}: {flaws(store)}"
        done = scenario.done(store)
        assert done or error is not None or scenario.name == "export", f"{where}: success, but the change is missing"
        if not done and scenario.name not in IN_PARTS:
            assert tree_below(home) == before, f"{where}: neither the old nor the new version"
        if not done:
            scenario.change(store)
        assert scenario.done(store), f"{where}: the retry"
        assert not flaws(store), f"{where}: {flaws(store)}"


def _under(bomb: Bomb, change: Callable[[], object]) -> OSError | None:
    bomb.is_armed = bomb.was_armed = True
    try:
        change()
    except OSError as error:
        return error
    finally:
        bomb.is_armed = False
    return None


def pairs(here: FaultInjector, scenario: Scenario) -> Iterator[Case]:
    """All pairs: until the change succeeds without a fault; and for each step, until the rollback does."""
    for at in range(1, UNTOUCHED):
        for passing in range(UNTOUCHED):
            bomb = Bomb(at, passing)
            name = f"{scenario.name}: step {at} fails, and all but the {passing} after it"
            yield Case(name, partial(fail_twice, here, scenario, bomb))
            if bomb.was_armed and len(bomb.seen) < at:
                return
            if bomb.was_armed and len(bomb.seen) <= at + passing:
                break


def cases(seed: int) -> Iterator[Case]:
    silence_warnings()
    with scratch(in_memory=True) as place:
        here = FaultInjector(place)
        for scenario in changes(seed):
            yield from pairs(here, scenario)
