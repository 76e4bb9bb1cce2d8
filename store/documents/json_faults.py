"""Where a text that is known to be wrong is wrong. Slow and exact, token by token: only for refusals. Pure."""

from __future__ import annotations

import re

import orjson

Path = tuple[str | int, ...]


def too_deep_at(raw: bytes, max_depth: int) -> int:
    """Offset of the bracket that opens one level too many."""
    depth = 0
    for token in re.finditer(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', raw, re.DOTALL):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth > max_depth:
                return token.start()
        elif token[0] in (b"]", b"}"):
            depth -= 1
    raise AssertionError("the text is not that deep")


def find_duplicate(raw: bytes) -> tuple[Path, int]:
    """Path and offset of the first repeated key. Slow and exact: only for a text known to have one."""
    path: list[str | int] = []  # the key or index each open container stands at
    seen: list[set[str] | None] = []  # keys so far; None for an array
    token = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:)?|[\[\]{},]', re.DOTALL)
    for match in token.finditer(raw):
        text = match[0]
        if text == b"{":
            seen.append(set())
            path.append("")
        elif text == b"[":
            seen.append(None)
            path.append(0)
        elif text in (b"}", b"]"):
            seen.pop()
            path.pop()
        elif text == b",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
        elif match[2] is not None:
            key = orjson.loads(match[1])
            keys = seen[-1]
            assert keys is not None
            path[-1] = key
            if key in keys:
                return tuple(path), match.start()
            keys.add(key)
    raise AssertionError("the text repeats no key")
