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
        ("👩‍👩‍👧‍👦", 2),  # a family: four emoji with joiners
        ("👍🏽", 2),  # a skin tone
        ("🇯🇵", 2),  # a flag: two regional indicators
        ("❤️", 2),  # a heart with the emoji variation selector
        ("각", 2),  # a syllable of three jamo
        ("कि", 2),  # a letter with a spacing vowel sign
        ("ﬁ", 1),
    ],
)
def test_grapheme_is_not_split(piece: str, width: int) -> None:
    """It is kept whole or dropped."""
    assert sum(columns for _, columns in iter_graphemes(piece)) == width
    title = shorten(piece * 61, TITLE_COLUMNS)
    assert title == piece * (59 // width) + "…"


def test_two_flags_are_two_graphemes() -> None:
    """Every two regional indicators form a flag."""
    assert [piece for piece, _ in iter_graphemes("🇯🇵🇰🇷")] == ["🇯🇵", "🇰🇷"]


@given(st.text())
def test_shortened_text_fits_and_is_a_prefix(text: str) -> None:
    """For any text."""
    title = shorten(text, TITLE_COLUMNS)
    assert sum(width for _, width in iter_graphemes(title)) <= TITLE_COLUMNS
    assert title == text or text.startswith(title[:-1])
    assert "".join(piece for piece, _ in iter_graphemes(text)) == text
