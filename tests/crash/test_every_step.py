"""Rules 2, 3 and 7 at every durable step: each kind of change is killed, or fails, at every step.

The steps are those that Disk passes to `step`. The process is killed, or an error raised, at the
first step, then the second, and so on, until the change completes. A test asserts which steps were
hit.
"""

from __future__ import annotations

import errno
import os
import signal
import traceback
from collections import Counter
from pathlib import Path

import pytest

from store import Store
from tests.builders import files_below
from tests.crash.scenarios import SCENARIOS, Scenario, copy_home, make_home

MAX_STEPS = 200  # more than any change has

# All kinds of steps. A new kind must be covered by a scenario and listed here.
STEPS = {
    "make-dir",
    "write-temp",
    "sync-temp",
    "journal",
    "move",
    "sync-dir",
    "index",
    "remove",
    "remove-tree",
    "append-line",
    "create",
    "link",
    "sync-log",
    "history-found",
    "history-add",
    "history-moved",
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin") / "home"
    make_home(home)
    return home


class FaultAt:
    """A `step` function that kills the process, or raises an error, at step `at` once armed."""

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
            assert self.error is not None  # SIGKILL ends the process
            raise OSError(self.error, os.strerror(self.error))


def run_and_kill_at(home: Path, scenario: Scenario, at: int) -> bool:
    """Run a change in a child that is killed at step `at`; True if it reported success before."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            fault = FaultAt(at)
            store = Store.open(home, background=False, step=fault)
            fault.armed = True
            scenario.change(store)
            fault.armed = False
            os.write(writer, b"done")
            os.kill(os.getpid(), signal.SIGKILL)  # after reporting success the change must survive
        finally:  # only if the change failed
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        reported = pipe.read() == b"done"
    assert os.WIFSIGNALED(status), "the change failed instead of being killed"
    return reported


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_change_killed_at_any_step_is_complete_or_absent(scenario: Scenario, origin: Path, tmp_path: Path) -> None:
    """After kill -9, check is clean without repair, and a reported success is present."""
    for at in range(1, MAX_STEPS):
        home = copy_home(origin, tmp_path / str(at))
        reported = run_and_kill_at(home, scenario, at)
        with Store.open(home, background=False) as store:
            report = store.check()
            assert report.findings == [], f"killed at step {at}: {report.findings}"
            done = scenario.done(store)
            assert done or not reported, f"killed at step {at}: success was reported, but the change is lost"
            assert not list((home / ".grovefs/tmp").iterdir())
        if reported:
            return
    pytest.fail("the change never completed")


def attempt(store: Store, scenario: Scenario, fault: FaultAt) -> OSError | None:
    fault.armed = True
    try:
        scenario.change(store)
    except OSError as error:
        return error
    finally:
        fault.armed = False
    return None


@pytest.mark.warns
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_change_failing_at_any_step_reports_it_and_changes_nothing(
    scenario: Scenario, number: int, origin: Path, tmp_path: Path
) -> None:
    """The caller gets the errno, nothing is changed, no temp files remain, and a retry succeeds.

    Two exceptions after the point of no return: if a directory cannot be synced, the error says
    that the new version is in place; if the index cannot be written, the change still succeeds.
    """
    for at in range(1, MAX_STEPS):
        home = copy_home(origin, tmp_path / f"{number}-{at}")
        fault = FaultAt(at, number)
        with Store.open(home, background=False, step=fault) as store:
            before = files_below(home)
            error = attempt(store, scenario, fault)
            if error is not None:
                assert error.errno == number
                if scenario.name in ("cleanup", "migrate", "rebuild", "export", "acknowledge mail"):
                    pass  # several commits: those before the error are kept
                elif "new version is in place" in str(error):
                    assert scenario.done(store)
                else:
                    assert files_below(home) == before, f"failing at step {at} ({fault.seen[-1]}) changed something"
                    assert not list((home / ".grovefs/tmp").iterdir()), f"temp files after step {at} ({fault.seen[-1]})"
            elif scenario.name != "export":  # an export waits for a pending index update
                assert scenario.done(store)
            assert {f.kind for f in store.check().findings} <= {"unfinished"}
            store.check(repair=True)
            assert store.check().findings == []
            if len(fault.seen) < at:
                return
            if not scenario.done(store):
                scenario.change(store)
            assert scenario.done(store)
    pytest.fail("the change never completed")


class FullHistory:
    """A `step` function that fails at every step of the history once armed, as on a full disk."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, name: str) -> None:
        if self.armed and name.startswith("history-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.warns
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_history_without_space_catches_up(
    scenario: Scenario, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change succeeds. When the history works again, it has what it missed, without a save or a repair."""
    full = FullHistory()
    with Store.open(copy_home(origin, tmp_path / "home"), background=False, step=full) as store:
        full.armed = True
        scenario.change(store)
        full.armed = False
        assert scenario.done(store)
        monkeypatch.setattr(store._core.history, "_retry_at", 0.0)
        assert store._home.upkeep.catch_up()
        assert store.check().findings == []
        assert store._core.history.is_working


def test_scenarios_cover_every_step(origin: Path, tmp_path: Path) -> None:
    """The changes use exactly the steps listed in STEPS."""
    seen: Counter[str] = Counter()
    for scenario in SCENARIOS:
        fault = FaultAt(MAX_STEPS)
        with Store.open(copy_home(origin, tmp_path / scenario.name), background=False, step=fault) as store:
            fault.armed = True
            scenario.change(store)
            fault.armed = False
        seen.update(fault.seen)
    assert set(seen) == STEPS
