"""Sessions in a list, and sessions that changed: what can be had without opening all of them.

A summary comes from the index alone. A stream of changed sessions asks the index which they are, and then holds one of
them in memory at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from store.commit.core import Core
from store.commit.session_reader import with_load_state
from store.errors import Busy, Corrupt
from store.index.catalog import Filter, Order
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.preview import Preview
from store.model.session import NEW_TITLE, Session
from store.model.timestamp import Timestamp

PAGE = 200  # summaries per page by default

log = logging.getLogger("grovefs.store")


class SessionSummary(NamedTuple):
    """What a list shows of a session."""

    location: Location
    id: str
    title: str  # its own, or one made from the first thing the user said
    is_derived_title: bool  # whether the title is such a one
    user_id: str | None
    persona_id: str | None
    project_id: str | None
    message_count: int
    exchange_count: int  # questions of the user that were answered
    pinned: bool
    status: str | None
    created_at: Timestamp
    updated_at: Timestamp


@dataclass(frozen=True)
class Summaries:
    core: Core

    def page(
        self,
        *,
        order: Order = "updated",
        descending: bool = True,
        limit: int = PAGE,
        offset: int = 0,
        **where: Any,
    ) -> list[SessionSummary]:
        """List one page of summaries, with a title from the first user message where none is set.

        Filters are those of `Store.entries`.
        """
        found = self.core.index.summaries(Filter(**where), order, descending=descending, limit=limit, offset=offset)
        return [summarise(*row) for row in found]

    def iter_changed(self, since: Timestamp | str) -> Iterator[Session]:
        """Each session that was changed at that moment or since, once, in the order they were changed."""
        for location in self.core.index.changed_since(Timestamp(since)):
            try:
                loaded = self.core.load(location)
            except (Busy, Corrupt) as error:
                log.warning("left out, for it cannot be read: %s", error)
                continue
            if loaded is not None:  # else it was deleted since
                yield with_load_state(loaded)


def summarise(location: Location, entry: IndexEntry, gist: Preview) -> SessionSummary:
    is_made = entry.title.strip() in ("", NEW_TITLE) and gist.opening is not None
    return SessionSummary(
        location=location,
        id=entry.id,
        title=gist.opening if is_made and gist.opening is not None else entry.title,
        is_derived_title=is_made,
        user_id=gist.user,
        persona_id=gist.persona,
        project_id=entry.project_id,
        message_count=entry.message_count,
        exchange_count=gist.exchanges,
        pinned=entry.pinned,
        status=entry.last_run_status,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
    )
