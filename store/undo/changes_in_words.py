"""Differences of documents in words, for `grovefs log` (short), `grovefs diff` (long) and --json. Pure.

~6 messages, +2 messages, title: [-teh-]{+the+} plan
~ [3] user: …because of [-teh-]{+the+} test…
+ [9] assistant: Done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from typing import Any, NamedTuple

import orjson

from store.documents.json_text import render_compact, render_path
from store.documents.merge_plan import ABSENT
from store.undo.changes import DocumentChanges, MemberChange, MessageChange, MessageEvent
from store.undo.word_diff import CONTEXT, MAX_SHOWN, Piece, diff_words, excerpt, one_line, render_words

MAX_MEMBERS = 3  # named in the short form
MAX_SHORT = 60  # characters of one member's values in the short form; longer ones are shortened to about
MAX_SHORTENED = 80  # characters, with their marks
SHORT_CONTEXT, SHORT_PIECE = 6, 24  # characters around a change, and of one change, in longer values
MAX_OPENING = 100  # characters shown of an added or removed message

# Follow from other changes; named only if nothing else changed.
FOLLOWING = {"updated_at", "title_version", "metadata_version"}
_MARKS = {"added": "+", "removed": "-", "changed": "~", "moved": "↕"}


# -- short -----------------------------------------------------------------------------------------


def summarize(changes: DocumentChanges) -> str:
    """One line; "" if nothing differs."""
    counts = Counter(change.event for change in changes.messages)
    parts = [_count(event, counts[event]) for event in ("changed", "added", "removed", "moved") if counts[event]]
    members = _noteworthy(changes)
    parts += [_short_member(member) for member in members[:MAX_MEMBERS]]
    if len(members) > MAX_MEMBERS:
        left = len(members) - MAX_MEMBERS
        parts.append(f"{left} more member{'' if left == 1 else 's'}")
    return ", ".join(parts)


def _count(event: str, number: int) -> str:
    messages = f"{number} message{'' if number == 1 else 's'}"
    return f"{messages} moved" if event == "moved" else f"{_MARKS[event]}{messages}"


def _noteworthy(changes: DocumentChanges) -> list[MemberChange]:
    members = list(changes.without(*FOLLOWING).members)
    return members or ([] if changes.messages else list(changes.members))


def _short_member(member: MemberChange) -> str:
    """The member with what changed in it, long values shortened."""
    name = render_path(member.path)
    shown = render_words(_value_pieces(member))
    if len(shown) > MAX_SHORT:
        shown = render_words(_first(_value_pieces(member, SHORT_CONTEXT, SHORT_PIECE)))
    return f"{name}: {shown}"


def _first(pieces: list[Piece]) -> Iterator[Piece]:
    """As many pieces as fit, at least one that was removed and one that was added."""
    length, seen = 0, set[str]()
    for piece in pieces:
        length += len(render_words([piece]))
        if length > MAX_SHORTENED and {"removed", "added"} <= seen:
            yield Piece("gap", "")
            return
        seen.add(piece.kind)
        yield piece


# -- long ------------------------------------------------------------------------------------------


class ChangeLine(NamedTuple):
    """One difference. The whole of an added or removed line is new or old."""

    event: MessageEvent
    pieces: list[Piece]

    def __str__(self) -> str:
        return render_words(self.pieces)


def describe(changes: DocumentChanges) -> Iterator[ChangeLine]:
    """One line for each difference. `updated_at` is left out if anything else differs."""
    for member in _noteworthy(changes):
        head = Piece("same", f"{render_path(member.path) or 'document'}: ")
        yield ChangeLine("changed", [head, *_value_pieces(member)])
    for change in sorted(changes.messages, key=_place):
        yield from _describe_message(change)


def _place(change: MessageChange) -> tuple[int, int]:
    """The order of reading: a removed message comes before the one that took its place."""
    if change.new_index is None:
        return change.old_index or 0, 0
    return change.new_index, 1


def _describe_message(change: MessageChange) -> Iterator[ChangeLine]:
    index = change.old_index if change.new_index is None else change.new_index
    head = f"{_MARKS[change.event]} [{index}] {change.message.get('role', 'message')}"
    if change.event != "changed":
        was = f" was [{change.old_index}]:" if change.event == "moved" else ""
        yield ChangeLine(change.event, [Piece("same", f"{head}:{was} {_opening(change.message)}")])
    for member in change.members:
        name = "" if member.path == ("content",) else f" {render_path(member.path)}"
        yield ChangeLine("changed", [Piece("same", f"{head}{name}: "), *_value_pieces(member)])


def _opening(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    text = one_line(content.strip()) if isinstance(content, str) else ""
    if not text and message.get("tool_calls"):
        text = f"calls {', '.join(_called(message['tool_calls']))}"
    return text if len(text) <= MAX_OPENING else f"{text[:MAX_OPENING]}…"


def _called(calls: Any) -> Iterator[str]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        yield str(function.get("name", "a tool")) if isinstance(function, dict) else "a tool"


def _value_pieces(member: MemberChange, context: int = CONTEXT, longest: int = MAX_SHOWN) -> list[Piece]:
    """The old and the new value, shortened: word by word if both are strings."""
    old, new = member.old, member.new
    if isinstance(old, str) and isinstance(new, str):
        return excerpt(diff_words(old, new), context, longest)
    if isinstance(old, list) and isinstance(new, list):
        return [Piece("removed", f"{len(old)} items"), Piece("added", f"{len(new)} items")]
    removed = [] if old is ABSENT else [Piece("removed", _shown(old))]
    return excerpt([*removed, *([] if new is ABSENT else [Piece("added", _shown(new))])], context, longest)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return render_compact(value).decode()
    except TypeError:  # an integer over 64 bits
        return repr(value)


# -- for programs ----------------------------------------------------------------------------------


def as_json(changes: DocumentChanges) -> dict[str, Any]:
    """The differences as plain JSON; a member that one side does not have lacks `old` or `new`."""
    return {
        "members": [_member_json(member) for member in changes.members],
        "messages": [
            {
                "change": change.event,
                "old_index": change.old_index,
                "index": change.new_index,
                "role": change.message.get("role"),
                "id": change.message.get("id"),
                "members": [_member_json(member) for member in change.members],
            }
            for change in changes.messages
        ],
    }


def _member_json(member: MemberChange) -> dict[str, Any]:
    values = {"old": member.old, "new": member.new}
    return {"path": render_path(member.path), **{k: v for k, v in values.items() if v is not ABSENT}}


# -- plain text ------------------------------------------------------------------------------------


def summarize_text(old: str, new: str) -> str:
    """The number of lines added and removed, for documents that are not JSON."""
    lines = [line[:1] for line in unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)][2:]
    counts = [
        f"{mark}{lines.count(mark)} line{'' if lines.count(mark) == 1 else 's'}" for mark in "+-" if mark in lines
    ]
    return ", ".join(counts)


def unified(old: bytes, new: bytes, old_name: str, new_name: str) -> Iterable[str]:
    """A unified diff, line by line. JSON on a single line is laid out first, or every change would be all of it."""
    before, after = _laid_out(old), _laid_out(new)
    return unified_diff(before.splitlines(), after.splitlines(), old_name, new_name, lineterm="")


def _laid_out(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    if text.count("\n") > 1 or text[:1] not in "{[":
        return text
    try:
        return orjson.dumps(orjson.loads(raw), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        return text
