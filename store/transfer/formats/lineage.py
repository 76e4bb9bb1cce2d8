"""Who descends from whom, by what the sessions of a source say themselves. Pure; nothing said is believed blindly."""

from __future__ import annotations

from collections.abc import Mapping

MAX_DEPTH = 1000


def ancestors(id: str, parents: Mapping[str, str | None]) -> list[str]:
    """The sessions above one, nearest first, as far as they are known; none where they go in a circle."""
    found: list[str] = []
    parent = parents.get(id)
    while parent is not None and parent in parents:
        if parent == id or parent in found or len(found) == MAX_DEPTH:
            return []
        found.append(parent)
        parent = parents[parent]
    return found
