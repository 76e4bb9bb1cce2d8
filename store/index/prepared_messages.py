"""Messages prepared for the index: all that it stores about them, so that a long session can be freed before a save.

A program that makes a session.json message by message prepares each one as it is rendered. The rows are packed into a
few large buffers: small objects, made while messages are freed, would keep the memory around them occupied. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from store.documents.transcript import PieceSize
from store.index.fulltext import row_of
from store.index.text_update import Columns
from store.model.preview import Preview


class PreparedMessages:
    """The rows of the messages of a session, in order. Messages are added in batches."""

    def __init__(self) -> None:
        self.preview = Preview()
        self._digests = array("q")
        self._texts, self._text_ends = bytearray(), array("Q", [0])
        self._sizes = array("Q")
        self._links: dict[int, Mapping[str, int]] = {}  # of the few rows that have any
        self._columns, self._column_ends = bytearray(), array("Q", [0])  # by batch
        self._batches = array("Q", [0])  # the first row of each batch, and the number of rows
        self._first_in_use = self._end_in_use = 0
        self._in_use: list[Columns] = []  # the batch that was unpacked last

    def add(self, messages: Sequence[dict[str, Any]]) -> None:
        """Prepare valid messages that follow those added before."""
        columns = []
        for message in messages:
            row, place = row_of(message), len(self._digests)
            size = row.size(1 + place)
            self._digests.append(row.digest)
            self._sizes.append(size.size_bytes)
            if size.links:
                self._links[place] = size.links
            self._texts += row.indexed().encode(errors="surrogatepass")
            self._text_ends.append(len(self._texts))
            columns.append(row.columns())
        self._columns += orjson.dumps(columns)
        self._column_ends.append(len(self._columns))
        self._batches.append(len(self._digests))
        self.preview = self.preview.with_messages(messages)

    @property
    def rows(self) -> list[PreparedRow]:
        return [PreparedRow(self, place) for place in range(len(self._digests))]

    def digest(self, place: int) -> int:
        return self._digests[place]

    def size(self, place: int) -> PieceSize:
        return PieceSize(self._sizes[place], self._links.get(place, {}))

    def text_bytes(self, place: int) -> int:
        return self._text_ends[place + 1] - self._text_ends[place]

    def text(self, place: int) -> str:
        return self._texts[self._text_ends[place] : self._text_ends[place + 1]].decode(errors="surrogatepass")

    def columns(self, place: int) -> Columns:
        """Rows are used in order, so the batch of the last one is kept."""
        if not self._first_in_use <= place < self._end_in_use:
            number = bisect_right(self._batches, place) - 1
            self._first_in_use, self._end_in_use = self._batches[number], self._batches[number + 1]
            self._in_use = self._unpack(number)
        return self._in_use[place - self._first_in_use]

    def iter_columns(self) -> Iterator[Columns]:
        for number in range(len(self._batches) - 1):
            yield from self._unpack(number)

    def _unpack(self, number: int) -> list[Columns]:
        packed = orjson.loads(self._columns[self._column_ends[number] : self._column_ends[number + 1]])
        return [(role, id, created_ns, tools, digest) for role, id, created_ns, tools, digest in packed]


class PreparedRow:
    """The row of one prepared message, as `fulltext.SearchRow`. Its values are unpacked when they are asked for."""

    __slots__ = ("_messages", "_place")

    def __init__(self, messages: PreparedMessages, place: int) -> None:
        self._messages, self._place = messages, place

    @property
    def digest(self) -> int:
        return self._messages.digest(self._place)

    @property
    def text_bytes(self) -> int:
        return self._messages.text_bytes(self._place)

    def columns(self) -> Columns:
        return self._messages.columns(self._place)

    def indexed(self) -> str:
        return self._messages.text(self._place)

    def size(self, row: int) -> PieceSize:
        return self._messages.size(self._place)

    def computed(self) -> PreparedRow:
        return self
