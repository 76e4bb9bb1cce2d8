"""Bar charts of named numbers as PNG, encoded without an image library. Pure.

The font is a 5×7 bitmap with only the characters that occur in dates, counts and chart titles.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

# One byte per column, left to right; the lowest bit is the top dot.
_DOTS = {
    **{"0": "3e5149453e", "1": "00427f4000", "2": "4261514946", "3": "2141454b31", "4": "1814127f10"},
    **{"5": "2745454539", "6": "3c4a494930", "7": "0171090503", "8": "3649494936", "9": "064949291e"},
    **{"-": "0808080808", ".": "0060600000", "G": "3e4149497a", "M": "7f020c027f", "a": "2054545478"},
    **{"d": "384444487f", "e": "3854545418", "g": "0c5252523e", "i": "00447d4000", "k": "7f10284400"},
    **{"m": "7c04180478", "n": "7c08040478", "o": "3844444438", "p": "7c14141408", "r": "7c08040408"},
    **{"s": "4854545420", "t": "043f444020", "u": "3c4040207c", "w": "3c4030403c", "y": "0c5050503c"},
}
_ADVANCE = 6  # dots from one letter to the next
_BAR, _GAP, _HEIGHT, _MARGIN = 48, 12, 320, 48  # in pixels
_LABEL = 160  # room below the bars for the rotated names
_BACKGROUND, _INK, _FILL = b"\xff\xff\xff", b"\x20\x20\x20", b"\x3a\x7d\x44"


def png(values: Mapping[str, int], title: str) -> bytes:
    """Vertical bars, each with its number above and its name below."""
    width = max(480, 2 * _MARGIN + len(values) * (_BAR + _GAP))
    canvas = _Canvas(width, 3 * _MARGIN + _HEIGHT + _LABEL)
    canvas.write(title, _MARGIN, 24, scale=3)
    longest, bottom = max(values.values(), default=0) or 1, 2 * _MARGIN + _HEIGHT
    for place, (name, value) in enumerate(values.items()):
        x, height = _MARGIN + place * (_BAR + _GAP), value * _HEIGHT // longest
        canvas.fill(x, bottom - height, _BAR, height, _FILL)
        canvas.write(short(value), x, bottom - height - 18, scale=2)
        canvas.write_upwards(name, x + _BAR // 2 - 7, bottom + 12, scale=2)
    return canvas.encoded()


def short(value: int) -> str:
    """A number in three or four characters, rounded down: 1234 becomes 1k."""
    for limit, sign in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= limit:
            return f"{value // limit}{sign}"
    return str(value)


class _Canvas:
    """An RGB image: three bytes per pixel, row by row."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [bytearray(_BACKGROUND * width) for _ in range(height)]

    def fill(self, x: int, y: int, width: int, height: int, colour: bytes) -> None:
        left, right = max(0, x), min(self.width, x + width)
        for row in self.rows[max(0, y) : max(0, y + height)]:
            row[3 * left : 3 * right] = colour * max(0, right - left)

    def write(self, text: str, x: int, y: int, *, scale: int) -> None:
        for across, down in _dots(text):
            self.fill(x + across * scale, y + down * scale, scale, scale, _INK)

    def write_upwards(self, text: str, x: int, y: int, *, scale: int) -> None:
        """Write text rotated by 90°, reading upwards and ending at `y`, below the bar."""
        length = len(text) * _ADVANCE
        for across, down in _dots(text):
            self.fill(x + down * scale, y + (length - across) * scale, scale, scale, _INK)

    def encoded(self) -> bytes:
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)  # 8 bits, RGB
        pixels = b"".join(b"\0" + row for row in self.rows)  # each row starts with its filter type: none
        chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(pixels)) + _chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + chunks


def _dots(text: str) -> list[tuple[int, int]]:
    columns = [(place, bytes.fromhex(_DOTS[letter])) for place, letter in enumerate(text) if letter in _DOTS]
    return [
        (place * _ADVANCE + across, down)
        for place, letter in columns
        for across, column in enumerate(letter)
        for down in range(8)
        if column >> down & 1
    ]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
