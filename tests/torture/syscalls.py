"""Killed, or an I/O error, at every system call that changes the disk: rules 1, 2, 3 and 7, for every change.

Each case is one fault, on a copy of a small home. Homes are in memory, where a sync costs nothing: the state
after a kill does not depend on syncs, and thousands of cases take minutes.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from store import Store
from tests.crash.scenarios import MOUNT_SCENARIOS, SCENARIOS, Scenario, copy_home
from tests.torture import traced
from tests.torture.attack import Case
from tests.torture.places import Ground, Tree, files_of, flaws, scratch, tree_below
from tests.torture.traced import Act, Call, Fault

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS")
VARIANTS = [(what, is_lasting) for is_lasting in (False, True) for what in ERRORS]
# Several commits: an error or a kill keeps the earlier ones.
IN_PARTS = frozenset({"cleanup", "migrate", "rebuild", "export", "acknowledge mail"})


# -- invariants afterwards -----------------------------------------------------------------------------------------


def check_after_kill(home: Path, scenario: Scenario, before: Tree, *, reported: bool) -> None:
    """After reopening, it is the old or the new version, `check` finds nothing, and reported changes are present."""
    with Store.open(home, background=False) as store:
        assert not flaws(store), flaws(store)
        done = scenario.done(store)
        assert done or not reported, "success was reported, but the change is missing"
        if not done and scenario.name not in IN_PARTS:
            assert files_of(tree_below(home)) == files_of(before), "neither the old nor the new version"
        assert not list((home / ".grovefs/tmp").iterdir())


def judge_result(
    store: Store,
    scenario: Scenario,
    number: int,
    error: Exception | None,
    before: Tree,
    *,
    is_lasting: bool,
) -> None:
    """After the rename of session.json there are two exceptions, see the module `store.commit`."""
    if error is None:
        # An export waits if the index does; while that cannot be written, the export fails.
        is_waiting = scenario.name == "export" or (is_lasting and store.maintenance.status()["unfinished"])
        assert is_waiting or scenario.done(store)
        return
    assert isinstance(error, OSError), repr(error)
    assert error.errno == number, repr(error)
    if scenario.name in IN_PARTS:
        return
    if "new version is in place" in str(error):
        assert scenario.done(store)
    elif not (is_lasting and "will be finished" in str(error)):  # even the rollback failed
        assert tree_below(store.home) == before, f"{error!r}, but something changed"


def judge_after(store: Store, scenario: Scenario, *, reported: bool = False) -> None:
    """The disk works again: leftovers are cleaned up, reported changes are present, and a retry succeeds."""
    left = flaws(store)
    kinds = {flaw.kind for flaw in left}
    assert "unfinished" in kinds or kinds <= {"temporary"}, left  # unfinished commits have no rows yet
    if left:
        store.check(repair=True)
        assert not flaws(store), flaws(store)
    done = scenario.done(store)
    assert done or not reported or scenario.name == "export", "success was reported, but the change is missing"
    if not done:
        scenario.change(store)
    assert scenario.done(store), "the retry"
    assert not flaws(store), flaws(store)


# -- faults on copies of a home --------------------------------------------------------------------------------


class FaultInjector(Ground):
    """Injects faults into changes on copies of a home."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._calls: dict[str, list[Call]] = {}

    @property
    def log(self) -> Path:
        return self.place / "log"

    @contextmanager
    def home(self, origin: Path | None = None) -> Iterator[Path]:
        home = copy_home(origin or self.origin, self.place / "home")
        try:
            yield home
        finally:
            shutil.rmtree(home)

    def calls(self, scenario: Scenario) -> list[Call]:
        """The system calls that a change makes."""
        if scenario.name not in self._calls:
            with self.home() as home:
                self._calls[scenario.name] = traced.calls(changing(home, scenario), self.log)
        return self._calls[scenario.name]

    def count(self, scenario: Scenario) -> Counter[str]:
        """The number of calls by name."""
        return Counter(call.name for call in self.calls(scenario))

    def kill(self, scenario: Scenario, blow: Fault) -> bool:
        """Kill at a call. True if the call was reached; False if the change finished before."""
        with self.home() as home:
            outcome = traced.run(changing(home, scenario), self.log, blow)
            assert outcome.said in (None, "over"), outcome
            check_after_kill(home, scenario, self.before, reported=outcome.said is not None)
        return outcome.said is None

    def kill_after_last(self, scenario: Scenario, blow: Fault) -> None:
        """Kill after the last call; retried at later ones, because SQLite's number of writes varies."""
        for number in range(blow.number, 2 * blow.number + 10):
            if not self.kill(scenario, blow._replace(number=number)):
                return
        raise AssertionError("the change never finished")

    def fail(self, scenario: Scenario, blow: Fault) -> None:
        with self.home() as home:
            outcome = traced.run(changing(home, scenario, blow), self.log, blow, is_judged=True)
            assert outcome.said is not None, "the process is dead"
            assert outcome.verdict == "well", f"{outcome.said}\n{outcome.verdict}"


