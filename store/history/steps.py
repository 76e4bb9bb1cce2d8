"""Steps: how one version of a text is stored, as a whole or as its difference from the version before. Pure.

    REMOVED   no data: the file does not exist in this version
    WHOLE     the text, compressed
    PATCH     varint head, varint tail, piece: the bytes between the first `head` and the last `tail`
              bytes that both texts have in common, compressed with the replaced bytes as prefix
    SPLICES   varint count, then for each splice: varint start, varint removed, piece. Each piece is
              compressed with the 2 KiB before it as prefix. Starts are offsets in the old text.

A piece is `varint length << 1 | is_compressed`, then `length` bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from store.history.versions import Splice

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

REMOVED, WHOLE, PATCH, SPLICES = range(4)

_LEVEL = 3
_SHORT_BYTES = 16 << 10
CONTEXT_BYTES = 2 << 10  # before an insertion: enough for the layout of a message; more costs more than it saves
_MIN_PREFIX = 8  # zstd accepts no shorter dictionary
_MIN_COMPRESSED = 32  # the header of a frame makes a shorter text longer
_COMPARED_BYTES = 64 << 10
_FIRST_COMPARED_BYTES = 128  # then more and more: two changes may be near each other
_DEFAULT_WINDOW_LOG = 21  # of _LEVEL
_MAX_SPLICES = 4  # more changes, or larger ones, are smaller and faster as one compressed patch
_SPLICED_BYTES = 512
_ANCHOR_BYTES = 24  # two texts that have this much in common after a change agree again
_ANCHOR_DISTANCES = (8, 32, 128, 512)
_LONG_BYTES = 1 << 20  # from here on, matches are searched in the whole prefix
_Parameter = zstd.CompressionParameter
_FRAME: dict[int, int] = {_Parameter.content_size_flag: 0, _Parameter.dict_id_flag: 0}
_USUAL: dict[int, int] = {_Parameter.compression_level: _LEVEL, **_FRAME}
_FAST: dict[int, int] = {_Parameter.compression_level: 1, **_FRAME}  # for a message, or a changed text: as small
_READ: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}

Error = zstd.ZstdError


class Step(NamedTuple):
    """One stored text."""

    kind: int
    data: bytes


REMOVAL = Step(REMOVED, b"")


def whole(text: bytes | bytearray) -> Step:
    return Step(WHOLE, zstd.compress(text, _LEVEL))


def encode(old: bytes | None, new: bytes) -> Step:
    """The step from `old` to `new`; the whole text if that is smaller, or if there is no old text."""
    if not old:
        return whole(new)
    head, tail = common_ends(old, new)
    few = _few_splices(old, new, head, tail)
    if few is not None:
        return _splices_step(old, few, 0)
    replaced, inserted = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(inserted) > len(new) // 2 and len(replaced) < len(inserted) // 8:
        return whole(new)  # mostly new text
    data = _varint(head) + _varint(tail) + _piece(inserted, replaced)
    return Step(PATCH, data)


def encode_splices(old: bytes, splices: Sequence[Splice], first: int = 0) -> Step:
    """The step that applies splices, given in ascending order, to a text that is not compared.

    `old` is the text from the offset `first` on, which is at least CONTEXT_BYTES before the first splice.
    """
    return _splices_step(old, [_trimmed(old, splice, first) for splice in splices], first)


def _splices_step(old: bytes, splices: Sequence[Splice], first: int) -> Step:
    parts = [_varint(len(splices))]
    for start, removed, text in splices:
        at = start - first
        before = old[max(0, at - CONTEXT_BYTES) : at] if len(text) >= _MIN_COMPRESSED else b""
        parts += [_varint(start), _varint(removed), _piece(text, before)]
    return Step(SPLICES, b"".join(parts))


def _trimmed(old: bytes, splice: Splice, first: int) -> Splice:
    """The splice without the bytes that it does not change: most of a timestamp."""
    start, removed, text = splice
    if not removed:
        return splice
    replaced = old[start - first : start - first + removed]
    head, tail = common_ends(replaced, text)
    return Splice(start + head, removed - head - tail, text[head : len(text) - tail])


def apply(text: bytearray, step: Step, *, max_bytes: int | None = None) -> None:
    """Turn the version before into this one, in place. Raises Error or ValueError if the data is damaged.

    `max_bytes` bounds the size of each decompressed piece: for steps from another host.
    """
    if step.kind == WHOLE:
        text[:] = _decompress(step.data, b"", max_bytes)
    elif step.kind == PATCH:
        _apply_patch(text, step.data, max_bytes)
    elif step.kind == SPLICES:
        _apply_splices(text, step.data, max_bytes)
    else:
        raise ValueError(f"step of unknown kind {step.kind}")


def _apply_patch(text: bytearray, data: bytes, max_bytes: int | None) -> None:
    head, at = _read_varint(data, 0)
    tail, at = _read_varint(data, at)
    end = len(text) - tail
    if not head <= end:
        raise ValueError("patch does not fit the text")
    replaced = bytes(memoryview(text)[head:end])
    text[head:end] = _read_piece(data, at, replaced, max_bytes)[0]


def _apply_splices(text: bytearray, data: bytes, max_bytes: int | None) -> None:
    # The last first: a splice moves what comes after it, and its prefix is the old text before it.
    for start, removed, at in reversed(list(_iter_splices(data))):
        if start + removed > len(text):
            raise ValueError("splice does not fit the text")
        before = bytes(memoryview(text)[max(0, start - CONTEXT_BYTES) : start])
        text[start : start + removed] = _read_piece(data, at, before, max_bytes)[0]


def _iter_splices(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, removed, and the offset of the piece in `data`."""
    count, at = _read_varint(data, 0)
    for _ in range(count):
        start, at = _read_varint(data, at)
        removed, at = _read_varint(data, at)
        yield start, removed, at
        length, at = _read_varint(data, at)
        at += length >> 1


