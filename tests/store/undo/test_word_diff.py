"""Differences of two texts word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.undo import word_diff
from store.undo.word_diff import Piece, diff_words, excerpt, render_words

WORDS = st.lists(st.sampled_from(["the", "teh", "plan", "a", "b", " ", "\n", ".", "é"]), max_size=30).map("".join)


def join(pieces: list[Piece], *kinds: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in kinds)


@given(WORDS, WORDS)
def test_the_pieces_are_both_texts(old: str, new: str) -> None:
    """Nothing is lost, and equal texts have no change."""
    pieces = diff_words(old, new)
    assert join(pieces, "same", "removed") == old
    assert join(pieces, "same", "added") == new
    assert all(piece.text for piece in pieces)
    assert (old == new) == all(piece.kind == "same" for piece in pieces)


@given(WORDS, WORDS)
def test_an_excerpt_shows_every_change(old: str, new: str) -> None:
    """It leaves out only text around the changes."""
    pieces = diff_words(old, new)
    shown = excerpt(pieces, context=3, longest=10**6)
    for kind in ("removed", "added"):
        assert join(shown, kind) == join(pieces, kind)
    assert len(join(shown, "same")) <= len(join(pieces, "same"))


def test_changed_words_are_marked() -> None:
    """As git diff --word-diff does."""
    assert render_words(diff_words("teh plan", "the plan")) == "[-teh-]{+the+} plan"
    assert render_words(diff_words("one two", "one two three")) == "one two{+ three+}"
    assert render_words(diff_words("a b c d", "a x y d")) == "a [-b c-]{+x y+} d"


def test_an_excerpt_is_one_line_with_some_context() -> None:
    """Line breaks are shown as a sign."""
    old = "a long beginning of the text that nobody needs\nteh plan\nand a long end that nobody needs either"
    shown = render_words(excerpt(diff_words(old, old.replace("teh", "the")), context=10))
    assert shown == "…ody needs↵[-teh-]{+the+} plan↵and …"


def test_long_changes_are_clipped() -> None:
    """Both ends of them are shown."""
    shown = excerpt(diff_words("", "x" * 500), longest=20)
    assert shown == [Piece("added", "x" * 10), Piece("gap", ""), Piece("added", "x" * 10)]


def test_very_long_texts_are_not_compared_word_by_word() -> None:
    """The time would grow with the square of their length."""
    count = word_diff.MAX_TOKENS
    old, new = "a b " * count, "c d " * count
    assert [piece.kind for piece in diff_words(old, new)] == ["removed", "added", "same"]
