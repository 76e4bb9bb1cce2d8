"""Trigrams of patterns: every text that GNU grep matches contains the required trigrams."""

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


def satisfies(query: Query, text: bytes) -> bool:
    """Whether a text satisfies a query."""
    if query is ANY:
        return True
    if isinstance(query, int):
        return query.to_bytes(3, "little") in text.lower()
    operator, parts = query
    return (all if operator == "and" else any)(satisfies(part, text) for part in parts)


def grep_matches(pattern: bytes, syntax: Syntax, text: bytes, *, fold: bool, locale: str = "C.UTF-8") -> bool:
    command: list[str | bytes] = ["grep", "-qa", FLAGS[syntax], *(["-i"] if fold else []), "-e", pattern]
    result = subprocess.run(command, input=text, capture_output=True, env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"})
    return result.returncode == 0


# Pieces of regular expressions around few words, so that generated patterns often match.
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
def test_query_never_excludes_a_match(pattern: str, text: str, syntax: Syntax, fold: bool, locale: str) -> None:
    """A query may select too many texts, never too few."""
    raw, data = pattern.encode(), text.encode(errors="surrogateescape")
    if grep_matches(raw, syntax, data, fold=fold, locale=locale):
        assert satisfies(query_of([raw], syntax, fold=fold), data)


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
def test_query_excludes_other_texts(pattern: str, syntax: Syntax, text: str, other: str) -> None:
    """ANY would also be correct, but every file would be read."""
    query = query_of([pattern.encode()], syntax, fold=False)
    assert satisfies(query, text.encode())
    assert not satisfies(query, other.encode())


@pytest.mark.parametrize("pattern", ["", "a", "ab", ".*", "a|b", "[a-z]{9}", "(?i)foo", "foo|", "foo\n"])
def test_pattern_without_required_trigrams_is_any(pattern: str) -> None:
    syntax: Syntax = "perl" if "(?" in pattern else "extended"
    assert query_of([pattern.encode()], syntax, fold=False) is ANY


def test_case_folding_covers_unicode() -> None:
    """The Kelvin sign matches k, the long s matches s. Other characters with case require no trigrams."""
    query = query_of([b"Kisses"], "fixed", fold=True)
    assert query is not ANY
    assert satisfies(query, "\u212aiſſes".encode())
    assert satisfies(query, b"KISSES")
    assert query_of(["Ünï".encode()], "fixed", fold=True) is ANY
    assert query_of(["漢字".encode()], "fixed", fold=True) is not ANY


def test_several_patterns_are_alternatives() -> None:
    """-e given twice, and the lines of one pattern."""
    for given_patterns in ([b"foo", b"bar"], [b"foo\nbar"]):
        query = query_of(given_patterns, "basic", fold=False)
        assert satisfies(query, b"a bar")
        assert not satisfies(query, b"a baz")


def test_unknown_charset_gives_any_for_non_ascii() -> None:
    """Character boundaries are unknown there."""
    assert query_of(["漢字漢字".encode()], "fixed", fold=False, charset="GBK") is ANY
    assert query_of([b"plain"], "fixed", fold=False, charset="GBK") is not ANY


def test_huge_patterns_give_any() -> None:
    """Deeply nested, long and highly ambiguous patterns, in a short time."""
    assert query_of([b"(" * 10_000 + b"foo" + b")" * 10_000], "extended", fold=False) is ANY
    assert query_of([b"\n".join(b"word%d" % i for i in range(20_000))], "fixed", fold=False) is ANY
    assert query_of([b"(s|i)" * 20_000], "extended", fold=True) is ANY
    assert query_of([b"a{99999999999}"], "extended", fold=False) is ANY
    assert query_of([b"s" * 100_000], "fixed", fold=True) is not ANY
