"""The elements of a JSON array too large to be read whole, one at a time, each with the line it begins on.

Only brackets and strings are looked at; whether an element is good JSON is for its reader to find, so that
one bad element costs none of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_ELEMENT_BYTES = 256 * 1024 * 1024

# What decides where an element ends. A string that is not closed yet waits for the next piece.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]|"', re.DOTALL)


class Element(NamedTuple):
    line: int
    data: bytes


class BrokenArray(ValueError):
    """The text is no array, or ends in the middle; `line` is where that shows."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def iter_elements(pieces: Iterable[bytes]) -> Iterator[Element]:
    """Each element of the one array in a text; BrokenArray where that ends too early, or is none."""
    text = bytearray()
    at = start = depth = 0  # where to go on looking, where the element begins, open brackets
    line = 1  # of text[0]
    for piece in pieces:
        text += piece
        while (token := _TOKEN.search(text, at)) is not None:
            if token[0] == b'"':  # a string that goes on in the next piece
                at = token.start()
                break
            at = token.end()
            if depth == 0:
                if token[0] != b"[" or text[: token.start()].strip(b"\xef\xbb\xbf \t\r\n"):
                    raise BrokenArray(line, "an array is expected")
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
            raise BrokenArray(line, f"an element is over {MAX_ELEMENT_BYTES} bytes, or a string is not closed")
    raise BrokenArray(line + text.count(b"\n"), "the array is not closed" if depth else "an array is expected")
