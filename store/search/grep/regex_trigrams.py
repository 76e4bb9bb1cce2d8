"""What a pattern requires: from a regular expression to the trigrams that a matching file must hold. Pure.

A query is a trigram, an `and` or an `or` of queries, or ANY: nothing is known, every file may match. It may
only ever say too much. So everything unclear (a range in a bracket, a back-reference, a look-behind, a letter
whose other case is unknown) counts as "any bytes, or none", and a pattern that is not understood as ANY.
Trigrams are of bytes with ASCII letters in lower case, as the index has them.

`grovefs grep` starts with this module: it imports nothing that takes time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Syntax = Literal["basic", "extended", "fixed", "perl"]
    Query = int | tuple[str, tuple["Query", ...]] | None  # None is ANY

ANY: None = None
MOST_STRINGS = 64  # alternatives that are followed side by side
MOST_TRIGRAMS = 5_000  # in one query; beyond, looking them up takes longer than it saves
_LONGEST_REPEAT = 16
_LONGEST = 500  # characters of a pattern; what comes behind would narrow little

# What else a letter may stand for where case does not matter: KELVIN SIGN, LONG S, the dotted and dotless I.
_OTHER_CASE = {"k": ["\u212a"], "s": ["\u017f"], "i": ["\u0130", "\u0131"]}
_SINGLE_BYTE_OR_UTF8 = ("UTF-8", "ANSI_X3.4-1968", "US-ASCII")


class _Unclear(Exception):
    """Not understood: the whole pattern becomes ANY."""


class _Part:
    """What is known of a part of a pattern: all it can match, or else how that begins, ends, and what it holds."""

    __slots__ = ("exact", "holds", "prefix", "suffix")

    def __init__(
        self, exact: frozenset[bytes] | None, prefix: frozenset[bytes], suffix: frozenset[bytes], holds: Query
    ) -> None:
        self.exact = exact
        self.prefix = prefix
        self.suffix = suffix
        self.holds = holds


_NOTHING = frozenset([b""])


def _strings(strings: Iterable[bytes]) -> _Part:
    found = frozenset(strings)
    return _Part(found, found, found, ANY)


_EMPTY = _strings([b""])
_GAP = _Part(None, _NOTHING, _NOTHING, ANY)


# -- queries -------------------------------------------------------------------------------------------------


def both(*queries: Query) -> Query:
    flat: list[Query] = []
    for query in queries:
        if isinstance(query, tuple) and query[0] == "and":
            flat += query[1]
        elif query is not ANY:
            flat.append(query)
    known = tuple(dict.fromkeys(flat))
    return ("and", known) if len(known) > 1 else known[0] if known else ANY


def either(queries: Iterable[Query]) -> Query:
    found = tuple(dict.fromkeys(queries))
    if ANY in found:
        return ANY
    return found[0] if len(found) == 1 else ("or", found)


def trigrams_of(text: bytes) -> Query:
    """All trigrams of a text that is in lower case; ANY if it is too short to have one."""
    return both(*(int.from_bytes(text[i : i + 3], "little") for i in range(len(text) - 2)))


def _one_of(strings: frozenset[bytes]) -> Query:
    return either(trigrams_of(s) for s in sorted(strings))


def count_trigrams(query: Query) -> int:
    if query is ANY:
        return 0
    return 1 if isinstance(query, int) else sum(map(count_trigrams, query[1]))


# -- parts put together --------------------------------------------------------------------------------------


def _loosened(part: _Part) -> _Part:
    """The same, no longer followed string by string."""
    if part.exact is None:
        return part
    heads = frozenset(s[:2] for s in part.exact)
    tails = frozenset(s[-2:] for s in part.exact)
    return _Part(None, _few(heads), _few(tails), both(part.holds, _one_of(part.exact)))


def _few(strings: frozenset[bytes]) -> frozenset[bytes]:
    return strings if len(strings) <= MOST_STRINGS else _NOTHING


def _joined(left: frozenset[bytes], right: frozenset[bytes]) -> frozenset[bytes] | None:
    return frozenset(a + b for a in left for b in right) if len(left) * len(right) <= MOST_STRINGS else None


def _then(x: _Part, y: _Part) -> _Part:
    """One part after the other."""
    holds = both(x.holds, y.holds)
    if x.exact is not None and y.exact is not None:
        exact = _joined(x.exact, y.exact)
        if exact is not None:
            return _Part(exact, exact, exact, holds)
        x = _loosened(x)
    seam = _joined(x.suffix, y.prefix)
    holds = both(x.holds, y.holds, _one_of(seam) if seam is not None else ANY)
    prefix = _joined(x.exact, y.prefix) if x.exact is not None else x.prefix
    suffix = _joined(x.suffix, y.exact) if y.exact is not None else y.suffix
    if prefix is None:  # too many to follow: what the left begins with is true all the same
        prefix = _few(frozenset(s[:2] for s in x.prefix))
    if suffix is None:
        suffix = _few(frozenset(s[-2:] for s in y.suffix))
    if x.exact is not None:
        holds = both(holds, _one_of(x.exact))
    if y.exact is not None:
        holds = both(holds, _one_of(y.exact))
    return _Part(None, prefix, suffix, holds)


def _or(x: _Part, y: _Part) -> _Part:
    if x.exact is not None and y.exact is not None and len(x.exact | y.exact) <= MOST_STRINGS:
        return _Part(x.exact | y.exact, x.exact | y.exact, x.exact | y.exact, either([x.holds, y.holds]))
    x, y = _loosened(x), _loosened(y)
    return _Part(None, _few(x.prefix | y.prefix), _few(x.suffix | y.suffix), either([x.holds, y.holds]))


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    if least == 0:
        return _or(part, _EMPTY) if most == 1 else _EMPTY if most == 0 else _GAP
    if least == most and least <= _LONGEST_REPEAT:
        whole = part
        for _ in range(least - 1):
            whole = _then(whole, part)
        return whole
    loose = _loosened(part)  # begins as one of them does, ends as one of them does
    return _Part(None, loose.prefix, loose.suffix, loose.holds)


# -- from text to parts --------------------------------------------------------------------------------------


def query_of(patterns: Iterable[bytes], syntax: Syntax, *, fold: bool, charset: str = "UTF-8") -> Query:
    """What a file must hold if a line of it matches one of the patterns. A newline separates patterns too."""
    queries = []
    for pattern in patterns:
        for line in [pattern] if syntax == "perl" else pattern.split(b"\n"):
            query = _query_of_line(line, syntax, fold, charset)
            if query is ANY:
                return ANY
            queries.append(query)
    found = either(queries) if queries else ANY
    return found if count_trigrams(found) <= MOST_TRIGRAMS else ANY


def _query_of_line(line: bytes, syntax: Syntax, fold: bool, charset: str) -> Query:
    if b"\0" in line:
        return ANY
    if not line.isascii() and charset.upper() not in _SINGLE_BYTE_OR_UTF8:
        return ANY  # where a character ends is not for us to know
    text = line.decode("utf-8", "surrogateescape")
    if len(text) > _LONGEST and syntax != "fixed":
        return ANY
    try:
        part = _fixed(text[:_LONGEST], fold) if syntax == "fixed" else _RegexParser(text, syntax, fold).parse()
    except (_Unclear, RecursionError):
        return ANY
    if part.exact is not None:
        return both(part.holds, _one_of(part.exact))
    return both(part.holds, _one_of(part.prefix), _one_of(part.suffix))


def _fixed(text: str, fold: bool) -> _Part:
    part = _EMPTY
    for char in text:
        part = _then(part, _character(char, fold))
    return part


def _character(char: str, fold: bool) -> _Part:
    """A character that stands for itself, in either case if `fold`."""
    raw = char.encode("utf-8", "surrogateescape")
    if char.isascii():
        others = _OTHER_CASE.get(char.lower(), []) if fold else []
        return _strings([raw.lower(), *(other.encode() for other in others)])
    if fold and not _has_one_case(char):
        return _GAP
    return _strings([raw])


def _has_one_case(char: str) -> bool:
    """Whether no locale could know another case of it: ideographs, syllables, symbols of later blocks."""
    code = ord(char)
    if "\ud800" <= char <= "\udfff":  # a byte that is not UTF-8
        return False
    is_plain = 0x2E80 <= code < 0xA640 or 0xAC00 <= code < 0xD7A4 or 0xF900 <= code < 0xFB00 or code >= 0x1F000
    return is_plain and char.lower() == char == char.upper()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


_STAND_FOR_THEMSELVES = '.[]*^$\\/"+?(){}|-,:;#%&=@!~ '  # behind a backslash
_PERL_GAPS = "dDwWsShHvVNRX"
_PERL_EMPTY = "bBAzZG"


class _RegexParser:
    """One pattern: an alternation of concatenations of repeated atoms, as far as it is plain."""

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
        """Whether an operator comes next, which a basic expression writes with a backslash; if so it is passed."""
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
                raise _Unclear  # an operator with nothing to repeat: a matter of taste
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
            # Where bytes are characters, only the last byte of a longer one is repeated.
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
            # In the middle of a basic expression it may be the character itself: that is within a gap.
            return (_GAP if self._basic else _EMPTY), True
        if self._perl and char in "{}":
            raise _Unclear
        return _character(char, self._fold), char.isascii()

    def _group(self) -> _Part:
        if self._perl and self._next_is("*"):
            raise _Unclear
        if self._perl and self._next_is("?"):
            if not self._next_is("?:"):
                raise _Unclear  # options, look-around, names, recursion
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
            raise _Unclear  # an operator where none can be
        if char.isascii() and not char.isalnum() and (self._perl or char in _STAND_FOR_THEMSELVES):
            return _character(char, self._fold)
        if self._perl:
            if char in _PERL_GAPS:
                return _GAP
            if char in _PERL_EMPTY:
                return _EMPTY
            raise _Unclear
        return _EMPTY if char in "bB<>`'" else _GAP

    def _bracket(self) -> _Part:
        """`[ab]` as its members; with a range, a class, a complement or an escape, any character at all."""
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
