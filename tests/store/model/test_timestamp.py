"""Timestamp: keeps its text and knows its instant to the nanosecond."""

import copy
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from store.model.timestamp import Timestamp, ns_of

FIRST_NS = Timestamp("0001-01-01T00:00:00Z").ns
LAST_NS = Timestamp("9999-12-31T23:59:59.999999999Z").ns


class Moment(BaseModel):
    model_config = ConfigDict(strict=True)
    at: Timestamp


@given(st.integers(FIRST_NS, LAST_NS))
def test_from_ns_and_ns_are_inverse(ns: int) -> None:
    """For every instant of the years 1 to 9999."""
    made = Timestamp.from_ns(ns)
    assert made.ns == ns
    assert Timestamp(str(made)).ns == ns


@given(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), st.text("0123456789", max_size=12), st.sampled_from("Zz")
)
def test_ns_of_utc_agrees_with_ns_of(moment: datetime, fraction: str, zone: str) -> None:
    """The fast way for UTC, with any number of digits."""
    text = moment.isoformat()[:19] + (f".{fraction}" if fraction else "") + zone
    assert Timestamp(text).ns == ns_of(text)


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),
    st.integers(-1439, 1439),
    st.integers(0, 999),
)
def test_ns_agrees_with_datetime(moment: datetime, offset_minutes: int, extra_ns: int) -> None:
    """Same instant as Python's datetime, plus the last three digits."""
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    sign = "-" if offset_minutes < 0 else "+"
    hours, minutes = divmod(abs(offset_minutes), 60)
    text = f"{moment.isoformat(timespec='microseconds')}{extra_ns:03d}{sign}{hours:02d}:{minutes:02d}"
    stamp = Timestamp(text)
    assert stamp == text
    assert stamp.datetime == aware
    assert stamp.ns % 1000 == extra_ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (500_000_000, "1970-01-01T00:00:00.500Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (123_456_000, "1970-01-01T00:00:00.123456Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (100, "1970-01-01T00:00:00.000000100Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (FIRST_NS, "0001-01-01T00:00:00Z"),
    ],
)
def test_new_text_has_the_shortest_exact_fraction(ns: int, text: str) -> None:
    """0, 3, 6 or 9 digits, like chrono prints it."""
    assert Timestamp.from_ns(ns) == text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01t00:00:01z", 1_000_000_000),
        ("1970-01-01 00:00:01+00:00", 1_000_000_000),
        ("1970-01-01T08:00:00+08:00", 0),
        ("1969-12-31T19:30:00-04:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00.1Z", 100_000_000),
        ("1970-01-01T00:00:00.1234567899Z", 123_456_789),
        ("1969-12-31T23:59:60Z", 0),
        ("1969-12-31T23:59:60.5Z", 500_000_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000_000),
        ("0000-02-29T00:00:00Z", FIRST_NS - 307 * 86_400_000_000_000),
    ],
)
def test_every_rfc3339_form_is_accepted(text: str, ns: int) -> None:
    """Separators, offsets, long fractions and second 60; the text is kept."""
    stamp = Timestamp(text)
    assert stamp.ns == ns
    assert str(stamp) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-06-20",
        "2026-06-20T08:15:30",
        "2026-06-20T08:15Z",
        "2026-06-20T08:15:30.Z",
        "2026-06-20T24:00:00Z",
        "2026-06-20T23:60:00Z",
        "2026-06-20T23:59:61Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2025-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-06-20T08:15:30+24:00",
        "2026-06-20T08:15:30+08:60",
        "2026-06-20T08:15:30+0800",
        "2026-06-20T08:15:30Z\n",
        " 2026-06-20T08:15:30Z",
        "٢٠٢٦-06-20T08:15:30Z",
        "+2026-06-20T08:15:30Z",
    ],
)
def test_other_text_is_rejected(text: str) -> None:
    """The ValueError shows the text."""
    with pytest.raises(ValueError, match="RFC 3339"):
        Timestamp(text)


def test_error_shortens_a_long_text() -> None:
    """A megabyte in the wrong place must not become a megabyte of error text."""
    with pytest.raises(ValueError, match="RFC 3339") as caught:
        Timestamp("x" * 1_000_000)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("ns", [FIRST_NS - 1, LAST_NS + 1])
def test_from_ns_outside_the_years_1_to_9999_is_rejected(ns: int) -> None:
    """No timestamp exists for it."""
    with pytest.raises(ValueError, match="outside"):
        Timestamp.from_ns(ns)


def test_equality_compares_the_text() -> None:
    """Two forms of one instant differ, with the same ns."""
    one, other = Timestamp("2026-06-20T08:00:00Z"), Timestamp("2026-06-20T08:00:00+00:00")
    assert one != other
    assert one.ns == other.ns
    assert one == "2026-06-20T08:00:00Z"
    assert hash(one) == hash("2026-06-20T08:00:00Z")


def test_datetime_is_utc_and_truncated() -> None:
    """To microseconds, also before 1970."""
    stamp = Timestamp("2026-06-20T08:15:30.123456789+02:00")
    assert stamp.datetime == datetime(2026, 6, 20, 6, 15, 30, 123456, tzinfo=UTC)
    assert stamp.datetime.tzinfo is UTC
    assert Timestamp("1969-12-31T23:59:59.9999999Z").datetime.microsecond == 999_999


def test_now_reads_the_clock() -> None:
    """In UTC with Z."""
    before, stamp, after = datetime.now(UTC), Timestamp.now(), datetime.now(UTC)
    assert before - timedelta(microseconds=1) <= stamp.datetime <= after
    assert stamp.endswith("Z")


def test_after_never_goes_backwards() -> None:
    """If the clock is behind the earlier value, the result is one nanosecond after that value."""
    future = Timestamp("2999-01-01T00:00:00.000000001+01:00")
    assert Timestamp.after(future).ns == future.ns + 1
    assert Timestamp.after(Timestamp("1999-01-01T00:00:00Z")).ns > Timestamp("2020-01-01T00:00:00Z").ns


def test_after_the_last_instant_returns_the_last_instant() -> None:
    """No error."""
    last = Timestamp("9999-12-31T23:59:59.999999999-01:00")
    assert Timestamp.after(last) == last


def test_strict_model_accepts_str_and_timestamp() -> None:
    """The field is a Timestamp; it dumps as plain str."""
    text = "2026-06-20T08:15:30.123456789Z"
    for given_value in (text, Timestamp(text)):
        moment = Moment.model_validate({"at": given_value})
        assert isinstance(moment.at, Timestamp)
        assert type(moment.model_dump()["at"]) is str
        assert moment.model_dump() == {"at": text}
        assert json.loads(moment.model_dump_json()) == {"at": text}


@pytest.mark.parametrize("bad", [None, 0, 1.5, datetime(2026, 1, 1, tzinfo=UTC), b"2026-01-01T00:00:00Z", "x"])
def test_strict_model_rejects_other_values(bad: object) -> None:
    """Numbers, null, bytes, datetimes and other strings, at the field."""
    with pytest.raises(ValidationError) as caught:
        Moment.model_validate({"at": bad})
    assert caught.value.errors()[0]["loc"] == ("at",)


def test_copies_and_pickles_are_equal() -> None:
    """Whether or not ns was computed."""
    stamp = Timestamp("2026-06-20T08:15:30.123456789Z")
    assert copy.copy(stamp) is stamp
    assert copy.deepcopy([stamp])[0] is stamp
    for _ in range(2):
        loaded = pickle.loads(pickle.dumps(stamp))
        assert (type(loaded), loaded, loaded.ns) == (Timestamp, stamp, stamp.ns)
