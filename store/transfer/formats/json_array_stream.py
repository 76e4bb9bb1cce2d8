"""Stream the elements of a large JSON array one at a time, each with its first line.

Only brackets and strings are scanned. The caller parses the elements, so one invalid element does not affect the
others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_ELEMENT_BYTES = 256 * 1024 * 1024

# Tokens that determine where an element ends. A lone quote is a string that continues in the next chunk.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]|"', re.DOTALL)


class Element(NamedTuple):
    line: int
    data: bytes


class BrokenArray(ValueError):
    """Not an array, or a truncated one; `line` is where this was detected."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def iter_elements(chunks: Iterable[bytes]) -> Iterator[Element]:
    """Yield each element of the array. Raises BrokenArray if it is truncated or not an array."""
    text = bytearray()
    at = start = depth = 0  # next position to search, start of the element, open brackets
    line = 1  # of text[0]
    for chunk in chunks:
        text += chunk
        while (token := _TOKEN.search(text, at)) is not None:
            if token[0] == b'"':  # a string that continues in the next chunk
                at = token.start()
                break
            at = token.end()
            if depth == 0:
                if token[0] != b"[" or text[: token.start()].strip(b"\xef\xbb\xbf \t\r\n"):
                    raise BrokenArray(line, "expected an array")
                depth, start = 1, at
                continue
            ends = token[0] in (b",", b"]") and depth == 1
            if token[0] in (b"[", b"{"):
                depth += 1
            elif token[0] in (b"]", b"}"):
                depth -= 1
            if ends:
                data = bytes(text[start : token.start()])
                if data.strip():
                    lead = len(data) - len(data.lstrip())
                    yield Element(line + text.count(b"\n", 0, start + lead), data.strip())
                if depth == 0:
                    return
                line += text.count(b"\n", 0, at)
                del text[:at]
                at = start = 0
        else:
            at = len(text)
        if len(text) > MAX_ELEMENT_BYTES:
            raise BrokenArray(line, f"an element is larger than {MAX_ELEMENT_BYTES} bytes, or a string is not closed")
    raise BrokenArray(line + text.count(b"\n"), "the array is not closed" if depth else "expected an array")
