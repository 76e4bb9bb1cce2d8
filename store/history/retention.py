"""Which versions are kept as they get older. Pure.

Everything for thirty days; then the last version of each hour, after ninety days of each day. Some are
kept whatever their age: the newest twenty, versions that a snapshot names, what people did by mount or
command line and the version before it, and the ends of a run of outside edits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DAY_NS = 86_400 * 10**9
HOUR_NS = 3_600 * 10**9
_BY_PEOPLE = frozenset({"mount", "cli", "revert"})


class KeptVersion(NamedTuple):
    """What decides whether a version is kept."""

    number: int
    at_ns: int
    via: str
    what: str


@dataclass(frozen=True)
class Retention:
    """How long versions are kept, and how large the history may become."""

    whole_days: float = 30
    hourly_days: float = 90
    newest: int = 20
    limit_bytes: int = 1 << 30

    def select(self, versions: Sequence[KeptVersion], now_ns: int, snapshots_ns: Iterable[int] = ()) -> set[int]:
        """The numbers of the versions to keep, of all versions of one lineage in order."""
        kept = protected(versions, self.newest, snapshots_ns)
        whole_ns = now_ns - int(self.whole_days * DAY_NS)
        hourly_ns = now_ns - int(self.hourly_days * DAY_NS)
        last_of: dict[tuple[int, int], int] = {}
        for version in versions:
            if version.at_ns >= whole_ns:
                kept.add(version.number)
            else:
                span_ns = HOUR_NS if version.at_ns >= hourly_ns else DAY_NS
                last_of[span_ns, version.at_ns // span_ns] = version.number
        return kept | set(last_of.values())


def protected(versions: Sequence[KeptVersion], newest: int, snapshots_ns: Iterable[int] = ()) -> set[int]:
    """The versions that are kept whatever their age."""
    kept = named(versions, snapshots_ns) | (all_of(versions[-newest:]) if newest else set())
    for before, version in zip([None, *versions], versions, strict=False):
        if version.via in _BY_PEOPLE:
            kept.add(version.number)
            if before is not None:
                kept.add(before.number)
        if before is not None and (version.what == "found") != (before.what == "found"):
            kept |= {before.number, version.number}
    return kept


def named(versions: Sequence[KeptVersion], snapshots_ns: Iterable[int]) -> set[int]:
    """The versions that were current at these moments."""
    times = [version.at_ns for version in versions]
    places = (bisect_right(times, at_ns) for at_ns in snapshots_ns)
    return {versions[place - 1].number for place in places if place}


def all_of(versions: Sequence[KeptVersion]) -> set[int]:
    return {version.number for version in versions}


def halve(versions: Sequence[KeptVersion], newest: int, snapshots_ns: Iterable[int] = ()) -> set[int]:
    """Every second version, and the protected ones: for a history that is over its limit."""
    kept = protected(versions, newest, snapshots_ns)
    others = [version.number for version in versions if version.number not in kept]
    return kept | set(others[1::2])
