"""Collapsing: the rows of one unit, from a whole version on, as one row. Pure.

For a new host, and for a unit whose files here are not those that the next row builds on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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

ChunkReader = Callable[[bytes], bytes]  # the bytes of a chunk, by SHA-256


class UnitContent:
    """The files of a unit while its rows are replayed."""

    def __init__(self, read_chunk: ChunkReader | None = None) -> None:
        self._read_chunk = read_chunk
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
            self.texts[put.path] = inline_text(put, self._base_text(put))
        self.puts[put.path] = put

    def _base_text(self, put: Put) -> bytes | None:
        """The text that a step builds on. A long one is in chunks, which are read only if there is a step."""
        if not put.base or put.path in self.texts:
            return self.texts.get(put.path)
        return self.text(put.path) if put.path in self.puts else None

    def text(self, path: str) -> bytes:
        """The text of a file that exists. Raises BadRow if it cannot be read."""
        text = self.texts.get(path)
        if text is None and self._read_chunk is not None:
            text = b"".join(map(self._read_chunk, self.puts[path].chunks))
        if text is None:
            raise BadRow(f"{path!r} is in chunks, which are not read here")
        return text

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


def replay(rows: Sequence[LogRow], read_chunk: ChunkReader | None = None) -> Iterator[tuple[LogRow, UnitContent]]:
    """Each row with the content of the unit after it, from the first whole version on.

    The content is the same object each time.
    """
    content, is_complete = UnitContent(read_chunk), False
    for row in rows:
        ops = decode_ops(row.ops, row.unit)
        is_complete = is_complete or (bool(ops) and isinstance(ops[0], Whole | Gone))
        if is_complete:
            for operation in ops:
                content.add(row, operation)
            yield row, content


def collapse(rows: Sequence[LogRow], read_chunk: ChunkReader | None = None) -> LogRow:
    """One row with the effect of all. The first is whole. Raises BadRow if one cannot be applied.

    Without `read_chunk`, a step that builds on a text in chunks cannot be applied.
    """
    if len(rows) == 1 and _is_complete(rows[0]):
        return rows[0]
    content = UnitContent(read_chunk)
    for row in rows:
        for operation in decode_ops(row.ops, row.unit):
            content.add(row, operation)
    return rows[-1]._replace(ops=encode_ops(content.operations()))


def _is_complete(row: LogRow) -> bool:
    """Whether a row is whole and needs no older text."""
    first, *others = decode_ops(row.ops, row.unit) or (None,)
    is_whole = isinstance(first, Whole | Gone)
    return is_whole and not any(isinstance(operation, Put) and operation.base for operation in others)
