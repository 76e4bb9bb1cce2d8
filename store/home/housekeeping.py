"""Background housekeeping: work that commits leave to idle time, such as the export of sessions.json.

One daemon thread per open store, asleep until something changes. None of the work is required: a
process that exits immediately loses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import apsw

from store.errors import StoreError

log = logging.getLogger("grovefs.store")

QUIET_S = 0.5  # start this long after the last change
LATEST_S = 10.0  # but at most this long after the first, even if changes continue


Job = Callable[[], float | None]  # returns after how many seconds to run again without a change; None: not


class Housekeeper:
    """Runs its jobs in order once no change has come for a while. A failing job is logged and runs again later."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._wake = threading.Condition()
        self._first: float | None = None
        self._last = 0.0
        self._again_at: float | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Schedule a run. Called after every commit."""
        with self._wake:
            now = time.monotonic()
            self._last = now
            if self._first is None:
                self._first = now
                self._wake.notify()
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="grovefs-housekeeper", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Wait for the current run to end; start no other."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            waits_s = [wait_s for job in self._jobs if (wait_s := _attempt(job)) is not None]
            self._again_at = time.monotonic() + min(waits_s) if waits_s else None

    def _wait(self) -> bool:
        with self._wake:
            while not self._stopping:
                now = time.monotonic()
                due = self._due()
                if due is None:
                    self._wake.wait()
                elif now >= due:
                    self._first = None
                    return True
                else:
                    self._wake.wait(due - now)
            return False

    def _due(self) -> float | None:
        if self._first is None:
            return self._again_at
        return min(self._last + QUIET_S, self._first + LATEST_S)


def _attempt(job: Job) -> float | None:
    try:
        return job()
    except (StoreError, OSError, apsw.Error) as error:  # such as a full disk: the thread must survive it
        log.warning("housekeeping failed, will retry after the next change: %s", error)
        return None
