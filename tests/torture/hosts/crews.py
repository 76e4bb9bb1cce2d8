"""Crews: several processes on each home of a grove, which work at the same time and report what was acknowledged.

A job gets an open store and a `Shift`, and returns what it was promised. `run_crew` runs all jobs in processes of
their own and returns their reports. A job that raises fails the crew.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from store import Store
from store.errors import Busy, Unreachable, Unsure
from store.grove import administration
from tests.grove.groves import assert_clean, files
from tests.torture.hosts.world import GAPS

processes = multiprocessing.get_context("fork")
PATIENCE_S = 600.0  # for the jobs of a whole crew
IDENTICAL_S = 120.0
_RETRY_S = 0.02


@dataclass(frozen=True)
class Shift:
    """What the processes of a crew share."""

    ends: Any  # an Event: the others have finished
    is_rough: bool = False  # the database may be away: changes are repeated, and may be unknown

    @property
    def is_over(self) -> bool:
        return bool(self.ends.is_set())


Work = Callable[[Store, Shift], Any]
At = Callable[[Path], AbstractContextManager[None]]  # the network that a home is in


def anywhere(home: Path) -> AbstractContextManager[None]:
    return nullcontext()


class Job(NamedTuple):
    """A process of a crew. `waits` for the end of the shift: it serves the others."""

    home: Path
    work: Work
    waits: bool = False


def _live(job: Job, shift: Shift, at: At, line: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options: dict[str, Any] = {"author": job.home.name, "durability": "normal", "lock_timeout_s": 60.0}
    try:
        with at(job.home), Store.open(job.home, **options) as store:
            line.send(("done", job.work(store, shift)))
    except BaseException:
        line.send(("failed", traceback.format_exc()))


def run_crew(
    jobs: Sequence[Job],
    *,
    is_rough: bool = False,
    at: At = anywhere,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Run all jobs, each where its home is; returns their reports. `meanwhile` runs here."""
    shift = Shift(processes.Event(), is_rough)
    running = []
    try:
        for job in jobs:
            ours, theirs = processes.Pipe(duplex=False)
            process = processes.Process(target=_live, args=(job, shift, at, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((job, process, ours))
        meanwhile()
        until = time.monotonic() + PATIENCE_S
        reports = {line: _report(line, until) for job, _, line in running if not job.waits}
        shift.ends.set()
        reports |= {line: _report(line, until) for job, _, line in running if job.waits}
        return [reports[line] for _, _, line in running]
    finally:
        for _, process, line in running:
            process.kill()
            process.join()
            line.close()


def _report(line: Any, until: float) -> Any:
    assert line.poll(max(0.0, until - time.monotonic())), f"a job has not ended after {PATIENCE_S:.0f} s"
    how, value = line.recv()
    assert how == "done", value
    return value


def insist(shift: Shift, work: Callable[[], Any]) -> bool:
    """Do something until it is done or finally refused. False if its outcome is unknown."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            work()
            return True
        except Unsure:
            assert shift.is_rough
            return False
        except Unreachable:
            assert shift.is_rough
        except Busy:  # ten seconds were not enough, on a busy machine
            pass
        assert time.monotonic() < until
        time.sleep(_RETRY_S)


def create_grove(url: str, urls: Mapping[Path, str], at: At = anywhere) -> None:
    """Create a grove, and let homes join it, each by a URL of its own."""
    administration.create(url)
    for home, own in urls.items():
        with at(home):
            administration.join(home, own, home.name)


def require_same(url: str, homes: Sequence[Path], sessions: Sequence[str], at: At = anywhere) -> None:
    """All homes are byte-identical and clean, and nothing is missing in the log or the histories."""
    stores: list[Store] = []
    try:
        for home in homes:
            with at(home):
                stores.append(Store.open(home, durability="normal"))
        until = time.monotonic() + IDENTICAL_S
        while any(files(home) != files(homes[0]) for home in homes):
            assert time.monotonic() < until, "the homes are not identical"
            time.sleep(0.05)
        assert_clean(*stores)
        for store in stores:
            for name in sessions:
                numbers = [version.number for version in store.history.log(name, limit=1_000_000)]
                assert numbers == list(range(len(numbers), 0, -1)), f"{store.home.name}: {name}: {numbers[:5]}"
    finally:
        for store in stores:
            store.close()
    with psycopg.connect(url) as connection:
        gaps = connection.execute(GAPS).fetchall()
    assert not gaps, f"the log has gaps: {gaps}"
