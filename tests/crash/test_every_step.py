"""Rules 2, 3 and 7 at every durable step: killed there, or failing there, for every kind of change.

The steps are those the store announces (store/atomic.py); a process is killed, or an error raised, at
the first, the second, … until the change runs through untouched. Which steps were hit is asserted.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from store import Store
from tests.builders import files_below
from tests.crash.scenarios import SCENARIOS, Scenario, copy_home, make_home

UNTOUCHED = 200  # more steps than any change has

# What the changes consist of; a new kind of step must be attacked too, so it must be named here.
STEPS = {
    "make-dir",
    "write-temp",
    "sync-temp",
    "mark",
    "move",
    "sync-dir",
    "index",
    "remove",
    "remove-tree",
    "append-line",
    "sync-log",
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin") / "home"
    make_home(home)
    return home


class Bomb:
    """Counts steps, and acts at the chosen one. Armed only once the store is open."""

    def __init__(self, at: int, error: int | None = None) -> None:
        self.at = at
        self.error = error
        self.armed = False
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        if not self.armed:
            return
        self.seen.append(name)
        if len(self.seen) == self.at:
            if self.error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            assert self.error is not None  # SIGKILL does not return
            raise OSError(self.error, os.strerror(self.error))


def run_and_kill(home: Path, scenario: Scenario, at: int) -> bool:
    """Do it in a child that dies at step `at`; True if it got through and said so."""
    said, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        bomb = Bomb(at)
        store = Store.open(home, background=False, step=bomb)
        bomb.armed = True
        scenario.change(store)
        bomb.armed = False
        os.write(says, b"done")
        os.kill(os.getpid(), signal.SIGKILL)  # success was reported: from here on it must survive
    os.close(says)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(said, "rb") as pipe:
        reported = pipe.read() == b"done"
    assert os.WIFSIGNALED(status), "the change failed instead of being killed"
    return reported


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_killed_at_any_step_it_is_all_there_or_not_at_all(scenario: Scenario, origin: Path, tmp_path: Path) -> None:
    """After kill -9 anywhere: check is clean without repair, and what had reported success is there."""
    for at in range(1, UNTOUCHED):
        home = copy_home(origin, tmp_path / str(at))
        reported = run_and_kill(home, scenario, at)
        with Store.open(home, background=False) as store:
            report = store.check()
            assert report.findings == [], f"killed at step {at}: {report.findings}"
            done = scenario.done(store)
            assert done or not reported, f"killed at step {at}: success was reported, and it is gone"
            assert not list((home / ".grovefs/tmp").iterdir())
        if reported:
            return
    pytest.fail("the change never ran through")


def attempt(store: Store, scenario: Scenario, bomb: Bomb) -> OSError | None:
    bomb.armed = True
    try:
        scenario.change(store)
    except OSError as error:
        return error
    finally:
        bomb.armed = False
    return None


@pytest.mark.warns
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_failing_at_any_step_it_says_so_and_changes_nothing(
    scenario: Scenario, number: int, origin: Path, tmp_path: Path
) -> None:
    """An error anywhere reaches the caller with its errno, nothing changed, no litter; the next try works.

    Behind the point of no return there are two exceptions: a directory that cannot be synced is an error
    that says the new version is in place, and a failing index is success all the same.
    """
    for at in range(1, UNTOUCHED):
        home = copy_home(origin, tmp_path / f"{number}-{at}")
        bomb = Bomb(at, number)
        with Store.open(home, background=False, step=bomb) as store:
            before = files_below(home)
            error = attempt(store, scenario, bomb)
            if error is not None:
                assert error.errno == number
                if scenario.name in ("cleanup", "migrate", "rebuild", "export", "acknowledge mail"):
                    pass  # many commits: those before the error are made
                elif "new version is in place" in str(error):
                    assert scenario.done(store)
                else:
                    assert files_below(home) == before, f"failing at step {at} ({bomb.seen[-1]}) changed something"
                    assert not list((home / ".grovefs/tmp").iterdir()), f"litter after step {at} ({bomb.seen[-1]})"
            elif scenario.name != "export":  # which has to wait where the index does
                assert scenario.done(store)
            assert {f.kind for f in store.check().findings} <= {"unfinished"}
            store.check(repair=True)
            assert store.check().findings == []
            if len(bomb.seen) < at:
                return
            if not scenario.done(store):
                scenario.change(store)
            assert scenario.done(store)
    pytest.fail("the change never ran through")


def test_every_step_there_is_was_attacked(origin: Path, tmp_path: Path) -> None:
    """The steps that the changes pass through are exactly those we know of."""
    seen: Counter[str] = Counter()
    for scenario in SCENARIOS:
        bomb = Bomb(UNTOUCHED)
        with Store.open(copy_home(origin, tmp_path / scenario.name), background=False, step=bomb) as store:
            bomb.armed = True
            scenario.change(store)
            bomb.armed = False
        seen.update(bomb.seen)
    assert set(seen) == STEPS
