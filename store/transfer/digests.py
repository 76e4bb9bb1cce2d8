"""SHA-256 of files that are read in chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator


class HashedChunks:
    """Pass chunks through and hash them. Once they are consumed, `hexdigest` is the digest of all of them."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self._sha256 = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._sha256.update(chunk)
            yield chunk

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


def sha256_of(chunks: Iterable[bytes]) -> str:
    hashed = HashedChunks(chunks)
    for _ in hashed:
        pass
    return hashed.hexdigest()
