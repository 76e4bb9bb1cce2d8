"""How far a file of lines was read, and whether it still begins with the bytes that were read.

A log only grows, normally. Then it is enough to read it from the last position. A file that was truncated, rewritten
or replaced does not match its position and is read as a whole.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

# The beginning of a file decides what it is and what it continues. A shorter file is always read as a whole.
SHORT_BYTES = 64 * 1024
SHORT_LINES = 20
_SAMPLE_BYTES = 4096  # compared at the beginning and before the position
_CHECKED_BYTES = 8 * 1024 * 1024  # up to here all bytes before the position are compared: this takes 4 ms
_CHUNK_BYTES = 1024 * 1024


@dataclass
class FilePosition:
    """The end of the last line that was read, and checksums of the bytes before it."""

    offset: int = 0
    line: int = 0  # lines before the offset
    crc32: int = 0  # of all bytes before the offset
    ends_line: bool = True  # False: the last line had no newline, so it may be incomplete
    _first: bytes = b""
    _last: bytes = b""

    def add(self, line: bytes) -> None:
        """Count a line, or a part of one, that was read."""
        if not self.offset:
            self._first = line
        self._last = line
        self.offset += len(line)
        self.crc32 = zlib.crc32(line, self.crc32)
        self.ends_line = line.endswith(b"\n")

    @property
    def is_short(self) -> bool:
        return self.offset < SHORT_BYTES or self.line < SHORT_LINES

    def to_json(self) -> dict[str, Any]:
        last = self._last[-_SAMPLE_BYTES:]
        return {
            "offset": self.offset,
            "line": self.line,
            "crc32": self.crc32,
            "first": [len(self._first[:_SAMPLE_BYTES]), _digest(self._first[:_SAMPLE_BYTES])],
            "last": [len(last), _digest(last)],
        }


def is_prefix_unchanged(file: BinaryIO, known: Mapping[str, Any], *, whole: bool) -> bool:
    """Whether a file still begins with the bytes that were read.

    All of them are compared if the file is small or `whole` is set, otherwise the first and the last line.
    """
    offset: int = known["offset"]
    if os.fstat(file.fileno()).st_size < offset:
        return False
    first, last = known["first"], known["last"]
    if _digest(os.pread(file.fileno(), first[0], 0)) != first[1]:
        return False
    if _digest(os.pread(file.fileno(), last[0], offset - last[0])) != last[1]:
        return False
    return _crc32_of(file, offset) == known["crc32"] if whole or offset <= _CHECKED_BYTES else True


def resumed(known: Mapping[str, Any], first: bytes) -> FilePosition:
    """The position from which a file is read on. `first` is the beginning of the file."""
    return FilePosition(known["offset"], known["line"], known["crc32"], _first=first[: known["first"][0]])


def _crc32_of(file: BinaryIO, size: int) -> int:
    value, at = 0, 0
    while at < size and (chunk := os.pread(file.fileno(), min(_CHUNK_BYTES, size - at), at)):
        value, at = zlib.crc32(chunk, value), at + len(chunk)
    return value if at == size else -1


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
