"""Snapshots: names for moments. A snapshot copies nothing; the versions of its moment are never thinned out."""

from __future__ import annotations

import apsw

from store.errors import AlreadyExists, NotFound
from store.history.versions import Snapshot


def list_all(db: apsw.Connection) -> list[Snapshot]:
    return [Snapshot(*row) for row in db.execute("SELECT name, at_ns FROM snapshots ORDER BY at_ns DESC, name")]


def add(db: apsw.Connection, name: str, at_ns: int) -> None:
    if db.execute("SELECT 1 FROM snapshots WHERE name = ?", (name,)).get is not None:
        raise AlreadyExists(f"there is a snapshot {name!r} already; delete it first or choose another name")
    db.execute("INSERT INTO snapshots VALUES (?, ?)", (name, at_ns))


def delete(db: apsw.Connection, name: str) -> None:
    db.execute("DELETE FROM snapshots WHERE name = ?", (name,))
    if not db.changes():
        raise NotFound(f"there is no snapshot {name!r}")
