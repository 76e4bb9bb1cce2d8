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

    from numpy import bool_, uint32
    from numpy.typing import NDArray

    from store.search.grep.regex_trigrams import Query

    UIntArray = NDArray[uint32]
    Flags = NDArray[bool_]

DOCUMENTS = 1 << 24  # key of the set of all documents of a segment; trigrams are smaller
BINARY = DOCUMENTS + 1  # key of the set of documents that are not text

_MAGIC = b"grovtri1"
_ROW = struct.Struct("<IQII")  # trigram, offset, length, checksum; length 0: `offset` is the only document
_FENCE = struct.Struct("<II")
_FOOTER = struct.Struct("<QQII8s")  # offset of the table, rows, blocks, checksum of fences and the above, magic
_ROWS_PER_BLOCK = 256
_BATCH = 256
_BATCH_BYTES = 4 << 20
_SLICE_BYTES = 1 << 20  # large documents are processed in slices
_RANGE = 1 << 16  # trigrams; their low 16 bits are sorted
_CHUNK = 1 << 16  # pairs that share a hash table, which must fit into the CPU's cache
_HASH_BITS = 17
_HASH_FACTOR = 2654435761  # Knuth's: 2^32 divided by the golden ratio

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\t"
# Newlines become NUL, and trigrams with a NUL are dropped.
_FOLD_TEXT = bytes(c + 32 if 65 <= c <= 90 else 0 if c == 10 else c for c in range(256))
_FOLD_BINARY = bytes(_FOLD_TEXT[c] if c in _PRINTABLE else 0 for c in range(256))


class Damaged(Exception):
    """A segment is missing, truncated or overwritten: grep has to read all files instead."""


# -- writing ------------------------------------------------------------------------------------------------


class Postings:
    """Documents collected for a new segment.

    Each batch becomes one sorted array of integers: the trigram in the high bits, the document's place in the
    batch in the low bits. This is the fastest way found to sort them. At the end the arrays are merged, one
    range of trigrams at a time.
    """

    def __init__(self) -> None:
        self._batch: list[tuple[int, bytes]] = []  # documents, or slices of them, folded
        self._batch_bytes = 0
        self._sorted: list[tuple[int, UIntArray]] = []  # number of the document at place 0, and the pairs
        self._documents = BitMap()
        self._binary = BitMap()

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, document: int, data: bytes) -> None:
        """Add a document. Numbers must increase."""
        is_text = _is_text(data)
        fold = _FOLD_TEXT if is_text else _FOLD_BINARY
        for start in range(0, max(1, len(data) - 2), _SLICE_BYTES):
            self._gather(document, data[start : start + _SLICE_BYTES + 2].translate(fold))
        self._documents.add(document)
        if not is_text:
            self._binary.add(document)

    def _gather(self, document: int, folded: bytes) -> None:
        if self._batch and (self._batch_bytes > _BATCH_BYTES or document - self._batch[0][0] >= _BATCH):
            self._sort_batch()
        self._batch.append((document, folded))
        self._batch_bytes += len(folded)

    def _sort_batch(self) -> None:
        base = self._batch[0][0]
        self._sorted.append((base, pairs_in([(document - base, folded) for document, folded in self._batch])))
        self._batch, self._batch_bytes = [], 0

    def rows(self) -> Iterator[tuple[int, BitMap]]:
        if self._batch:
            self._sort_batch()
        for first in range(0, DOCUMENTS, _RANGE):
            yield from _rows_between(first, first + _RANGE, self._sorted)
        yield DOCUMENTS, self._documents
        if self._binary:
            yield BINARY, self._binary


def pairs_in(placed: list[tuple[int, bytes]]) -> UIntArray:
    """Sorted `trigram << 8 | place` of some documents; includes trigrams with a NUL, which are dropped later."""
    import numpy as np  # only for writing: the import takes longer than a search

    pairs = np.zeros(sum(max(0, len(folded) - 2) for _, folded in placed), "<u4")
    columns = pairs.view("u1").reshape(-1, 4)
    at = 0
    for place, folded in placed:
        values = np.frombuffer(folded, "u1")
        end = at + max(0, len(folded) - 2)
        columns[at:end, 0] = place
        for byte in range(3):
            columns[at:end, byte + 1] = values[byte : byte + end - at]
        at = end
    chunks = (pairs[at : at + _CHUNK] for at in range(0, max(1, len(pairs)), _CHUNK))
    pairs = _sort(np.concatenate([_with_few_repeats(chunk) for chunk in chunks]))
    return pairs[_begins(pairs)]


def _with_few_repeats(pairs: UIntArray) -> UIntArray:
    """Some pairs without most of the repeated ones: two of three are, and sorting is slower than finding them.

    Pairs compete for the slots of a small hash table. One that lost its slot to an equal one is left out.
    """
    import numpy as np

    places = np.arange(len(pairs), dtype="u4")
    slots = (pairs * _HASH_FACTOR) >> (32 - _HASH_BITS)
    table = np.empty(1 << _HASH_BITS, "u4")
    table[slots] = places
    winners = table[slots]
    kept: UIntArray = pairs[(winners == places) | (pairs[winners] != pairs)]
    return kept


def _sort(pairs: UIntArray) -> UIntArray:
    """Sort by the low half, then by the high half: for 16 bits NumPy has a radix sort, twice as fast in total."""
    import numpy as np

    by_low: UIntArray = pairs[np.argsort(pairs.astype("u2"), kind="stable")]
    return by_low[np.argsort((by_low >> 16).astype("u2"), kind="stable")]


def _rows_between(first: int, last: int, arrays: list[tuple[int, UIntArray]]) -> Iterator[tuple[int, BitMap]]:
    """The trigrams in [first, last), at most _RANGE, with their documents."""
    import numpy as np

    between = [np.uint32(first << 8), np.uint32((last << 8) - 1)]
    parts, numbers = [], []
    for base, pairs in arrays:
        start, end = np.searchsorted(pairs, between[0]), np.searchsorted(pairs, between[1], side="right")
        some = pairs[int(start) : int(end)]
        parts.append(((some >> 8) - first).astype("u2"))
        numbers.append((some & 0xFF) + base)
    if not parts:
        return
    trigrams = np.concatenate(parts)
    order = np.argsort(trigrams, kind="stable")  # keeps the documents of a trigram in order
    trigrams, documents = trigrams[order], np.concatenate(numbers)[order]
    starts = np.flatnonzero(_begins(trigrams)).tolist()
    for at, stop in zip(starts, [*starts[1:], len(trigrams)], strict=False):
        trigram = first + int(trigrams[at])
        if _is_kept(trigram):
            yield trigram, BitMap(array("I", documents[at:stop].tobytes()))


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
    at = 0
    for trigram, documents in rows:
        if len(documents) == 1:
            table.append(_ROW.pack(trigram, documents[0], 0, 0))
            continue
        documents.run_optimize()
        data = documents.serialize()
        table.append(_ROW.pack(trigram, at, len(data), crc32(data)))
        at += len(data)
        yield data
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
