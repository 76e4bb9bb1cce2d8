"""Usage statistics: sessions, messages, tokens and costs by day, model, project, hour and session.

Sessions and messages come from the index, tokens from the lines of `token-usage.jsonl`. Nothing is
estimated: a line without a time counts for no day, and a cost is stored in a record or computed from the
user's price file. Days and hours are in the local time zone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import blake2b
from typing import NamedTuple

from store.commit.core import Core
from store.commit.reindex import iter_on_disk
from store.documents import display_names
from store.index.schema import SHIFT
from store.layout import Location
from store.search.prices import TOKENS, Prices
from store.search.usage_log import UsageRecord, iter_lines, parse_record

NO_DAY = "unknown"
TOP = 10  # longest and most expensive sessions
_LOCAL_DAY = "strftime('%Y-%m-%d', {} / 1000000000, 'unixepoch', 'localtime')"


class Key(NamedTuple):
    day: str  # YYYY-MM-DD
    model: str  # '' if a record names none
    project: str = ""  # '' for sessions without one


@dataclass
class UsageTotals:
    """Usage on one day with one model in one project."""

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


class SessionUsage(NamedTuple):
    """A session in a list of the longest or most expensive ones."""

    location: Location
    title: str
    messages: int
    used: UsageTotals


class Usage(NamedTuple):
    by_key: dict[Key, UsageTotals]
    by_hour: dict[tuple[int, int], int]  # (weekday from Monday = 0, hour) → messages
    longest: list[SessionUsage]  # by messages
    costliest: list[SessionUsage]  # by cost, then by tokens
    unread: int  # lines that are not valid records
    unpriced: int  # calls without a cost, if prices were given or other calls have a cost
    unpriced_sessions: dict[Location, list[str]]  # their sessions, with the models without a price

    def by_day(self) -> dict[str, UsageTotals]:
        return self._by(lambda key: key.day)

    def by_model(self) -> dict[str, UsageTotals]:
        return self._by(lambda key: key.model)

    def by_project(self) -> dict[str, UsageTotals]:
        return self._by(lambda key: key.project)

    def total(self) -> UsageTotals:
        return self._by(lambda key: "").get("", UsageTotals())

    def every_day(self) -> dict[str, UsageTotals]:
        """Like `by_day`, with all days from the first to the last, also those without activity."""
        known = self.by_day()
        days = sorted(day for day in known if day != NO_DAY)
        if not days:
            return known
        first, last = date.fromisoformat(days[0]), date.fromisoformat(days[-1])
        names = ((first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1))
        found = {day: known.get(day) or UsageTotals() for day in names}
        return found | ({NO_DAY: known[NO_DAY]} if NO_DAY in known else {})

    def _by(self, part: Callable[[Key], str]) -> dict[str, UsageTotals]:
        found: dict[str, UsageTotals] = defaultdict(UsageTotals)
        for key, used in self.by_key.items():
            found[part(key)].add(used)
        return dict(sorted(found.items()))


def gather(core: Core, *, since: str = "", prices: Prices | None = None) -> Usage:
    """Usage since a local day (YYYY-MM-DD); "" means all, including undated records."""
    found: dict[Key, UsageTotals] = defaultdict(UsageTotals)
    for key, count in _sessions(core):
        found[key].sessions += count
    for key, count in _messages(core):
        found[key].messages += count
    calls = _read_calls(core, since, prices)
    for key, used in calls.by_key:
        found[key].add(used)
    has_costs = prices is not None or any(used.cost is not None for used in found.values())
    kept = {key: found[key] for key in sorted(found) if _is_wanted(key.day, since)}
    return Usage(
        kept,
        _hours(core, since),
        _longest(core, calls.by_session),
        _costliest(core, calls.by_session),
        calls.unread,
        calls.unpriced if has_costs else 0,
        calls.unpriced_sessions if has_costs else {},
    )


def _is_wanted(day: str, since: str) -> bool:
    return not since or (day != NO_DAY and day >= since)


def local_day(ns: int | None) -> str:
    """The local day of a time; NO_DAY for none, and for one that the C library cannot convert."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(ns // 10**9)) if ns is not None else NO_DAY
    except (ValueError, OverflowError, OSError):
        return NO_DAY


# -- calls -------------------------------------------------------------------------------------------


