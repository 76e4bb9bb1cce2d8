"""Resolve a session name given by a user: an id, a unique prefix of it, or a title."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store.commit.core import Core
from store.errors import Ambiguous, InvalidName, NotFound
from store.layout import Location
from store.model.preview import NEW_TITLE
from store.sessions.match_name import match_one


@dataclass(frozen=True)
class NameResolver:
    """Raises Ambiguous with all candidates: a deletion by a few letters must never hit the wrong session."""

    core: Core

    def resolve(self, name: str) -> Location:
        """The session with this id, `root/child`, unique prefix of either, or title in any case."""
        exact = self._exact(name)
        if exact is not None:
            return exact
        found = match_one(name, self._sessions(), lambda session: str(session[0]), lambda session: session[1])
        if found is None:
            raise NotFound(f"there is no session {name!r}; `grovefs ls` lists them")
        return found[0]

    def _exact(self, name: str) -> Location | None:
        """Tried first: it needs no scan, and finds a session that is not indexed yet."""
        try:
            return self.core.locate(name)
        except Ambiguous:
            raise
        except InvalidName:  # not an id, but it may be a title
            return None

    def _sessions(self) -> Iterator[tuple[Location, str]]:
        """All sessions with the title that lists show: their own, or the beginning of the first user message."""
        rows = self.core.db.reader.execute("SELECT root, child, title, opening FROM sessions")
        for root, child, own, opening in rows:
            shown = opening if opening is not None and own.strip() in ("", NEW_TITLE) else own
            yield Location(root, child or None), shown
        for root, child in self.core.db.reader.execute("SELECT root, child FROM damaged"):
            yield Location(root, child or None), ""
