"""Which versions are kept as they get older."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.history.retention import DAY_NS, HOUR_NS, KeptVersion, Retention, halve, protected

NOW = 1_800_000_000 * 10**9
NONE_PROTECTED = Retention(newest=0)


def versions_at(*ages_ns: int, via: str = "api") -> list[KeptVersion]:
    """Versions of these ages, the oldest first."""
    ordered = sorted(ages_ns, reverse=True)
    return [KeptVersion(number, NOW - age, via, "appended") for number, age in enumerate(ordered, 1)]


def test_everything_is_kept_for_thirty_days() -> None:
    versions = versions_at(*range(0, 30 * DAY_NS, HOUR_NS // 2))
    assert NONE_PROTECTED.select(versions, NOW) == {version.number for version in versions}


def test_then_the_last_of_each_hour_and_of_each_day() -> None:
    hourly = [40 * DAY_NS + minute * 60 * 10**9 for minute in range(0, 600, 10)]
    daily = [200 * DAY_NS + minute * 60 * 10**9 for minute in range(0, 3 * 1440, 60)]
    versions = versions_at(*hourly, *daily)
    kept = [version for version in versions if version.number in NONE_PROTECTED.select(versions, NOW)]
    days = [version.at_ns // DAY_NS for version in kept if version.at_ns < NOW - 100 * DAY_NS]
    hours = [version.at_ns // HOUR_NS for version in kept if version.at_ns > NOW - 100 * DAY_NS]
    assert len(days) == len(set(days)) == 4
    assert len(hours) == len(set(hours)) == 11


def test_the_newest_twenty_are_kept_whatever_their_age() -> None:
    versions = versions_at(*(300 * DAY_NS + second * 10**9 for second in range(100)))
    assert Retention().select(versions, NOW) == set(range(81, 101))


def test_what_people_did_is_kept_with_the_version_before_it() -> None:
    """And both ends of a run of outside edits."""
    versions = versions_at(*(300 * DAY_NS + second * 10**9 for second in range(10)))
    versions[4] = versions[4]._replace(via="mount")
    assert protected(versions, 0) == {4, 5}
    versions[4] = versions[4]._replace(via="outside", what="found")
    versions[5] = versions[5]._replace(via="outside", what="found")
    assert protected(versions, 0) == {4, 5, 6, 7}


def test_the_version_of_a_snapshot_is_kept() -> None:
    versions = versions_at(5 * DAY_NS, 3 * DAY_NS, DAY_NS)
    assert protected(versions, 0, [NOW - 2 * DAY_NS]) == {2}
    assert protected(versions, 0, [NOW - 9 * DAY_NS]) == set()


@given(st.lists(st.integers(0, 400 * DAY_NS), unique=True, max_size=60), st.integers(0, 25))
def test_thinning_twice_removes_nothing_more(ages: list[int], newest: int) -> None:
    """The last version of every day that has one stays."""
    versions = versions_at(*ages)
    retention = Retention(newest=newest)
    kept = [version for version in versions if version.number in retention.select(versions, NOW)]
    assert retention.select(kept, NOW) == {version.number for version in kept}
    assert {v.at_ns // DAY_NS for v in versions} == {v.at_ns // DAY_NS for v in kept}


def test_halving_removes_every_second_version() -> None:
    versions = versions_at(*range(0, 100 * 10**9, 10**9))
    assert len(halve(versions, 20)) == 20 + 40
