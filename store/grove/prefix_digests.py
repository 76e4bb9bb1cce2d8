"""Digests of texts that grow: the SHA-256 of a long text without reading what did not change.

An append changes a text near its end. The state of the hash before that place is kept in memory, so
the next append hashes only what follows it: 10 MB would take longer to hash than to append to.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

KEPT = 64  # texts
MIN_BYTES = 64 << 10  # shorter texts are hashed as a whole
_PIECE_BYTES = 1 << 20

Reader = Callable[[int, int], bytes]  # the bytes of the new text, from an offset, at most this many


class _Prefix(NamedTuple):
    digest: bytes  # of the whole text
    position: int
    state: Any  # of the hash, after the bytes before `position`


class PrefixDigests:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Prefix] = OrderedDict()

    def digest(self, path: str, base: bytes, start: int, size: int, read: Reader) -> bytes:
        """The SHA-256 of a text of this size, which is the text with digest `base` up to `start`."""
        with self._lock:
            known = self._known.get(path)
        position, state = 0, sha256()
        if known is not None and known.digest == base and known.position <= start:
            position, state = known.position, known.state.copy()
        _update(state, position, start, read)
        prefix = state.copy()
        _update(state, start, size, read)
        found = state.digest()
        with self._lock:
            self._known[path] = _Prefix(found, start, prefix)
            self._known.move_to_end(path)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found


def _update(state: Any, begin: int, end: int, read: Reader) -> None:
    while begin < end:
        piece = read(begin, min(_PIECE_BYTES, end - begin))
        if not piece:
            raise OSError(f"the file ends at {begin}, expected {end}")
        state.update(piece)
        begin += len(piece)
