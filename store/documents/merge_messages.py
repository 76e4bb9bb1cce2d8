"""Merge of messages: who added, removed, changed and moved which. Pure.

Messages are matched to those of the base by unique id. Those without one are matched by equal
content, and what is left between them by order. Each message is then merged member by member.

Two clashes are found that a merge of texts would miss: a message added after one that the other
side deleted, and a tool result whose call was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

import orjson

from store.documents.merge_plan import (
    ABSENT,
    Clash,
    MergedArray,
    MergedElement,
    Side,
    alike,
    build,
    merge_value,
)
from store.documents.sidecar import COMPRESSION_MARKS

MESSAGES = "messages"
# Pairs of messages without ids that are compared in one gap; beyond that only their order counts.
_MAX_COMPARED = 4_000_000

_START = -1  # stands for the place before the first message

Messages = Sequence[Any]


def merge_messages(base: Messages, ours: Messages, theirs: Messages, clashes: list[Clash]) -> MergedArray:
    """The plan for `messages`. What cannot be merged is added to `clashes`."""
    merge = _MessageMerge(base, ours, theirs, clashes)
    merge.check_deletions()
    merge.check_additions()
    plan = MergedArray([*merge.elements()])
    if not clashes:
        _check_tool_results(build(plan, ours, theirs), ours, theirs, clashes)
    return plan


@dataclass
class _MessageMerge:
    base: Messages
    ours: Messages
    theirs: Messages
    clashes: list[Clash]
    ours_of: dict[int, int] = field(init=False)  # index in base → index in ours
    theirs_of: dict[int, int] = field(init=False)
    in_both: set[int] = field(init=False)  # base messages that neither side deleted
    ours_added: dict[int, list[int]] = field(init=False)  # kept base message or _START → added after it
    theirs_added: dict[int, list[int]] = field(init=False)
    added_by_both: dict[int, int] = field(init=False)  # index in theirs → index in ours
    theirs_for_ours: dict[int, int] = field(init=False)  # the reverse

    def __post_init__(self) -> None:
        ours, theirs = match(self.ours, self.base), match(self.theirs, self.base)
        self.ours_of = {b: i for i, b in enumerate(ours) if b is not None}
        self.theirs_of = {b: i for i, b in enumerate(theirs) if b is not None}
        self.in_both = self.ours_of.keys() & self.theirs_of.keys()
        self.ours_added, self.theirs_added = self._added(ours), self._added(theirs)
        self.added_by_both = dict(self._pairs_of_additions())
        self.theirs_for_ours = {o: t for t, o in self.added_by_both.items()}

    def _added(self, matched: Sequence[int | None]) -> dict[int, list[int]]:
        """The messages that a side added, by the kept message they follow."""
        added: dict[int, list[int]] = {}
        after = _START
        for index, base_index in enumerate(matched):
            if base_index is None:
                added.setdefault(after, []).append(index)
            elif base_index in self.in_both:
                after = base_index
        return added

    def _pairs_of_additions(self) -> Iterator[tuple[int, int]]:
        """Additions that both sides made: with the same id, or equal and after the same message."""
        ours = [i for run in self.ours_added.values() for i in run]
        theirs = [i for run in self.theirs_added.values() for i in run]
        our_ids, their_ids = _unique_ids(self.ours, ours), _unique_ids(self.theirs, theirs)
        by_id = {their_ids[key]: i for key, i in our_ids.items() if key in their_ids}
        yield from by_id.items()
        paired_ours = set(by_id.values())
        for after, run in self.theirs_added.items():
            equal: dict[bytes, list[int]] = {}
            for i in self.ours_added.get(after, ()):
                if i not in paired_ours:
                    equal.setdefault(_key(self.ours[i]), []).append(i)
            for i in run if equal else ():
                found = equal.get(_key(self.theirs[i])) if i not in by_id else None
                if found:
                    yield i, found.pop(0)

    # -- clashes -----------------------------------------------------------------------------------

    def check_deletions(self) -> None:
        """A message that one side deleted must be unchanged on the other."""
        for b, i in self.ours_of.items():
            if b not in self.in_both and not alike(content_of(self.ours[i]), content_of(self.base[b])):
                self._clash(i, "deleted by them, changed by you", self.base[b], self.ours[i], ABSENT)
        for b, i in self.theirs_of.items():
            if b not in self.in_both and not alike(content_of(self.theirs[i]), content_of(self.base[b])):
                self._clash(b, "deleted by you, changed by them", self.base[b], ABSENT, self.theirs[i])

    def check_additions(self) -> None:
        """A message must not follow one that the other side deleted: it may answer that one."""
        for i, b in self._after_deleted(self.ours, self.ours_of):
            if i not in self.theirs_for_ours:
                self._clash(i, "added by you after a message they deleted", self.base[b], self.ours[i], ABSENT)
        for i, b in self._after_deleted(self.theirs, self.theirs_of):
            if i not in self.added_by_both:
                self._clash(b, "added by them after a message you deleted", self.base[b], ABSENT, self.theirs[i])

    def _after_deleted(self, side: Messages, side_of: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """First messages of runs added after a deleted base message, with that message."""
        base_of = {i: b for b, i in side_of.items()}
        for index in range(1, len(side)):
            before = base_of.get(index - 1)
            if index not in base_of and before is not None and before not in self.in_both:
                yield index, before

    def _clash(self, index: int, reason: str, base: Any, ours: Any, theirs: Any) -> None:
        self.clashes.append(Clash((MESSAGES, index), reason, base, ours, theirs))

    # -- the result --------------------------------------------------------------------------------

    def elements(self) -> Iterator[MergedElement]:
        """The merged messages: kept ones in the order of the side that changed it, each followed by additions."""
        yield from self._additions_after(_START)
        for b in self._order():
            yield self._merged(self.ours_of[b], self.theirs_of[b], self.base[b])
            yield from self._additions_after(b)

    def _order(self) -> list[int]:
        before = sorted(self.in_both)
        ours = [b for b in self.ours_of if b in self.in_both]
        theirs = [b for b in self.theirs_of if b in self.in_both]
        if before not in (ours, theirs) and ours != theirs:
            reason = "put into another order by both sides"
            self.clashes.append(Clash((MESSAGES,), reason, ABSENT, ABSENT, ABSENT))
        return theirs if ours == before else ours

    def _additions_after(self, b: int) -> Iterator[MergedElement]:
        """Their additions first: people have read those already."""
        theirs, ours = self.theirs_added.get(b, []), self.ours_added.get(b, [])
        theirs_for = self.theirs_for_ours
        done = 0
        waiting: list[int] = []
        for o in ours:
            if o not in theirs_for:
                waiting.append(o)
            elif theirs_for[o] in theirs[done:]:
                upto = theirs.index(theirs_for[o], done)
                yield from map(self._their_addition, theirs[done:upto])
                yield from (MergedElement(i, None, Side.OURS) for i in waiting)
                yield self._their_addition(theirs[upto])
                done, waiting = upto + 1, []
        yield from map(self._their_addition, theirs[done:])
        yield from (MergedElement(i, None, Side.OURS) for i in waiting)

    def _their_addition(self, index: int) -> MergedElement:
        ours = self.added_by_both.get(index)
        return MergedElement(None, index, Side.THEIRS) if ours is None else self._merged(ours, index, ABSENT)

    def _merged(self, ours: int, theirs: int, base: Any) -> MergedElement:
        plan = merge_value((MESSAGES, ours), base, self.ours[ours], self.theirs[theirs], self.clashes)
        return MergedElement(ours, theirs, plan)


def content_of(message: Any) -> Any:
    """A message without the marks that compression sets: those do not count as a change."""
    if not isinstance(message, dict):
        return message
    return {k: v for k, v in message.items() if k not in COMPRESSION_MARKS}


# -- tool calls ------------------------------------------------------------------------------------


def _check_tool_results(merged: Messages, ours: Messages, theirs: Messages, clashes: list[Clash]) -> None:
    """A tool result must not lose its call. One that already had none on its own side may stay."""
    lost = _results_without_call(merged)
    if not lost:
        return
    known = _results_without_call(ours).keys() | _results_without_call(theirs).keys()
    for call, index in lost.items():
        if call not in known:
            reason = "a tool result whose call was deleted"
            clashes.append(Clash((MESSAGES, index), reason, ABSENT, ABSENT, merged[index]))


def _results_without_call(messages: Messages) -> dict[str, int]:
    calls: set[str] = set()
    results: dict[str, int] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        for call in message.get("tool_calls") or ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                calls.add(call["id"])
        if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
            results[message["tool_call_id"]] = index
    return {call: index for call, index in results.items() if call not in calls}


# -- matching --------------------------------------------------------------------------------------


def match(side: Messages, base: Messages) -> list[int | None]:
    """For each message of a side, its index in the base; None if the side added it."""
    matched: list[int | None] = [None] * len(side)
    is_shared = _shared_ids(side) | _shared_ids(base)
    base_ids = {key: i for i, message in enumerate(base) if (key := _id_of(message)) and key not in is_shared}
    left: list[int] = []
    for index, message in enumerate(side):
        key = _id_of(message)
        if key is None or key in is_shared:
            left.append(index)
        else:
            matched[index] = base_ids.get(key)
    if left:
        _match_by_content(side, left, base, base_ids, matched)
    return matched


def _id_of(message: Any) -> str | None:
    key = message.get("id") if isinstance(message, dict) else None
    return key if isinstance(key, str) and key else None


def _shared_ids(messages: Messages) -> set[str]:
    counts = Counter(filter(None, map(_id_of, messages)))
    return {key for key, count in counts.items() if count > 1}


def _unique_ids(messages: Messages, indices: Sequence[int]) -> dict[str, int]:
    shared = _shared_ids([messages[i] for i in indices])
    return {key: i for i in indices if (key := _id_of(messages[i])) and key not in shared}


def _match_by_content(
    side: Messages, left: Sequence[int], base: Messages, base_ids: Mapping[str, int], matched: list[int | None]
) -> None:
    """Match messages without a unique id, gap by gap. A gap begins after a message matched by id."""
    anchors = {b for b in matched if b is not None}
    with_id = set(base_ids.values())
    side_gaps: dict[int, list[int]] = {}
    base_gaps: dict[int, list[int]] = {}
    gap, waiting = _START, set(left)
    for index in range(len(side)):
        anchor = matched[index]
        if index in waiting:
            side_gaps.setdefault(gap, []).append(index)
        elif anchor is not None:
            gap = anchor
    gap = _START
    for index in range(len(base)):
        if index in anchors:
            gap = index
        elif index not in with_id:
            base_gaps.setdefault(gap, []).append(index)
    for gap, indices in side_gaps.items():
        for i, b in _pairs_in_gap(side, indices, base, base_gaps.get(gap, [])):
            matched[i] = b


def _pairs_in_gap(side: Messages, left: list[int], base: Messages, rest: list[int]) -> Iterator[tuple[int, int]]:
    """Equal messages from both ends, then equal ones between, then the others by order."""
    pairs = [*_equal_pairs(side, left, base, rest)]
    yield from pairs
    place, base_place = ({i: n for n, i in enumerate(indices)} for indices in (left, rest))
    starts = [(-1, -1), *((place[i], base_place[b]) for i, b in pairs), (len(left), len(rest))]
    for (i, b), (next_i, next_b) in pairwise(starts):
        some, others = left[i + 1 : next_i], rest[b + 1 : next_b]
        if [_role(side[k]) for k in some] == [_role(base[k]) for k in others]:
            yield from zip(some, others, strict=True)


def _equal_pairs(side: Messages, left: Sequence[int], base: Messages, rest: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of equal messages, in order on both sides."""
    shorter = min(len(left), len(rest))
    head = next((n for n in range(shorter) if not _equal(side[left[n]], base[rest[n]])), shorter)
    most = shorter - head
    tail = next((n for n in range(most) if not _equal(side[left[-1 - n]], base[rest[-1 - n]])), most)
    yield from zip(left[:head], rest[:head], strict=True)
    middle, other = left[head : len(left) - tail], rest[head : len(rest) - tail]
    if middle and other and len(middle) * len(other) <= _MAX_COMPARED:
        keys, other_keys = [_key(side[i]) for i in middle], [_key(base[i]) for i in other]
        for block in SequenceMatcher(None, keys, other_keys, autojunk=False).get_matching_blocks():
            for n in range(block.size):
                yield middle[block.a + n], other[block.b + n]
    yield from zip(left[len(left) - tail :], rest[len(rest) - tail :], strict=True)


def _equal(one: Any, other: Any) -> bool:
    return alike(one, other) or alike(content_of(one), content_of(other))


def _key(message: Any) -> bytes:
    return orjson.dumps(content_of(message), option=orjson.OPT_SORT_KEYS)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None
