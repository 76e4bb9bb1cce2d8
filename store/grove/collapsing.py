"""Collapsing: the rows of one unit, from a whole version on, as one row. Pure.

For a new host, and for a unit whose files here are not those that the next row builds on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from store.grove.wire import (
    BadRow,
    Claim,
    Gone,
    LogRow,
    Operation,
    Put,
    Remove,
    Rename,
    Whole,
    decode_ops,
    encode_ops,
    inline_text,
)
from store.history import steps


class UnitContent:
    """The files of a unit while its rows are replayed."""

    def __init__(self) -> None:
        self.puts: dict[str, Put] = {}  # the newest of each file
        self.texts: dict[str, bytes] = {}  # of files that are not in chunks
        self.claims: dict[str, str] = {}
        self.is_gone = False

    def add(self, row: LogRow, operation: Operation) -> None:
        match operation:
            case Put():
                self._put(operation)
            case Remove():
                self._remove(operation.path)
            case Rename():
                self._move(row, operation)
            case Claim():
                self.claims[operation.path] = operation.host
            case Whole() | Gone():
                self._clear()
                self.is_gone = isinstance(operation, Gone)

    def _clear(self) -> None:
        self.puts.clear()
        self.texts.clear()
        self.claims.clear()

    def _put(self, put: Put) -> None:
        self.is_gone = False
        if put.chunks:
            self.texts.pop(put.path, None)
        else:
            self.texts[put.path] = inline_text(put, self.texts.get(put.path))
        self.puts[put.path] = put

    def _remove(self, path: str) -> None:
        self.puts.pop(path, None)
        self.texts.pop(path, None)
        self.claims.pop(path, None)

    def _move(self, row: LogRow, move: Rename) -> None:
        put = self.puts.get(move.source)
        if put is None:
            raise BadRow(f"{row.unit}: the row moves {move.source!r}, which does not exist")
        text = self.texts.get(move.source)
        self._remove(move.source)
        self.puts[move.target] = put
        if text is not None:
            self.texts[move.target] = text
        if move.target.startswith("cur/"):
            self.claims[move.target] = row.host

    def operations(self) -> list[Operation]:
        if self.is_gone:
            return [Gone()]
        puts = [self._whole(path, put) for path, put in self.puts.items()]
        return [Whole(), *puts, *(Claim(path, host) for path, host in self.claims.items())]

    def _whole(self, path: str, put: Put) -> Put:
        if put.chunks:
            return Put(path, put.sha256, put.size, put.mode, put.mtime_ns, chunks=put.chunks)
        step = steps.whole(self.texts[path])
        return Put(path, put.sha256, put.size, put.mode, put.mtime_ns, step.kind, step.data)


def replay(rows: Sequence[LogRow]) -> Iterator[tuple[LogRow, UnitContent]]:
    """Each row with the content of the unit after it, from the first whole version on.

    The content is the same object each time.
    """
    content, is_complete = UnitContent(), False
    for row in rows:
        ops = decode_ops(row.ops, row.unit)
        is_complete = is_complete or (bool(ops) and isinstance(ops[0], Whole | Gone))
        if is_complete:
            for operation in ops:
                content.add(row, operation)
            yield row, content


def collapse(rows: Sequence[LogRow]) -> LogRow:
    """One row with the effect of all. The first is whole. Raises BadRow if one cannot be applied."""
    content = UnitContent()
    for row in rows:
        for operation in decode_ops(row.ops, row.unit):
            content.add(row, operation)
    return rows[-1]._replace(ops=encode_ops(content.operations()))
