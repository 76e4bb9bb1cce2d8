"""What is done a moment later: the export, and the housekeeping that commits leave to idle time.

One daemon thread per open store, asleep unless something changed. Everything it does may also be left
undone: a process that ends at once loses nothing by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import apsw

from store.errors import StoreError

log = logging.getLogger("grovefs.store")

QUIET_S = 0.5  # after the last change
LATEST_S = 10.0  # after the first, however busy it is


class Housekeeper:
    """Calls its chores in order once things are quiet. A chore that fails is reported and tried again."""

    def __init__(self, chores: Sequence[Callable[[], None]]) -> None:
        self._chores = chores
        self._wake = threading.Condition()
        self._first: float | None = None
        self._last = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        """Something changed."""
        with self._wake:
            now = time.monotonic()
            self._last = now
            if self._first is None:
                self._first = now
                self._wake.notify()
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="grovefs-keeper", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Wait for what is being done, and begin nothing new."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            for chore in self._chores:
                try:
                    chore()
                except (StoreError, OSError, apsw.Error) as error:  # the thread outlives a full disk
                    log.warning("housekeeping is put off until the next change: %s", error)

    def _wait(self) -> bool:
        with self._wake:
            while not self._stopping:
                if self._first is None:
                    self._wake.wait()
                    continue
                now = time.monotonic()
                due = min(self._last + QUIET_S, self._first + LATEST_S)
                if now >= due:
                    self._first = None
                    return True
                self._wake.wait(due - now)
            return False
