"""Digests of growing texts: right for any change, without reading what did not change."""

from __future__ import annotations

import random
from hashlib import sha256

from store.grove.prefix_digests import PrefixDigests, Reader


def test_digests_are_those_of_the_whole_text() -> None:
    """Whatever changes where, also after an attempt that was not stored."""
    noise, digests = random.Random(3), PrefixDigests()
    text = noise.randbytes(5000)
    for _ in range(300):
        start = noise.randrange(len(text))
        new = text[:start] + noise.randbytes(noise.randrange(200)) + text[start + noise.randrange(50) :]
        assert digests.digest("p", sha256(text).digest(), start, len(new), reader(new)) == sha256(new).digest()
        if noise.random() < 0.8:  # else it was refused
            text = new or text


def test_an_append_reads_the_end_only() -> None:
    digests, read = PrefixDigests(), 0
    text = bytes(100_000)
    for _ in range(5):
        new = text + b"more"
        counted = 0

        def counting(at: int, count: int, new: bytes = new) -> bytes:
            nonlocal counted
            counted += count
            return new[at : at + count]

        assert digests.digest("p", sha256(text).digest(), len(text), len(new), counting) == sha256(new).digest()
        text, read = new, counted
    assert read < 100


def reader(text: bytes) -> Reader:
    return lambda at, count: text[at : at + count]
