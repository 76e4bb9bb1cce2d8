"""Attaching: an open home gets the agreement of its grove, or stays alone.

Nothing of this package but `replica` is imported for a home that has not joined, and psycopg never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from store.commit.agreement import Agreement, Alone
from store.commit.commit import AgreedVersion, Commit
from store.commit.core import Core
from store.errors import ReadOnly
from store.grove.replica import Replica

if TYPE_CHECKING:
    from store.grove.follower import LogFollower

T = TypeVar("T")


class Detached(Alone):
    """The agreement of a joined home without psycopg: it can be read, and not written."""

    is_joined = True

    def check(self) -> None:
        raise ReadOnly(
            "this home belongs to a grove, and psycopg, which is needed to write to it, is not installed: "
            "pip install 'grovefs[grove]'"
        )

    def agree(self, commit: Commit, temps: Sequence[str], meanwhile: Callable[[], None]) -> list[AgreedVersion]:
        self.check()
        return []

    def repeat(self, work: Callable[[], T]) -> T:
        return work()


def attach(core: Core) -> Agreement:
    """The agreement of a joined home."""
    if find_spec("psycopg") is None:
        return Detached()
    from store.grove.agreeing import GroveAgreement
    from store.grove.connection import GroveServer

    replica = Replica(core.home)
    replica.distrust_unsynced()
    return GroveAgreement(core, replica, GroveServer(replica))


def start_following(core: Core, *, background: bool) -> LogFollower | None:
    """Bring a joined home up to date, for a second at most, and keep it so with `background`."""
    if isinstance(core.agreement, Detached):
        return None
    from store.grove.following import follow

    return follow(core, background=background)
