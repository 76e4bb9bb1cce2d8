"""Killed, or failed, at every system call that changes the disk: rules 1, 2, 3 and 7, for every kind of change.

Each case is one blow, on a copy of one small home. Homes lie in memory, where a sync costs nothing: what a kill leaves
does not depend on it, and thousands of cases take minutes.
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
from tests.crash.scenarios import BESIDES, SCENARIOS, Scenario, copy_home
from tests.torture import traced
from tests.torture.attack import Case
from tests.torture.ground import Ground, Tree, files_of, flaws, scratch, tree_below
from tests.torture.traced import Act, Blow, Call

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS")
VARIANTS = [(what, is_lasting) for is_lasting in (False, True) for what in ERRORS]
# Several commits, one after the other: an error, or a kill, leaves those before it made.
IN_PARTS = frozenset({"cleanup", "migrate", "rebuild", "export", "acknowledge mail"})


# -- what is to hold afterwards ------------------------------------------------------------------------------------


def check_after_kill(home: Path, scenario: Scenario, before: Tree, *, reported: bool) -> None:
    """Opened anew it is the old one or the new one, `check` finds nothing, and what was reported is there."""
    with Store.open(home, background=False) as store:
        assert not flaws(store), flaws(store)
        done = scenario.done(store)
        assert done or not reported, "success was reported, and it is gone"
        if not done and scenario.name not in IN_PARTS:
            assert files_of(tree_below(home)) == files_of(before), "neither the old one nor the new one"
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
    """Behind the point of no return there are two exceptions: see DESIGN's section on commits."""
    if error is None:
        # An export has to wait where the index does; and while that cannot be written, who asks it is told so.
        is_waiting = scenario.name == "export" or (is_lasting and store.maintenance.status()["unfinished"])
        assert is_waiting or scenario.done(store)
        return
    assert isinstance(error, OSError), repr(error)
    assert error.errno == number, repr(error)
    if scenario.name in IN_PARTS:
        return
    if "new version is in place" in str(error):
        assert scenario.done(store)
    elif not (is_lasting and "will be finished" in str(error)):  # not even taking it back was possible
        assert tree_below(store.home) == before, f"{error!r}, and something has changed"


def judge_after(store: Store, scenario: Scenario, *, reported: bool = False) -> None:
    """The disk is well again: what could not be tidied up is, what was reported is there, and the next try works."""
    left = flaws(store)
    kinds = {flaw.kind for flaw in left}
    assert "unfinished" in kinds or kinds <= {"temporary"}, left  # what is unfinished has no rows yet
    if left:
        store.check(repair=True)
        assert not flaws(store), flaws(store)
    done = scenario.done(store)
    assert done or not reported or scenario.name == "export", "success was reported, and it is gone"
    if not done:
        scenario.change(store)
    assert scenario.done(store), "the next try"
    assert not flaws(store), flaws(store)


# -- one home, and what befalls it ---------------------------------------------------------------------------------


class Struck(Ground):
    """Copies are struck at a system call."""

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
        """Those that a change makes."""
        if scenario.name not in self._calls:
            with self.home() as home:
                self._calls[scenario.name] = traced.calls(changing(home, scenario), self.log)
        return self._calls[scenario.name]

    def count(self, scenario: Scenario) -> Counter[str]:
        """How often it makes each."""
        return Counter(call.name for call in self.calls(scenario))

    def kill(self, scenario: Scenario, blow: Blow) -> bool:
        """True if it was struck; False if it ran through untouched."""
        with self.home() as home:
            outcome = traced.run(changing(home, scenario), self.log, blow)
            assert outcome.said in (None, "over"), outcome
            check_after_kill(home, scenario, self.before, reported=outcome.said is not None)
        return outcome.said is None

    def kill_behind(self, scenario: Scenario, blow: Blow) -> None:
        """On to where it runs through untouched: the next call, mostly, but SQLite does not always write as often."""
        for number in range(blow.number, 2 * blow.number + 10):
            if not self.kill(scenario, blow._replace(number=number)):
                return
        raise AssertionError("it never ran through")

    def fail(self, scenario: Scenario, blow: Blow) -> None:
        with self.home() as home:
            outcome = traced.run(changing(home, scenario, blow), self.log, blow, is_judged=True)
            assert outcome.said is not None, "the process is dead"
            assert outcome.verdict == "well", f"{outcome.said}\n{outcome.verdict}"


def changing(home: Path, scenario: Scenario, blow: Blow | None = None) -> Callable[[], Act]:
    """The change, of a store that is open already; under an error it is judged by the same process, which lives."""

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
    """All kinds of changes, in an order of the seed's: where time is short, another seed tries others."""
    return random.Random(seed).sample([*SCENARIOS, *BESIDES], len(SCENARIOS) + len(BESIDES))


def kills(seed: int) -> Iterator[Case]:
    """At every call, and behind the last, where nothing is left to be killed."""
    with scratch(in_memory=True) as place:
        here = Struck(place)
        for scenario in changes(seed):
            yield from kills_in(here, scenario)


def kills_in(here: Struck, scenario: Scenario) -> Iterator[Case]:
    for call, count in sorted(here.count(scenario).items()):
        for number in range(1, count + 1):
            blow = Blow(call, number, "kill")
            yield Case(f"{scenario.name}: {blow}", partial(_kill, here, scenario, blow))
        blow = Blow(call, count + 1, "kill")
        yield Case(f"{scenario.name}: {blow}, behind the last", partial(here.kill_behind, scenario, blow))


def _kill(here: Struck, scenario: Scenario, blow: Blow) -> None:
    here.kill(scenario, blow)


def faults(seed: int) -> Iterator[Case]:
    """Every call with one error; then with each of the others. Whether it fails once or from then on changes with it.

    Of a row of equal calls on one file, such as the pages of a transaction, all are tried with one error, and the first
    and the last with the others: the store and SQLite do not tell one page from the next.
    """
    with scratch(in_memory=True) as place:
        here = Struck(place)
        for turn in range(len(ERRORS)):
            for scenario in changes(seed):
                yield from faults_in(here, scenario, seed, turn)


def faults_in(here: Struck, scenario: Scenario, seed: int, turn: int = 0) -> Iterator[Case]:
    for blow in blows(here.calls(scenario), seed, turn):
        yield Case(f"{scenario.name}: {blow}", partial(here.fail, scenario, blow))


def blows(calls: list[Call], seed: int, turn: int) -> Iterator[Blow]:
    """An error at each call; which one it is changes from call to call, and from turn to turn."""
    for place, call in enumerate(calls):
        if turn == 0 or not call.is_between:
            yield Blow(call.name, call.number, *VARIANTS[(place + seed + turn) % len(VARIANTS)])
