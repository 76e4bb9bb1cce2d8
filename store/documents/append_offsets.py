"""Append offsets: byte offsets at which an append changes session.json. Pure.

With them, appending a message does not parse the messages before it. The offsets are valid for
one version of the text. They are computed once, stored in the index and updated by every append.
The caller makes sure that the text is still that version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from store.documents import json_text
from store.model.timestamp import Timestamp

if TYPE_CHECKING:
    from store.documents.document import Document


class AppendOffsets(NamedTuple):
    """Where an append inserts messages and replaces the value of updated_at."""

    append_at: int
    updated_at: int
    updated_at_text: str

    def moved(self, distance: int) -> AppendOffsets:
        return AppendOffsets(self.append_at + distance, self.updated_at + distance, self.updated_at_text)


def find(main: Document) -> AppendOffsets:
    """The offsets for a parsed session.json."""
    spans = {m.key: m for m in json_text.members(main.raw)}
    messages, updated_at = spans["messages"], spans["updated_at"]
    end = messages.end - 1
    while main.raw[end - 1] in b" \t\r\n":  # without a copy: the text may be long
        end -= 1
    return AppendOffsets(end, updated_at.start, main.data["updated_at"])


def still_valid(raw: bytes, offsets: AppendOffsets) -> bool:
    """Whether the text has its updated_at and the end of its messages at these offsets."""
    text = json_text.render_compact(offsets.updated_at_text)
    rest = raw[offsets.append_at : offsets.append_at + 4096].lstrip()
    return raw[offsets.updated_at : offsets.updated_at + len(text)] == text and rest.startswith(b"]")


class Appended(NamedTuple):
    """A text with messages added and updated_at replaced."""

    parts: list[bytes | memoryview]
    cuts: list[tuple[int, int, bytes]]  # start and end in the old text, and what replaces it; ascending
    offsets: AppendOffsets


def splice_messages(raw: bytes, offsets: AppendOffsets, added: Sequence[dict[str, Any]], now: Timestamp) -> Appended:
    """Add messages and replace updated_at, without looking at the rest of the text."""
    at = offsets.append_at
    insertion, last_end = _insertion(raw, at, added)
    old, new = (json_text.render_compact(t) for t in (offsets.updated_at_text, now))
    view = memoryview(raw)
    cuts = sorted([(at, at, insertion), (offsets.updated_at, offsets.updated_at + len(old), new)])
    (a0, a1, a), (b0, b1, b) = cuts
    parts: list[bytes | memoryview] = [view[:a0], a, view[a1:b0], b, view[b1:]]
    if offsets.updated_at > at:
        moved = AppendOffsets(at + last_end, offsets.updated_at + len(insertion), now)
    else:
        moved = AppendOffsets(at + last_end + len(new) - len(old), offsets.updated_at, now)
    return Appended(parts, cuts, moved)


def _insertion(raw: bytes, at: int, added: Sequence[dict[str, Any]]) -> tuple[bytes, int]:
    """The text to insert after the last message, formatted like the array; and the offset of its last message's end."""
    is_first = raw[at - 1 : at] == b"["
    closing = raw[at : raw.index(b"]", at)]  # white space
    indent: bytes | None = None
    tail = b""
    if b"\n" in closing:
        # The array is a member of the document: its bracket is indented once, its messages twice.
        indent = closing[closing.rfind(b"\n") + 1 :] * 2
    elif is_first:
        line = raw[raw.rfind(b"\n", 0, at) + 1 : at]
        if line.lstrip().startswith(b'"messages"'):  # `"messages": []` in an indented document
            outer = line[: len(line) - len(line.lstrip())]
            indent, tail = outer * 2, b"\n" + outer
    lead = b"" if indent is None else b"\n" + indent
    text = b",".join(lead + json_text.render_indented(message, indent) for message in added)
    text = text if is_first else b"," + text
    return text + tail, len(text)
