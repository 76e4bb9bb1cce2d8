"""JSON text: parse it, find positions and spans in it, render it. Pure.

`parse` accepts exactly what serde_json, the parser of the owning agent, accepts (rule 6).
Otherwise it reports the position of the first error. `json_splice` changes a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import orjson

from store.errors import InvalidContent, Problem, TooLarge

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
# serde_json gives up at the 128th open bracket; so 127 containers, and their innermost value is level 128.
MAX_DEPTH = 127

STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_STRING_OR_EXPONENT = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|e\+', re.DOTALL)
_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
WHITESPACE = b" \t\r\n"
_MINUS_ZERO = re.compile(rb"(?<![eE])-0(?![.eE])")
_STRING_OR_MINUS_ZERO = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|(?<![eE])-0(?![.eE])', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"[]", b"{}")
_STEPS = {ord("{"): 1, ord("}"): -1}
_FEW_LEVELS = 16
_NOT_BRACKETS_OR_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))
# Where one of these occurs, if only in a string, a second and slower look is needed.
_ONE_SPACE = bytes.maketrans(b"\t\r\n", b"   ")
_ONE_SPACE_BEFORE_VALUES = bytes.maketrans(b"\t\r\n:,[", b"      ")

Path = tuple[str | int, ...]


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
        path, offset = _find_duplicate(raw)
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
    line, column = position(raw, _too_deep_at(raw))
    return Problem(f"nested deeper than {MAX_DEPTH} levels", line, column)


# -- exact positions of faults: slow, only for documents known to be invalid -----------------------


def _too_deep_at(raw: bytes) -> int:
    """Offset of the bracket that opens one level too many."""
    depth = 0
    for token in re.finditer(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', raw, re.DOTALL):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                return token.start()
        elif token[0] in (b"]", b"}"):
            depth -= 1
    raise AssertionError("the text is not that deep")


def _find_duplicate(raw: bytes) -> tuple[Path, int]:
    """Path and offset of the first repeated key. Slow and exact: only for a text known to have one."""
    path: list[str | int] = []  # the key or index each open container stands at
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
    raise AssertionError("the text repeats no key")


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
    start = len(raw) - len(raw.lstrip(WHITESPACE))
    end = len(raw.rstrip(WHITESPACE))
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
        chunk_end = value_end if raw[value_end] in b",}" else skip_space(raw, value_end)
        found.append(JsonMember(key, at, match.end(), value_end, chunk_end))
        at = chunk_end + 1
    return found


def elements(raw: bytes, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Where the elements of the valid array at `start` lie, in order."""
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
