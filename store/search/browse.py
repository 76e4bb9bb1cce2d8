"""Sessions in rows to leaf through: by title, day, status, model, project, parent. Answered from the index alone.

Every session has one name, the same on every shelf (see `labels`). A name is found without making up the listing
that it stands in: nothing is remembered between two questions, so every answer is of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from store.commit.core import Core
from store.documents import display_names
from store.layout import Location
from store.search.transcripts import mtime_of

Column = Literal["status", "model", "project", "parent"]


class SessionLink(NamedTuple):
    """A session as it stands on a shelf."""

    name: str
    location: Location
    mtime_ns: int


class SessionFilter(NamedTuple):
    """Which sessions stand here: a condition on their rows."""

    condition: str = "TRUE"
    values: tuple[Any, ...] = ()


ALL = SessionFilter()
PINNED = SessionFilter("pinned")


def with_value(column: Column, value: str | None) -> SessionFilter:
    """The sessions with a value, or (None) without any."""
    if value or column == "model":  # which is never NULL: asked about that, SQLite would read through the index
        return SessionFilter(f"{column} = ?", (value or "",))
    return SessionFilter(f"({column} IS NULL OR {column} = '')")


def between(start_ns: int, stop_ns: int) -> SessionFilter:
    """Those last updated from one moment up to another."""
    return SessionFilter("updated_ns >= ? AND updated_ns < ?", (start_ns, stop_ns))


@dataclass(frozen=True)
class SessionBrowser:
    core: Core

    def find(self, shelf: SessionFilter, name: str) -> SessionLink | None:
        """The session of this name, if it stands on this shelf."""
        found = self._called(shelf, name)
        if len(found) == 1:
            return found[0][0] if found[0][1] else None
        parted = display_names.split_suffix(name) if not found else None
        if parted is None:
            return None  # none is called so, or several are and each has a mark
        called = self._called(shelf, parted[0])
        marked = [
            card for card, stands in called if stands and display_names.with_suffix(parted[0], card.location) == name
        ]
        return marked[0]._replace(name=name) if marked and len(called) > 1 else None

    def links(self, shelf: SessionFilter) -> Iterator[SessionLink]:
        """All that stand on a shelf."""
        rows = self.core.db.reader.execute(
            "SELECT name, root, child, main_stamp, side_stamp, "
            "EXISTS (SELECT 1 FROM sessions o WHERE o.name = s.name AND o.key <> s.key) "
            f"FROM sessions s WHERE {shelf.condition} ORDER BY name, root, child",
            shelf.values,
        ).fetchall()
        for *row, is_shared in rows:
            card = _link(*row)
            yield card._replace(name=display_names.with_suffix(card.name, card.location)) if is_shared else card

    def is_empty(self, shelf: SessionFilter) -> bool:
        query = f"SELECT 1 FROM sessions WHERE {shelf.condition} LIMIT 1"
        return self.core.db.reader.execute(query, shelf.values).fetchone() is None

    def find_newest(self, shelf: SessionFilter = ALL) -> int | None:
        """When a session on a shelf was last updated, in nanoseconds. Quick for ALL and `between`."""
        return self._number(f"SELECT max(updated_ns) FROM sessions WHERE {shelf.condition}", shelf.values)

    def find_next(self, at_ns: int) -> int | None:
        """When, from a moment on, a session was first updated that has not been since."""
        return self._number("SELECT min(updated_ns) FROM sessions WHERE updated_ns >= ?", (at_ns,))

    def values(self, column: Column) -> Iterator[str]:
        """Every value that a column has, in order; the index is asked for the next one, not read through."""
        rows = self.core.db.reader.execute(
            f"WITH RECURSIVE v(x) AS (SELECT min({column}) FROM sessions WHERE {column} > '' UNION ALL "
            f"SELECT (SELECT min({column}) FROM sessions WHERE {column} > v.x) FROM v WHERE v.x IS NOT NULL) "
            "SELECT x FROM v WHERE x IS NOT NULL"
        ).fetchall()
        return (str(value) for (value,) in rows)

    def _called(self, shelf: SessionFilter, name: str) -> list[tuple[SessionLink, bool]]:
        """All sessions of a name, and whether each stands on the shelf."""
        rows = self.core.db.reader.execute(
            f"SELECT name, root, child, main_stamp, side_stamp, ({shelf.condition}) FROM sessions WHERE name = ?",
            (*shelf.values, name),
        ).fetchall()
        return [(_link(*row), bool(stands)) for *row, stands in rows]

    def _number(self, query: str, values: tuple[Any, ...]) -> int | None:
        found: int | None = self.core.db.reader.execute(query, values).get
        return found


def _link(name: Any, root: Any, child: Any, main: Any, side: Any) -> SessionLink:
    return SessionLink(name, Location(root, child or None), mtime_of(main, side))
