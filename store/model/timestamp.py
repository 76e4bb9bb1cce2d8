"""Timestamp: an RFC 3339 timestamp that keeps every digit of its text.

A Timestamp is a string, so writing it back changes nothing (rule 5). A datetime would drop the
last three of nine digits, and the offset. Consequently `==`, `<` and hash compare the text; use
`.ns` to compare instants.

Pure, except for `now` and `after`, which read the clock.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # the commands that only read the index do not import pydantic
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["Timestamp", "clip_ns", "ns_of", "valid_ns_of"]

NS_PER_SECOND = 1_000_000_000

# The regular expression checks, in C, every range that does not depend on another field. Python
# checks only the length of the month, and only for the days 29 to 31.
_RFC3339 = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
# SQLite integers are below 2^63, which is in the year 2262; timestamps can be later.
_SQLITE_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATETIME_CHARS = 27  # with six digits of a fraction, as many as a datetime has
_EPOCH_DAY = _EPOCH.toordinal()
_MIN_NS = (date.min.toordinal() - _EPOCH_DAY) * 86_400 * NS_PER_SECOND
_MAX_NS = (date.max.toordinal() + 1 - _EPOCH_DAY) * 86_400 * NS_PER_SECOND - 1


class Timestamp(str):
    """An RFC 3339 timestamp with its original text. Raises ValueError for any other text."""

    __slots__ = ("_ns",)
    _ns: int

    def __new__(cls, text: str) -> Self:
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise ValueError(f"expected an RFC 3339 timestamp, got {_shortened(text)}")
        if match[3] > "28" and not _is_calendar_day(int(match[1]), int(match[2]), int(match[3])):
            raise ValueError(f"expected an RFC 3339 timestamp, got a day that does not exist: {_shortened(text)}")
        return str.__new__(cls, text)

    @classmethod
    def now(cls) -> Self:
        """The current time, in UTC."""
        return cls.from_ns(time.time_ns())

    @classmethod
    def after(cls, earlier: Timestamp) -> Self:
        """The current time, or one nanosecond after `earlier` if that is later: never backwards."""
        if earlier.ns >= _MAX_NS:  # the end of year 9999: no later timestamp can be written
            return cls(earlier)
        return cls.from_ns(max(time.time_ns(), earlier.ns + 1))

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        """The timestamp `ns` nanoseconds after 1970, in UTC with `Z` and 0, 3, 6 or 9 fraction digits."""
        if not _MIN_NS <= ns <= _MAX_NS:
            raise ValueError(f"{ns} ns is outside the years 1 to 9999")
        seconds, fraction = divmod(ns, NS_PER_SECOND)
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # strftime does not pad the year
        self = str.__new__(cls, f"{text}{_fraction_text(fraction)}Z")
        self._ns = ns
        return self

    @classmethod
    def clamped(cls, ns: int) -> Self:
        """Like `from_ns`, clamped to the years 1 to 9999: an offset or a leap second can lead outside."""
        return cls.from_ns(max(_MIN_NS, min(ns, _MAX_NS)))

    @property
    def ns(self) -> int:
        """Nanoseconds since 1970-01-01T00:00:00Z. Digits after the ninth are ignored."""
        try:
            return self._ns
        except AttributeError:
            self._ns = valid_ns_of(self)
            return self._ns

    @property
    def datetime(self) -> datetime:
        """The instant in UTC, truncated to microseconds. Raises OverflowError outside the years 1 to 9999."""
        return _EPOCH + timedelta(microseconds=self.ns // 1000)

    # Immutable, so copies of a long session share timestamps instead of parsing them again.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(strict=True),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )


def clip_ns(ns: int) -> int:
    """`ns` clamped to the integers that SQLite can store."""
    return max(-_SQLITE_MAX, min(ns, _SQLITE_MAX))


def ns_of(text: str) -> int:
    """Nanoseconds since 1970 of a valid timestamp."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"expected an RFC 3339 timestamp, got {_shortened(text)}")
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    if int(year):
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    else:
        days = date(400, int(month), int(day)).toordinal() - 146_097 - _EPOCH_DAY  # days in 400 years
    # Second 60 needs no special case: it is the second after 59.
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset = int(offset_hour) * 3600 + int(offset_minute) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * NS_PER_SECOND + (int(fraction[:9].ljust(9, "0")) if fraction else 0)


@lru_cache(maxsize=1024)  # a save asks half a dozen times for the updated_at of two texts
def valid_ns_of(text: str) -> int:
    """Like `ns_of`, for a text that is known to be a valid timestamp: faster in UTC."""
    return _utc_ns_of(text) if text[-1] in "Zz" else ns_of(text)


def _utc_ns_of(text: str) -> int:
    """Like `ns_of`, for a text that is known to be a valid timestamp in UTC: several times faster."""
    if len(text) <= _DATETIME_CHARS and text[-1] == "Z":
        try:
            since = datetime.fromisoformat(text) - _EPOCH
        except ValueError:  # second 60, or the year 0
            return ns_of(text)
        return (since.days * 86_400 + since.seconds) * NS_PER_SECOND + since.microseconds * 1000
    fraction = text[20:29]
    if fraction:
        fraction = fraction.rstrip("Zz").ljust(9, "0")
    seconds = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    return (_day_of(text[:10]) * 86_400 + seconds) * NS_PER_SECOND + (int(fraction) if fraction else 0)


@lru_cache(maxsize=1024)
def _day_of(text: str) -> int:
    return ns_of(f"{text}T00:00:00Z") // (86_400 * NS_PER_SECOND)


def _is_calendar_day(year: int, month: int, day: int) -> bool:
    try:
        date(year or 400, month, day)  # RFC 3339 has a year 0, Python does not; the year 400 has the same months
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
