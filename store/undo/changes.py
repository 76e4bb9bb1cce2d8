"""Differences of two documents: which members and which messages. Pure.

Messages are matched by id, then by equal content, then by their order if the roles agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, Literal, NamedTuple

import orjson

from store.documents.json_splice import same
from store.documents.json_text import Path
from store.documents.sidecar import SESSION_ONLY
from store.model.timestamp import ns_of

MESSAGES = "messages"


class NoMember(Enum):
    """The value of a member that a document does not have."""

    ABSENT = "absent"


ABSENT = NoMember.ABSENT

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
    pairs = _match(old, new)
    by_new = {index: old_index for old_index, index, _ in pairs}
    moved = {index for _, index, is_moved in pairs if is_moved}
    kept = {old_index for old_index, _, _ in pairs}
    changes: list[MessageChange] = []
    for index, message in enumerate(new):
        if index not in by_new:
            changes.append(MessageChange("added", None, index, message))
            continue
        old_index = by_new[index]
        members = tuple(_compare_values((), old[old_index], message))
        if members or index in moved:
            event: MessageEvent = "changed" if members else "moved"
            changes.append(MessageChange(event, old_index, index, message, members))
    removed = (index for index in range(len(old)) if index not in kept)
    return changes + [MessageChange("removed", index, None, old[index]) for index in removed]


class _Pair(NamedTuple):
    old_index: int
    new_index: int
    is_moved: bool = False


def _match(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[_Pair]:
    """Pairs of indexes of one message in both lists."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if not same(old[i], new[i])), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if not same(old[-1 - i], new[-1 - i])), rest)
    ends = [_Pair(i, i) for i in range(head)] + [_Pair(len(old) - i, len(new) - i) for i in range(tail, 0, -1)]
    middle = _match_middle(old[head : len(old) - tail], new[head : len(new) - tail])
    return ends + [_Pair(pair.old_index + head, pair.new_index + head, pair.is_moved) for pair in middle]


def _match_middle(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[_Pair]:
    before, after = _keys(old), _keys(new)
    pairs: list[_Pair] = []
    left: dict[Hashable, int] = {}
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += map(_Pair, range(start, end), range(new_start, new_end))
            continue
        left |= {before[i]: i for i in range(start, end)}
        if _have_equal_roles(old[start:end], new[new_start:new_end]):
            pairs += map(_Pair, range(start, end), range(new_start, new_end))
    taken = {pair.old_index for pair in pairs}
    matched = {pair.new_index for pair in pairs}
    for index, key in enumerate(after):
        if index not in matched and key in left and left[key] not in taken:
            taken.add(left[key])
            pairs.append(_Pair(left[key], index, is_moved=True))
    return pairs


def _keys(messages: Sequence[dict[str, Any]]) -> list[Hashable]:
    """What a message is recognised by: an id that no other message has, else its content."""
    ids = Counter(message.get("id") for message in messages if isinstance(message.get("id"), str))
    return [
        ("id", message["id"]) if ids.get(message.get("id")) == 1 else ("content", _digest(message))
        for message in messages
    ]


def _digest(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer over 64 bits
        return repr(sorted(message.items(), key=lambda item: item[0])).encode()


def _have_equal_roles(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> bool:
    """Whether each message without an id may be an edited form of the one at its place."""
    has_ids = any(isinstance(message.get("id"), str) for message in (*old, *new))
    return not has_ids and [message.get("role") for message in old] == [message.get("role") for message in new]
