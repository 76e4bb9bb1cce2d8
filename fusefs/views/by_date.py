"""views/by-date/YYYY/MM/DD/: sessions by the UTC day of their last update."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from fusefs.views.base import Item, VirtualDir
from fusefs.views.session_links import Links
from store.search.browse import between

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PERIOD = re.compile(r"(\d{4})(?:/(\d\d)(?:/(\d\d))?)?")


class Period(NamedTuple):
    """A year, a month or a day, as a half-open interval."""

    name: str  # last component of its path
    start_ns: int
    stop_ns: int


class ByDate(Links):
    name = "by-date"

    def find(self, path: str) -> Item | None:
        if not path:
            return self.folder()
        parts = path.split("/", 3)
        period = parse_period("/".join(parts[:3]))
        if period is None:
            return None
        if len(parts) == 4:
            return self.link(between(period.start_ns, period.stop_ns), parts[3], 5)
        newest = self.browser.find_newest(between(period.start_ns, period.stop_ns))
        return self.folder(newest) if newest is not None else None

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        period = parse_period(path)
        if path.count("/") == 2 and period is not None:
            yield from self.links(between(period.start_ns, period.stop_ns), 5)
        elif not path or period is not None:
            yield from self._periods(path, period)

    def _periods(self, path: str, whole: Period | None) -> Iterator[tuple[str, VirtualDir]]:
        """The years, months or days with sessions in them. Each step is one index lookup, so gaps cost nothing."""
        at_ns = self.browser.find_next(whole.start_ns if whole else -(2**63))
        while at_ns is not None and (whole is None or at_ns < whole.stop_ns):
            period = period_at(at_ns, path.count("/") + 1 if path else 0)
            newest = self.browser.find_newest(between(period.start_ns, period.stop_ns))
            yield period.name, self.folder(newest)
            at_ns = self.browser.find_next(period.stop_ns)


def parse_period(path: str) -> Period | None:
    """`YYYY`, `YYYY/MM` or `YYYY/MM/DD`; None for anything else, also 30 February."""
    match = _PERIOD.fullmatch(path)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    try:
        start = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
    return _period(start, path.count("/"))


def period_at(at_ns: int, level: int) -> Period:
    """The year (level 0), month (1) or day (2) that contains a time."""
    moment = _EPOCH + timedelta(microseconds=at_ns // 1000)
    return _period(
        datetime(moment.year, moment.month if level else 1, moment.day if level > 1 else 1, tzinfo=UTC), level
    )


def _period(start: datetime, level: int) -> Period:
    if level == 0:
        name, stop = f"{start.year:04}", start.replace(year=min(start.year + 1, 9999))
    elif level == 1:
        name, stop = f"{start.month:02}", (start + timedelta(days=31)).replace(day=1)
    else:
        name, stop = f"{start.day:02}", start + timedelta(days=1)
    return Period(name, _ns(start), _ns(stop))


def _ns(moment: datetime) -> int:
    """Nanoseconds since 1970, clipped to 64 bits as in the index: the years 1677 to 2262."""
    ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return max(-(2**63), min(ns, 2**63 - 1))
