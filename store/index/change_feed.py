"""The change feed: every commit, in order, for mounts and other processes.

Each commit adds its rows in its own transaction, so the feed has the order of the commits. A cursor
is an epoch and a sequence number. For a cursor of another epoch, or one older than the oldest row,
the answer has `resync` set: the caller must drop everything it has cached.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Literal, NamedTuple

import apsw

from store.index.database import Database, now_ns
from store.layout import Location

# mail, state, project: no session document changed; `location.dir` is the directory. purged: old versions are gone.
What = Literal[
    "saved",
    "runtime",
    "appended",
    "deleted",
    "cleared",
    "attachment",
    "record",
    "log",
    "reread",
    "moved",
    "mail",
    "state",
    "project",
    "purged",
]

KEPT_ROWS = 100_000  # older rows are deleted when idle
PAGE_ROWS = 10_000
POLL_S = 0.05


class Cursor(NamedTuple):
    """A position in the feed."""

    epoch: str
    seq: int


class FeedChange(NamedTuple):
    """One change of one session or other location."""

    seq: int
    location: Location
    what: str
    at_ns: int


class Changes(NamedTuple):
    """The changes after a cursor, and the cursor for the next call."""

    cursor: Cursor
    items: list[FeedChange]
    resync: bool = False


class ChangeFeed:
    """Reads and trims the table `changes`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @staticmethod
    def add(db: apsw.Connection, locations: Iterable[Location], what: What) -> None:
        """Add changes, inside the transaction of their commit."""
        at_ns = now_ns()
        rows = [(loc.root, loc.child or "", what, at_ns) for loc in locations]
        db.executemany("INSERT INTO changes (root, child, what, at_ns) VALUES (?, ?, ?, ?)", rows)

    def begin_epoch(self) -> None:
        """Invalidate all cursors, after changes may have been missed."""
        self._db.set_meta(epoch=uuid.uuid4().hex)

    def cursor(self) -> Cursor:
        """The current end of the feed."""
        return Cursor(self._db.get_meta("epoch", ""), self._last(self._db.reader))

    def since(self, cursor: Cursor | None = None) -> Changes:
        """At most PAGE_ROWS changes after `cursor`; None returns a cursor at the current end."""
        reader = self._db.reader
        reader.execute("BEGIN")  # one snapshot for epoch, floor and rows
        try:
            epoch = self._db.get_meta("epoch", "")
            if cursor is None:
                return Changes(Cursor(epoch, self._last(reader)), [])
            floor = self._db.get_meta("feed_floor", 0)
            if cursor.epoch != epoch or cursor.seq < floor:
                return Changes(Cursor(epoch, self._last(reader)), [], resync=True)
            rows = reader.execute(
                "SELECT seq, root, child, what, at_ns FROM changes WHERE seq > ? ORDER BY seq LIMIT ?",
                (cursor.seq, PAGE_ROWS),
            )
            items = [FeedChange(seq, Location(root, child or None), what, at) for seq, root, child, what, at in rows]
            return Changes(Cursor(epoch, items[-1].seq if items else cursor.seq), items)
        finally:
            reader.execute("COMMIT")

    def wait(self, cursor: Cursor, timeout_s: float = 1.0) -> Changes:
        """Like `since`, but wait up to `timeout_s` for a change."""
        deadline = time.monotonic() + timeout_s
        reader = self._db.reader
        while True:
            version = reader.pragma("data_version")
            found = self.since(cursor)
            if found.items or found.resync:
                return found
            # A commit by another connection changes data_version; reading it costs microseconds.
            while self._db.reader.pragma("data_version") == version:
                if time.monotonic() >= deadline:
                    return found
                time.sleep(POLL_S)

    def trim(self) -> None:
        """Delete all but the newest KEPT_ROWS rows."""
        floor = self._last(self._db.reader) - KEPT_ROWS
        if floor - self._db.get_meta("feed_floor", 0) < KEPT_ROWS // 10:
            return
        with self._db.write() as db:
            db.execute("DELETE FROM changes WHERE seq <= ?", (floor,))
            db.execute("INSERT OR REPLACE INTO meta VALUES ('feed_floor', ?)", (floor,))

    @staticmethod
    def _last(db: apsw.Connection) -> int:
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        return int(row[0]) if row else 0
