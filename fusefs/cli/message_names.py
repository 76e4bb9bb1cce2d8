"""The name SESSION#N of one message: a session, and the message's number as search prints it."""

from __future__ import annotations

import re

from store import Ambiguous, Location, NotFound, Store

_NUMBERED = re.compile(r"(.+)#m?(-?\d+)", re.DOTALL)


def split_message(name: str) -> tuple[str, int | None]:
    """The session's name and the number; None if the name has none."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, None)


def resolve_message(store: Store, name: str) -> tuple[Location, int | None]:
    """The session a person means, and the message. A session whose whole title ends like a number wins."""
    session, number = split_message(name)
    if number is None:
        return store.resolve(name), None
    try:
        return store.resolve(name), None
    except (NotFound, Ambiguous):
        return store.resolve(session), number
