"""JSON text: parse it, find positions and spans in it, render it. Pure.

`parse` accepts exactly what serde_json, the parser of the owning agent, accepts (rule 6).
Otherwise it reports the position of the first error. `json_splice` changes a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import orjson

from store.errors import InvalidContent, Problem, TooLarge

_Span = tuple[int, int]  # from the first byte to the one after the last

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
# serde_json fails at the 128th open bracket: 127 containers are allowed, and their innermost value is level 128.
MAX_DEPTH = 127

STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STRING_OR_EXPONENT = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|e\+', re.DOTALL)
# The mantissa of a number, which follows a space, a bracket or a separator.
_NUMBER_BEFORE = re.compile(rb"(?:^|[\s:,\[])-?\d(?:\.\d+)?$")
_MAX_MANTISSA_BYTES = 24
_E = ord("e")
_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
WHITESPACE = b" \t\r\n"
_MINUS_ZERO = re.compile(rb"(?<![eE])-0(?![.eE])")
_STRING_OR_MINUS_ZERO = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|(?<![eE])-0(?![.eE])', re.DOTALL)
_AS_BRACES = bytes.maketrans(b"[]", b"{}")
_STEPS = {ord("{"): 1, ord("}"): -1}
_FEW_LEVELS = 16
_NOT_BRACKETS_OR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))
# For a quick check: a match, even inside a string, requires the slower exact check.
_SEPARATORS_AS_SPACES = bytes.maketrans(b"\t\r\n:,[", b"      ")

Path = tuple[str | int, ...]


# -- parsing ---------------------------------------------------------------------------------------


def parse(raw: bytes, name: str, *, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """The JSON object in `raw`. Raises InvalidContent with line and column if serde_json would reject it."""
    value = parse_value(raw, name, limit=limit)
    if not isinstance(value, dict):
        raise InvalidContent(name, Problem(f"expected an object, got {kind_of(value)}", 1, 1))
    return value


def parse_value(raw: bytes, name: str, *, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """Like `parse`, for any JSON value."""
    if len(raw) > limit:
        check_size(len(raw), name, limit)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidContent(name, _syntax_problem(raw, error)) from None
    _check_depth(raw, name)
    if _is_rendered(raw, value):
        return value
    _check_keys(raw, value, name)
    return _with_minus_zeros(raw, value)


def parse_known(raw: bytes) -> Any:
    """Like `parse_value`, for a text that it has accepted before."""
    value = orjson.loads(raw)
    return value if _is_rendered(raw, value) else _with_minus_zeros(raw, value)


def _with_minus_zeros(raw: bytes, value: Any) -> Any:
    """The value as serde reads it: -0 is a float, which no integer field accepts. orjson reads it as 0."""
    if b" -0" not in raw.translate(_SEPARATORS_AS_SPACES) or not _MINUS_ZERO.search(_outside_strings(raw)):
        return value
    return orjson.loads(_STRING_OR_MINUS_ZERO.sub(lambda m: m[1] or b"-0.0", raw))


def kind_of(value: Any) -> str:
    """The JSON type of a value, for error texts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kinds, name in ((str, "a string"), (int | float, "a number"), (list, "an array"), (dict, "an object")):
        if isinstance(value, kinds):
            return name
    return type(value).__name__


def check_size(size: int, name: str, limit: int) -> None:
    if size > limit:
        raise TooLarge(name, Problem(f"size is {size} bytes, over the limit of {limit} bytes"))


def _syntax_problem(raw: bytes, error: orjson.JSONDecodeError) -> Problem:
    try:
        raw.decode()
    except UnicodeDecodeError as bad:
        line, column = position(raw, bad.start)
        return Problem("invalid UTF-8", line, column)
    if error.msg.startswith("depth limit"):  # orjson's own limit, far above ours
        return _depth_problem(raw)
    return Problem(error.msg, error.lineno, error.colno)


def _is_rendered(raw: bytes, value: Any) -> bool:
    """Whether a text is exactly how orjson renders its value. Then no key is duplicate, and no number is -0.

    Most documents are, because serde renders like orjson. The comparison is several times faster than the exact checks.
    """
    option = orjson.OPT_INDENT_2 if raw[1:2] == b"\n" else None
    return orjson.dumps(value, option=option) == raw