@dataclass
class _Calls:
    """The wanted lines of all logs."""

    by_key: list[tuple[Key, UsageTotals]] = field(default_factory=list)
    by_session: dict[Location, UsageTotals] = field(default_factory=lambda: defaultdict(UsageTotals))
    unpriced_sessions: dict[Location, list[str]] = field(default_factory=dict)
    unread: int = 0
    unpriced: int = 0

    def add(self, location: Location, record: UsageRecord, key: Key, cost: float | None) -> None:
        used = UsageTotals(calls=1, tokens=record.tokens, cost=cost)
        self.by_key.append((key, used))
        self.by_session[location].add(used)
        if cost is None:
            self.unpriced += 1
            models = self.unpriced_sessions.setdefault(location, [])
            if record.model not in models:
                models.append(record.model)


def _read_calls(core: Core, since: str, prices: Prices | None) -> _Calls:
    """Every record once, because a fork copies those of its original.

    A record that names the API answer it counts is the same in each session that repeats this answer.
    """
    calls, projects = _Calls(), _projects(core)
    owners: dict[bytes, Location] = {}
    for location in iter_on_disk(core.disk):
        for line in iter_lines(core.disk, location):
            record = parse_record(line)
            identity = record.answer.encode() if record is not None and record.answer else line
            if owners.setdefault(blake2b(identity, digest_size=16).digest(), location) != location:
                continue
            if record is None:
                calls.unread += 1
                continue
            key = Key(local_day(record.at_ns), record.model, projects.get(location, ""))
            if _is_wanted(key.day, since):
                calls.add(location, record, key, record.cost(prices or {}))
    return calls


def _projects(core: Core) -> dict[Location, str]:
    rows = core.db.reader.execute("SELECT root, child, project FROM sessions WHERE project <> ''")
    return {Location(root, child or None): project for root, child, project in rows}


# -- the index -----------------------------------------------------------------------------------------


def _sessions(core: Core) -> Iterator[tuple[Key, int]]:
    day = _LOCAL_DAY.format("created_ns")
    query = f"SELECT {day}, model, coalesce(project, ''), count(*) FROM sessions GROUP BY 1, 2, 3"
    for day, model, project, count in core.db.reader.execute(query):
        yield Key(day, model, project), count


def _messages(core: Core) -> Iterator[tuple[Key, int]]:
    """Messages by the model of their session; a message without a time counts for no day."""
    day = f"coalesce({_LOCAL_DAY.format('texts.created_ns')}, ?)"
    rows = core.db.reader.execute(
        f"SELECT {day}, model, coalesce(project, ''), count(*) FROM texts "
        f"JOIN sessions ON sessions.key = texts.row >> {SHIFT} WHERE role <> '' AND texts.row > 0 GROUP BY 1, 2, 3",
        (NO_DAY,),
    )
    for day, model, project, count in rows:
        yield Key(day, model, project), count


def _hours(core: Core, since: str) -> dict[tuple[int, int], int]:
    moment = "created_ns / 1000000000, 'unixepoch', 'localtime'"
    rows = core.db.reader.execute(
        f"SELECT (strftime('%w', {moment}) + 6) % 7, CAST(strftime('%H', {moment}) AS INTEGER), count(*) "
        "FROM texts WHERE role <> '' AND row > 0 AND created_ns IS NOT NULL "
        f"AND {_LOCAL_DAY.format('created_ns')} >= ? GROUP BY 1, 2",
        (since,),
    )
    return {(weekday, hour): count for weekday, hour, count in rows}


def _longest(core: Core, by_session: dict[Location, UsageTotals]) -> list[SessionUsage]:
    query = "SELECT root, child, title, opening, message_count FROM sessions ORDER BY message_count DESC, key LIMIT ?"
    found = []
    for root, child, title, opening, count in core.db.reader.execute(query, (TOP,)):
        location = Location(root, child or None)
        found.append(
            SessionUsage(
                location, display_names.shown_title(title, opening), count, by_session.get(location) or UsageTotals()
            )
        )
    return found


def _costliest(core: Core, by_session: dict[Location, UsageTotals]) -> list[SessionUsage]:
    ranked = sorted(by_session.items(), key=lambda item: (-(item[1].cost or 0.0), -item[1].total, str(item[0])))
    found = []
    for location, used in ranked[:TOP]:
        row = core.index.find(location)
        title = display_names.shown_title(row.entry.title, row.preview.opening) if row else ""
        count = row.entry.message_count if row else 0
        found.append(SessionUsage(location, title, count, used))
    return found
