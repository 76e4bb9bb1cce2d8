"""Splice: change the members of a JSON text that differ, and keep every other byte. Pure.

`splice` applies the difference between two values to a text. Members that did not change keep
their bytes, position and formatting, whether known or not (rule 5). An API save splices the
difference between the dump at load and the dump now. The same function applies an edit of
session.json to the sidecar, which makes it a three-way merge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import orjson

from store.documents.json_text import (
    WHITESPACE,
    JsonMember,
    elements,
    members,
    render_compact,
    render_indented,
    skip_space,
)


def splice(
    raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any], *, aliases: Mapping[str, str] | None = None
) -> bytes:
    """Apply the difference between `before` and `after` to the object in `raw`. All other bytes are kept.

    A key absent from `after` is removed. Objects are spliced member by member, arrays element by element.
    `aliases` maps a key to the alternative spelling that the text may use.
    """
    start = skip_space(raw, 0)
    end = len(raw.rstrip(WHITESPACE))
    # An empty top-level object is filled like serde prints it: one member per line.
    return raw[:start] + _splice_object(raw[start:end], before, after, Style(b"\n", b""), aliases or {}) + raw[end:]


def same(one: Any, other: Any) -> bool:
    """JSON equality: 1, 1.0 and true differ, and so do 0.0 and -0.0. Key order is ignored."""
    if one is other:
        return True
    if one != other:
        return False  # values that differ in Python differ in JSON; but Python considers 1 and True equal
    if isinstance(one, str):
        return True
    if isinstance(one, dict | list) and isinstance(other, dict | list):
        return _dumps(one) == _dumps(other) or _same_parts(one, other)
    return type(one) is type(other) and (one != 0 or str(one) == str(other))  # 0.0 and -0.0


def _dumps(value: Any) -> bytes | None:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer over 64 bits, a lone surrogate
        return None


def _same_parts(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return all(same(value, other[key]) for key, value in one.items())
    return all(map(same, one, other))


class Style(NamedTuple):
    """Layout of a container: white space before each part, and before its closing bracket."""

    lead: bytes
    tail: bytes

    @property
    def indent(self) -> bytes | None:
        """Indentation of each line; None if the container is on one line."""
        newline = self.lead.rfind(b"\n")
        return self.lead[newline + 1 :] if newline >= 0 else None


def _splice_value(raw: bytes, before: Any, after: Any, style: Style, aliases: Mapping[str, str]) -> bytes:
    if isinstance(before, dict) and isinstance(after, dict) and raw[:1] == b"{":
        return _splice_object(raw, before, after, style, aliases)
    if isinstance(before, list) and isinstance(after, list) and before and after and raw[:1] == b"[":
        spans = elements(raw)
        if len(spans) == len(before):
            return _splice_array(raw, spans, before, after, aliases)
    return _render_as(after, style)


def _splice_object(
    raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any], outer: Style, aliases: Mapping[str, str]
) -> bytes:
    old = members(raw)
    style = object_style(raw, old, outer)
    present = {m.key for m in old}
    spelling = _text_spellings({**before, **after}, present, aliases)
    changed = {spelling[k]: v for k, v in after.items() if k not in before or not same(before[k], v)}
    removed = {spelling[k] for k in before if k not in after}
    if not changed and not removed:
        return raw
    originals: dict[str, Any] = {}
    for key, value in before.items():
        originals.setdefault(spelling[key], value)
    chunks: dict[str, bytes] = {}
    for m in old:
        if m.key in removed:
            continue
        if m.key in changed:
            value = _splice_value(raw[m.start : m.end], originals.get(m.key), changed[m.key], style, aliases)
            chunks[m.key] = raw[m.chunk_start : m.start] + value
        else:
            chunks[m.key] = raw[m.chunk_start : m.end]
        if m is not old[-1]:
            chunks[m.key] += raw[m.end : m.chunk_end]
    kept = list(chunks)
    is_spaced = style.indent is not None or bool(old and raw[old[0].start - 1 : old[0].start] == b" ")
    colon = b": " if is_spaced else b":"
    added = {key: value for key, value in changed.items() if key not in present}
    for key, value in added.items():
        chunks[key] = style.lead + render_compact(key) + colon + _render_as(value, style)
    order = order_keys(kept, added.keys(), [spelling[k] for k in after])
    return join_parts(b"{", [chunks[k] for k in order], style.tail, b"}")


def _text_spellings(keys: Mapping[str, Any], present: set[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Each key in the spelling of the text. In a free-form map both spellings may occur as two separate keys."""
    spelling = {k: k for k in keys}
    for name, alias in aliases.items():
        if name in keys and alias not in keys and alias in present and name not in present:
            spelling[name] = alias
    return spelling


def order_keys(kept: list[str], added: Collection[str], wanted: list[str]) -> list[str]:
    """The keys in order: existing keys unchanged, each new key after its nearest predecessor in `wanted`.

    One pass: an object may get a hundred thousand new members.
    """
    known, leader = set(kept), None
    followers: dict[str | None, list[str]] = {}
    for key in wanted:
        if key in known:
            leader = key
        elif key in added:
            followers.setdefault(leader, []).append(key)
    return [*followers.get(None, ()), *(k for key in kept for k in (key, *followers.get(key, ())))]


def _splice_array(
    raw: bytes, spans: list[tuple[int, int]], before: list[Any], after: list[Any], aliases: Mapping[str, str]
) -> bytes:
    style = Style(raw[1 : spans[0][0]], raw[spans[-1][1] : -1])
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if not same(before[i], after[i])), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if not same(before[-1 - i], after[-1 - i])), rest)
    parts: list[bytes] = []
    for i, value in enumerate(after):
        if i < head:
            parts.append(element_lead(raw, spans, i) + raw[slice(*spans[i])])
        elif i >= len(after) - tail:
            j = i - len(after)  # counted from the end, in both arrays
            parts.append(element_lead(raw, spans, len(before) + j) + raw[slice(*spans[j])])
        elif i < len(before) - tail:
            spliced = _splice_value(raw[slice(*spans[i])], before[i], value, style, aliases)
            parts.append(element_lead(raw, spans, i) + spliced)
        else:
            parts.append(style.lead + _render_as(value, style))
    return join_parts(b"[", parts, style.tail, b"]")


def element_lead(raw: bytes, spans: list[tuple[int, int]], i: int) -> bytes:
    if i == 0:
        return raw[1 : spans[0][0]]
    between = raw[spans[i - 1][1] : spans[i][0]]
    return between[between.index(b",") + 1 :]


def object_style(raw: bytes, old: list[JsonMember], outer: Style) -> Style:
    if not old:
        indent = outer.indent
        return Style(b"", b"") if indent is None else Style(b"\n" + indent + b"  ", b"\n" + indent)
    first = old[0]
    lead = raw[first.chunk_start : skip_space(raw, first.chunk_start)]
    if len(old) > 1:  # `{"a": 1, "b": 2}`: the second member shows the space after a comma
        second = old[1].chunk_start
        lead = raw[second : skip_space(raw, second)]
    return Style(lead, raw[old[-1].end : old[-1].chunk_end])


def _render_as(value: Any, style: Style) -> bytes:
    return render_indented(value, style.indent)


def join_parts(opening: bytes, parts: list[bytes], tail: bytes, closing: bytes) -> bytes:
    if not parts:
        return opening + closing
    return opening + b",".join(parts) + tail + closing