def _check_depth(raw: bytes, name: str) -> None:
    """Reject deeper nesting than serde accepts; orjson accepts more."""
    # With at most MAX_DEPTH opening brackets, nesting cannot be too deep.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _depth(_brackets(raw)) > MAX_DEPTH:
        raise InvalidContent(name, _depth_problem(raw))


def _check_keys(raw: bytes, value: Any, name: str) -> None:
    """Reject duplicate keys as serde does; orjson keeps the last value."""
    if _has_duplicate_key(raw, orjson.dumps(value)):
        path, offset = _find_duplicate(raw)
        line, column = position(raw, offset)
        raise InvalidContent(name, Problem("duplicate key", line, column, render_path(path)))


def _depth(brackets: bytes) -> int:
    """Nesting depth. Removes up to _FEW_LEVELS innermost levels at once; if brackets remain, counts each of them."""
    levels = 0
    while brackets and levels < _FEW_LEVELS:
        brackets = brackets.replace(b"{}", b"")
        levels += 1
    return levels + max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _has_duplicate_key(raw: bytes, compact: bytes) -> bool:
    """Whether the parsed value has fewer keys than the text: then two keys became one."""
    # A single byte is found many times faster than two.
    if b"\\" in raw and b"\\u" in raw:  # an escaped colon may be in a string, which `compact` has as it is
        return _outside_strings(raw).count(b":") != _outside_strings(compact).count(b":")
    return raw.count(b":") != compact.count(b":")  # strings have the same colons in both texts


def _without_escapes(raw: bytes) -> bytes:
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _brackets(raw: bytes) -> bytes:
    """The brackets of a valid text outside strings, all as braces."""
    bare = _without_escapes(raw).translate(_AS_BRACES, _NOT_BRACKETS_OR_QUOTES).replace(b'""', b"")
    return b"".join(bare.split(b'"')[::2])


def _outside_strings(raw: bytes) -> bytes:
    """A valid text without its strings: every second part between quotes."""
    return b"".join(_without_escapes(raw).split(b'"')[::2])


def _depth_problem(raw: bytes) -> Problem:
    line, column = position(raw, _excess_depth_offset(raw))
    return Problem(f"nested deeper than {MAX_DEPTH} levels", line, column)


# -- exact positions of errors: slow, only for documents known to be invalid -----------------------


def _excess_depth_offset(raw: bytes) -> int:
    """Offset of the bracket that exceeds MAX_DEPTH."""
    depth = 0
    for token in re.finditer(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', raw, re.DOTALL):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                return token.start()
        elif token[0] in (b"]", b"}"):
            depth -= 1
    raise AssertionError("the text is not nested too deeply")


def _find_duplicate(raw: bytes) -> tuple[Path, int]:
    """Path and offset of the first duplicate key in a text that is known to have one."""
    path: list[str | int] = []  # current key or index of each open container
    seen: list[set[str] | None] = []  # keys so far; None for an array
    token = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:)?|[\[\]{},]', re.DOTALL)
    for match in token.finditer(raw):
        text = match[0]
        if text == b"{":
            seen.append(set())
            path.append("")
        elif text == b"[":
            seen.append(None)
            path.append(0)
        elif text in (b"}", b"]"):
            seen.pop()
            path.pop()
        elif text == b",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
        elif match[2] is not None:
            key = orjson.loads(match[1])
            keys = seen[-1]
            assert keys is not None
            path[-1] = key
            if key in keys:
                return tuple(path), match.start()
            keys.add(key)
    raise AssertionError("the text has no duplicate key")


# -- positions -------------------------------------------------------------------------------------


