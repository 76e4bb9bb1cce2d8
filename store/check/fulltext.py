"""Comparison of the full-text index with the files: every word of every text, and its position.

The index stores no text, so the comparison builds a second full-text index from the files, in a
temporary database, and compares a checksum over all positions of each word. Sessions whose words
differ are compared again under their lock, because they may have been written in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import apsw

from store.commit.core import Core
from store.documents.search_text import prepare_text
from store.errors import Corrupt
from store.index.fulltext import SearchRow, last_row
from store.index.schema import SHIFT, TOKENIZER
from store.layout import Location

# One checksum for all positions of a word, in any order. SQLite's 64-bit integers hold the sum of a billion positions.
_SUMS = (
    "SELECT term, count(*), sum((doc * 2654435761 + offset * 40503) % 1000000007) FROM temp.words "
    "GROUP BY term ORDER BY term"
)
_MAX_TERMS = 1_000  # differing words examined; enough to find every damaged session

WordPosition = tuple[int, int]  # number of the text, and of the word in it


class FulltextComparison:
    """Collects the expected texts session by session, then lists the sessions whose indexed words differ."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._expected_db = apsw.Connection("")  # a temporary database on disk: it may become large
        self._expected_db.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        self._expected_db.execute(f"CREATE VIRTUAL TABLE search USING fts5(text, content='', tokenize=\"{TOKENIZER}\")")
        self._expected_db.execute("BEGIN")
        self._expected: dict[int, list[int]] = {}  # session key → numbers of its texts
        for db in (self._expected_db, self._core.db.reader):
            db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, search, instance)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._expected_db.close()

    def expect(self, key: int, texts: Sequence[SearchRow]) -> None:
        """Record the texts of a session. The caller holds its lock and has checked that the number of rows matches."""
        numbers = self._numbers(key)
        self._expected[key] = numbers
        self._expected_db.executemany(
            "INSERT INTO search (rowid, text) VALUES (?, ?)",
            [(number, text.indexed()) for number, text in zip(numbers, texts, strict=True)],
        )

    def differing(self) -> Iterator[tuple[Location, int]]:
        """Yield the sessions, with their keys, whose indexed words differ from their texts."""
        self._expect_documents()
        terms = self._differing_terms()
        if not terms:
            return
        owners = {number: key for key, numbers in self._expected.items() for number in numbers}
        suspects = {owners[number] for term in terms for number in self._disputed(term) if number in owners}
        for key in sorted(suspects):
            location = self._location(key)
            if location is not None and self._still_differs(key, location, terms):
                yield location, key

    def _expect_documents(self) -> None:
        """Add the state documents, whose words are in the same index. `check_state` compares them."""
        rows: list[tuple[Any, ...]] = self._core.db.reader.execute(
            "SELECT t.number, d.path, d.title FROM state_documents d JOIN texts t ON t.row = -d.key"
        ).fetchall()
        for number, path, title in rows:
            try:
                file = self._core.disk.read(path, self._core.limit_bytes)
            except Corrupt:
                continue  # `check_state` reports it
            text = file.data.decode(errors="replace") if file is not None else ""
            self._expected_db.execute(
                "INSERT INTO search (rowid, text) VALUES (?, ?)", (number, prepare_text(f"{title}\n{text}"))
            )

    def _differing_terms(self) -> list[str]:
        """List the words whose positions differ, by one merge over both sorted indexes."""
        found: list[str] = []
        expected, indexed = self._expected_db.execute(_SUMS), self._core.db.reader.execute(_SUMS)
        a, b = next(expected, None), next(indexed, None)
        while (a is not None or b is not None) and len(found) < _MAX_TERMS:
            if a == b:
                a, b = next(expected, None), next(indexed, None)
            elif b is None or (a is not None and _key(a) < _key(b)):
                assert a is not None
                found.append(str(a[0]))
                a = next(expected, None)
            elif a is None or _key(b) < _key(a):
                found.append(str(b[0]))
                b = next(indexed, None)
            else:
                found.append(str(a[0]))
                a, b = next(expected, None), next(indexed, None)
        return found

    def _disputed(self, term: str) -> set[int]:
        return {number for number, _ in _positions(self._expected_db, term) ^ _positions(self._core.db.reader, term)}

    def _still_differs(self, key: int, location: Location, terms: Sequence[str]) -> bool:
        """Compare again under the lock. Other row numbers mean the session was written meanwhile, words included."""
        with self._core.locks.session(location):
            numbers = self._numbers(key)
            if numbers != self._expected[key]:
                return False
            mine = set(numbers)
            return any(number in mine for term in terms for number in self._disputed(term))

    def _numbers(self, key: int) -> list[int]:
        rows = self._core.db.reader.execute(
            "SELECT number FROM texts WHERE row BETWEEN ? AND ? ORDER BY row", (key << SHIFT, last_row(key))
        )
        return [number for (number,) in rows]

    def _location(self, key: int) -> Location | None:
        row = self._core.db.reader.execute("SELECT root, child FROM sessions WHERE key = ?", (key,)).fetchone()
        return Location(row[0], row[1] or None) if row else None


def _key(row: tuple[Any, ...]) -> bytes:
    """FTS5 sorts words by their UTF-8 bytes."""
    return str(row[0]).encode()


def _positions(db: apsw.Connection, term: str) -> set[WordPosition]:
    return set(db.execute("SELECT doc, offset FROM temp.words WHERE term = ?", (term,)))
