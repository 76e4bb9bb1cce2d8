"""Applying together: rows of different sessions share a commit, so that its syncs and transactions are paid once.

Only rows that replace documents of a session are, and only if nothing is unusual about them: no deletion
or creation, no edit on disk, no version that is missing. Everything else is left to the caller, which
applies it alone. So is a session whose lock is not free, as nothing may wait while it holds the locks of others, and a
group of which one row fails: it must not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

import apsw

from store.commit.core import Core
from store.errors import StoreError
from store.grove.applying import Applier
from store.grove.collapsing import ChunkReader
from store.grove.replica import Replica
from store.grove.row_plan import RowPlan
from store.grove.units import is_unit, location_of
from store.grove.wire import DELETED, LogRow

log = logging.getLogger("grovefs.store")

MAX_ROWS = 16  # their locks are held at the same time; more rows would save little more
MAX_BYTES = 8 << 20  # of the new documents, which are in memory

_FAILURES = (StoreError, OSError, apsw.Error)


def is_alone(row: LogRow) -> bool:
    """Whether a row has to be applied alone, after all rows before it."""
    if row.generation is not None or row.ops == DELETED or not is_unit(row.unit):
        return True
    location = location_of(row.unit)
    return not location.is_session or location != location.owner


def waves(rows: Sequence[LogRow]) -> Iterator[list[LogRow]]:
    """Rows that may be applied together, in the order of each unit: all first ones, all second ones, and so on.

    A row that has to be applied alone is in a wave of its own, and no row crosses it.
    """
    waiting: list[list[LogRow]] = []
    places: dict[str, int] = {}  # by unit: the wave of its next row
    for row in rows:
        if is_alone(row):
            yield from waiting
            yield [row]
            waiting, places = [], {}
            continue
        place = places.get(row.unit, 0)
        places[row.unit] = place + 1
        if place == len(waiting):
            waiting.append([])
        waiting[place].append(row)
    yield from waiting


class Together:
    """Applies waves to one home."""

    def __init__(self, core: Core, replica: Replica, read_chunk: ChunkReader) -> None:
        self._core, self._replica, self._read_chunk = core, replica, read_chunk

    def apply(self, rows: Sequence[LogRow], apply_alone: Callable[[LogRow], None]) -> None:
        """Apply a wave: together what can be, the rest alone."""
        for start in range(0, len(rows), MAX_ROWS):
            some = rows[start : start + MAX_ROWS]
            for row in self._apply_group(some) if len(some) > 1 else some:
                apply_alone(row)

    def _apply_group(self, rows: Sequence[LogRow]) -> list[LogRow]:
        """Apply rows of different sessions together; returns those that were not."""
        applier = Applier(self._core, self._replica)
        with ExitStack() as held:
            plans = [*self._planned(applier, rows, held)]
            if len(plans) < 2:
                return [*rows]
            try:
                applier.store_together(plans)
            except _FAILURES as error:
                log.info("%d rows of the log are applied one by one: %s", len(plans), error)
                return [*rows]
        done = {plan.row.unit for plan in plans}
        return [row for row in rows if row.unit not in done]

    def _planned(self, applier: Applier, rows: Iterable[LogRow], held: ExitStack) -> Iterator[RowPlan]:
        """The plans of those rows that can be applied together, with the locks of their sessions held."""
        size_bytes = 0
        for row in sorted(rows, key=lambda row: row.unit):
            with ExitStack() as own:
                try:
                    own.enter_context(self._core.locked(location_of(row.unit), timeout_s=0))
                    plan = applier.plan_next(row, self._read_chunk)
                except _FAILURES as error:  # it is applied alone, which shows whether that matters
                    log.debug("%s: not applied together with others: %s", row.unit, error)
                    continue
                if plan is not None and size_bytes + plan.size_bytes <= MAX_BYTES:
                    size_bytes += plan.size_bytes
                    held.push(own.pop_all())
                    yield plan