# -- pieces ----------------------------------------------------------------------------------------


def _piece(text: bytes, prefix: bytes) -> bytes:
    packed = _compress(text, prefix) if len(text) >= _MIN_COMPRESSED else text
    if len(packed) >= len(text):
        return _varint(len(text) << 1) + text
    return _varint(len(packed) << 1 | 1) + packed


def _read_piece(data: bytes, at: int, prefix: bytes, max_bytes: int | None) -> tuple[bytes, int]:
    """The text of a piece, and the offset of its end."""
    length, at = _read_varint(data, at)
    end = at + (length >> 1)
    stored = data[at:end]
    if len(stored) < length >> 1:
        raise ValueError("step is truncated")
    return (_decompress(stored, prefix, max_bytes) if length & 1 else stored), end


def _compress(text: bytes, prefix: bytes) -> bytes:
    if len(prefix) < _MIN_PREFIX:
        return zstd.compress(text, options=_USUAL)
    size = len(text) + len(prefix)
    is_mostly_old = len(text) <= 2 * len(prefix)
    options = _FAST if size <= _SHORT_BYTES or is_mostly_old else _USUAL
    if size >= _LONG_BYTES:
        window_log = min(size.bit_length(), 30)
        options = {**options, _Parameter.window_log: window_log, _Parameter.enable_long_distance_matching: 1}
    return zstd.compress(text, options=options, zstd_dict=zstd.ZstdDict(prefix, is_raw=True).as_prefix)


