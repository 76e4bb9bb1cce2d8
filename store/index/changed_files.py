"""Files that changed since the trigram index last read them.

A commit notes each file it puts in place, in its own transaction. `grovefs grep` reads noted files
itself until the trigram index has caught up with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import apsw

from store.index.database import now_ns

UPSERT = "INSERT INTO grep_changed VALUES (?, ?) ON CONFLICT DO UPDATE SET at_ns = excluded.at_ns"


def note(db: apsw.Connection, paths: Iterable[str]) -> None:
    """Record files below sessions/ as changed now. Runs inside the commit's transaction."""
    at_ns = now_ns()
    db.executemany(UPSERT, [(os.fsencode(path), at_ns) for path in paths if path.startswith("sessions/")])
