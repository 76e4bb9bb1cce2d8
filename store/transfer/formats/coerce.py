"""Parse foreign JSON and coerce its values to what a document can hold. Pure.

Invalid values (nested too deep, lone surrogates, numbers out of range) are found here, before a session is built from
them. One bad record does not affect the others.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import orjson

from store import layout
from store.documents import json_text as codec
from store.errors import InvalidContent, InvalidName, Problem
from store.model import preview
from store.model.timestamp import Timestamp
from store.sessions import artifacts

# The id of a session that was renamed here, by the id it was imported with; None if it was not. For a child the second
# argument is its root, as it is called now.
FindNewId = Callable[[str, str | None], str | None]
# The machine whose sessions are read; "" for this one. Every id and every reference between sessions depends on it.
source_host: ContextVar[str] = ContextVar("source_host", default="")
_find_new_id: ContextVar[FindNewId | None] = ContextVar("find_new_id", default=None)
MAX_NESTING = 100  # of a foreign record; a document allows 127, and contains the record some levels down
_KEY = re.compile(rb'"(\w{1,40})"\s*:')
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)


class BadRecord(ValueError):
    """A record that cannot be imported, with the reason. `line` counts from the first line of the record."""

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(reason if column is None else f"{reason} at column {column}")
        self.line = line


class Parsed(NamedTuple):
    value: Any
    exact: bool  # False if invalid parts were replaced


def parse(raw: bytes) -> Parsed:
    """Parse JSON. Lone surrogates, found where a string was cut, are replaced by U+FFFD."""
    try:
        value, exact = orjson.loads(raw), True
    except orjson.JSONDecodeError as error:
        value, exact = _parse_leniently(raw, error), False
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise BadRecord(f"nested deeper than {MAX_NESTING} levels")
    return Parsed(value, exact)


def split_objects(raw: bytes) -> list[dict[str, Any]]:
    """The objects in a line that holds several; none if anything else is in it."""
    decoder, found, at = json.JSONDecoder(parse_constant=_reject_constant), [], 0
    try:
        text = raw.decode().strip()
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict) or is_too_deep(value):
                return []
            found.append(orjson.loads(orjson.dumps(value)))  # rejects what a document cannot hold
    except (ValueError, TypeError, RecursionError):
        return []
    return found if len(found) > 1 else []


def _parse_leniently(raw: bytes, error: orjson.JSONDecodeError) -> Any:
    """Parse JSON with lone surrogates. Anything else the strict parser rejects is rejected here too."""
    reason = BadRecord(error.msg, error.lineno, error.colno)
    if b"\\u" not in raw:
        raise reason
    try:
        value = json.loads(raw, parse_constant=_reject_constant, parse_int=_parse_int, parse_float=_parse_float)
        return without_surrogates(value)
    except (ValueError, RecursionError):
        raise reason from None


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _parse_int(text: str) -> int | float:
    if len(text) > 20:
        return _parse_float(text)
    value = int(text)
    return value if _MIN_INT <= value <= _MAX_INT else float(value)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(part) for key, part in value.items()}
    return value


def is_too_deep(value: Any, limit: int = MAX_NESTING) -> bool:
    """Iterative: recursion would fail on exactly the values this is meant to detect."""
    level = [value]
    for _ in range(limit + 1):
        level = [part for container in level if isinstance(container, dict | list) for part in _parts(container)]
        if not level:
            return False
    return True


def _parts(container: dict[str, Any] | list[Any]) -> list[Any]:
    return list(container.values()) if isinstance(container, dict) else container


def find_keys(raw: bytes) -> set[str]:
    """The keys of the object in `raw`, to recognise a format. If it is truncated, all keys at any level."""
    try:
        return set(as_dict(parse(raw).value))
    except BadRecord:
        return {key.decode() for key in _KEY.findall(raw)} if raw.lstrip().startswith(b"{") else set()


def line_of(raw: bytes, path: tuple[str | int, ...]) -> int | None:
    """The line of a value; None if `raw` is not strictly valid JSON."""
    try:
        codec.parse(raw, "")
    except InvalidContent:
        return None
    return codec.locate(raw, path)[0]


# -- single values -----------------------------------------------------------------------------------------


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, otherwise an empty one; likewise the functions below."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def to_text(value: Any) -> str:
    """A value as a metadata string: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def parse_time(value: Any) -> Timestamp | None:
    """Parse an RFC 3339 time (UTC if it has no zone) or seconds since 1970; None if it is neither."""
    if isinstance(value, str):
        try:
            return Timestamp(value)
        except ValueError:
            return _parse_utc(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return Timestamp.from_ns(int(Decimal(repr(value)) * 1_000_000_000))
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _parse_utc(text: str) -> Timestamp | None:
    try:
        return Timestamp(f"{text}Z")
    except ValueError:
        return None


def record_problem(name: str, data: bytes) -> Problem | None:
    """Why `data` is not a valid record file such as artifacts.json; None if it is valid."""
    try:
        artifacts.parse_record(name, data, name)
    except InvalidContent as error:
        return error.problem
    return None


def make_id(format: str, text: str, root: str | None = None) -> str:
    """A session id from an id of the source: the same if it is valid here, otherwise its digest.

    On another machine the same id can be another session, so the name of that machine is added. A session that was
    renamed here keeps its new id. `root` is given for a session of its tree, which may be the root itself: the children
    of two roots can have the same id.
    """
    try:
        id = layout.check_new_id(text)
    except InvalidName:
        id = f"{format}-{digest(text)}"
    host = source_host.get()
    id = f"{id}-{host}" if host else id
    find_new_id = _find_new_id.get()
    if find_new_id is None:
        return id
    new_root = find_new_id(id, None) or id
    return new_root if root in (None, new_root) else find_new_id(id, root) or id


@contextmanager
def reading_from(host: str) -> Iterator[None]:
    """Read sessions of another machine; "" is this one."""
    token = source_host.set(host)
    try:
        yield
    finally:
        source_host.reset(token)


@contextmanager
def reading_renamed(find_new_id: FindNewId | None) -> Iterator[None]:
    """Read sessions that were renamed here with their new ids; None takes the ids as they are."""
    token = _find_new_id.set(find_new_id)
    try:
        yield
    finally:
        _find_new_id.reset(token)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def make_title(text: str) -> str:
    """The first line that is not blank, cut to the width of a title; "" if there is none."""
    return preview.make_title({"content": text}) or ""
