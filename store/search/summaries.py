"""Session summaries for lists, and iteration over changed sessions.

Summaries come from the index only. Iterating over changed sessions asks the index for their locations and
holds one session in memory at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from store.commit.core import Core
from store.errors import Busy, Corrupt
from store.index.catalog import ALL, Filter, Order
from store.layout import Location
from store.model.preview import NEW_TITLE, Preview
from store.model.timestamp import Timestamp

if TYPE_CHECKING:
    from store.model.session import Session

log = logging.getLogger("grovefs.store")


class SessionSummary(NamedTuple):
    """One line of a session list."""

    location: Location
    id: str
    title: str  # stored, or derived from the first user message
    is_derived_title: bool
    user_id: str | None
    persona_id: str | None
    seed_id: str | None
    project_id: str | None
    message_count: int
    exchange_count: int  # user messages with an answer
    pinned: bool
    status: str | None
    created_at: Timestamp
    updated_at: Timestamp


@dataclass(frozen=True)
class Summaries:
    """`store.summaries`."""

    core: Core

    def page(
        self,
        *,
        order: Order = "updated",
        descending: bool = True,
        limit: int = ALL,
        offset: int = 0,
        **where: Any,
    ) -> list[SessionSummary]:
        """List summaries, or `limit` of them from `offset`, with a title from the first user message where none is set.

        Filters are those of `Store.entries`.
        """
        found = self.core.index.summaries(Filter(**where), order, descending=descending, limit=limit, offset=offset)
        return [summarise(*row) for row in found]

    def iter_changed(self, since: Timestamp | str) -> Iterator[Session]:
        """Each session changed at or after a time, once, in the order of the changes."""
        return self._iter_changed(Timestamp(since))  # an invalid time is rejected now, not at the first session

    def _iter_changed(self, since: Timestamp) -> Iterator[Session]:
        from store.commit.session_reader import with_load_state

        for location in self.core.index.changed_since(since):
            try:
                loaded = self.core.load(location)
            except (Busy, Corrupt) as error:
                log.warning("skipping an unreadable session: %s", error)
                continue
            if loaded is not None:  # None: deleted since
                yield with_load_state(loaded)


def summarise(location: Location, entry: dict[str, Any], preview: Preview) -> SessionSummary:
    """`entry` as the index stores it: members without a value are absent."""
    title: str = entry["title"]
    is_derived = title.strip() in ("", NEW_TITLE) and preview.opening is not None
    return SessionSummary(
        location=location,
        id=entry["id"],
        title=preview.opening if is_derived and preview.opening is not None else title,
        is_derived_title=is_derived,
        user_id=preview.user,
        persona_id=preview.persona,
        seed_id=preview.seed,
        project_id=entry.get("project_id"),
        message_count=entry["message_count"],
        exchange_count=preview.exchanges,
        pinned=entry["pinned"],
        status=entry.get("last_run_status"),
        created_at=Timestamp(entry["created_at"]),
        updated_at=Timestamp(entry["updated_at"]),
    )
