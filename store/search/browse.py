"""Filtered session listings for views/: by title, day, status, model, project, parent. Read from the index only.

Every session has one display name, the same in every listing (see `display_names`). A name is looked up
without building its listing. Nothing is cached, so every result is current.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from store.commit.core import Core
from store.documents import display_names
from store.index.catalog import mtime_of
from store.layout import Location

Column = Literal["status", "model", "project", "parent"]


class SessionLink(NamedTuple):
    """A session in a listing."""

    name: str
    location: Location
    mtime_ns: int


class SessionFilter(NamedTuple):
    """Selects sessions: an SQL condition on their rows."""

    condition: str = "TRUE"
    values: tuple[Any, ...] = ()


ALL = SessionFilter()
PINNED = SessionFilter("pinned")


def with_value(column: Column, value: str | None) -> SessionFilter:
    """The sessions with a value in a column; None: without one."""
    if value or column == "model":  # never NULL; a test for NULL would make SQLite scan the index
        return SessionFilter(f"{column} = ?", (value or "",))
    return SessionFilter(f"({column} IS NULL OR {column} = '')")


def between(start_ns: int, stop_ns: int) -> SessionFilter:
    """The sessions last updated in [start_ns, stop_ns)."""
    return SessionFilter("updated_ns >= ? AND updated_ns < ?", (start_ns, stop_ns))


@dataclass(frozen=True)
class SessionBrowser:
    """Queries behind the directories in views/."""

    core: Core

    def find(self, where: SessionFilter, name: str) -> SessionLink | None:
        """The session with a name, if the filter selects it."""
        found = self._named(where, name)
        if len(found) == 1:
            link, is_selected = found[0]
            return link if is_selected else None
        split = display_names.split_suffix(name) if not found else None
        if split is None:
            return None  # unknown, or shared by several sessions, whose names then have suffixes
        base = split[0]
        sharing = self._named(where, base)
        for link, is_selected in sharing if len(sharing) > 1 else ():
            if is_selected and display_names.with_suffix(base, link.location) == name:
                return link._replace(name=name)
        return None

    def links(self, where: SessionFilter) -> Iterator[SessionLink]:
        """All sessions that a filter selects, by name."""
        rows = self.core.db.reader.execute(
            "SELECT name, root, child, main_stamp, side_stamp, "
            "EXISTS (SELECT 1 FROM sessions o WHERE o.name = s.name AND o.key <> s.key) "
            f"FROM sessions s WHERE {where.condition} ORDER BY name, root, child",
            where.values,
        ).fetchall()
        for *row, is_shared in rows:
            link = _link(*row)
            yield link._replace(name=display_names.with_suffix(link.name, link.location)) if is_shared else link

    def is_empty(self, where: SessionFilter) -> bool:
        query = f"SELECT 1 FROM sessions WHERE {where.condition} LIMIT 1"
        return self.core.db.reader.execute(query, where.values).fetchone() is None

    def find_newest(self, where: SessionFilter = ALL) -> int | None:
        """The latest update of the selected sessions, in nanoseconds. Uses an index for ALL and `between`."""
        return self._number(f"SELECT max(updated_ns) FROM sessions WHERE {where.condition}", where.values)

    def find_next(self, at_ns: int) -> int | None:
        """The earliest last update of any session at or after a time."""
        return self._number("SELECT min(updated_ns) FROM sessions WHERE updated_ns >= ?", (at_ns,))

    def values(self, column: Column) -> Iterator[str]:
        """The distinct values of a column, sorted. Skips from value to value instead of scanning the index."""
        rows = self.core.db.reader.execute(
            f"WITH RECURSIVE v(x) AS (SELECT min({column}) FROM sessions WHERE {column} > '' UNION ALL "
            f"SELECT (SELECT min({column}) FROM sessions WHERE {column} > v.x) FROM v WHERE v.x IS NOT NULL) "
            "SELECT x FROM v WHERE x IS NOT NULL"
        ).fetchall()
        return (str(value) for (value,) in rows)

    def _named(self, where: SessionFilter, name: str) -> list[tuple[SessionLink, bool]]:
        """All sessions with a name, and whether the filter selects each."""
        rows = self.core.db.reader.execute(
            f"SELECT name, root, child, main_stamp, side_stamp, ({where.condition}) FROM sessions WHERE name = ?",
            (*where.values, name),
        ).fetchall()
        return [(_link(*row), bool(is_selected)) for *row, is_selected in rows]

    def _number(self, query: str, values: tuple[Any, ...]) -> int | None:
        found: int | None = self.core.db.reader.execute(query, values).get
        return found


def _link(name: Any, root: Any, child: Any, main: Any, side: Any) -> SessionLink:
    return SessionLink(name, Location(root, child or None), mtime_of(main, side))