def _decompress(stored: bytes, prefix: bytes, max_bytes: int | None) -> bytes:
    used = zstd.ZstdDict(prefix, is_raw=True).as_prefix if len(prefix) >= _MIN_PREFIX else None
    if max_bytes is None:
        return zstd.decompress(stored, zstd_dict=used, options=_READ)
    # A window is allocated as its frame says: no larger than the texts can have made it.
    window_log = min(max(_DEFAULT_WINDOW_LOG, (max_bytes + len(prefix)).bit_length()), 31)
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window_log}
    decompressor = zstd.ZstdDecompressor(zstd_dict=used, options=options)
    text = decompressor.decompress(stored, max_length=max_bytes + 1)
    if len(text) > max_bytes or not decompressor.eof:
        raise ValueError(f"step is truncated, or has more than the {max_bytes} bytes it should")
    return text


# -- comparing -------------------------------------------------------------------------------------
# Slices of bytes are compared with memcmp. Comparing memoryviews is forty times slower.


def common_ends(old: bytes, new: bytes) -> tuple[int, int]:
    """How many bytes two texts have in common at the beginning, and how many of the rest at the end."""
    shorter = min(len(old), len(new))
    head = _common_head(old, 0, new, 0, shorter)
    return head, _common_tail(old, new, shorter - head)


def _common_head(old: bytes, at_old: int, new: bytes, at_new: int, limit: int) -> int:
    """How many of the next `limit` bytes are equal."""
    low, size = 0, _FIRST_COMPARED_BYTES
    while low < limit:
        size = min(size, limit - low)
        if old[at_old + low : at_old + low + size] != new[at_new + low : at_new + low + size]:
            break
        low, size = low + size, min(size * 8, _COMPARED_BYTES)
    high = min(low + size, limit)
    while low < high:  # the first `low` bytes are equal
        middle = (low + high + 1) // 2
        is_equal = old[at_old + low : at_old + middle] == new[at_new + low : at_new + middle]
        low, high = (middle, high) if is_equal else (low, middle - 1)
    return low


def _common_tail(old: bytes, new: bytes, limit: int) -> int:
    """How many of the last `limit` bytes are equal."""
    low, size = 0, _FIRST_COMPARED_BYTES
    while low < limit:
        size = min(size, limit - low)
        end_old, end_new = len(old) - low, len(new) - low
        if old[end_old - size : end_old] != new[end_new - size : end_new]:
            break
        low, size = low + size, min(size * 8, _COMPARED_BYTES)
    high = min(low + size, limit)
    while low < high:  # the last `low` bytes are equal
        middle = (low + high + 1) // 2
        is_equal = old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]
        low, high = (middle, high) if is_equal else (low, middle - 1)
    return low


def _few_splices(old: bytes, new: bytes, head: int, tail: int) -> list[Splice] | None:
    """The changes between two texts, if they are few and small: a save changes a title and a time, far apart.

    None if they are not.
    """
    old_end, new_end = len(old) - tail, len(new) - tail
    found: list[Splice] = []
    at_old = at_new = head
    while at_old < old_end or at_new < new_end:
        next_old, next_new = _next_agreement(old, at_old, old_end, new, at_new, new_end)
        found.append(Splice(at_old, next_old - at_old, new[at_new:next_new]))
        if len(found) > _MAX_SPLICES or sum(len(splice.text) for splice in found) > _SPLICED_BYTES:
            return None
        run = _common_head(old, next_old, new, next_new, min(old_end - next_old, new_end - next_new))
        at_old, at_new = next_old + run, next_new + run
    return found


def _next_agreement(old: bytes, at_old: int, old_end: int, new: bytes, at_new: int, new_end: int) -> tuple[int, int]:
    """Offsets in both texts, after a difference, from which on they are equal again; their ends if that is far."""
    for distance in _ANCHOR_DISTANCES:
        start = at_new + distance
        anchor = new[start : start + _ANCHOR_BYTES]
        if start + _ANCHOR_BYTES > new_end:
            break
        found = old.find(anchor, at_old, min(old_end, at_old + 2 * distance + _ANCHOR_BYTES))
        if found >= 0:
            back = _common_tail(old[at_old:found], new[at_new:start], min(found - at_old, distance))
            return found - back, start - back
    return old_end, new_end


# -- numbers ---------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("step is truncated")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
