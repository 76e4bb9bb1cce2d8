"""What a foreign text says, made fit for a document of ours. Pure.

A value that could not stand in a document (nested too deep, half of a character, a number no parser
takes) is found here, before anything is built of it, so that one bad record never costs its neighbours.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import orjson

from store import layout
from store.documents import json_text as codec
from store.errors import InvalidContent, InvalidName, Problem
from store.model import preview
from store.model.timestamp import Timestamp
from store.sessions import artifacts

MAX_NESTING = 100  # of a foreign record; a document allows 127, and a record stands some levels down in it
_KEY = re.compile(rb'"(\w{1,40})"\s*:')
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)


class BadRecord(ValueError):
    """A record that cannot be taken in; the text says why. `line` counts from the record's own first."""

    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(reason if column is None else f"{reason} at column {column}")
        self.line = line


class Parsed(NamedTuple):
    value: Any
    exact: bool  # whether nothing had to be replaced to make it fit


def parse(raw: bytes) -> Parsed:
    """The JSON value in `raw`. Halves of surrogate pairs, which cut texts end in, are replaced."""
    try:
        value, exact = orjson.loads(raw), True
    except orjson.JSONDecodeError as error:
        value, exact = _parse_leniently(raw, error), False
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise BadRecord(f"nested deeper than {MAX_NESTING} levels")
    return Parsed(value, exact)


def _parse_leniently(raw: bytes, error: orjson.JSONDecodeError) -> Any:
    """Only for texts with lone surrogates: all else that the strict parser refuses stays refused."""
    reason = BadRecord(error.msg, error.lineno, error.colno)
    if b"\\u" not in raw:
        raise reason
    try:
        value = json.loads(raw, parse_constant=_reject_constant, parse_int=_parse_int, parse_float=_parse_float)
        return without_surrogates(value)
    except (ValueError, RecursionError):
        raise reason from None


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _parse_int(text: str) -> int | float:
    if len(text) > 20:
        return _parse_float(text)
    value = int(text)
    return value if _MIN_INT <= value <= _MAX_INT else float(value)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
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
    """Level by level, because a recursion would end where the nesting is worst."""
    level = [value]
    for _ in range(limit + 1):
        level = [part for container in level if isinstance(container, dict | list) for part in _parts(container)]
        if not level:
            return False
    return True


def _parts(container: dict[str, Any] | list[Any]) -> list[Any]:
    return list(container.values()) if isinstance(container, dict) else container


def find_keys(raw: bytes) -> set[str]:
    """The members of the object in `raw`, for recognising a format; of one that is cut off, all keys in it."""
    try:
        return set(as_dict(parse(raw).value))
    except BadRecord:
        return {key.decode() for key in _KEY.findall(raw)} if raw.lstrip().startswith(b"{") else set()


def line_of(raw: bytes, path: tuple[str | int, ...]) -> int | None:
    """The line a value stands on; None in a text that no strict parser takes."""
    try:
        codec.parse(raw, "")
    except InvalidContent:
        return None
    return codec.locate(raw, path)[0]


# -- single values -----------------------------------------------------------------------------------------


def as_dict(value: Any) -> dict[str, Any]:
    """The object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def to_text(value: Any) -> str:
    """A value as metadata can hold it: texts as they are, the rest as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def parse_time(value: Any) -> Timestamp | None:
    """An instant from RFC 3339, with or without its zone (then UTC), or from seconds since 1970."""
    if isinstance(value, str):
        for text in (value, f"{value}Z"):
            try:
                return Timestamp(text)
            except ValueError:
                continue
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    try:
        return Timestamp.from_ns(int(Decimal(repr(value)) * 1_000_000_000))
    except (ValueError, OverflowError, InvalidOperation):
        return None


def record_problem(name: str, data: bytes) -> Problem | None:
    """Why a text cannot be the record of that name (artifacts.json and the like); None if it can."""
    try:
        artifacts.parse_record(name, data, name)
    except InvalidContent as error:
        return error.problem
    return None


def make_id(format: str, text: str) -> str:
    """A session's id from what the source calls it: that itself, or where it cannot be one, its digest."""
    try:
        return layout.check_new_id(text)
    except InvalidName:
        return f"{format}-{digest(text)}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def make_title(text: str) -> str:
    """The first line that says something, cut to a title's width; "" if none does."""
    return preview.make_title({"content": text}) or ""
