"""A wrong bulk edit of a thousand sessions, undone while agents wrote to some of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.store.undo.test_undo import undo_a_wrong_sed
from tests.torture.attack import Case
from tests.torture.places import scratch

SESSIONS = 1_000
LIVE = 20


def cases(seed: int) -> Iterator[Case]:
    yield Case(f"undo-{SESSIONS}", partial(undo_all, SESSIONS, LIVE))


def undo_all(count: int, live_count: int) -> None:
    with scratch(in_memory=True) as place:
        undo_a_wrong_sed(place / "home", count, live_count)
