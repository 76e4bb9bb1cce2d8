"""The records of `token-usage.jsonl`: one line per model call, written by agents.

Members that are missing or of a wrong type count as absent. A line that is not a JSON object is reported as None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from store import layout
from store.disk.disk import Disk
from store.errors import Corrupt
from store.layout import Location
from store.model.timestamp import Timestamp
from store.search.prices import TOKENS, Prices, cost_of, is_price, prices_of

_COSTS = ("cost", "cost_usd", "total_cost_usd")  # members of records that hold the cost of a call


class UsageRecord(NamedTuple):
    """One model call."""

    at_ns: int | None  # None: the record has no valid time
    model: str  # '' if the record names none
    tokens: dict[str, int]
    stored_cost: float | None
    answer: str = ""  # id of the API answer; several sessions may have a record of one

    def cost(self, prices: Prices) -> float | None:
        """The record's cost; otherwise computed from the user's prices. None: unknown."""
        if self.stored_cost is not None:
            return self.stored_cost
        return cost_of(self.tokens, prices_of(prices, self.model))


def iter_lines(disk: Disk, location: Location) -> Iterator[bytes]:
    """The lines of a session's log; none if it has no log."""
    try:
        file = disk.read(location.path(layout.TOKEN_USAGE))
    except Corrupt:  # not a regular file; `check` reports it
        return
    yield from (line for line in (file.data.splitlines() if file else ()) if line.strip())


def parse_record(line: bytes) -> UsageRecord | None:
    """None if the line is not a JSON object: a crash may truncate the last line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        return None
    model = record.get("model")
    stored = next((float(record[name]) for name in _COSTS if is_price(record.get(name))), None)
    tokens = {name: record[name] if _is_count(record.get(name)) else 0 for name in TOKENS}
    answer = record.get("answer")
    return UsageRecord(_time(record.get("ts")), _text(model), tokens, stored, _text(answer))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _time(moment: Any) -> int | None:
    try:
        return Timestamp(moment).ns
    except (ValueError, TypeError):
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
