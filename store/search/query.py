"""The query language: parses a query into an FTS5 expression and an SQL condition. Pure.

Any string is a query: what is not syntax is a word to search for. Only queries that are too long or
contain a NUL byte are rejected. Words are ranked by FTS5. Filters, and expressions FTS5 does not
support, become SQL conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from store.documents.search_text import is_word, prepare_text
from store.errors import InvalidQuery
from store.search.filters import filter_condition
from store.search.query_hints import hints_of, unclosed_hints

MAX_QUERY_BYTES = 16_384  # longer input is a file pasted by mistake

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<open>\() | (?P<close>\)) | (?P<minus>-(?=\S)) | "(?P<phrase>[^"]*)"?(?P<star>\*)?
      | (?P<filter>role|model|title|kind|pinned|status|project|host|before|after|tool):
        (?:"(?P<quoted>[^"]*)"?|(?P<value>[^\s()]+)) | (?P<word>[^\s()"]+)""",
    re.VERBOSE,
)
# Limits of the parsers of FTS5 (a stack of 100 symbols) and SQLite (expressions 1000 deep).
_MAX_DEPTH = 6
_MAX_CHAIN = 32


@dataclass(frozen=True)
class Query:
    """A parsed query: an FTS5 expression of quoted terms, and SQL for what FTS5 does not support."""

    text: str  # as typed
    match: str = ""  # FTS5 expression
    condition: str = ""  # SQL, on `texts t`, `sessions s` and `state_documents d`
    values: list[Any] = field(default_factory=list)  # bound by the condition
    words: list[str] = field(default_factory=list)  # highlighted in snippets; a prefix ends in *
    hints: tuple[str, ...] = ()  # likely mistakes and how the query was read, as sentences for the user

    @property
    def is_empty(self) -> bool:
        return not self.match and not self.condition


class _Term(NamedTuple):
    phrase: str
    is_prefix: bool


class _FilterTerm(NamedTuple):
    name: str
    value: str


class _Not(NamedTuple):
    part: _Node


class _Group(NamedTuple):
    joint: Joint
    parts: tuple[_Node, ...]


Joint = Literal["AND", "OR"]
_Node = _Term | _FilterTerm | _Not | _Group


def parse_query(text: str) -> Query:
    """Parse a query. Raises InvalidQuery if it is too long or contains a NUL byte."""
    if not isinstance(text, str):
        raise TypeError(f"query: expected a string, got {type(text).__name__}")
    clean = text.encode(errors="replace").decode()  # a shell may pass bytes that are not UTF-8
    if len(clean.encode()) > MAX_QUERY_BYTES:
        raise InvalidQuery(f"query too long: more than {MAX_QUERY_BYTES} bytes; search for a few words of it")
    if "\0" in clean:
        raise InvalidQuery("the query contains a NUL byte; remove it")
    tokens = [m for m in _TOKEN.finditer(clean) if m.lastgroup != "space"]
    found = [hint for token in tokens for hint in hints_of(token)]
    hints = tuple(dict.fromkeys([*found, *unclosed_hints(tokens)]))
    node = _QueryParser(_without_deep_groups(tokens)).parse()
    if node is None:
        return Query(text, hints=hints)
    parts = node.parts if isinstance(node, _Group) and node.joint == "AND" else (node,)
    # Terms are ranked. FTS5 has no unary NOT, so a query of NOTs alone becomes a condition.
    terms, others = _partition(parts)
    match = _match(_group("AND", terms)) or ""
    rest = _group("AND", others) if match else node
    condition, values = _condition(rest) if rest is not None else ("", [])
    return Query(text, match, condition, values, list(dict.fromkeys(_words(node))), hints)


def _partition(parts: Iterable[_Node]) -> tuple[list[_Node], list[_Node]]:
    """Parts that FTS5 supports, possibly negated, and all others."""
    terms: list[_Node] = []
    others: list[_Node] = []
    for part in parts:
        (terms if _match(part.part if isinstance(part, _Not) else part) else others).append(part)
    return terms, others


def _without_deep_groups(tokens: list[re.Match[str]]) -> list[re.Match[str]]:
    kept: list[re.Match[str]] = []
    depth = 0
    for token in tokens:
        depth += bool(token["open"])
        if depth <= _MAX_DEPTH or not (token["open"] or token["close"]):
            kept.append(token)
        depth -= bool(token["close"] and depth)
    return kept


