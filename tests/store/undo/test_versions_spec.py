"""Versions and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidName
from store.undo.versions_spec import (
    SECOND_NS,
    Moment,
    VersionSpec,
    is_version,
    local_text,
    parse_moment,
    parse_version,
    split_version,
)

VIENNA = ZoneInfo("Europe/Vienna")


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * SECOND_NS


NOW = ns("2026-11-16T22:15:00Z")


def second(text: str) -> Moment:
    return Moment(ns(text), ns(text) + SECOND_NS - 1)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10:32", "2026-11-16T10:32:00Z"),
        ("10:32:05", "2026-11-16T10:32:05Z"),
        ("22:15", "2026-11-16T22:15:00Z"),
        ("22:16", "2026-11-15T22:16:00Z"),
        ("2026-11-16", "2026-11-16T00:00:00Z"),
        ("2026-11-16T10:32", "2026-11-16T10:32:00Z"),
        ("2026-11-16 10:32:05", "2026-11-16T10:32:05Z"),
        ("2026-11-16T10.32.05", "2026-11-16T10:32:05Z"),
        ("2026-11-16T10:32:05Z", "2026-11-16T10:32:05Z"),
        ("2026-11-16T10:32:05+01:00", "2026-11-16T09:32:05Z"),
        ("2026-11-16T10:32-0330", "2026-11-16T14:02:00Z"),
        ("today", "2026-11-16T00:00:00Z"),
        ("yesterday", "2026-11-15T00:00:00Z"),
    ],
)
def test_a_time_without_a_fraction_is_a_whole_second(text: str, moment: str) -> None:
    """A time of day that is still to come is yesterday's."""
    assert parse_moment(text, NOW, UTC) == second(moment)


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [("2h", 7200), ("90m", 5400), ("1d12h", 129_600), ("2w", 1_209_600), ("1h2m3s", 3723), ("0s", 0), ("now", 0)],
)
def test_so_long_ago_is_an_instant(text: str, ago_s: int) -> None:
    """Counted back from the given time."""
    at_ns = NOW - ago_s * SECOND_NS
    assert parse_moment(text, NOW, UTC) == Moment(at_ns, at_ns)


def test_a_fraction_makes_it_an_instant() -> None:
    """Up to nine digits, as a snapshot's link has them."""
    at_ns = ns("2026-11-16T10:32:05Z") + 170_525_123
    assert parse_moment("2026-11-16T10:32:05.170525123Z", NOW, VIENNA) == Moment(at_ns, at_ns)
    assert parse_moment("10:32:05.5", NOW, UTC).start_ns % SECOND_NS == SECOND_NS // 2


def test_times_are_local_unless_a_zone_is_given() -> None:
    """Also the day: at 22:15 UTC it is 23:15 in Vienna."""
    assert parse_moment("23:10", NOW, VIENNA) == second("2026-11-16T22:10:00Z")
    assert parse_moment("23:20", NOW, VIENNA) == second("2026-11-15T22:20:00Z")
    assert parse_moment("2026-11-16T10:32", NOW, VIENNA) == second("2026-11-16T09:32:00Z")
    assert parse_moment("2026-11-16T10:32Z", NOW, VIENNA) == second("2026-11-16T10:32:00Z")


def test_yesterday_is_a_day_of_the_calendar() -> None:
    """The day on which clocks were put back had 25 hours."""
    now_ns = ns("2026-10-26T08:00:00Z")  # 09:00 in Vienna, the day after
    assert parse_moment("10:00", now_ns, VIENNA) == second("2026-10-25T09:00:00Z")
    before_ns = ns("2026-10-25T23:30:00+01:00")
    assert parse_moment("23:45", before_ns, VIENNA) == second("2026-10-24T23:45:00+02:00")


WRONG = ["", "abc", "25:00", "10:60", "2026-02-30", "2026-13-01", "1h2h", "5m2h", "2x", "-2h", "10:32:05.", "2h ago"]


@pytest.mark.parametrize("text", [*WRONG, "7", "-1", "10.32", "2026-11-16T10:32+25:00", "99999999w"])
def test_other_texts_are_not_times(text: str) -> None:
    """The error names the forms that are."""
    with pytest.raises(InvalidName, match=r"is not a time: expected 2h, 10:32"):
        parse_moment(text, NOW, UTC)


def test_versions_are_numbers_or_times() -> None:
    """A negative number counts back from the newest; there is no version 0."""
    assert parse_version("7", NOW) == VersionSpec(number=7)
    assert parse_version("-1", NOW) == VersionSpec(number=-1)
    assert parse_version("2h", NOW, UTC) == VersionSpec(moment=parse_moment("2h", NOW, UTC))
    for text in ("0", "-0", "1.5", *WRONG):
        with pytest.raises(InvalidName, match=r"is not a version: expected a number"):
            parse_version(text, NOW)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fix@3", ("fix", "3")),
        ("fix@-1", ("fix", "-1")),
        ("fix@10:32", ("fix", "10:32")),
        ("fix@2026-11-16T10:32:05+01:00", ("fix", "2026-11-16T10:32:05+01:00")),
        ("root/child@2h", ("root/child", "2h")),
        ("state/notes.md@2", ("state/notes.md", "2")),
        ("me@home", ("me@home", None)),
        ("me@home@3", ("me@home", "3")),
        ("fix", ("fix", None)),
        ("fix@", ("fix@", None)),
        ("@3", ("@3", None)),
        ("fix@0", ("fix@0", None)),
    ],
)
def test_a_version_follows_the_last_at_sign(text: str, parts: tuple[str, str | None]) -> None:
    """Only if it reads as one: ids may contain @."""
    assert split_version(text) == parts


@given(st.text(), st.sampled_from(["1", "-2", "2h", "10:32:05", "2026-11-16"]))
def test_any_name_can_be_followed_by_a_version(name: str, version: str) -> None:
    """The name may contain anything, but not nothing."""
    if name:
        assert split_version(f"{name}@{version}") == (name, version)


@given(st.text())
def test_parsing_never_fails_in_another_way(text: str) -> None:
    """A version, or an error for people."""
    try:
        spec = parse_version(text, NOW, VIENNA)
    except InvalidName:
        assert not is_version(text)
    else:
        assert (spec.number is None) != (spec.moment is None)


@given(st.integers(min_value=0, max_value=2**62))
def test_a_printed_time_finds_the_version_made_then(at_ns: int) -> None:
    """The time that `grovefs log` prints includes the nanosecond it was made from."""
    for zone in (UTC, ZoneInfo("Asia/Kolkata")):
        moment = parse_moment(local_text(at_ns, zone), at_ns, zone)
        assert moment.start_ns <= at_ns <= moment.end_ns
