"""Versions and times as people write them. Pure: the caller passes the current time.

A version V is a number from `grovefs log`, -1 for the one before the newest, or a time. A time T is

    2h  90m  1d12h             so long ago; units s, m, h, d, w
    10:32  10:32:05.5          today, or yesterday if that is still to come
    2026-11-16                 the beginning of that day
    2026-11-16T10:32[:05.25]   a moment; also with a space, or with dots as in the names of history/
    …Z  …+01:00                the same in another zone than the local one
    now  today  yesterday

A time without a fraction is the whole second: `grovefs log` prints seconds, so `ID@10:32:05` must
find the version made within that second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import pairwise

from store.errors import InvalidName

SECOND_NS = 1_000_000_000
_UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}  # seconds, largest first

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_AGO = re.compile(r"(?:[0-9]{1,9}[smhdw])+")
_PART_OF_AGO = re.compile(r"([0-9]+)([smhdw])")
_CLOCK = r"([01][0-9]|2[0-3])({})([0-5][0-9])(?:{}([0-5][0-9]|60)(?:[.,]([0-9]{{1,9}}))?)?"
_TIME_OF_DAY = re.compile(_CLOCK.format(":", ":"))
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]" + _CLOCK.format("[:.]", r"\5") + r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)

TIME_FORMS = "2h, 10:32, 10:32:05, 2026-11-16 or 2026-11-16T10:32:05+01:00"
VERSION_FORMS = f"a number from `grovefs log`, -1 (the one before) or a time such as {TIME_FORMS}"


@dataclass(frozen=True)
class Moment:
    """A time as written: `start_ns` to `end_ns` are one instant or one whole second."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class VersionSpec:
    """A version as written. One of the two is set; a negative number counts back from the newest."""

    number: int | None = None
    moment: Moment | None = None


def parse_moment(text: str, now_ns: int, zone: tzinfo | None = None) -> Moment:
    """The time that a person means. `zone` is the local zone of this process unless given."""
    moment = _find_moment(text.strip(), now_ns, zone)
    if moment is None:
        raise InvalidName(f"{text!r} is not a time: expected {TIME_FORMS}")
    return moment


def parse_version(text: str, now_ns: int, zone: tzinfo | None = None) -> VersionSpec:
    """The version that a person means. Versions are numbered from 1."""
    if _NUMBER.fullmatch(text) and int(text) != 0:
        return VersionSpec(number=int(text))
    moment = _find_moment(text.strip(), now_ns, zone)
    if moment is None:
        raise InvalidName(f"{text!r} is not a version: expected {VERSION_FORMS}")
    return VersionSpec(moment=moment)


def split_version(text: str) -> tuple[str, str | None]:
    """Split `ID@V` into the name and V; None if there is no version.

    Ids and titles may contain @. What follows the last one is a version only if it reads as one.
    """
    name, at, version = text.rpartition("@")
    if not at or not name or not is_version(version):
        return text, None
    return name, version


def is_version(text: str) -> bool:
    """Whether a text reads as a version."""
    try:
        parse_version(text, 0, UTC)
    except InvalidName:
        return False
    return True


def _find_moment(text: str, now_ns: int, zone: tzinfo | None) -> Moment | None:
    now = _datetime(now_ns, zone)
    try:
        if text in ("now", "today", "yesterday") or _AGO.fullmatch(text):
            return _relative(text, now_ns, now, zone)
        if match := _TIME_OF_DAY.fullmatch(text):
            return _time_of_day(match, now_ns, now, zone)
        if match := _DATE.fullmatch(text):
            return _whole_second(_local_ns(datetime(int(match[1]), int(match[2]), int(match[3])), zone))
        if match := _MOMENT.fullmatch(text):
            return _moment(match, zone)
    except (ValueError, OverflowError):  # 30 February, or outside the years 1 to 9999
        return None
    return None


def _relative(text: str, now_ns: int, now: datetime, zone: tzinfo | None) -> Moment | None:
    if text == "now":
        return Moment(now_ns, now_ns)
    if text in ("today", "yesterday"):
        day = now.date() - timedelta(days=text == "yesterday")
        return _whole_second(_local_ns(datetime(day.year, day.month, day.day), zone))
    parts = _PART_OF_AGO.findall(text)
    if any(_UNITS[larger] <= _UNITS[smaller] for (_, larger), (_, smaller) in pairwise(parts)):
        return None  # 1h2h: a typing error
    at_ns = now_ns - sum(int(count) * _UNITS[unit] for count, unit in parts) * SECOND_NS
    _datetime(at_ns, zone)  # raises if no calendar has it
    return Moment(at_ns, at_ns)


def _time_of_day(match: re.Match[str], now_ns: int, now: datetime, zone: tzinfo | None) -> Moment:
    moment = _on_day(now.date(), match, 1, zone)
    # A day earlier by the calendar, which is not 24 hours on two days of the year.
    return moment if moment.start_ns <= now_ns else _on_day(now.date() - timedelta(days=1), match, 1, zone)


def _moment(match: re.Match[str], zone: tzinfo | None) -> Moment:
    written = match[9]
    return _on_day(date(int(match[1]), int(match[2]), int(match[3])), match, 4, _zone(written) if written else zone)


def _on_day(day: date, match: re.Match[str], first: int, zone: tzinfo | None) -> Moment:
    """The time of day in the groups from `first` on: hour, separator, minute, second, fraction."""
    hour, minute, second = int(match[first]), int(match[first + 2]), int(match[first + 3] or 0)
    midnight = datetime(day.year, day.month, day.day, hour, minute)
    at_ns = _local_ns(midnight, zone) + second * SECOND_NS  # a leap second is the one after 59
    fraction = match[first + 4]
    if fraction is None:
        return _whole_second(at_ns)
    exact_ns = at_ns + int(fraction.ljust(9, "0"))
    return Moment(exact_ns, exact_ns)


def _whole_second(at_ns: int) -> Moment:
    return Moment(at_ns, at_ns + SECOND_NS - 1)


def _zone(text: str) -> tzinfo:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if minutes > 59:
        raise ValueError(text)
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def _datetime(at_ns: int, zone: tzinfo | None) -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)
    return moment.astimezone(zone)


def _local_ns(moment: datetime, zone: tzinfo | None) -> int:
    """Nanoseconds since 1970 of a local time without a fraction. A time that a change of clocks skips or repeats
    is taken before the change."""
    aware = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * SECOND_NS


def local_text(at_ns: int, zone: tzinfo | None = None) -> str:
    """A time for people, in the local zone: 2026-11-16 22:10:35."""
    return _datetime(at_ns, zone).strftime("%Y-%m-%d %H:%M:%S")
