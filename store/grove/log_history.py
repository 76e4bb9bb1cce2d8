"""Log history: versions from before this home had a unit, brought from the log of the grove into its history.

A host that joins gets the newest version of every unit, not all of its past. Once a person asks for that
(`grovefs log`, `ID@3`, `undo`), the log is replayed, and log, diff, revert and undo work as on the host that made
the versions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.errors import StoreError
from store.grove.applying import author_of, what_of
from store.grove.collapsing import ChunkReader, UnitContent, replay
from store.grove.units import escape_path, location_of, unit_of
from store.grove.wire import LogRow
from store.history.versions import AgreedNumber, PastVersion, is_session_dir, place_of

log = logging.getLogger("grovefs.store")

RowReader = Callable[[str, int], Sequence[LogRow]]  # the rows of a unit up to a version, oldest first


@dataclass(frozen=True)
class LogHistory:
    core: Core
    read_rows: RowReader
    read_chunk: ChunkReader

    def fill(self, path: str) -> int:
        """Add the versions of a path that the log has and this home does not; returns how many.

        0 if there are none, or the database does not answer. It is asked before the lock is taken: nobody else waits
        for it.
        """
        unit = path if is_session_dir(path) else unit_of(path)
        first = self._first(path)
        if unit is None or first is None:
            return 0
        try:
            past = [*self._past(unit, path, first)]
            with self.core.locked(location_of(unit)):
                if self._first(path) != first:  # another process has added them meanwhile
                    return len(past[1:])
                return self.core.history.prepend(path, past)
        except (StoreError, OSError) as error:
            log.info("%s: older versions cannot be read from the grove: %s", path, error)
            return 0

    def fill_unit(self, unit: str) -> None:
        """The same for all files of a unit that have versions here."""
        below = [path for path in self.core.history.paths_below(unit) if unit_of(path) == unit]
        for path in [unit, *below]:
            if is_session_dir(path) or place_of(path) is not None:
                self.fill(path)

    def _first(self, path: str) -> int | None:
        """The number of the first version here, if the grove has older ones."""
        try:
            oldest = self.core.history.oldest(path)
        except (StoreError, OSError):
            return None
        agreed = oldest.agreed if oldest is not None and oldest.number == 1 else None
        return agreed if agreed is not None and agreed > 1 else None

    def _past(self, unit: str, path: str, until: int) -> Iterator[PastVersion]:
        """The versions of a path up to a number. The last one has the text of that number."""
        names = (layout.SESSION, layout.RUNTIME) if path == unit else (path[len(unit) + 1 :], "")
        before: tuple[bytes, ...] = ()
        for row, content in replay(self.read_rows(unit, until), self.read_chunk):
            found = tuple(_digest(content, name) for name in names)
            if found != before and (before or any(found)):
                main, side = (_text(content, name) for name in names)
                yield PastVersion(AgreedNumber(row.version, row.at_ns), what_of(row), author_of(row), main, side)
                before = found


def _digest(content: UnitContent, name: str) -> bytes:
    put = content.puts.get(escape_path(name))
    return put.sha256 if put is not None else b""


def _text(content: UnitContent, name: str) -> bytes | None:
    escaped = escape_path(name)
    return content.text(escaped) if escaped in content.puts else None