class _QueryParser:
    """Recursive descent over the tokens. None means an empty expression."""

    def __init__(self, tokens: list[re.Match[str]]) -> None:
        self.tokens = tokens
        self.at = 0

    def parse(self) -> _Node | None:
        parts = []
        while self.token is not None:
            parts.append(self.alternatives())
            self.skip_close()  # unmatched
        return _group("AND", parts)

    @property
    def token(self) -> re.Match[str] | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def skip_close(self) -> None:
        if self.token is not None and self.token["close"]:
            self.at += 1

    def alternatives(self) -> _Node | None:
        found = [self.conjunction()]
        while self.token is not None and self.token["word"] == "OR":
            self.at += 1
            found.append(self.conjunction())
        return _group("OR", found)

    def conjunction(self) -> _Node | None:
        parts = []
        while self.token is not None and not self.token["close"] and self.token["word"] != "OR":
            parts.append(self.factor())
        return _group("AND", parts)

    def factor(self) -> _Node | None:
        negated = False
        while self.token is not None and self.token["minus"]:
            negated = not negated
            self.at += 1
        part = self.term() if self.token is not None else None
        return _not(part) if negated and part is not None else part

    def term(self) -> _Node | None:
        token = self.tokens[self.at]
        self.at += 1
        if token["open"]:
            inner = self.alternatives()
            self.skip_close()
            return inner
        if token["filter"]:
            return _FilterTerm(token["filter"], token["quoted"] or token["value"] or "")
        if token["phrase"] is not None:
            return _term(token["phrase"], is_prefix=bool(token["star"]))
        word = token["word"] or ""
        return _term(word.rstrip("*"), is_prefix=word.endswith("*")) if word != "AND" else None


def _term(text: str, *, is_prefix: bool) -> _Term | None:
    # A prefix of one letter matches too many words: the search would take too long.
    is_prefix = is_prefix and sum(map(str.isalnum, text)) > 1
    return _Term(text, is_prefix) if is_word(text) else None


def _not(node: _Node) -> _Node:
    return node.part if isinstance(node, _Not) else _Not(node)


def _group(joint: Joint, found: Iterable[_Node | None]) -> _Node | None:
    """Combine nodes into one with at most one NOT: NOT a AND NOT b is NOT (a OR b)."""
    flat: list[_Node] = []
    for node in found:
        if isinstance(node, _Group) and node.joint == joint:
            flat += node.parts
        elif node is not None:
            flat.append(node)
    parts: list[_Node] = [node for node in flat if not isinstance(node, _Not)]
    unwanted = [node.part for node in flat if isinstance(node, _Not)]
    if unwanted:
        combined = _group("OR" if joint == "AND" else "AND", unwanted)
        assert combined is not None
        parts.append(_not(combined))
    return _Group(joint, tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _words(node: _Node, *, wanted: bool = True) -> Iterator[str]:
    if isinstance(node, _Term) and wanted:
        yield node.phrase + ("*" if node.is_prefix else "")
    elif isinstance(node, _Not):
        yield from _words(node.part, wanted=not wanted)
    elif isinstance(node, _Group):
        for part in node.parts:
            yield from _words(part, wanted=wanted)


def _match(node: _Node | None) -> str | None:
    """The FTS5 expression of a node, in parentheses unless it is a single term; None if FTS5 does not support it."""
    if isinstance(node, _Term):
        return '"' + prepare_text(node.phrase).replace('"', '""') + '"' + ("*" if node.is_prefix else "")
    if not isinstance(node, _Group):
        return None
    wanted = [_match(part) for part in node.parts if not isinstance(part, _Not)]
    unwanted = [_match(part.part) for part in node.parts if isinstance(part, _Not)]
    if not wanted or None in wanted or None in unwanted or (unwanted and node.joint == "OR"):
        return None
    text = f"({_chained(node.joint, wanted)})"
    return f"({text} NOT {unwanted[0]})" if unwanted else text


def _condition(node: _Node) -> tuple[str, list[Any]]:
    """The node as an SQL condition, in parentheses, and the values it binds."""
    match = _match(node)
    if match is not None:
        return "(t.number IN (SELECT rowid FROM search WHERE search MATCH ?))", [match]
    if isinstance(node, _FilterTerm):
        return filter_condition(node.name, node.value)
    if isinstance(node, _Not):
        inner, values = _condition(node.part)
        return f"(NOT {inner})", values
    assert isinstance(node, _Group)
    terms = _group(node.joint, [part for part in node.parts if _match(part)])  # one MATCH for all terms
    parts = [*([terms] if terms else []), *(part for part in node.parts if not _match(part))]
    conditions = [_condition(part) for part in parts]
    return f"({_chained(node.joint, [c for c, _ in conditions])})", [v for _, bound in conditions for v in bound]


def _chained(joint: Joint, parts: Sequence[str | None]) -> str:
    """`a AND b AND c`; a long chain becomes a chain of chains, to limit the depth of the parse tree."""
    while len(parts) > _MAX_CHAIN:
        rows = [parts[i : i + _MAX_CHAIN] for i in range(0, len(parts), _MAX_CHAIN)]
        parts = [f"({_chained(joint, row)})" for row in rows]
    return f" {joint} ".join(part for part in parts if part is not None)
