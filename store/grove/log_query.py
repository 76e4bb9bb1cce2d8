"""Reading of the log for followers and new hosts.

One statement returns the new rows of all shards together with each shard's end and the token at the
cursor. A pooler or a virtual address may lead to another server at any time, so every answer is
compared with what this home knows, not only that of a new connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.grove.replica import LogPosition
from store.grove.wire import LogRow

PAGE_ROWS = 32  # of each shard
PAGE_UNITS = 200

_ROW = (
    "l.shard, l.seq, l.unit, l.version, l.token::text, coalesce(l.previous::text, ''), l.host::text, "
    "coalesce(h.name, ''), l.what, l.via, l.program, (extract(epoch FROM l.at) * 1000000)::bigint * 1000, "
    "l.generation, l.ops"
)
_FOLLOW = f"""
SELECT g.epoch::text, g.frozen, c.shard, s.seq, seen.token::text, {_ROW}
FROM unnest(%s::int[], %s::bigint[]) AS c(shard, seq)
CROSS JOIN grove.grove g
JOIN grove.shards s ON s.shard = c.shard
LEFT JOIN grove.log seen ON seen.shard = c.shard AND seen.seq = c.seq
LEFT JOIN LATERAL (
    SELECT * FROM grove.log WHERE s.seq > c.seq AND log.shard = c.shard AND log.seq > c.seq
    ORDER BY log.seq LIMIT {PAGE_ROWS}
) l ON true
LEFT JOIN grove.hosts h ON h.host = l.host
ORDER BY c.shard, l.seq
"""
_BOOTSTRAP = f"""
SELECT u.gone, {_ROW}
FROM (
    SELECT * FROM grove.units WHERE (shard, unit) > (%s, %s) ORDER BY shard, unit LIMIT {PAGE_UNITS}
) u
JOIN grove.log l ON l.shard = u.shard AND l.unit = u.unit
    AND l.version BETWEEN (CASE WHEN u.gone THEN u.version ELSE u.base END) AND u.version
LEFT JOIN grove.hosts h ON h.host = l.host
ORDER BY u.shard, u.unit, l.version
"""


@dataclass
class LogPage:
    """The answer to one query of a follower."""

    epoch: str = ""
    frozen: str | None = None
    ends: dict[int, int] = field(default_factory=dict)  # the newest seq, by shard
    tokens: dict[int, str | None] = field(default_factory=dict)  # of the row at the cursor, by shard
    rows: list[LogRow] = field(default_factory=list)

    @property
    def lag(self) -> int:
        """The number of rows after this page."""
        last = {row.shard: row.seq for row in self.rows}
        return sum(end - last[shard] for shard, end in self.ends.items() if shard in last)


def read_page(connection: Any, cursors: Mapping[int, LogPosition], shards: int) -> LogPage:
    """The next rows of every shard."""
    numbers = list(range(shards))
    positions = [cursors[shard].seq if shard in cursors else 0 for shard in numbers]
    page = LogPage()
    for epoch, frozen, shard, end, token, *row in connection.execute(_FOLLOW, (numbers, positions)):
        page.epoch, page.frozen = epoch, frozen
        page.ends[shard], page.tokens[shard] = end, token
        if row[1] is not None:
            page.rows.append(LogRow(*row))
    return page


def lost_history(
    page: LogPage, cursors: Mapping[int, LogPosition], acknowledged: Mapping[int, LogPosition], epoch: str
) -> str:
    """Why the database is not the one this home has followed; "" if it is."""
    if page.epoch != epoch:
        return "the database holds another grove, or its history was replaced"
    missing = sum(max(0, known.seq - page.ends.get(shard, 0)) for shard, known in acknowledged.items())
    missing = max(missing, sum(max(0, known.seq - page.ends.get(shard, 0)) for shard, known in cursors.items()))
    if missing:
        return f"the database has lost {missing} commits that this home has"
    for shard, known in cursors.items():
        if known.seq and page.tokens.get(shard) != known.token:
            return f"the database has another history than this home (shard {shard}, row {known.seq})"
    return gap(page.rows, cursors)


def gap(rows: Sequence[LogRow], cursors: Mapping[int, LogPosition]) -> str:
    """Why rows do not follow each other; "" if they do."""
    last = {shard: position.seq for shard, position in cursors.items()}
    for row in rows:
        if row.seq != last.get(row.shard, 0) + 1:
            return f"the log of the grove has a gap (shard {row.shard}, after row {last.get(row.shard, 0)})"
        last[row.shard] = row.seq
    return ""


def read_ends(connection: Any) -> dict[int, LogPosition]:
    """The newest row of every shard that has one."""
    query = (
        "SELECT s.shard, s.seq, l.token::text FROM grove.shards s "
        "JOIN grove.log l ON l.shard = s.shard AND l.seq = s.seq"
    )
    return {shard: LogPosition(seq, token) for shard, seq, token in connection.execute(query)}


def read_units(connection: Any, after: tuple[int, str]) -> list[list[LogRow]]:
    """The rows that make up the next units, one list for each unit. A deleted unit has one row."""
    found: list[list[LogRow]] = []
    for _, *row in connection.execute(_BOOTSTRAP, after):
        read = LogRow(*row)
        if not found or found[-1][0].unit != read.unit:
            found.append([])
        found[-1].append(read)
    return found
