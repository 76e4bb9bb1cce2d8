"""Deletions: what other hosts have deleted goes to the trash of this home, as the grove had it last.

Undelete takes a session out of the trash of this home and publishes it for all. So the trash must not
have an older version than the one that was deleted: before a deletion is applied, everything that it
takes along is brought to its last version, also what this home had never heard of, and missing files
come back. Each life of an id that was deleted meanwhile gets a slot of its own.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from store.commit.core import Core
from store.grove.applying import apply_rows, apply_whole
from store.grove.outside import OutsideEdits
from store.grove.replica import Replica
from store.grove.wire import BadRow, LogRow

log = logging.getLogger("grovefs.store")


class Log(Protocol):
    """The log of the grove, as this module needs it."""

    def deletions_of(self, root: str) -> Sequence[LogRow]: ...
    def rows_of_version(self, unit: str, version: int) -> Sequence[LogRow]: ...
    def fetch_chunk(self, digest: bytes) -> bytes: ...


@dataclass(frozen=True)
class Deletions:
    """The deletions of one home. The caller of its methods holds the lock of the tree."""

    core: Core
    replica: Replica
    outside: OutsideEdits
    grove: Log

    def apply(self, root: str, until: LogRow | None = None) -> None:
        """Apply the deletions in a tree that this home has not applied, in their order; all, or until this one.

        Raises LostHistory, Unreachable, Busy or OSError.
        """
        rows = self.grove.deletions_of(root)
        for _, together in itertools.groupby(rows, lambda row: row.token):
            deleted = [*together]
            if until is not None and deleted[0].seq > until.seq:
                return
            for row in deleted:
                self._prepare(row)
            for row in deleted:
                apply_rows(self.core, self.replica, [row], self.grove.fetch_chunk)

    def _prepare(self, row: LogRow) -> None:
        """Bring a unit to the version before its deletion. If the log is damaged, it is deleted as it is."""
        known = self.replica.find_unit(row.unit)
        try:
            if known is None or known.version < row.version - 1:
                rows = self.grove.rows_of_version(row.unit, row.version - 1)
                apply_whole(self.core, self.replica, rows, self.grove.fetch_chunk)
            elif self.core.disk.stat(row.unit) is not None:
                self.outside.fetch_missing(row.unit)
        except BadRow as error:
            log.warning("%s goes to the trash without its last changes: %s", row.unit, error)
