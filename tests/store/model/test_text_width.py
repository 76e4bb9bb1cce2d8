"""Text width: grapheme clusters are kept whole, and cut text fits its columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.model.preview import TITLE_COLUMNS
from store.model.text_width import iter_graphemes, shorten


@pytest.mark.parametrize(
    ("piece", "width"),
    [
        ("👩‍👩‍👧‍👦", 2),  # a family, joined
        ("👍🏽", 2),  # a skin tone
        ("🇯🇵", 2),  # two letters are a flag
        ("❤️", 2),  # a heart asked to be an emoji
        ("각", 2),  # a syllable of three jamo
        ("कि", 2),  # a vowel sign beside its letter
        ("ﬁ", 1),
    ],
)
def test_what_is_seen_as_one_character_is_not_cut(piece: str, width: int) -> None:
    """Whatever it is made of, it is there whole or not at all."""
    assert sum(columns for _, columns in iter_graphemes(piece)) == width
    title = shorten(piece * 61, TITLE_COLUMNS)
    assert title == piece * (59 // width) + "…"


def test_two_flags_are_not_read_as_one_long_one() -> None:
    """Every two letters make a flag."""
    assert [piece for piece, _ in iter_graphemes("🇯🇵🇰🇷")] == ["🇯🇵", "🇰🇷"]


@given(st.text())
def test_a_title_is_never_too_wide_and_begins_as_the_text_does(text: str) -> None:
    """Whatever was typed."""
    title = shorten(text, TITLE_COLUMNS)
    assert sum(width for _, width in iter_graphemes(title)) <= TITLE_COLUMNS
    assert title == text or text.startswith(title[:-1])
    assert "".join(piece for piece, _ in iter_graphemes(text)) == text
