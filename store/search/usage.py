"""Usage statistics: sessions, messages and tokens by day and model.

Sessions and messages come from the index, tokens from the lines of `token-usage.jsonl`. Nothing is
estimated: a line without a time counts for no day, and a cost is stored in a record or computed from the
user's price file. Days are in UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.commit.reindex import iter_on_disk
from store.errors import Corrupt, InvalidContent, Problem
from store.index.schema import SHIFT
from store.layout import Location
from store.model.timestamp import Timestamp

TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "thinking_tokens")
NO_DAY = "unknown"
_COSTS = ("cost", "cost_usd", "total_cost_usd")  # members of records that hold the cost of a call

Prices = Mapping[str, Mapping[str, float]]  # model → kind of tokens → price per million


class Key(NamedTuple):
    day: str  # YYYY-MM-DD
    model: str  # '' if a record names none


@dataclass
class UsageTotals:
    """Usage on one day with one model."""

    sessions: int = 0  # created
    messages: int = 0
    calls: int = 0  # lines of token-usage.jsonl
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    cost: float | None = None  # None: unknown

    @property
    def total(self) -> int:
        """All tokens. Thinking tokens are part of the output tokens."""
        return sum(count for name, count in self.tokens.items() if name != "thinking_tokens")

    def add(self, other: UsageTotals) -> None:
        self.sessions += other.sessions
        self.messages += other.messages
        self.calls += other.calls
        for name, count in other.tokens.items():
            self.tokens[name] += count
        if other.cost is not None:
            self.cost = (self.cost or 0.0) + other.cost


class Usage(NamedTuple):
    by_key: dict[Key, UsageTotals]
    unread: int  # lines that are not valid records
    unpriced: int  # calls without a cost, if prices were given or other calls have a cost

    def by_day(self) -> dict[str, UsageTotals]:
        return self._by(lambda key: key.day)

    def by_model(self) -> dict[str, UsageTotals]:
        return self._by(lambda key: key.model)

    def total(self) -> UsageTotals:
        return self._by(lambda key: "").get("", UsageTotals())

    def _by(self, part: Any) -> dict[str, UsageTotals]:
        found: dict[str, UsageTotals] = defaultdict(UsageTotals)
        for key, used in self.by_key.items():
            found[part(key)].add(used)
        return dict(sorted(found.items()))


def gather(core: Core, *, since: str = "", prices: Prices | None = None) -> Usage:
    """Usage since a day (YYYY-MM-DD); "" means all, including undated records."""
    found: dict[Key, UsageTotals] = defaultdict(UsageTotals)
    for day, model, count in _sessions(core):
        found[Key(day, model)].sessions += count
    for day, model, count in _messages(core):
        found[Key(day, model)].messages += count
    unread = unpriced = 0
    for record in _records(core):
        if record is None:
            unread += 1
            continue
        key, used = _read(record, prices or {})
        if _is_wanted(key, since):
            unpriced += used.cost is None
            found[key].add(used)
    has_costs = prices is not None or any(used.cost is not None for used in found.values())
    kept = {key: found[key] for key in sorted(found) if _is_wanted(key, since)}
    return Usage(kept, unread, unpriced if has_costs else 0)


def _is_wanted(key: Key, since: str) -> bool:
    return not since or (key.day != NO_DAY and key.day >= since)


def _sessions(core: Core) -> Iterator[tuple[str, str, int]]:
    day = "strftime('%Y-%m-%d', created_ns / 1000000000, 'unixepoch')"
    yield from core.db.reader.execute(f"SELECT {day}, model, count(*) FROM sessions GROUP BY 1, 2")


def _messages(core: Core) -> Iterator[tuple[str, str, int]]:
    """Messages by the model of their session; a message without a time counts for no day."""
    day = "coalesce(strftime('%Y-%m-%d', texts.created_ns / 1000000000, 'unixepoch'), ?)"
    yield from core.db.reader.execute(
        f"SELECT {day}, model, count(*) FROM texts JOIN sessions ON sessions.key = texts.row >> {SHIFT} "
        "WHERE role <> '' AND texts.row > 0 GROUP BY 1, 2",
        (NO_DAY,),
    )


def _records(core: Core) -> Iterator[dict[str, Any] | None]:
    """Every record once, because a fork copies those of its original. None for an invalid line.

    A record that names the API answer it counts is the same in each session that repeats this answer.
    """
    owners: dict[bytes, Location] = {}
    for location in iter_on_disk(core.disk):
        try:
            file = core.disk.read(location.path(layout.TOKEN_USAGE))
        except Corrupt:  # not a regular file; `check` reports it
            continue
        for line in file.data.splitlines() if file else ():
            if not line.strip():
                continue
            record = _parsed(line)
            answer = record.get("answer") if record else None
            key = answer.encode() if isinstance(answer, str) else line
            if owners.setdefault(blake2b(key, digest_size=16).digest(), location) == location:
                yield record


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None  # a crash may truncate the last line
    return record if isinstance(record, dict) else None


def _read(record: dict[str, Any], prices: Prices) -> tuple[Key, UsageTotals]:
    tokens = {name: record[name] if _is_count(record.get(name)) else 0 for name in TOKENS}
    moment, model = record.get("ts"), record.get("model")
    model = model if isinstance(model, str) else ""
    return Key(_day(moment), model), UsageTotals(calls=1, tokens=tokens, cost=_cost(record, tokens, prices.get(model)))


def _day(moment: Any) -> str:
    try:
        return Timestamp.from_ns(Timestamp(moment).ns)[:10]  # converted to UTC
    except (ValueError, TypeError, OverflowError):
        return NO_DAY


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _cost(record: dict[str, Any], tokens: dict[str, int], prices: Mapping[str, float] | None) -> float | None:
    """The record's cost; otherwise computed from the user's prices, if they cover all kinds of tokens used."""
    stored = next((record[name] for name in _COSTS if _is_price(record.get(name))), None)
    if stored is not None:
        return float(stored)
    used = {name: count for name, count in tokens.items() if count and name != "thinking_tokens"}
    if prices is None or not used or not used.keys() <= prices.keys():
        return None
    return sum(count * prices[name] / 1_000_000 for name, count in used.items())


def parse_prices(raw: bytes, name: str) -> Prices:
    """A price file: {"model": {"input_tokens": 3.0, "output_tokens": 15.0}}, per million tokens."""
    try:
        prices = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidContent(name, Problem(f"not valid JSON: {error.msg}", error.lineno, error.colno)) from None
    for model, kinds in prices.items() if isinstance(prices, dict) else [(name, None)]:
        if not isinstance(kinds, dict) or not all(k in TOKENS and _is_price(v) for k, v in kinds.items()):
            raise InvalidContent(name, Problem(f"expected an object with prices for {', '.join(TOKENS)}", field=model))
    return dict(prices)


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
