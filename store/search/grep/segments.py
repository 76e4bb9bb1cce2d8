"""Trigram segments: immutable files that map every trigram of bytes to the documents containing it.

A document is one version of one file; its number is never reused. Trigrams are of the raw bytes, with ASCII
letters in lower case. Of documents that are not UTF-8 text (images, archives) only printable ASCII trigrams
are indexed, and a lookup of any other trigram returns all such documents. No trigram contains a newline or
NUL, because no matching line does.

Layout of a segment file: the sets (roaring bitmaps), a table in blocks of 256 rows sorted by trigram, one
fence per block (its first trigram and checksum), a footer. Checksums are verified on every read. Damage
raises Damaged and never gives a wrong answer. `grovefs grep` uses this module: few imports.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from zlib import crc32

from pyroaring import BitMap

from store.search.grep.regex_trigrams import ANY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy import bool_, uint16, uint32
    from numpy.typing import NDArray

    from store.search.grep.regex_trigrams import Query

    UIntArray = NDArray[uint32]
    Flags = NDArray[bool_]
    # A batch: the number of the document at place 0, the pairs, divided by the last byte of the trigram, and the bounds
    # of the pairs of each byte.
    Divided = tuple[int, UIntArray, list[int]]

DOCUMENTS = 1 << 24  # key of the set of all documents of a segment; trigrams are smaller
BINARY = DOCUMENTS + 1  # key of the set of documents that are not text

_MAGIC = b"grovtri1"
_ROW = struct.Struct("<IQII")  # trigram, offset, length, checksum; length 0: `offset` is the only document
_FENCE = struct.Struct("<II")
_FOOTER = struct.Struct("<QQII8s")  # offset of the table, rows, blocks, checksum of fences and the above, magic
_ROWS_PER_BLOCK = 256
_BATCH = 256  # documents whose place fits into the low byte of a pair
_SLICE_BYTES = 1 << 20  # large documents are processed in slices
_CHUNK = 1 << 16  # trigrams; their places fit into 16 bits
_RANGE = 1 << 16  # trigrams with the same last byte; their low 16 bits are sorted
_WRITE_BYTES = 1 << 18

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\t"
# Newlines become NUL, and trigrams with a NUL are dropped.
_FOLD_TEXT = bytes(c + 32 if 65 <= c <= 90 else 0 if c == 10 else c for c in range(256))
_FOLD_BINARY = bytes(_FOLD_TEXT[c] if c in _PRINTABLE else 0 for c in range(256))


class Damaged(Exception):
    """A segment is missing, truncated or overwritten: grep has to read all files instead."""


# -- writing ------------------------------------------------------------------------------------------------


class Postings:
    """Documents collected for a new segment.

    Each batch becomes one array of integers: the trigram in the high bits, the document's place in the batch in the
    low bits. It is only divided by the last byte of the trigram. At the end one such part of all batches is sorted at
    a time.
    """

    def __init__(self) -> None:
        self._repeats = Repeats()
        self._batch: list[UIntArray] = []
        self._base = 0  # number of the document at place 0 of the batch
        self._divided: list[Divided] = []  # the batches before
        self._documents = BitMap()
        self._binary = BitMap()

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, document: int, data: bytes) -> None:
        """Add a document. Numbers must increase."""
        if self._batch and document - self._base >= _BATCH:
            self._end_batch()
        if not self._batch:
            self._base = document
        is_text = _is_text(data)
        fold = _FOLD_TEXT if is_text else _FOLD_BINARY
        for start in range(0, max(1, len(data) - 2), _SLICE_BYTES):
            trigrams = self._repeats.trigrams_in(data[start : start + _SLICE_BYTES + 2].translate(fold))
            trigrams <<= 8
            trigrams |= document - self._base
            self._batch.append(trigrams)
        self._documents.add(document)
        if not is_text:
            self._binary.add(document)

    def _end_batch(self) -> None:
        import numpy as np  # only for writing: the import takes longer than a search

        pairs = np.concatenate(self._batch)
        last_bytes = (pairs >> 24).astype("u1")
        # For 8 and 16 bits NumPy has a radix sort. It keeps the documents of a trigram in order.
        by_last_byte = pairs[np.argsort(last_bytes, kind="stable")]
        ends = np.cumsum(np.bincount(last_bytes, minlength=256)).tolist()
        self._divided.append((self._base, by_last_byte, [0, *ends]))
        self._batch = []

    def rows(self) -> Iterator[tuple[int, BitMap]]:
        if self._batch:
            self._end_batch()
        for first in range(0, DOCUMENTS, _RANGE):
            yield from _rows_from(first, self._divided)
        yield DOCUMENTS, self._documents
        if self._binary:
            yield BINARY, self._binary


class Repeats:
    """Finds repeated trigrams without sorting: two of three in a text are repeated.

    The table has a slot for every trigram. Each occurrence writes its own place there, and only the one that finds its
    place again is kept. Slots of other trigrams are never read, so the table needs no clearing.
    """

    def __init__(self) -> None:
        self._table: NDArray[uint16] | None = None

    def trigrams_in(self, folded: bytes) -> UIntArray:
        """Each trigram of a text once, unsorted; with those that contain a NUL, which are dropped later."""
        import numpy as np

        if self._table is None:
            self._table = np.empty(1 << 24, "u2")  # 32 MiB; the system provides only the pages that are used
        number = max(0, len(folded) - 2)
        # One integer of four bytes at every byte; the fourth is removed.
        words: UIntArray = np.ndarray((number,), "<u4", folded + b"\0", strides=(1,))
        found = [
            self._without_repeats(words[at : at + _CHUNK] & np.uint32(0xFFFFFF)) for at in range(0, number, _CHUNK)
        ]
        if not found:
            return np.empty(0, "u4")
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def _without_repeats(self, trigrams: UIntArray) -> UIntArray:
        import numpy as np

        assert self._table is not None
        slots = trigrams.astype(np.intp)  # else NumPy converts them at each use
        places = np.arange(len(trigrams), dtype="u2")
        self._table[slots] = places
        return trigrams.compress(self._table.take(slots) == places)


def _rows_from(first: int, batches: list[Divided]) -> Iterator[tuple[int, BitMap]]:
    """The trigrams in [first, first + _RANGE), which have the same last byte, with their documents."""
    import numpy as np

    parts, numbers = [], []
    for base, pairs, bounds in batches:
        some = pairs[bounds[first >> 16] : bounds[(first >> 16) + 1]]
        parts.append((some >> 8).astype("u2"))
        numbers.append((some & 0xFF) + base)
    if not parts:
        return
    trigrams = np.concatenate(parts)
    order = np.argsort(trigrams, kind="stable")
    trigrams, documents = trigrams[order], array("I", np.concatenate(numbers)[order].tobytes())
    starts = np.flatnonzero(_begins(trigrams))
    ends = [*starts[1:].tolist(), len(trigrams)]
    for at, end, low in zip(starts.tolist(), ends, trigrams[starts].tolist(), strict=False):
        if _is_kept(first + low):
            yield first + low, BitMap(documents[at:end])


def _begins(values: UIntArray) -> Flags:
    """True at the first occurrence of each value in a sorted array."""
    import numpy as np

    found = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _is_kept(trigram: int) -> bool:
    return bool(trigram >= DOCUMENTS or (trigram & 0xFF and trigram & 0xFF00 and trigram & 0xFF0000))


def render(rows: Iterable[tuple[int, BitMap]]) -> Iterator[bytes]:
    """The bytes of a segment file, in chunks. Rows must be sorted by trigram."""
    table: list[bytes] = []
    sets: list[bytes] = []
    at = written = 0
    for trigram, documents in rows:
        if len(documents) == 1:
            table.append(_ROW.pack(trigram, documents[0], 0, 0))
            continue
        documents.run_optimize()
        data = documents.serialize()
        table.append(_ROW.pack(trigram, at, len(data), crc32(data)))
        at += len(data)
        sets.append(data)
        if at - written >= _WRITE_BYTES:
            yield b"".join(sets)
            sets, written = [], at
    yield b"".join(sets)
    blocks = [b"".join(table[i : i + _ROWS_PER_BLOCK]) for i in range(0, len(table), _ROWS_PER_BLOCK)]
    yield from blocks
    fences = b"".join(_FENCE.pack(int.from_bytes(block[:4], "little"), crc32(block)) for block in blocks)
    head = struct.pack("<QQI", at, len(table), len(blocks))
    yield fences
    yield _FOOTER.pack(at, len(table), len(blocks), crc32(fences + head), _MAGIC)


def merged(segments: list[Segment], live: BitMap) -> Iterator[tuple[int, BitMap]]:
    """The merged rows of several segments, without obsolete documents."""
    from heapq import merge
    from itertools import groupby
    from operator import itemgetter

    trigram_of = itemgetter(0)
    for trigram, rows in groupby(merge(*(segment.rows() for segment in segments), key=trigram_of), trigram_of):
        documents = BitMap.union(*(row[1] for row in rows)) & live
        if documents:
            yield trigram, documents


# -- reading --------------------------------------------------------------------------------------------------


class Segment:
    """An open segment file."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from error
        try:
            self._read_fences()
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def _read_fences(self) -> None:
        size = os.fstat(self._fd).st_size
        footer = self._read(size - _FOOTER.size, _FOOTER.size) if size >= _FOOTER.size else b""
        if not footer.endswith(_MAGIC):
            raise Damaged(f"{self.path}: truncated, or not a segment file")
        self._table, self._rows, self._blocks, checksum, _ = _FOOTER.unpack(footer)
        fences_at = self._table + self._rows * _ROW.size
        if fences_at + self._blocks * _FENCE.size + _FOOTER.size != size:
            raise Damaged(f"{self.path}: file size does not match the footer")
        fences = self._read(fences_at, self._blocks * _FENCE.size)
        if crc32(fences + footer[:20]) != checksum:
            raise Damaged(f"{self.path}: wrong checksum")
        numbers = struct.unpack(f"<{2 * self._blocks}I", fences)
        self._firsts = numbers[::2]
        self._checksums = numbers[1::2]

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
        except OSError as error:
            raise Damaged(f"{self.path}: {error.strerror}") from error
        if len(data) != length:
            raise Damaged(f"{self.path}: truncated")
        return data

    def _block(self, number: int) -> bytes:
        rows = min(_ROWS_PER_BLOCK, self._rows - number * _ROWS_PER_BLOCK)
        block = self._read(self._table + number * _ROWS_PER_BLOCK * _ROW.size, rows * _ROW.size)
        if crc32(block) != self._checksums[number]:
            raise Damaged(f"{self.path}: wrong checksum")
        return block

    def find(self, trigram: int) -> BitMap | None:
        """The documents that contain a trigram; None if there are none."""
        number = bisect_right(self._firsts, trigram) - 1
        if number < 0:
            return None
        block = self._block(number)
        low, high = 0, len(block) // _ROW.size
        while low < high:
            middle = (low + high) // 2
            row = _ROW.unpack_from(block, middle * _ROW.size)
            if row[0] == trigram:
                return self._documents(row)
            low, high = (middle + 1, high) if row[0] < trigram else (low, middle)
        return None

    def _documents(self, row: tuple[int, ...]) -> BitMap:
        _, offset, length, checksum = row
        if length == 0:
            return BitMap([offset])
        return self._set(self._read(offset, length), checksum)

    def _set(self, data: bytes, checksum: int) -> BitMap:
        if crc32(data) != checksum:
            raise Damaged(f"{self.path}: wrong checksum")
        return BitMap.deserialize(data)

    def rows(self) -> Iterator[tuple[int, BitMap]]:
        """All rows, sorted by trigram; the sets are stored in the same order."""
        for number in range(self._blocks):
            rows = list(_ROW.iter_unpack(self._block(number)))
            ends = [offset + length for _, offset, length, _ in rows if length]
            first = next((offset for _, offset, length, _ in rows if length), 0)
            data = self._read(first, ends[-1] - first) if ends else b""
            for trigram, offset, length, checksum in rows:
                at = offset - first
                yield trigram, self._set(data[at : at + length], checksum) if length else BitMap([offset])


def candidates(query: Query, segments: list[Segment]) -> BitMap:
    """The documents that can match a query; all documents for ANY."""

    def documents_of(key: int) -> BitMap:
        found = BitMap()
        for segment in segments:
            found |= segment.find(key) or BitMap()
        return found

    return documents_of(DOCUMENTS) if query is ANY else _evaluate(query, documents_of, {})


def _evaluate(query: Query, documents_of: Callable[[int], BitMap], known: dict[int, BitMap]) -> BitMap:
    assert query is not None
    if isinstance(query, int):
        if query not in known:
            known[query] = documents_of(query) if _is_printable(query) else documents_of(query) | documents_of(BINARY)
        return known[query]
    operator, parts = query
    found = _evaluate(parts[0], documents_of, known).copy()
    for part in parts[1:]:
        if operator == "or":
            found |= _evaluate(part, documents_of, known)
        elif found:
            found &= _evaluate(part, documents_of, known)
    return found


def _is_printable(trigram: int) -> bool:
    return all(byte in _PRINTABLE for byte in trigram.to_bytes(3, "little"))
