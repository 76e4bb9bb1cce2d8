"""Bytes ↔ JSON values, and changes to a text that keep every byte they need not touch. Pure.

`parse` accepts exactly what serde_json, the owning agent's parser, accepts (rule 6), and says where
the first fault is. `splice` applies the difference between two values to a text: members that did not
change keep their bytes, place and formatting, known to us or not (rule 5). The same splice serves an
API save (dump at load → dump now), and carries an edit of session.json into the sidecar, where it is
a three-way merge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import orjson

from store.documents import gc_pause, json_faults
from store.errors import InvalidContent, Problem, TooLarge

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
# serde_json gives up at the 128th open bracket; so 127 containers, and their innermost value is level 128.
MAX_DEPTH = 127

STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STRING_OR_EXPONENT = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|e\+', re.DOTALL)
_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_WHITESPACE = b" \t\r\n"
_MINUS_ZERO = re.compile(rb"(?<![eE])-0(?![.eE])")
_STRING_OR_MINUS_ZERO = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|(?<![eE])-0(?![.eE])', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"[]", b"{}")
_STEPS = {ord("{"): 1, ord("}"): -1}
_FEW_LEVELS = 16
_NOT_BRACKETS_OR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))
# Where one of these occurs, if only in a string, a second and slower look is needed.
_ONE_SPACE = bytes.maketrans(b"\t\r\n", b"   ")
_ONE_SPACE_BEFORE_VALUES = bytes.maketrans(b"\t\r\n:,[", b"      ")

Path = json_faults.Path


# -- parsing ---------------------------------------------------------------------------------------


def parse(raw: bytes, name: str, *, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """The JSON object in `raw`; InvalidContent, with line and column, if serde_json would refuse it."""
    value = parse_value(raw, name, limit=limit)
    if not isinstance(value, dict):
        found = "an array" if isinstance(value, list) else "a single value"
        raise InvalidContent(name, Problem(f"a JSON object is expected, not {found}", 1, 1))
    return value


def parse_value(raw: bytes, name: str, *, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """As `parse`, but any JSON value."""
    check_size(len(raw), name, limit)
    try:
        with gc_pause.gc_paused(len(raw)):
            value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidContent(name, _syntax_problem(raw, error)) from None
    _check_structure(raw, value, name)
    # serde reads -0 as a float, which it takes for no integer field; orjson would say 0.
    if b" -0" in raw.translate(_ONE_SPACE_BEFORE_VALUES) and _MINUS_ZERO.search(_outside_strings(raw)):
        raw = _STRING_OR_MINUS_ZERO.sub(lambda m: m[1] or b"-0.0", raw)
        return orjson.loads(raw)
    return value


def check_size(size: int, name: str, limit: int) -> None:
    if size > limit:
        raise TooLarge(name, Problem(f"{size} bytes are over the limit of {limit}"))


def _syntax_problem(raw: bytes, error: orjson.JSONDecodeError) -> Problem:
    try:
        raw.decode()
    except UnicodeDecodeError as bad:
        line, column = position(raw, bad.start)
        return Problem("the text is not valid UTF-8", line, column)
    if error.msg.startswith("depth limit"):  # orjson's own, far beyond ours
        return _depth_problem(raw)
    return Problem(error.msg, error.lineno, error.colno)


def _check_structure(raw: bytes, value: Any, name: str) -> None:
    """What orjson lets pass: deep nesting, and keys that appear twice in one object."""
    # Where there are no more brackets than levels, however they stand, none is too deep.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _depth(_brackets(raw)) > MAX_DEPTH:
        raise InvalidContent(name, _depth_problem(raw))
    if _repeats_a_key(raw, orjson.dumps(value)):
        path, offset = json_faults.find_duplicate(raw)
        line, column = position(raw, offset)
        raise InvalidContent(name, Problem("the key appears twice", line, column, render_path(path)))


def _depth(brackets: bytes) -> int:
    """How deep they are nested. Few levels are soon taken off, the innermost first; beyond, each bracket is counted."""
    levels = 0
    while brackets and levels < _FEW_LEVELS:
        brackets = brackets.replace(b"{}", b"")
        levels += 1
    return levels + max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _repeats_a_key(raw: bytes, compact: bytes) -> bool:
    """Whether printing what was parsed needs fewer keys than were read: then two of them became one."""
    if b"\\u" in raw or b" :" in raw.translate(_ONE_SPACE):
        return _outside_strings(raw).count(b":") != _outside_strings(compact).count(b":")
    # Strings that begin with a colon look like keys here, but they do so in both texts.
    return raw.count(b'":') != compact.count(b'":')


def _without_escapes(raw: bytes) -> bytes:
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _brackets(raw: bytes) -> bytes:
    """The brackets of a valid text that stand outside its strings, as if there were one kind only."""
    bare = _without_escapes(raw).translate(_ONE_BRACKET, _NOT_BRACKETS_OR_QUOTES).replace(b'""', b"")
    return b"".join(bare.split(b'"')[::2])


def _outside_strings(raw: bytes) -> bytes:
    """A valid text without its strings: every second piece between quotes."""
    return b"".join(_without_escapes(raw).split(b'"')[::2])


def _depth_problem(raw: bytes) -> Problem:
    line, column = position(raw, json_faults.too_deep_at(raw, MAX_DEPTH))
    return Problem(f"nested deeper than {MAX_DEPTH} levels", line, column)


# -- positions -------------------------------------------------------------------------------------


def position(raw: bytes, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a byte offset; a column counts characters, as editors do."""
    line_start = raw.rfind(b"\n", 0, offset) + 1
    column = len(raw[line_start:offset].decode(errors="replace")) + 1
    return raw.count(b"\n", 0, offset) + 1, column


