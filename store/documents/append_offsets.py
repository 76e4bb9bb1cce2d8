"""Where an append cuts into session.json, so that a new message costs no look at the old ones. Pure.

The anchors are offsets into one version of the text. They are found once, kept in the index, and moved
along by every append; whoever uses them has made sure that the text is still that version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from store.documents import json_text
from store.documents.document import Document
from store.model.timestamp import Timestamp


class AppendOffsets(NamedTuple):
    """Where an append has to cut into session.json; found once, moved along, never searched again."""

    append_at: int
    updated_at: int
    updated_at_text: str


def find(main: Document) -> AppendOffsets:
    """Where the next message goes in session.json, and where its updated_at stands."""
    spans = {m.key: m for m in json_text.members(main.raw)}
    messages, updated_at = spans["messages"], spans["updated_at"]
    inside = main.raw[messages.start : messages.end - 1].rstrip()
    return AppendOffsets(messages.start + len(inside), updated_at.start, main.data["updated_at"])


def still_valid(raw: bytes, anchors: AppendOffsets) -> bool:
    text = json_text.render_compact(anchors.updated_at_text)
    rest = raw[anchors.append_at : anchors.append_at + 4096].lstrip()
    return raw[anchors.updated_at : anchors.updated_at + len(text)] == text and rest.startswith(b"]")


def splice_messages(
    raw: bytes, anchors: AppendOffsets, added: Sequence[dict[str, Any]], now: Timestamp
) -> tuple[list[bytes | memoryview], AppendOffsets]:
    """The text in parts, with messages added and updated_at changed, and where the anchors are then."""
    at = anchors.append_at
    insertion, last_end = _insertion(raw, at, added)
    old, new = (json_text.render_compact(t) for t in (anchors.updated_at_text, now))
    view = memoryview(raw)
    cuts = sorted([(at, at, insertion), (anchors.updated_at, anchors.updated_at + len(old), new)])
    (a0, a1, a), (b0, b1, b) = cuts
    parts: list[bytes | memoryview] = [view[:a0], a, view[a1:b0], b, view[b1:]]
    if anchors.updated_at > at:
        return parts, AppendOffsets(at + last_end, anchors.updated_at + len(insertion), now)
    return parts, AppendOffsets(at + last_end + len(new) - len(old), anchors.updated_at, now)


def _insertion(raw: bytes, at: int, added: Sequence[dict[str, Any]]) -> tuple[bytes, int]:
    """The text to put behind the last message, laid out as the array is; and where its last message ends."""
    is_first = raw[at - 1 : at] == b"["
    closing = raw[at : raw.index(b"]", at)]  # white space
    indent: bytes | None = None
    tail = b""
    if b"\n" in closing:
        # The array is a member of the document: its bracket stands one step in, its messages two.
        indent = closing[closing.rfind(b"\n") + 1 :] * 2
    elif is_first:
        line = raw[raw.rfind(b"\n", 0, at) + 1 : at]
        if line.lstrip().startswith(b'"messages"'):  # `"messages": []` in a document of many lines
            outer = line[: len(line) - len(line.lstrip())]
            indent, tail = outer * 2, b"\n" + outer
    lead = b"" if indent is None else b"\n" + indent
    text = b",".join(lead + json_text.render_indented(message, indent) for message in added)
    text = text if is_first else b"," + text
    return text + tail, len(text)
