"""Three-way merge: what a writer typed, and what others stored since the version it started from. Pure.

The result is the typed text with the others' changes spliced in (rule 5). What both sides changed
is a clash, and one clash refuses the whole save: a MergeConflict names each with its three values
(rule 8). Base and theirs were committed before, so they need no validation.

    merge_documents   session.json and runtime.json, with the rules for their members
    merge_objects     any other JSON object: members only
    distance          how much two documents differ
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.documents import json_text
from store.documents.json_splice import same
from store.documents.merge_messages import MESSAGES, content_of, match, merge_messages
from store.documents.merge_plan import (
    ABSENT,
    Clash,
    MergedObject,
    NewValue,
    Plan,
    Side,
    alike,
    build,
    merge_object,
)
from store.documents.merge_text import render_merge
from store.documents.sidecar import AUTHORITY
from store.errors import Conflict
from store.model.record import ALIASES
from store.model.timestamp import Timestamp

UPDATED_AT = "updated_at"
_TASKS = "task_list"
_SHOWN_CLASHES = 100
_SHOWN_CHARACTERS = 400

Members = Mapping[str, Any]


class MergeConflict(Conflict):
    """Both sides changed the same thing. Nothing was changed; `clashes` has the values."""

    def __init__(self, name: str, clashes: Sequence[Clash]) -> None:
        self.clashes = tuple(clashes)
        first, more = self.clashes[0], len(self.clashes) - 1
        others = f" (and {more} more)" if more else ""
        where = json_text.render_path(first.path)
        super().__init__(f"{name}: {where}: {first.reason}{others}; the newer version is kept")

    def explain(self) -> list[str]:
        """The values before, theirs and yours of each clash, as lines of text."""
        lines: list[str] = []
        for clash in self.clashes[:_SHOWN_CLASHES]:
            lines.append(f"  {json_text.render_path(clash.path)}: {clash.reason}")
            values = (("before", clash.base), ("theirs", clash.theirs), ("yours", clash.ours))
            if any(value is not ABSENT for _, value in values):
                lines += [f"    {label}:  {_shown(value)}" for label, value in values]
        if len(self.clashes) > _SHOWN_CLASHES:
            lines.append(f"  … and {len(self.clashes) - _SHOWN_CLASHES} more")
        return lines


class SidecarConflict(MergeConflict):
    """A save of session.json would undo a change that others made in runtime.json alone."""


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "(absent)"
    text = json_text.render_compact(value).decode(errors="replace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True)
class Merge:
    """A merge without clashes."""

    plan: Plan
    data: dict[str, Any]  # the merged members

    def render(self, ours: bytes, theirs: bytes) -> bytes:
        """The merged text. `ours` and `theirs` are the texts that were merged."""
        return render_merge(self.plan, ours, theirs)


def merge_documents(
    base: Members, ours: Members, theirs: Members, name: str, *, updated_at: Timestamp | None = None
) -> Merge:
    """Merge two versions of session.json or of runtime.json. Raises MergeConflict.

    The result is later than both: its `updated_at` is the one given, else the next moment.
    """
    sealed = next((side for side in (base, ours, theirs) if AUTHORITY in side), None)
    if sealed is not None:  # its header repeats members of one version
        raise MergeConflict(name, [Clash((AUTHORITY,), "a sealed document cannot be merged", ABSENT, ABSENT, ABSENT)])
    clashes: list[Clash] = []
    plan = merge_object((), _plain(base, ours), _plain(ours, ours), _plain(theirs, ours), clashes)
    assert isinstance(plan, MergedObject)
    merged_messages = merge_messages(_messages(base), _messages(ours), _messages(theirs), clashes)
    if clashes:
        raise MergeConflict(name, clashes)
    latest = updated_at or _after_both(ours, theirs)
    when = Side.OURS if latest == ours[UPDATED_AT] else NewValue(latest)
    members: dict[str, Plan] = {**plan.members, MESSAGES: merged_messages, UPDATED_AT: when}
    whole = MergedObject({key: members[key] for key in _in_order(ours, members)}, _spellings(ours, theirs))
    return Merge(whole, build(whole, ours, theirs))


def merge_objects(base: Members, ours: Members, theirs: Members, name: str) -> Merge:
    """Merge two versions of a JSON object, member by member. Raises MergeConflict."""
    clashes: list[Clash] = []
    plan = merge_object((), base, ours, theirs, clashes)
    if clashes:
        raise MergeConflict(name, clashes)
    return Merge(plan, build(plan, ours, theirs))


def _in_order(ours: Members, members: Mapping[str, Plan]) -> list[str]:
    """The keys of a merged document: those of ours stay where they are."""
    return [*(key for key in ours if key in members), *(key for key in members if key not in ours)]


def _plain(side: Members, ours: Members) -> dict[str, Any]:
    """The members that are merged as any others."""
    return {k: v for k, v in _respelled(side, ours).items() if k not in (MESSAGES, UPDATED_AT)}


def _messages(side: Members) -> Sequence[Any]:
    return side.get(MESSAGES) or []


def _after_both(ours: Members, theirs: Members) -> Timestamp:
    times = (Timestamp(ours[UPDATED_AT]), Timestamp(theirs[UPDATED_AT]))
    return Timestamp.after(max(times, key=lambda time: time.ns))


# -- the two spellings of the task list ------------------------------------------------------------


def _spellings(ours: Members, theirs: Members) -> dict[str, str]:
    """Keys of ours that theirs spells differently."""
    names = {_TASKS, ALIASES[_TASKS]}
    mine, other = names & ours.keys(), names & theirs.keys()
    return {mine.pop(): other.pop()} if len(mine) == len(other) == 1 and mine != other else {}


def _respelled(side: Members, ours: Members) -> dict[str, Any]:
    """The members of a side, with the spellings of ours."""
    theirs = {spelling: key for key, spelling in _spellings(ours, side).items()}
    return {theirs.get(key, key): value for key, value in side.items()}


# -- distance --------------------------------------------------------------------------------------


def distance(one: Members, other: Members) -> int:
    """The number of members and messages in which two documents differ."""
    return _object_distance(_plain(one, one), _plain(other, one)) + _message_distance(_messages(one), _messages(other))


def _object_distance(one: Members, other: Members) -> int:
    return sum(_value_distance(one.get(key, ABSENT), other.get(key, ABSENT)) for key in one.keys() | other.keys())


def _value_distance(one: Any, other: Any) -> int:
    if isinstance(one, dict) and isinstance(other, dict):
        return 0 if same(one, other) else _object_distance(one, other)
    return 0 if alike(one, other) else 1


def _message_distance(one: Sequence[Any], other: Sequence[Any]) -> int:
    matched = match(one, other)
    kept = [b for b in matched if b is not None]
    changed = sum(
        _value_distance(content_of(one[i]), content_of(other[b])) for i, b in enumerate(matched) if b is not None
    )
    return changed + len(one) + len(other) - 2 * len(kept) + (kept != sorted(kept))
