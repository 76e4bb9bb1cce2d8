"""Text of a merge: ours, with the bytes of theirs spliced in. Pure.

Everything that comes from our side keeps its bytes, layout and order. What comes from their side
keeps every token: digits, escapes and key order. Only its white space follows our layout, where
the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from store.documents.json_splice import Style, element_lead, join_parts, object_style, order_keys
from store.documents.json_text import (
    STRING,
    WHITESPACE,
    JsonMember,
    elements,
    members,
    render_indented,
    skip_space,
)
from store.documents.merge_plan import MergedArray, MergedElement, MergedObject, NewValue, Plan, Side

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^ \t\r\n{}\[\],:"]+', re.DOTALL)


class _TextPart(NamedTuple):
    """The text of one value, and the white space before it."""

    raw: bytes
    lead: bytes


def render_merge(plan: Plan, ours: bytes, theirs: bytes) -> bytes:
    """The text of a merged object. `ours` and `theirs` are the texts the plan was made for."""
    start, end = skip_space(ours, 0), len(ours.rstrip(WHITESPACE))
    mine, other = ours[start:end], theirs.strip(WHITESPACE)
    unit = _indent_unit(mine)
    return (
        ours[:start] + _render(plan, _TextPart(mine, b""), _TextPart(other, b""), Style(b"\n", b""), unit) + ours[end:]
    )


def _indent_unit(raw: bytes) -> bytes:
    """The indentation of one level: that of the first member of the document."""
    found = members(raw)
    indent = object_style(raw, found, Style(b"\n", b"")).indent
    return indent if found and indent is not None else b"  "


def _render(plan: Plan, ours: _TextPart | None, theirs: _TextPart | None, style: Style, unit: bytes) -> bytes:
    """One value. `style` is that of the container it is in."""
    if isinstance(plan, NewValue):
        return render_indented(plan.value, style.indent)
    if plan is Side.OURS:
        assert ours is not None
        return ours.raw
    assert theirs is not None
    if plan is Side.THEIRS:
        return _fit(theirs, style, unit)
    assert ours is not None
    if isinstance(plan, MergedArray):
        return _render_array(plan, ours.raw, theirs.raw, style, unit)
    assert isinstance(plan, MergedObject)
    return _render_object(plan, ours.raw, theirs.raw, style, unit)


# -- objects ---------------------------------------------------------------------------------------


def _render_object(plan: MergedObject, raw: bytes, their_raw: bytes, outer: Style, unit: bytes) -> bytes:
    old = members(raw)
    theirs = {m.key: m for m in members(their_raw)}
    style = object_style(raw, old, _deeper(outer, unit) if not old else outer)
    chunks: dict[str, bytes] = {}
    for m in old:
        member = plan.members[m.key]
        other = theirs.get(plan.their_keys.get(m.key, m.key))
        if member is Side.THEIRS and other is None:
            continue  # they removed it
        value = _render(member, _TextPart(raw[m.start : m.end], b""), _member_part(their_raw, other), style, unit)
        chunks[m.key] = raw[m.chunk_start : m.start] + value
        if m is not old[-1]:
            chunks[m.key] += raw[m.end : m.chunk_end]
    added = _added_members(plan, old, theirs, their_raw, style, unit, colon=_colon(raw, old, style))
    if not old and not added:
        return raw
    order = order_keys(list(chunks), added.keys(), list(theirs))
    return join_parts(b"{", [added.get(key) or chunks[key] for key in order], style.tail, b"}")


def _added_members(
    plan: MergedObject,
    old: list[JsonMember],
    theirs: Mapping[str, JsonMember],
    their_raw: bytes,
    style: Style,
    unit: bytes,
    *,
    colon: bytes,
) -> dict[str, bytes]:
    """The members that only they have and that stay, with their own key and value."""
    present = {m.key for m in old} | {plan.their_keys.get(m.key, m.key) for m in old}
    added: dict[str, bytes] = {}
    for key, m in theirs.items():
        if key in present or plan.members[key] is not Side.THEIRS:
            continue
        name = STRING.match(their_raw, skip_space(their_raw, m.chunk_start))
        part = _member_part(their_raw, m)
        assert name is not None
        assert part is not None
        added[key] = style.lead + name[0] + colon + _fit(part, style, unit)
    return added


def _member_part(raw: bytes, member: JsonMember | None) -> _TextPart | None:
    if member is None:
        return None
    return _TextPart(raw[member.start : member.end], raw[member.chunk_start : skip_space(raw, member.chunk_start)])


def _colon(raw: bytes, old: list[JsonMember], style: Style) -> bytes:
    if not old:
        return b":" if style.indent is None else b": "
    return b": " if raw[old[0].start - 1 : old[0].start] in (b" ", b"\n", b"\t") else b":"


# -- arrays ----------------------------------------------------------------------------------------


def _render_array(plan: MergedArray, raw: bytes, their_raw: bytes, outer: Style, unit: bytes) -> bytes:
    spans, their_spans = elements(raw), elements(their_raw)
    style = _array_style(raw, spans, outer, unit)
    first_lead = raw[1 : spans[0][0]] if spans else style.lead
    parts: list[bytes] = []
    for place, element in enumerate(plan.elements):
        value = _render_element(element, raw, spans, their_raw, their_spans, style, unit)
        lead = style.lead if parts else first_lead
        if element.ours is not None and (element.ours == 0) == (place == 0):
            lead = element_lead(raw, spans, element.ours)
        parts.append(lead + value + _space_after(raw, spans, element.ours, is_last=place == len(plan.elements) - 1))
    if not parts and not spans:
        return raw
    return join_parts(b"[", parts, style.tail, b"]")


def _render_element(
    element: MergedElement,
    raw: bytes,
    spans: list[tuple[int, int]],
    their_raw: bytes,
    their_spans: list[tuple[int, int]],
    style: Style,
    unit: bytes,
) -> bytes:
    ours = None if element.ours is None else _TextPart(raw[slice(*spans[element.ours])], b"")
    theirs = None
    if element.theirs is not None and element.plan is not Side.OURS:
        lead = element_lead(their_raw, their_spans, element.theirs)
        theirs = _TextPart(their_raw[slice(*their_spans[element.theirs])], lead)
    return _render(element.plan, ours, theirs, style, unit)


def _space_after(raw: bytes, spans: list[tuple[int, int]], index: int | None, *, is_last: bool) -> bytes:
    """The white space between one of our elements and the comma after it."""
    if is_last or index is None or index == len(spans) - 1:
        return b""
    end = spans[index][1]
    return raw[end : skip_space(raw, end)]


def _array_style(raw: bytes, spans: list[tuple[int, int]], outer: Style, unit: bytes) -> Style:
    if not spans:
        return _deeper(outer, unit)
    lead = element_lead(raw, spans, 1) if len(spans) > 1 else raw[1 : spans[0][0]]
    return Style(lead, raw[spans[-1][1] : -1])


# -- layout ----------------------------------------------------------------------------------------


def _deeper(outer: Style, unit: bytes) -> Style:
    """The layout of a container without parts, one level below `outer`."""
    indent = outer.indent
    return Style(b"", b"") if indent is None else Style(b"\n" + indent + unit, b"\n" + indent)


def _fit(part: _TextPart, style: Style, unit: bytes) -> bytes:
    """Their value, in our layout if theirs is another one."""
    raw = part.raw
    is_container = raw[:1] in (b"{", b"[")
    if not is_container or part.lead == style.lead or (style.indent is None and b"\n" not in raw):
        return raw
    return relayout(raw, style.indent, unit)


def relayout(raw: bytes, indent: bytes | None, unit: bytes) -> bytes:
    """A JSON value with other white space and the same tokens; on one line if `indent` is None."""
    tokens = _TOKEN.findall(raw)
    if indent is None:
        return b"".join(tokens)
    out: list[bytes] = []
    line = b"\n" + indent
    for position, token in enumerate(tokens):
        if token in (b"}", b"]"):
            line = line[: len(line) - len(unit)]
            if tokens[position - 1] not in (b"{", b"["):
                out.append(line)
        out.append(token)
        if token in (b"{", b"["):
            line += unit
        is_open = token in (b"{", b"[") and tokens[position + 1] not in (b"}", b"]")
        if is_open or token == b",":
            out.append(line)
        elif token == b":":
            out.append(b" ")
    return b"".join(out)
