"""CheckContext: what a check may read. Checks read the disk and the index, and change neither."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from store.commit.commit import WHOLE_TREE
from store.commit.core import Core
from store.commit.reindex import iter_on_disk
from store.home.services import Services
from store.home.sessions_json import SessionsJson
from store.layout import Location


@dataclass
class CheckContext:
    """One run of all checks over an open home."""

    core: Core
    services: Services
    sessions_json: SessionsJson
    progress: Callable[[int, int], None] | None = None

    @cached_property
    def on_disk(self) -> list[Location]:
        """Every session directory, listed once, after interrupted commits have been finished."""
        return list(iter_on_disk(self.core.disk))


def is_pending(core: Core, location: Location) -> bool:
    """Whether a commit of this location is in progress or was interrupted; `check_unfinished` reports the latter."""
    pending = core.journal.pending(location.root)
    return (location.child or "") in pending or WHOLE_TREE in pending
