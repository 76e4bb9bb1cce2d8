"""Instants as text: RFC 3339 timestamps that keep every digit they came with.

A Timestamp *is* the text that was read, so writing it back changes nothing (rule 5). A datetime would
drop the last three of nine digits and the offset. The other side of that: `==`, `<` and hash are those
of the text. Whoever means the instant compares `.ns`.

Pure but for `now` and `after`, which read the clock. Anyone may call it.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["Timestamp", "clip_ns", "ns_of"]

NS_PER_SECOND = 1_000_000_000

# Every range that does not depend on another field is checked here, in C; what is left for Python is
# the length of the month, and only on the days 29 to 31.
_RFC3339 = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
# SQLite integers end at 2^63, which is the year 2262; no clock does.
_LARGEST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_MIN_NS = (date.min.toordinal() - _EPOCH_DAY) * 86_400 * NS_PER_SECOND
_MAX_NS = (date.max.toordinal() + 1 - _EPOCH_DAY) * 86_400 * NS_PER_SECOND - 1


class Timestamp(str):
    """An RFC 3339 instant, its text untouched. Text that is none raises ValueError."""

    __slots__ = ("_ns",)
    _ns: int

    def __new__(cls, text: str) -> Self:
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise ValueError(f"not an RFC 3339 timestamp: {_shortened(text)}")
        if match[3] > "28" and not _is_day(int(match[1]), int(match[2]), int(match[3])):
            raise ValueError(f"no such day in the calendar: {_shortened(text)}")
        return str.__new__(cls, text)

    @classmethod
    def now(cls) -> Self:
        """The clock's time, as a new value is written."""
        return cls.from_ns(time.time_ns())

    @classmethod
    def after(cls, earlier: Timestamp) -> Self:
        """Now, or one nanosecond past `earlier` if the clock has not got there: never backwards."""
        if earlier.ns >= _MAX_NS:  # the end of year 9999: there is nothing later to write
            return cls(earlier)
        return cls.from_ns(max(time.time_ns(), earlier.ns + 1))

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        """The instant `ns` nanoseconds after 1970: UTC, `Z`, a fraction of 0, 3, 6 or 9 digits."""
        if not _MIN_NS <= ns <= _MAX_NS:
            raise ValueError(f"{ns} ns is outside the years 1 to 9999")
        seconds, fraction = divmod(ns, NS_PER_SECOND)
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # strftime would not pad the year
        self = str.__new__(cls, f"{text}{_fraction_text(fraction)}Z")
        self._ns = ns
        return self

    @classmethod
    def nearest(cls, ns: int) -> Self:
        """As `from_ns`; beyond the years 1 to 9999, where a leap second or an offset may lead, their first or last."""
        return cls.from_ns(max(_MIN_NS, min(ns, _MAX_NS)))

    @property
    def ns(self) -> int:
        """Nanoseconds since 1970-01-01T00:00:00Z, exact; digits past the ninth are ignored."""
        try:
            return self._ns
        except AttributeError:
            self._ns = ns_of(self)
            return self._ns

    @property
    def datetime(self) -> datetime:
        """The instant in UTC, cut to microseconds; OverflowError outside the years 1 to 9999."""
        return _EPOCH + timedelta(microseconds=self.ns // 1000)

    # Immutable, so a copy of a long session shares them instead of parsing them again.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(strict=True),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )


def clip_ns(ns: int) -> int:
    """As far from 1970 as a database can tell."""
    return max(-_LARGEST, min(ns, _LARGEST))


def ns_of(text: str) -> int:
    """Nanoseconds since 1970 of a text that is known to be a timestamp."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 timestamp: {_shortened(text)}")
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    if int(year):
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    else:
        days = date(400, int(month), int(day)).toordinal() - 146_097 - _EPOCH_DAY  # days in 400 years
    # Second 60 needs no case of its own: it is 59 and one more.
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset = int(offset_hour) * 3600 + int(offset_minute) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * NS_PER_SECOND + (int(fraction[:9].ljust(9, "0")) if fraction else 0)


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year or 400, month, day)  # RFC 3339 has a year 0, Python has not; 400 has the same months
    except ValueError:
        return False
    return True


def _fraction_text(fraction_ns: int) -> str:
    if not fraction_ns:
        return ""
    digits = f"{fraction_ns:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
