"""Chains: the rows that a reader needs for one unit, from its newest whole version on, are kept few.

A commit adds a row with what it changed. When the chain of a unit has grown long, one host replaces the
operations of its newest row by those of a whole version with the same effect. Seq, version, token and
digests stay, so other hosts do not notice; every text is compared with its SHA-256 first. This happens
after commits, in the thread of a follower, and costs a commit nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from store.commit.commit import AgreedVersion
from store.grove import queries
from store.grove.collapsing import ChunkReader, collapse
from store.grove.replica import Replica
from store.grove.units import location_of, shard_of
from store.grove.wire import BadRow, LogRow, Operation, Put, Whole, decode_ops

log = logging.getLogger("grovefs.store")

EVERY = 64  # a chain is looked at when a version has a multiple of this number
MAX_ROWS = 256

_COMPRESSION = 4  # a whole text takes about a quarter of its size

T = TypeVar("T")

# The row of the unit is locked before that of the log, as by a commit.
_SHORTEN = """
WITH unit AS (
    UPDATE grove.units SET base = %(version)s
    WHERE shard = %(shard)s AND unit = %(unit)s AND base < %(version)s
    AND EXISTS (SELECT FROM grove.grove WHERE epoch = %(epoch)s AND frozen IS NULL)
    RETURNING unit
), refs AS (
    INSERT INTO grove.refs (unit, version, sha256)
    SELECT %(unit)s, %(version)s, r.sha256 FROM unnest(%(chunks)s::bytea[]) AS r (sha256), unit
    ON CONFLICT DO NOTHING
)
UPDATE grove.log SET ops = %(ops)s FROM unit
WHERE log.shard = %(shard)s AND log.unit = %(unit)s AND log.version = %(version)s AND log.token = %(token)s
"""


class LongChains:
    """The units of one process whose chains are to be looked at. Thread-safe."""

    def __init__(self, server: Server, replica: Replica, read_chunk: ChunkReader) -> None:
        self._server, self._replica, self._read_chunk = server, replica, read_chunk
        self._due: deque[str] = deque()

    def note(self, versions: Iterable[AgreedVersion]) -> None:
        """Note the units of versions that were just agreed to."""
        self._due.extend(version.unit for version in versions if version.version % EVERY == 0 and not version.is_gone)

    def shorten_due(self) -> None:
        """Shorten what was noted. A row that cannot be read is left as it is."""
        while self._due:
            unit = self._due.popleft()
            try:
                shorten(self._server, self._replica, unit, self._read_chunk)
            except BadRow as error:
                log.warning("%s: its rows in the log were not combined: %s", unit, error)


class Server(Protocol):
    def run(self, work: Callable[[Any], T], *, deadline_s: float | None = None) -> T: ...


def shorten(server: Server, replica: Replica, unit: str, read_chunk: ChunkReader) -> bool:
    """Make the newest version of a unit whole if its chain is long; returns whether it was."""
    member, root = replica.membership, location_of(unit).root
    rows = server.run(lambda c: queries.rows_of_unit(c, unit, root, member.shards, 0))
    if not rows or not _is_whole(rows[0]) or not _is_long(rows):
        return False
    whole = collapse(rows, read_chunk)
    values = {
        "shard": shard_of(root, member.shards),
        "unit": unit,
        "version": whole.version,
        "token": whole.token,
        "epoch": member.epoch,
        "ops": whole.ops,
        "chunks": sorted({digest for put in _puts(whole) for digest in put.chunks}),
    }
    server.run(lambda connection: connection.execute(_SHORTEN, values))
    return True


def _is_long(rows: Sequence[LogRow]) -> bool:
    """Whether the chain has too many rows, or more than half of the bytes of a whole version."""
    sizes = {put.path: put.size for row in rows for put in _puts(row)}
    return len(rows) > MAX_ROWS or 2 * sum(len(row.ops) for row in rows[1:]) > sum(sizes.values()) // _COMPRESSION


def _is_whole(row: LogRow) -> bool:
    operations = _operations(row)
    return bool(operations) and isinstance(operations[0], Whole)


def _puts(row: LogRow) -> list[Put]:
    return [operation for operation in _operations(row) if isinstance(operation, Put)]


def _operations(row: LogRow) -> tuple[Operation, ...]:
    return decode_ops(row.ops, row.unit)
