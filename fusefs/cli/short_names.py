"""Short forms of session names for a narrow terminal: a UUID becomes a beginning that no other id has. Pure.

Every command takes such a beginning for the id, also in ROOT/CHILD.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LENGTHS = (8, 13, 18, 23)  # before a hyphen


def shorten(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The short form of each name that has one. `known` are the names of all sessions."""
    ids = sorted({id for name in known for id in name.split("/")})
    short = {name: "/".join(_shortened(id, ids) for id in name.split("/")) for name in names}
    return {name: form for name, form in short.items() if form != name}


def has_uuid(name: str) -> bool:
    return _UUID.search(name) is not None


def _shortened(id: str, ids: list[str]) -> str:
    if not _UUID.fullmatch(id):
        return id
    at = bisect_left(ids, id)
    neighbours = [*ids[max(at - 1, 0) : at], *(other for other in ids[at : at + 2] if other != id)]
    return next((id[:n] for n in _LENGTHS if not any(other.startswith(id[:n]) for other in neighbours)), id)
