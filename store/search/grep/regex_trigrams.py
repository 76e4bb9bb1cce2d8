"""Computes the trigrams that a file must contain to match a regular expression. Pure.

A query is a trigram, an `and` or an `or` of queries, or ANY: every file may match. It may select too many
files, never too few. So everything unclear (a range in a bracket expression, a back-reference, a
look-behind, a letter whose other case is unknown) counts as "any bytes, or none", and a pattern that is not
understood becomes ANY. Trigrams are of bytes, with ASCII letters in lower case, as in the index.

`grovefs grep` starts with this module, so it imports nothing that takes time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Syntax = Literal["basic", "extended", "fixed", "perl"]
    Query = int | tuple[str, tuple["Query", ...]] | None  # None is ANY

ANY: None = None
MAX_STRINGS = 64  # alternatives tracked in parallel
MAX_TRIGRAMS = 5_000  # in one query; looking up more takes longer than it saves
_MAX_REPEAT = 16
_MAX_PATTERN = 500  # characters; more would hardly narrow the search further

# Further characters that match a letter if case is ignored: KELVIN SIGN, LONG S, dotted and dotless I.
_OTHER_CASE = {"k": ["\u212a"], "s": ["\u017f"], "i": ["\u0130", "\u0131"]}
_SINGLE_BYTE_OR_UTF8 = ("UTF-8", "ANSI_X3.4-1968", "US-ASCII")


class _Unclear(Exception):
    """Not supported: the whole pattern becomes ANY."""


class _Part:
    """What is known about a part of a pattern.

    `exact`: all strings it can match, or None if they are too many; then `prefix` and `suffix` hold the possible
    beginnings and ends, and `trigrams` the trigrams of every match.
    """

    __slots__ = ("exact", "prefix", "suffix", "trigrams")

    def __init__(
        self, exact: frozenset[bytes] | None, prefix: frozenset[bytes], suffix: frozenset[bytes], trigrams: Query
    ) -> None:
        self.exact = exact
        self.prefix = prefix
        self.suffix = suffix
        self.trigrams = trigrams


_NOTHING = frozenset([b""])


def _strings(strings: Iterable[bytes]) -> _Part:
    found = frozenset(strings)
    return _Part(found, found, found, ANY)


_EMPTY = _strings([b""])
_GAP = _Part(None, _NOTHING, _NOTHING, ANY)


# -- queries -------------------------------------------------------------------------------------------------


def all_of(*queries: Query) -> Query:
    flat: list[Query] = []
    for query in queries:
        if isinstance(query, tuple) and query[0] == "and":
            flat += query[1]
        elif query is not ANY:
            flat.append(query)
    known = tuple(dict.fromkeys(flat))
    return ("and", known) if len(known) > 1 else known[0] if known else ANY


def any_of(queries: Iterable[Query]) -> Query:
    found = tuple(dict.fromkeys(queries))
    if ANY in found:
        return ANY
    return found[0] if len(found) == 1 else ("or", found)


def trigrams_of(text: bytes) -> Query:
    """All trigrams of lower-case text; ANY if it is too short to have one."""
    return all_of(*(int.from_bytes(text[i : i + 3], "little") for i in range(len(text) - 2)))


def _one_of(strings: frozenset[bytes]) -> Query:
    return any_of(trigrams_of(s) for s in sorted(strings))


def count_trigrams(query: Query) -> int:
    if query is ANY:
        return 0
    return 1 if isinstance(query, int) else sum(map(count_trigrams, query[1]))


# -- combining parts -----------------------------------------------------------------------------------------


def _loosened(part: _Part) -> _Part:
    """The same part with its exact strings reduced to prefix, suffix and trigrams."""
    if part.exact is None:
        return part
    heads = frozenset(s[:2] for s in part.exact)
    tails = frozenset(s[-2:] for s in part.exact)
    return _Part(None, _few(heads), _few(tails), all_of(part.trigrams, _one_of(part.exact)))


def _few(strings: frozenset[bytes]) -> frozenset[bytes]:
    return strings if len(strings) <= MAX_STRINGS else _NOTHING


def _joined(left: frozenset[bytes], right: frozenset[bytes]) -> frozenset[bytes] | None:
    return frozenset(a + b for a in left for b in right) if len(left) * len(right) <= MAX_STRINGS else None


def _then(x: _Part, y: _Part) -> _Part:
    """Concatenation."""
    trigrams = all_of(x.trigrams, y.trigrams)
    if x.exact is not None and y.exact is not None:
        exact = _joined(x.exact, y.exact)
        if exact is not None:
            return _Part(exact, exact, exact, trigrams)
        x = _loosened(x)
    seam = _joined(x.suffix, y.prefix)
    trigrams = all_of(x.trigrams, y.trigrams, _one_of(seam) if seam is not None else ANY)
    prefix = _joined(x.exact, y.prefix) if x.exact is not None else x.prefix
    suffix = _joined(x.suffix, y.exact) if y.exact is not None else y.suffix
    if prefix is None:  # too many to track; the prefix of the left part is still valid
        prefix = _few(frozenset(s[:2] for s in x.prefix))
    if suffix is None:
        suffix = _few(frozenset(s[-2:] for s in y.suffix))
    if x.exact is not None:
        trigrams = all_of(trigrams, _one_of(x.exact))
    if y.exact is not None:
        trigrams = all_of(trigrams, _one_of(y.exact))
    return _Part(None, prefix, suffix, trigrams)


def _or(x: _Part, y: _Part) -> _Part:
    if x.exact is not None and y.exact is not None and len(x.exact | y.exact) <= MAX_STRINGS:
        return _Part(x.exact | y.exact, x.exact | y.exact, x.exact | y.exact, any_of([x.trigrams, y.trigrams]))
    x, y = _loosened(x), _loosened(y)
    return _Part(None, _few(x.prefix | y.prefix), _few(x.suffix | y.suffix), any_of([x.trigrams, y.trigrams]))


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    if least == 0:
        return _or(part, _EMPTY) if most == 1 else _EMPTY if most == 0 else _GAP
    if least == most and least <= _MAX_REPEAT:
        whole = part
        for _ in range(least - 1):
            whole = _then(whole, part)
        return whole
    loose = _loosened(part)  # begins and ends like one repetition
    return _Part(None, loose.prefix, loose.suffix, loose.trigrams)


# -- parsing patterns ----------------------------------------------------------------------------------------


def query_of(patterns: Iterable[bytes], syntax: Syntax, *, fold: bool, charset: str = "UTF-8") -> Query:
    """The trigrams that a file must contain if one of its lines matches. A newline also separates patterns."""
    queries = []
    for pattern in patterns:
        for line in [pattern] if syntax == "perl" else pattern.split(b"\n"):
            query = _query_of_line(line, syntax, fold, charset)
            if query is ANY:
                return ANY
            queries.append(query)
    found = any_of(queries) if queries else ANY
    return found if count_trigrams(found) <= MAX_TRIGRAMS else ANY


def _query_of_line(line: bytes, syntax: Syntax, fold: bool, charset: str) -> Query:
    if b"\0" in line:
        return ANY
    if not line.isascii() and charset.upper() not in _SINGLE_BYTE_OR_UTF8:
        return ANY  # character boundaries are unknown in this charset
    text = line.decode("utf-8", "surrogateescape")
    if len(text) > _MAX_PATTERN and syntax != "fixed":
        return ANY
    try:
        part = _fixed(text[:_MAX_PATTERN], fold) if syntax == "fixed" else _RegexParser(text, syntax, fold).parse()
    except (_Unclear, RecursionError):
        return ANY
    if part.exact is not None:
        return all_of(part.trigrams, _one_of(part.exact))
    return all_of(part.trigrams, _one_of(part.prefix), _one_of(part.suffix))


def _fixed(text: str, fold: bool) -> _Part:
    part = _EMPTY
    for char in text:
        part = _then(part, _character(char, fold))
    return part


def _character(char: str, fold: bool) -> _Part:
    """A literal character, in either case if `fold`."""
    raw = char.encode("utf-8", "surrogateescape")
    if char.isascii():
        others = _OTHER_CASE.get(char.lower(), []) if fold else []
        return _strings([raw.lower(), *(other.encode() for other in others)])
    if fold and not _has_one_case(char):
        return _GAP
    return _strings([raw])


def _has_one_case(char: str) -> bool:
    """Whether a character has no other case in any locale: ideographs, syllables, symbols of later blocks."""
    code = ord(char)
    if "\ud800" <= char <= "\udfff":  # an undecodable byte
        return False
    is_plain = 0x2E80 <= code < 0xA640 or 0xAC00 <= code < 0xD7A4 or 0xF900 <= code < 0xFB00 or code >= 0x1F000
    return is_plain and char.lower() == char == char.upper()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


_ESCAPED_LITERALS = '.[]*^$\\/"+?(){}|-,:;#%&=@!~ '  # after a backslash
_PERL_GAPS = "dDwWsShHvVNRX"
_PERL_EMPTY = "bBAzZG"


class _RegexParser:
    """Recursive descent: an alternation of concatenations of repeated atoms. Raises _Unclear for the rest."""

    def __init__(self, text: str, syntax: Syntax, fold: bool) -> None:
        self._text = text
        self._at = 0
        self._basic = syntax == "basic"
        self._perl = syntax == "perl"
        self._fold = fold
        self._depth = 0

    def parse(self) -> _Part:
        part = self._alternation()
        if self._at < len(self._text):
            raise _Unclear
        return part

    def _next_is(self, token: str) -> bool:
        return self._text.startswith(token, self._at)

    def _takes(self, plain: str) -> bool:
        """Consume an operator, which is written with a backslash in basic syntax. Returns whether it was there."""
        token = f"\\{plain}" if self._basic else plain
        if self._next_is(token):
            self._at += len(token)
            return True
        return False

    def _alternation(self) -> _Part:
        part = self._concatenation()
        while self._takes("|"):
            part = _or(part, self._concatenation())
        return part

    def _ends(self) -> bool:
        bar, close = ("\\|", "\\)") if self._basic else ("|", ")")
        return self._at >= len(self._text) or self._next_is(bar) or self._next_is(close)

    def _concatenation(self) -> _Part:
        whole = _EMPTY
        is_first = True
        while not self._ends():
            if is_first and self._text[self._at] in ("*" if self._basic else "*+?{"):
                raise _Unclear  # nothing to repeat: implementations differ
            is_anchor = self._text[self._at] in "^$"
            part, is_single_byte = self._atom()
            part = self._quantified(part, is_single_byte)
            whole = _then(whole, part)
            is_first = is_anchor
        return whole

    # -- repetition --

    def _quantified(self, part: _Part, is_single_byte: bool) -> _Part:
        while self._at < len(self._text):
            bounds = self._bounds()
            if bounds is None:
                break
            # In a single-byte locale only the last byte of a UTF-8 character is repeated.
            part = _repeated(part, *bounds) if is_single_byte else _GAP
            if self._perl and self._at < len(self._text) and self._text[self._at] in "?+":
                self._at += 1  # lazy or possessive: matches less, never more
        return part

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._next_is("*"):
            self._at += 1
            return 0, None
        if self._takes("+"):
            return 1, None
        if self._takes("?"):
            return 0, 1
        return self._interval() if self._takes("{") else None

    def _interval(self) -> tuple[int, int | None]:
        end = self._text.find("\\}" if self._basic else "}", self._at)
        if end < 0:
            raise _Unclear
        low, comma, high = self._text[self._at : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            raise _Unclear
        self._at = end + (2 if self._basic else 1)
        return int(low), (int(high) if high else None) if comma else int(low)

    # -- atoms --

    def _atom(self) -> tuple[_Part, bool]:
        char = self._text[self._at]
        if self._takes("("):
            return self._group(), True
        self._at += 1
        if char == "[":
            return self._bracket(), True
        if char == "\\":
            return self._escape(), True
        if char == ".":
            return _GAP, True
        if char in "^$":
            # In the middle of a basic expression it may be a literal, which a gap covers.
            return (_GAP if self._basic else _EMPTY), True
        if self._perl and char in "{}":
            raise _Unclear
        return _character(char, self._fold), char.isascii()

    def _group(self) -> _Part:
        if self._perl and self._next_is("*"):
            raise _Unclear
        if self._perl and self._next_is("?"):
            if not self._next_is("?:"):
                raise _Unclear  # options, look-around, named groups, recursion
            self._at += 2
        self._depth += 1
        if self._depth > 50:
            raise _Unclear
        part = self._alternation()
        self._depth -= 1
        if not self._takes(")"):
            raise _Unclear
        return part

    def _escape(self) -> _Part:
        if self._at >= len(self._text):
            raise _Unclear
        char = self._text[self._at]
        self._at += 1
        if self._basic and char in "{}()+?|":
            raise _Unclear  # operator in an invalid position
        if char.isascii() and not char.isalnum() and (self._perl or char in _ESCAPED_LITERALS):
            return _character(char, self._fold)
        if self._perl:
            if char in _PERL_GAPS:
                return _GAP
            if char in _PERL_EMPTY:
                return _EMPTY
            raise _Unclear
        return _EMPTY if char in "bB<>`'" else _GAP

    def _bracket(self) -> _Part:
        """`[ab]` as its members; any character if it has a range, a class, a complement or an escape."""
        start = self._at
        if self._next_is("^"):
            self._at += 1
        first = self._at
        while True:
            if self._at >= len(self._text):
                raise _Unclear
            char = self._text[self._at]
            if char == "]" and self._at > first:
                break
            if char == "[" and self._text[self._at + 1 : self._at + 2] in (":", ".", "="):
                end = self._text.find(f"{self._text[self._at + 1]}]", self._at + 2)
                if end < 0:
                    raise _Unclear
                self._at = end + 1
            elif char == "\\" and self._perl:
                self._at += 1
            self._at += 1
        members = self._text[start : self._at]
        self._at += 1
        if not members.isascii() or any(c in members for c in "^-[\\]"):
            return _GAP
        part = _character(members[0], self._fold)
        for member in members[1:]:
            part = _or(part, _character(member, self._fold))
        return part