def locate(raw: bytes, path: Path, aliases: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Line and column of the value at `path`, or of the innermost container of it that exists.

    `aliases` names the other spelling under which the text may hold a key.
    """
    start = len(raw) - len(raw.lstrip(_WHITESPACE))
    end = len(raw.rstrip(_WHITESPACE))
    for step in path:
        spans = _spans(raw, start, end) or {}
        found = spans.get(step) or spans.get((aliases or {}).get(str(step), step))
        if found is None:
            break
        start, end = found
    return position(raw, start)


def _spans(raw: bytes, start: int, end: int) -> dict[str | int, tuple[int, int]] | None:
    if raw[start : start + 1] == b"{":
        return {m.key: (m.start, m.end) for m in members(raw, start, end)}
    if raw[start : start + 1] == b"[":
        return dict(enumerate(elements(raw, start, end)))
    return None


def render_path(path: Path) -> str:
    """('messages', 3, 'role') as messages[3].role."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# -- spans: where the parts of a valid text lie ----------------------------------------------------


class JsonMember(NamedTuple):
    """One member of an object: its key, where its chunk (from comma to comma) and its value lie."""

    key: str
    chunk_start: int
    start: int
    end: int
    chunk_end: int


def members(raw: bytes, start: int = 0, end: int | None = None) -> list[JsonMember]:
    """The members of the valid object at `start`, in order. msgspec skips over the values unparsed."""
    view = memoryview(raw)[start:end]
    values = msgspec.json.decode(view, type=dict[str, msgspec.Raw])
    found: list[JsonMember] = []
    at = raw.index(b"{", start) + 1
    for key, value in values.items():
        match = _KEY.match(raw, at)
        assert match is not None
        value_end = match.end() + len(memoryview(value))
        chunk_end = value_end if raw[value_end] in b",}" else _skip_space(raw, value_end)
        found.append(JsonMember(key, at, match.end(), value_end, chunk_end))
        at = chunk_end + 1
    return found


def elements(raw: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Where the elements of the valid array at `start` lie, in order."""
    values = msgspec.json.decode(memoryview(raw)[start:end], type=list[msgspec.Raw])
    found: list[tuple[int, int]] = []
    at = raw.index(b"[", start) + 1
    for value in values:
        begin = _skip_space(raw, at)
        stop = begin + len(memoryview(value))
        found.append((begin, stop))
        at = _skip_space(raw, stop) + 1
    return found


def _skip_space(raw: bytes, at: int) -> int:
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()


# -- rendering -------------------------------------------------------------------------------------


def render(value: Any) -> bytes:
    """The text serde's pretty printer would write: two spaces, UTF-8 unescaped, no final newline."""
    return _serde_floats(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def render_strict(value: Any, name: str) -> bytes:
    """As `render`, of a value that a caller gave us: InvalidContent if JSON has no words for it."""
    try:
        json.dumps(value, allow_nan=False)  # orjson would write null for NaN, and text for a datetime
        return render(value)
    except (TypeError, ValueError) as error:
        raise InvalidContent(name, Problem(f"this cannot be written as JSON: {error}")) from None


def render_compact(value: Any) -> bytes:
    return _serde_floats(orjson.dumps(value))


def render_indented(value: Any, indent: bytes | None) -> bytes:
    """As `render`, every line but the first behind `indent`; compact if that is None."""
    if indent is None:
        return render_compact(value)
    # No string holds a raw newline, so every one of them starts an indented line.
    return render(value).replace(b"\n", b"\n" + indent)


def _serde_floats(text: bytes) -> bytes:
    if b"e+" not in text:
        return text
    # orjson writes 1e+16 where serde writes 1e16.
    return _STRING_OR_EXPONENT.sub(lambda m: m[1] or b"e", text)


# -- splicing --------------------------------------------------------------------------------------


def splice(
    raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any], *, aliases: Mapping[str, str] | None = None
) -> bytes:
    """Apply the difference between `before` and `after` to the object in `raw`; all other bytes stay.

    A key missing in `after` is removed. Objects are spliced member by member, arrays element by element.
    `aliases` names the other spelling under which the text may hold a key.
    """
    start = _skip_space(raw, 0)
    end = len(raw.rstrip(_WHITESPACE))
    # An empty object at the top is filled as serde would print it: one member a line.
    return raw[:start] + _splice_object(raw[start:end], before, after, _Style(b"\n", b""), aliases or {}) + raw[end:]


def same(one: Any, other: Any) -> bool:
    """Equality as JSON has it: 1, 1.0 and true are three different texts, so are 0.0 and -0.0; key order
    means nothing."""
    if one is other:
        return True
    if one != other:
        return False  # what Python finds different is different; but it finds 1 and True equal
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


class _Style(NamedTuple):
    """How a container is laid out: white space before each part, and before its closing bracket."""

    lead: bytes
    tail: bytes

    @property
    def indent(self) -> bytes | None:
        """What each line begins with; None if all stands on one line."""
        newline = self.lead.rfind(b"\n")
        return self.lead[newline + 1 :] if newline >= 0 else None


def _splice_value(raw: bytes, before: Any, after: Any, style: _Style, aliases: Mapping[str, str]) -> bytes:
    if isinstance(before, dict) and isinstance(after, dict) and raw[:1] == b"{":
        return _splice_object(raw, before, after, style, aliases)
    if isinstance(before, list) and isinstance(after, list) and before and after and raw[:1] == b"[":
        spans = elements(raw)
        if len(spans) == len(before):
            return _splice_array(raw, spans, before, after, aliases)
    return _render_as(after, style)


def _splice_object(
    raw: bytes, before: Mapping[str, Any], after: Mapping[str, Any], outer: _Style, aliases: Mapping[str, str]
) -> bytes:
    old = members(raw)
    style = _object_style(raw, old, outer)
    present = {m.key for m in old}
    spelled = _spelled({**before, **after}, present, aliases)
    changed = {spelled[k]: v for k, v in after.items() if k not in before or not same(before[k], v)}
    removed = {spelled[k] for k in before if k not in after}
    if not changed and not removed:
        return raw
    originals: dict[str, Any] = {}
    for key, value in before.items():
        originals.setdefault(spelled[key], value)
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
    order = _order(kept, added.keys(), [spelled[k] for k in after])
    return _join(b"{", [chunks[k] for k in order], style.tail, b"}")


def _spelled(keys: Mapping[str, Any], present: set[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Each key as the text spells it. A free map may hold both spellings: there they are two keys."""
    spelled = {k: k for k in keys}
    for name, alias in aliases.items():
        if name in keys and alias not in keys and alias in present and name not in present:
            spelled[name] = alias
    return spelled


def _order(kept: list[str], added: Collection[str], wanted: list[str]) -> list[str]:
    """What was there as it was, and each new key behind the nearest that the declared order puts in front of it.

    In one pass: an object may have a hundred thousand new members.
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
    style = _Style(raw[1 : spans[0][0]], raw[spans[-1][1] : -1])
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if not same(before[i], after[i])), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if not same(before[-1 - i], after[-1 - i])), rest)
    parts: list[bytes] = []
    for i, value in enumerate(after):
        if i < head:
            parts.append(_lead(raw, spans, i) + raw[slice(*spans[i])])
        elif i >= len(after) - tail:
            j = i - len(after)  # counted from the end, in both
            parts.append(_lead(raw, spans, len(before) + j) + raw[slice(*spans[j])])
        elif i < len(before) - tail:
            spliced = _splice_value(raw[slice(*spans[i])], before[i], value, style, aliases)
            parts.append(_lead(raw, spans, i) + spliced)
        else:
            parts.append(style.lead + _render_as(value, style))
    return _join(b"[", parts, style.tail, b"]")


def _lead(raw: bytes, spans: list[tuple[int, int]], i: int) -> bytes:
    if i == 0:
        return raw[1 : spans[0][0]]
    between = raw[spans[i - 1][1] : spans[i][0]]
    return between[between.index(b",") + 1 :]


def _object_style(raw: bytes, old: list[JsonMember], outer: _Style) -> _Style:
    if not old:
        indent = outer.indent
        return _Style(b"", b"") if indent is None else _Style(b"\n" + indent + b"  ", b"\n" + indent)
    first = old[0]
    lead = raw[first.chunk_start : _skip_space(raw, first.chunk_start)]
    if len(old) > 1:  # `{"a": 1, "b": 2}`: the second member tells about the space after a comma
        second = old[1].chunk_start
        lead = raw[second : _skip_space(raw, second)]
    return _Style(lead, raw[old[-1].end : old[-1].chunk_end])


def _render_as(value: Any, style: _Style) -> bytes:
    return render_indented(value, style.indent)


def _join(opening: bytes, parts: list[bytes], tail: bytes, closing: bytes) -> bytes:
    if not parts:
        return opening + closing
    return opening + b",".join(parts) + tail + closing
