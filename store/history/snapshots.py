"""Snapshots: names for moments. The versions of such a moment are never thinned out."""

from __future__ import annotations

import os

import apsw

from store.errors import AlreadyExists, NotFound
from store.history.versions import Snapshot
from store.layout import PRIVATE


def list_all(db: apsw.Connection) -> list[Snapshot]:
    return [Snapshot(*row) for row in db.execute("SELECT name, at_ns FROM snapshots ORDER BY at_ns DESC, name")]


def is_named(db: apsw.Connection, lineage: int) -> bool:
    """Whether a lineage existed, outside the trash, at the moment of a snapshot."""
    then = "SELECT dir FROM names WHERE lineage = ? AND from_ns <= s.at_ns ORDER BY from_ns DESC LIMIT 1"
    paths = db.execute(f"SELECT ({then}) FROM snapshots s", (lineage,))
    return any(path is not None and not path.startswith(os.fsencode(PRIVATE)) for (path,) in paths)


def add(db: apsw.Connection, name: str, at_ns: int) -> None:
    if db.execute("SELECT 1 FROM snapshots WHERE name = ?", (name,)).get is not None:
        raise AlreadyExists(f"there is a snapshot {name!r} already; delete it first or choose another name")
    db.execute("INSERT INTO snapshots VALUES (?, ?)", (name, at_ns))


def delete(db: apsw.Connection, name: str) -> None:
    db.execute("DELETE FROM snapshots WHERE name = ?", (name,))
    if not db.changes():
        raise NotFound(f"there is no snapshot {name!r}")