def changing(home: Path, scenario: Scenario, blow: Fault | None = None) -> Callable[[], Act]:
    """A change by an open store; after an error, the same process judges the result."""

    def prepare() -> Act:
        store = Store.open(home, background=False)
        before = tree_below(home)

        def judge(error: Exception | None) -> None:
            assert blow is not None
            number: int = getattr(errno, blow.what)
            judge_result(store, scenario, number, error, before, is_lasting=blow.is_lasting)
            judge_after(store, scenario, reported=error is None)
            store.close()

        return Act(lambda: scenario.change(store), judge)

    return prepare


# -- all cases -----------------------------------------------------------------------------------------------------


def changes(seed: int) -> list[Scenario]:
    """All kinds of changes, in random order: with little time, another seed tries others."""
    return random.Random(seed).sample([*SCENARIOS, *MOUNT_SCENARIOS], len(SCENARIOS) + len(MOUNT_SCENARIOS))


def kills(seed: int) -> Iterator[Case]:
    """Kill at every call, and after the last one."""
    with scratch(in_memory=True) as place:
        here = FaultInjector(place)
        for scenario in changes(seed):
            yield from kills_in(here, scenario)


def kills_in(here: FaultInjector, scenario: Scenario) -> Iterator[Case]:
    for call, count in sorted(here.count(scenario).items()):
        for number in range(1, count + 1):
            blow = Fault(call, number, "kill")
            yield Case(f"{scenario.name}: {blow}", partial(_kill, here, scenario, blow))
        blow = Fault(call, count + 1, "kill")
        yield Case(f"{scenario.name}: {blow}, after the last", partial(here.kill_after_last, scenario, blow))


def _kill(here: FaultInjector, scenario: Scenario, blow: Fault) -> None:
    here.kill(scenario, blow)


def faults(seed: int) -> Iterator[Case]:
    """Every call with one error, then with each of the others; alternating between once and permanently.

    Of a run of equal calls on one file, such as the pages of a transaction, all get one error, and the first and
    the last get the others: the store and SQLite do not distinguish pages.
    """
    with scratch(in_memory=True) as place:
        here = FaultInjector(place)
        for turn in range(len(ERRORS)):
            for scenario in changes(seed):
                yield from faults_in(here, scenario, seed, turn)


def faults_in(here: FaultInjector, scenario: Scenario, seed: int, turn: int = 0) -> Iterator[Case]:
    for blow in blows(here.calls(scenario), seed, turn):
        yield Case(f"{scenario.name}: {blow}", partial(here.fail, scenario, blow))


def blows(calls: list[Call], seed: int, turn: int) -> Iterator[Fault]:
    """An error at each call, changing from call to call and from round to round."""
    for place, call in enumerate(calls):
        if turn == 0 or not call.is_between:
            yield Fault(call.name, call.number, *VARIANTS[(place + seed + turn) % len(VARIANTS)])
