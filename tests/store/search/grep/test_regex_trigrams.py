"""Patterns: what a query asks for is in every text that GNU grep says matches."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store.search.grep.regex_trigrams import ANY, query_of

if TYPE_CHECKING:
    from store.search.grep.regex_trigrams import Query, Syntax

FLAGS = {"basic": "-G", "extended": "-E", "fixed": "-F", "perl": "-P"}


def holds(query: Query, text: bytes) -> bool:
    """Whether a text has what a query asks for."""
    if query is ANY:
        return True
    if isinstance(query, int):
        return query.to_bytes(3, "little") in text.lower()
    operator, parts = query
    return (all if operator == "and" else any)(holds(part, text) for part in parts)


def grep_matches(pattern: bytes, syntax: Syntax, text: bytes, *, fold: bool, locale: str = "C.UTF-8") -> bool:
    command: list[str | bytes] = ["grep", "-qa", FLAGS[syntax], *(["-i"] if fold else []), "-e", pattern]
    result = subprocess.run(command, input=text, capture_output=True, env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"})
    return result.returncode == 0


# Patterns that hold together often enough to match: pieces of regular expressions around few words.
WORDS = ["foo", "Bar", "kiss", "ISK", "é", "漢字", "ſ", "K", "{", "}", '"id"', "a.b", "x", "\\.", "\\n", "-"]
PIECES = [
    *WORDS, ".", ".*", "*", "+", "?", "\\+", "\\?", "|", "\\|", "(", ")", "\\(", "\\)", "(?:", "^", "$", "\\{2\\}",
    "{2}", "{1,2}", "{,2}", "[ab]", "[^a]", "[a-z]", "[]x]", "[[:alpha:]]", "\\w", "\\b", "\\<", "\\s", "\\1",
    "(foo|x)", "(?i)", "(?=x)", "(?!x)", "\\Qfoo\\E", "\\x41", "[é漢]", "é*", "字+", "字\\{2\\}", "\\/", "\\d", " ",
]  # fmt: skip
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)
texts = st.lists(
    st.sampled_from([*WORDS, "fooo", "BAR", "ss", "漢漢字字", " ", "ab", "FOO", "(", "|", "A", "\n"]), max_size=9
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(patterns, texts.map("".join), st.sampled_from(sorted(FLAGS)), st.booleans(), st.sampled_from(["C.UTF-8", "C"]))
@example("kiss", "\u212aiſs", "fixed", True, "C.UTF-8")
@example("é*foo", "foo", "extended", False, "C")
@example("字+", "字\udc97\udc97", "extended", False, "C")
@example("a|*b", "*b", "extended", False, "C.UTF-8")
def test_a_query_never_asks_for_more_than_a_match_has(
    pattern: str, text: str, syntax: Syntax, fold: bool, locale: str
) -> None:
    """The one law of patterns: too much may be said, too little never."""
    raw, data = pattern.encode(), text.encode(errors="surrogateescape")
    if grep_matches(raw, syntax, data, fold=fold, locale=locale):
        assert holds(query_of([raw], syntax, fold=fold), data)


@pytest.mark.parametrize(
    ("pattern", "syntax", "text", "other"),
    [
        ("hello", "fixed", "say hello", "say help"),
        ("a.b.c", "fixed", "a.b.c", "aXbXc"),
        ("foo[xy]bar", "basic", "fooxbar", "foozbar"),
        ("foo.*bar", "extended", "foo and bar", "foo and baz"),
        ("(foo|bar)baz", "extended", "barbaz", "quxbaz foo"),
        ("colou?r", "extended", "color", "colr"),
        ("ab{3}c", "extended", "abbbc", "abbc"),
        ("x(abc)+y", "extended", "xabcabcy", "xy"),
        ("^def \\w+", "perl", "def main", "de f main"),
        ('\\{"id"', "extended", '{"id"', '"id"'),
        ('{"id"', "basic", '{"id"', '"id"'),
        ("希少", "basic", "希少な", "希な"),
        ("src/main\\.rs", "perl", "src/main.rs", "src/mainXrs"),
    ],
)
def test_a_query_tells_texts_apart(pattern: str, syntax: Syntax, text: str, other: str) -> None:
    """Or else all would be read, which is right too, and of no use."""
    query = query_of([pattern.encode()], syntax, fold=False)
    assert holds(query, text.encode())
    assert not holds(query, other.encode())


@pytest.mark.parametrize("pattern", ["", "a", "ab", ".*", "a|b", "[a-z]{9}", "(?i)foo", "foo|", "foo\n"])
def test_what_asks_for_nothing_is_any(pattern: str) -> None:
    """Nothing is known of it, so everything is read."""
    syntax: Syntax = "perl" if "(?" in pattern else "extended"
    assert query_of([pattern.encode()], syntax, fold=False) is ANY


def test_case_is_folded_as_unicode_does() -> None:
    """The Kelvin sign is a k, the long s an s; what has cases we do not list is asked for nothing."""
    query = query_of([b"Kisses"], "fixed", fold=True)
    assert query is not ANY
    assert holds(query, "\u212aiſſes".encode())
    assert holds(query, b"KISSES")
    assert query_of(["Ünï".encode()], "fixed", fold=True) is ANY
    assert query_of(["漢字".encode()], "fixed", fold=True) is not ANY


def test_several_patterns_are_alternatives() -> None:
    """-e twice, and lines of one pattern."""
    for given_patterns in ([b"foo", b"bar"], [b"foo\nbar"]):
        query = query_of(given_patterns, "basic", fold=False)
        assert holds(query, b"a bar")
        assert not holds(query, b"a baz")


def test_other_charsets_are_not_guessed_at() -> None:
    """Where a character ends is not for us to know."""
    assert query_of(["漢字漢字".encode()], "fixed", fold=False, charset="GBK") is ANY
    assert query_of([b"plain"], "fixed", fold=False, charset="GBK") is not ANY


def test_monstrous_patterns_are_given_up() -> None:
    """Deep, long and manifold ones answer soon, and with ANY."""
    assert query_of([b"(" * 10_000 + b"foo" + b")" * 10_000], "extended", fold=False) is ANY
    assert query_of([b"\n".join(b"word%d" % i for i in range(20_000))], "fixed", fold=False) is ANY
    assert query_of([b"(s|i)" * 20_000], "extended", fold=True) is ANY
    assert query_of([b"a{99999999999}"], "extended", fold=False) is ANY
    assert query_of([b"s" * 100_000], "fixed", fold=True) is not ANY
