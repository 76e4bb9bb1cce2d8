"""The change feed: what changed since, for mounts and other processes.

Every commit adds rows in its own transaction, so the order of the feed is the order of commits. A
cursor is an epoch and a sequence; a cursor of another epoch, or one older than the feed reaches back,
is answered by `resync`: forget what you have cached.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Literal, NamedTuple

import apsw

from store.index.database import Database, now_ns
from store.layout import Location

# mail, state and project: not the documents of a session; `location.dir` says where.
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
]

KEPT = 100_000  # rows; older ones are dropped when idle
PAGE = 10_000
POLL_S = 0.05


class Cursor(NamedTuple):
    epoch: str
    seq: int


class FeedChange(NamedTuple):
    seq: int
    location: Location
    what: str
    at_ns: int


class Changes(NamedTuple):
    """What came after a cursor, and the cursor to ask with next time."""

    cursor: Cursor
    items: list[FeedChange]
    resync: bool = False


class ChangeFeed:
    def __init__(self, db: Database) -> None:
        self._db = db

    @staticmethod
    def add(db: apsw.Connection, locations: Iterable[Location], what: What) -> None:
        """Inside the transaction of the commit that it tells of."""
        at_ns = now_ns()
        rows = [(loc.root, loc.child or "", what, at_ns) for loc in locations]
        db.executemany("INSERT INTO changes (root, child, what, at_ns) VALUES (?, ?, ?, ?)", rows)

    def begin_epoch(self) -> None:
        """After the past became unsure: everyone who followed starts afresh."""
        self._db.set_meta(epoch=uuid.uuid4().hex)

    def cursor(self) -> Cursor:
        """The present end of the feed."""
        return Cursor(self._db.get_meta("epoch", ""), self._last(self._db.reader))

    def since(self, cursor: Cursor | None = None) -> Changes:
        """At most one page of changes after `cursor`; None starts at the present end."""
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
                (cursor.seq, PAGE),
            )
            items = [FeedChange(seq, Location(root, child or None), what, at) for seq, root, child, what, at in rows]
            return Changes(Cursor(epoch, items[-1].seq if items else cursor.seq), items)
        finally:
            reader.execute("COMMIT")

    def wait(self, cursor: Cursor, timeout_s: float = 1.0) -> Changes:
        """As `since`, but wait up to `timeout_s` for something to come."""
        deadline = time.monotonic() + timeout_s
        reader = self._db.reader
        while True:
            version = reader.pragma("data_version")
            found = self.since(cursor)
            if found.items or found.resync:
                return found
            # Any commit by another connection changes data_version; asking for it costs microseconds.
            while reader.pragma("data_version") == version:
                if time.monotonic() >= deadline:
                    return found
                time.sleep(POLL_S)

    def trim(self) -> None:
        """Drop what lies further back than anyone should need."""
        floor = self._last(self._db.reader) - KEPT
        if floor - self._db.get_meta("feed_floor", 0) < KEPT // 10:
            return
        with self._db.write() as db:
            db.execute("DELETE FROM changes WHERE seq <= ?", (floor,))
            db.execute("INSERT OR REPLACE INTO meta VALUES ('feed_floor', ?)", (floor,))

    @staticmethod
    def _last(db: apsw.Connection) -> int:
        row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        return int(row[0]) if row else 0
