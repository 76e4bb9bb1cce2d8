"""Facts about a text that is to be kept: its size, digest and updated_at. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from store.history.versions import DIGEST_BYTES, DIGEST_LIMIT_BYTES
from store.model.timestamp import clip_ns, ns_of


class _UpdatedAt(msgspec.Struct):
    """Decoding with this type skips every other member without building objects."""

    updated_at: str | None = None


_decoder = msgspec.json.Decoder(_UpdatedAt)


def said_ns_of(text: bytes) -> int | None:
    """The updated_at at the top of a document; None if it has none, or is not a document."""
    try:
        said = _decoder.decode(text).updated_at
        return clip_ns(ns_of(said)) if said is not None else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def digest_of_parts(parts: Sequence[bytes | memoryview], size: int) -> bytes | None:
    """The digest of a text; None if it is too long to be hashed in a commit."""
    if size > DIGEST_LIMIT_BYTES:
        return None
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:DIGEST_BYTES]
