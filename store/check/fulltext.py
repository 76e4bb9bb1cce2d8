"""The full-text index against the files: every word of every text, and the place where it stands.

The index keeps no text that could be compared, so what it should hold is built once more from the files, in a
database that nobody else sees, and word by word the two are compared by a sum over all places. What differs is
looked at again, alone with the session: someone may have written meanwhile.
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

# A word's places as one number; their order does not matter, and SQLite's integers hold the sum of a billion.
_SUMS = (
    "SELECT term, count(*), sum((doc * 2654435761 + offset * 40503) % 1000000007) FROM temp.words "
    "GROUP BY term ORDER BY term"
)
_MOST_WORDS = 1_000  # looked at again: where so many are wrong, all sessions they lead to are told of

Place = tuple[int, int]  # number of the text, and which word of it


class Parity:
    """Collects what search should say, session by session, and then tells which have it otherwise."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._true = apsw.Connection("")  # on disk, but without a name: it may become large
        self._true.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        self._true.execute(f"CREATE VIRTUAL TABLE search USING fts5(text, content='', tokenize=\"{TOKENIZER}\")")
        self._true.execute("BEGIN")
        self._expected: dict[int, list[int]] = {}  # by session, the numbers of its texts
        for db in (self._true, self._core.db.reader):
            db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, search, instance)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._true.close()

    def expect(self, key: int, texts: Sequence[SearchRow]) -> None:
        """The rows of this session stand for these texts. Its lock is held, and the rows are as many."""
        numbers = self._numbers(key)
        self._expected[key] = numbers
        self._true.executemany(
            "INSERT INTO search (rowid, text) VALUES (?, ?)",
            [(number, text.indexed()) for number, text in zip(numbers, texts, strict=True)],
        )

    def differing(self) -> Iterator[tuple[Location, int]]:
        """The sessions, with their keys, for which search finds words that are not there, or not those that are."""
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
        """State documents have their words in the same index; whether these are right is not asked here."""
        rows: list[tuple[Any, ...]] = self._core.db.reader.execute(
            "SELECT t.number, d.path, d.title FROM state_documents d JOIN texts t ON t.row = -d.key"
        ).fetchall()
        for number, path, title in rows:
            try:
                file = self._core.disk.read(path, self._core.limit_bytes)
            except Corrupt:
                continue  # the check of state documents tells of it
            text = file.data.decode(errors="replace") if file is not None else ""
            self._true.execute(
                "INSERT INTO search (rowid, text) VALUES (?, ?)", (number, prepare_text(f"{title}\n{text}"))
            )

    def _differing_terms(self) -> list[str]:
        """Words whose places are not the same; both sides come in order, and are read once."""
        found: list[str] = []
        true, kept = self._true.execute(_SUMS), self._core.db.reader.execute(_SUMS)
        a, b = next(true, None), next(kept, None)
        while (a is not None or b is not None) and len(found) < _MOST_WORDS:
            if a == b:
                a, b = next(true, None), next(kept, None)
            elif b is None or (a is not None and _key(a) < _key(b)):
                assert a is not None
                found.append(str(a[0]))
                a = next(true, None)
            elif a is None or _key(b) < _key(a):
                found.append(str(b[0]))
                b = next(kept, None)
            else:
                found.append(str(a[0]))
                a, b = next(true, None), next(kept, None)
        return found

    def _disputed(self, term: str) -> set[int]:
        return {number for number, _ in _places(self._true, term) ^ _places(self._core.db.reader, term)}

    def _still_differs(self, key: int, location: Location, terms: Sequence[str]) -> bool:
        """Alone with the session. One whose rows are others by now was written meanwhile, rows and words together."""
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
    """FTS5 has its words in the order of their bytes."""
    return str(row[0]).encode()


def _places(db: apsw.Connection, term: str) -> set[Place]:
    return set(db.execute("SELECT doc, offset FROM temp.words WHERE term = ?", (term,)))
