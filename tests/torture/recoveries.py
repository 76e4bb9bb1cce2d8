"""Killed, or an I/O error, at every call during recovery from a crash.

However often that happens, the next opening finds the old or the new version, and no damage.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from store import Store
from tests.crash.scenarios import Scenario, copy_home
from tests.torture import traced
from tests.torture.attack import Case
from tests.torture.places import scratch
from tests.torture.syscalls import VARIANTS, FaultInjector, blows, changes, changing, check_after_kill, judge_after
from tests.torture.traced import Act, Call, Fault

# Killed before the last move: most of the recovery is left to do.
INTERRUPTED = ("save", "clear", "fork a tree", "rename session", "delete child", "upsert a project's child")


def opening(home: Path, scenario: Scenario, blow: Fault | None = None) -> Callable[[], Act]:
    """The action is opening the home; after an error, the same process opens it again."""

    def judge(error: Exception | None) -> None:
        assert blow is not None
        if error is not None:
            assert isinstance(error, OSError), repr(error)
            assert error.errno == getattr(errno, blow.what), repr(error)
        with Store.open(home, background=False) as store:
            judge_after(store, scenario)

    return lambda: Act(lambda: Store.open(home, background=False), judge)


class Crashed:
    """A home as left by a crash, and copies of it."""

    def __init__(self, here: FaultInjector, scenario: Scenario) -> None:
        self.here, self.scenario = here, scenario
        self.origin = here.place / "crashed"
        shutil.rmtree(self.origin, ignore_errors=True)
        copy_home(here.origin, self.origin)
        moves = here.count(scenario)["renameat"]
        outcome = traced.run(changing(self.origin, scenario), here.log, Fault("renameat", moves, "kill"))
        assert outcome.said is None, outcome

    def calls(self) -> list[Call]:
        with self.here.home(self.origin) as home:
            return traced.calls(opening(home, self.scenario), self.here.log)

    def kill(self, blow: Fault) -> None:
        with self.here.home(self.origin) as home:
            outcome = traced.run(opening(home, self.scenario), self.here.log, blow)
            assert outcome.said in (None, "over"), outcome
            check_after_kill(home, self.scenario, self.here.before, reported=False)

    def fail(self, blow: Fault) -> None:
        with self.here.home(self.origin) as home:
            prepare = opening(home, self.scenario, blow)
            outcome = traced.run(prepare, self.here.log, blow, is_judged=True)
            assert outcome.said is not None, "the process is dead"
            assert outcome.verdict == "well", f"{outcome.said}\n{outcome.verdict}"


def cases(seed: int) -> Iterator[Case]:
    with scratch(in_memory=True) as place:
        here = FaultInjector(place)
        chosen = [scenario for scenario in changes(seed) if scenario.name in INTERRUPTED]
        for scenario in chosen:
            crashed = Crashed(here, scenario)
            calls = crashed.calls()
            for call in calls:
                blow = Fault(call.name, call.number, "kill")
                yield Case(f"recovering {scenario.name}: {blow}", partial(crashed.kill, blow))
            for turn in (0, len(VARIANTS) // 2):  # once, and permanently
                for blow in blows(calls, seed, turn):
                    yield Case(f"recovering {scenario.name}: {blow}", partial(crashed.fail, blow))