def position(raw: bytes, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a byte offset. Columns count characters, like editors do."""
    line_start = raw.rfind(b"\n", 0, offset) + 1
    column = len(raw[line_start:offset].decode(errors="replace")) + 1
    return raw.count(b"\n", 0, offset) + 1, column


def locate(raw: bytes, path: Path, aliases: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Line and column of the value at `path`, or of the innermost existing container on that path.

    `aliases` maps a key to the alternative spelling that the text may use.
    """
    return locate_all(raw, [path], aliases)[0]


def locate_all(raw: bytes, paths: Iterable[Path], aliases: Mapping[str, str] | None = None) -> list[tuple[int, int]]:
    """`locate` for several paths. Each container on them is scanned once."""
    top = len(raw) - len(raw.lstrip(WHITESPACE)), len(raw.rstrip(WHITESPACE))
    scanned: dict[_Span, dict[str | int, _Span]] = {}
    found: list[tuple[int, int]] = []
    for path in paths:
        span = top
        for step in path:
            if span not in scanned:
                scanned[span] = _spans(raw, *span)
            inner = scanned[span].get(step) or scanned[span].get((aliases or {}).get(str(step), step))
            if inner is None:
                break
            span = inner
        found.append(position(raw, span[0]))
    return found


def _spans(raw: bytes, start: int, end: int) -> dict[str | int, _Span]:
    if raw[start : start + 1] == b"{":
        return {m.key: (m.start, m.end) for m in members(raw, start, end)}
    if raw[start : start + 1] == b"[":
        return dict(enumerate(elements(raw, start, end)))
    return {}


def render_path(path: Path) -> str:
    """('messages', 3, 'role') as messages[3].role."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# -- spans: byte ranges of the parts of a valid text -----------------------------------------------


class JsonMember(NamedTuple):
    """One member of an object: its key, and the spans of its chunk (from comma to comma) and of its value."""

    key: str
    chunk_start: int
    start: int
    end: int
    chunk_end: int


def members(raw: bytes, start: int = 0, end: int | None = None) -> list[JsonMember]:
    """The members of the valid object at `start`, in order. msgspec does not parse the values."""
    view = memoryview(raw)[start:end]
    values = msgspec.json.decode(view, type=dict[str, msgspec.Raw])
    found: list[JsonMember] = []
    at = raw.index(b"{", start) + 1
    for key, value in values.items():
        match = _KEY.match(raw, at)
        assert match is not None
        value_end = match.end() + len(memoryview(value))
        chunk_end = value_end if raw[value_end] in b",}" else skip_space(raw, value_end)
        found.append(JsonMember(key, at, match.end(), value_end, chunk_end))
        at = chunk_end + 1
    return found


def elements(raw: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Spans of the elements of the valid array at `start`, in order."""
    values = msgspec.json.decode(memoryview(raw)[start:end], type=list[msgspec.Raw])
    found: list[tuple[int, int]] = []
    at = raw.index(b"[", start) + 1
    for value in values:
        begin = skip_space(raw, at)
        stop = begin + len(memoryview(value))
        found.append((begin, stop))
        at = skip_space(raw, stop) + 1
    return found


def skip_space(raw: bytes, at: int) -> int:
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()


# -- rendering -------------------------------------------------------------------------------------


def render(value: Any) -> bytes:
    """The text that serde's pretty printer writes: two spaces, unescaped UTF-8, no final newline."""
    return _serde_floats(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def render_strict(value: Any, name: str) -> bytes:
    """Like `render`, for a value from a caller. Raises InvalidContent if JSON cannot represent it."""
    try:
        json.dumps(value, allow_nan=False)  # orjson would write null for NaN and a string for a datetime
        return render(value)
    except (TypeError, ValueError) as error:
        raise InvalidContent(name, Problem(f"cannot be written as JSON: {error}")) from None


def render_compact(value: Any) -> bytes:
    return _serde_floats(orjson.dumps(value))


def render_indented(value: Any, indent: bytes | None) -> bytes:
    """Like `render`, with every line but the first indented; compact if `indent` is None."""
    if indent is None:
        return render_compact(value)
    # Strings contain no raw newlines, so every newline starts an indented line.
    return render(value).replace(b"\n", b"\n" + indent)


def _serde_floats(text: bytes) -> bytes:
    """orjson writes 1e+16 where serde writes 1e16."""
    return _STRING_OR_EXPONENT.sub(lambda m: m[1] or b"e", text) if _may_have_exponent(text) else text


def _may_have_exponent(text: bytes) -> bool:
    """Whether something like a number with an exponent is in the text. Base64 has many "e+", but in longer words."""
    at = text.find(b"+")  # a single byte is found many times faster than two
    while at >= 0:
        if text[at - 1] == _E and _NUMBER_BEFORE.search(text, max(0, at - 1 - _MAX_MANTISSA_BYTES), at - 1):
            return True
        at = text.find(b"+", at + 1)
    return False
