"""Plan of a merge: for each part of a JSON value, which of two sides it comes from. Pure.

"Ours" is what a writer typed, "theirs" is the version that is stored now, and "base" is the version
both started from. A plan is worked out from parsed values. `build` turns it into a value, and
`merge_text` into a text that consists of the bytes of both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

from store.documents.json_splice import order_keys, same
from store.documents.json_text import Path
from store.documents.sidecar import COMPRESSION_MARKS, DERIVED
from store.model.timestamp import Timestamp


class Absent(Enum):
    """The value of a member that a side does not have."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Side(Enum):
    """The whole value of one side. The member is removed if that side does not have it."""

    OURS = "ours"
    THEIRS = "theirs"


@dataclass(frozen=True)
class NewValue:
    """A value that neither side has."""

    value: Any


@dataclass(frozen=True)
class MergedObject:
    """An object whose members come from both sides, in the order of ours."""

    members: Mapping[str, Plan]
    their_keys: Mapping[str, str]  # keys that theirs spells differently


class MergedElement(NamedTuple):
    """One element of a merged array: its index on each side that has it."""

    ours: int | None
    theirs: int | None
    plan: Plan


@dataclass(frozen=True)
class MergedArray:
    elements: Sequence[MergedElement]


Plan = Side | NewValue | MergedObject | MergedArray


class Clash(NamedTuple):
    """One thing that both sides changed. A value is ABSENT if a side does not have it."""

    path: Path
    reason: str
    base: Any
    ours: Any
    theirs: Any


CHANGED_BY_BOTH = "changed by both sides"


# -- comparing -------------------------------------------------------------------------------------


def alike(one: Any, other: Any) -> bool:
    """JSON equality of what programs wrote without changing it: jq writes 1.0 as 1, and rounds 64-bit integers."""
    if one is other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _same_number(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return same(one, other) or (one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items()))
    if isinstance(one, list) and isinstance(other, list):
        return same(one, other) or (len(one) == len(other) and all(map(alike, one, other)))
    return bool(one == other)


def _same_number(one: int | float, other: int | float) -> bool:
    """Whether two numbers are equal, or one is the other rounded to a double.

    Two integers that are rounded to the same double are different: somebody typed a digit.
    """
    if one == other:  # exact, also between an integer and a double
        return True
    return other in _rounded(one) or one in _rounded(other)


def _rounded(number: int | float) -> tuple[int, ...]:
    """An integer as programs write it that compute with doubles.

    C and Python print all digits of the double, jq 1.6 and JavaScript 17 at most, then zeros.
    """
    if isinstance(number, float):
        return ()
    try:
        double = float(number)
    except OverflowError:
        return ()
    return int(double), int(Decimal(repr(double))), int(Decimal(f"{double:.17g}"))


# -- members ---------------------------------------------------------------------------------------


def merge_value(path: Path, base: Any, ours: Any, theirs: Any, clashes: list[Clash]) -> Plan:
    """The plan for one value. What cannot be merged is added to `clashes`."""
    if same(ours, theirs):
        return Side.OURS
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return merge_object(path, base if isinstance(base, dict) else {}, ours, theirs, clashes)
    if alike(ours, base):
        return Side.THEIRS
    if alike(theirs, base) or alike(ours, theirs):
        return Side.OURS
    ruled = _ruled(path, ours, theirs)
    if ruled is None:
        clashes.append(Clash(path, CHANGED_BY_BOTH, base, ours, theirs))
    return ruled or Side.OURS


def merge_object(
    path: Path, base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any], clashes: list[Clash]
) -> Plan:
    """The plan for two objects, member by member."""
    if len(path) == 1 and path[0] in _AGENT_MEMBERS and not alike(ours, base) and not alike(theirs, base):
        return Side.THEIRS
    keys = order_keys(list(ours), theirs.keys() - ours.keys(), list(theirs))
    members = {
        key: merge_value((*path, key), base.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT), clashes)
        for key in keys
    }
    return MergedObject(members, {})


# Members that only agents write. They describe the messages as a whole, so they are never mixed.
_AGENT_MEMBERS = frozenset(DERIVED)
_COUNTERS = ("_version", "_revision", "_epoch")


def _ruled(path: Path, ours: Any, theirs: Any) -> Plan | None:
    """The plan for a member with a rule of its own that both sides changed; None if it has none."""
    key = str(path[-1]) if path else ""
    if path[:1] == ("messages",):
        return Side.THEIRS if len(path) == 3 and key in COMPRESSION_MARKS else None
    if len(path) == 1 and key in _AGENT_MEMBERS:
        return Side.THEIRS
    if key.endswith(_COUNTERS) and _is_count(ours) and _is_count(theirs):
        return Side.OURS if ours >= theirs else Side.THEIRS
    if key == "updated_at":
        return _later(ours, theirs)
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _later(ours: Any, theirs: Any) -> Plan | None:
    try:
        return Side.OURS if Timestamp(ours).ns >= Timestamp(theirs).ns else Side.THEIRS
    except (TypeError, ValueError):
        return None


# -- building --------------------------------------------------------------------------------------


def build(plan: Plan, ours: Any, theirs: Any) -> Any:
    """The merged value. Unchanged parts are shared with the sides."""
    if isinstance(plan, Side):
        return ours if plan is Side.OURS else theirs
    if isinstance(plan, NewValue):
        return plan.value
    if isinstance(plan, MergedArray):
        return [build(e.plan, _element(ours, e.ours), _element(theirs, e.theirs)) for e in plan.elements]
    merged = {
        key: build(member, ours.get(key, ABSENT), theirs.get(plan.their_keys.get(key, key), ABSENT))
        for key, member in plan.members.items()
    }
    return {key: value for key, value in merged.items() if value is not ABSENT}


def _element(values: Sequence[Any], index: int | None) -> Any:
    return ABSENT if index is None else values[index]
