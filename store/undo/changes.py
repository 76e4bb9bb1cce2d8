"""Differences of two documents: which members and which messages. Pure.

Messages are matched as a merge matches them: by id, then by equal content, then by their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from store.documents.json_splice import same
from store.documents.json_text import Path
from store.documents.merge_messages import MESSAGES, match
from store.documents.merge_plan import ABSENT
from store.documents.sidecar import SESSION_ONLY
from store.model.timestamp import ns_of

MessageEvent = Literal["added", "removed", "changed", "moved"]


class MemberChange(NamedTuple):
    """A member that differs; ABSENT on one side if only the other has it."""

    path: Path
    old: Any
    new: Any


class MessageChange(NamedTuple):
    """A message that differs. `old_index` is None if it was added, `new_index` if it was removed."""

    event: MessageEvent
    old_index: int | None
    new_index: int | None
    message: Mapping[str, Any]  # as it is now; a removed one as it was
    members: tuple[MemberChange, ...] = ()


@dataclass(frozen=True)
class DocumentChanges:
    """Everything that differs between two versions of a document or of a session's two documents."""

    members: tuple[MemberChange, ...] = ()
    messages: tuple[MessageChange, ...] = ()  # in the order of the new document, then the removed ones

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.messages

    def without(self, *names: str) -> DocumentChanges:
        """The same without these members of the document."""
        members = tuple(member for member in self.members if member.path[:1] not in {(name,) for name in names})
        return DocumentChanges(members, self.messages)


def compare(old: Any, new: Any) -> DocumentChanges:
    """Compare two parsed documents."""
    before, after = _messages(old), _messages(new)
    if before is None or after is None:
        return DocumentChanges(tuple(_compare_values((), old, new)))
    olds, news = ({k: v for k, v in document.items() if k != MESSAGES} for document in (old, new))
    members = tuple(_compare_values((), olds, news))
    return DocumentChanges(members, tuple(compare_messages(before, after)))


def _messages(document: Any) -> list[dict[str, Any]] | None:
    messages = document.get(MESSAGES) if isinstance(document, dict) else None
    is_list = isinstance(messages, list) and all(isinstance(message, dict) for message in messages)
    return messages if is_list else None


def compare_sessions(
    old: tuple[dict[str, Any], dict[str, Any] | None], new: tuple[dict[str, Any], dict[str, Any] | None]
) -> DocumentChanges:
    """Compare two versions of a session, each as its agent loads it: members of the sidecar win.

    A save brings session.json up to date with the sidecar. That changes nothing for the agent and is
    listed only if nothing else changed.
    """
    changes = compare(_effective(*old), _effective(*new))
    if not changes.is_empty:
        return changes
    return compare(old[0], new[0])


def _effective(main: dict[str, Any], side: dict[str, Any] | None) -> dict[str, Any]:
    if side is None or _updated_ns(side) < _updated_ns(main):  # a stale sidecar is not loaded
        return main
    return {**main, **{key: value for key, value in side.items() if key not in SESSION_ONLY}}


def _updated_ns(document: dict[str, Any]) -> int:
    """`updated_at` of a document, which may have been damaged by a program outside the store."""
    try:
        return ns_of(document["updated_at"])
    except (KeyError, TypeError, ValueError):
        return 0


# -- members ---------------------------------------------------------------------------------------


def _compare_values(path: Path, old: Any, new: Any) -> Iterator[MemberChange]:
    if old is not ABSENT and new is not ABSENT and same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _compare_values((*path, key), old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _compare_values((*path, place), one, other)
    else:
        yield MemberChange(path, old, new)


# -- messages --------------------------------------------------------------------------------------


def compare_messages(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[MessageChange]:
    """All messages that differ: those of the new document in order, then the removed ones."""
    head = _common(old, new)  # most versions differ at the end only
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_range, new_range = range(head, len(old) - tail), range(head, len(new) - tail)
    matched = match(new[head : len(new) - tail], old[head : len(old) - tail])
    by_new = {index: place + head for index, place in zip(new_range, matched, strict=True) if place is not None}
    in_order = _longest_rise(list(by_new.values()))
    changes: list[MessageChange] = []
    for index in new_range:
        if index not in by_new:
            changes.append(MessageChange("added", None, index, new[index]))
            continue
        old_index = by_new[index]
        members = tuple(_compare_values((), old[old_index], new[index]))
        if members or old_index not in in_order:
            event: MessageEvent = "changed" if members else "moved"
            changes.append(MessageChange(event, old_index, index, new[index], members))
    removed = set(old_range) - set(by_new.values())
    return changes + [MessageChange("removed", index, None, old[index]) for index in sorted(removed)]


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of equal values at the beginning."""
    shorter = min(len(one), len(other))
    # Python's equality is much faster, but takes 1 and true for equal.
    count = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    if same(one[:count], other[:count]):
        return count
    return next(i for i in range(count) if not same(one[i], other[i]))


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """The longest part of some different numbers that grows: the fewest messages that were moved are left out."""
    ends: list[int] = []  # the smallest last number of a rise of each length
    before: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(ends, number)
        before[number] = ends[place - 1] if place else None
        ends[place : place + 1] = [number]
    rise: set[int] = set()
    last = ends[-1] if ends else None
    while last is not None:
        rise.add(last)
        last = before[last]
    return rise
