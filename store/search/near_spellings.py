"""Near spellings: words of the full-text index that are similar to a word that was not found."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import apsw

from store.documents.search_text import prepare_text

MAX_WORDS = 5  # words of a query that are looked up
MAX_CANDIDATES = 20_000  # terms of the index that are compared with a word
MAX_SHOWN = 3
_SIMILARITY = 0.75
# Words with the same first letter, the most frequent first. A typing error is rarely in the first letter.
_CANDIDATES = """
    SELECT term FROM temp.vocabulary WHERE term >= ?1 AND term < ?2 AND length(term) BETWEEN ?3 AND ?4
    ORDER BY doc DESC LIMIT ?5
"""


def near_spellings(index: Path, words: Sequence[str]) -> list[str]:
    """The most similar indexed words, for words that are not indexed themselves."""
    db = apsw.Connection(":memory:")
    try:
        db.execute("ATTACH ? AS home", (str(index),))
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('home', 'search', 'row')")
        found = [near for word in words[:MAX_WORDS] for near in _near(db, prepare_text(word.rstrip("*")).lower())]
    finally:
        db.close()
    return list(dict.fromkeys(found))[:MAX_SHOWN]


def _near(db: apsw.Connection, word: str) -> list[str]:
    if len(word) < 3 or not word.isalnum():
        return []
    limits = (word[0], chr(ord(word[0]) + 1), len(word) - 2, len(word) + 2, MAX_CANDIDATES)
    candidates = [term for (term,) in db.execute(_CANDIDATES, limits)]
    return [] if word in candidates else get_close_matches(word, candidates, MAX_SHOWN, _SIMILARITY)
