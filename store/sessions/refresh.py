"""Refresh a Session that a program holds: take what others stored, and keep its own unsaved changes.

`save(on_conflict="merge")`, `append` and `refresh` use this. The base of the merge is the version
that the Session was loaded from, which it remembers, so no history is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pydantic

from store import layout
from store.commit import session_reader
from store.commit.core import Core
from store.commit.session_reader import LoadState, load_state_of
from store.documents.document import type_problem
from store.documents.json_splice import same
from store.documents.merge import UPDATED_AT, merge_documents
from store.documents.secrets import without_api_key_members
from store.documents.sidecar import AUTHORITY
from store.errors import InvalidContent, NotFound
from store.model.session import Session
from store.model.timestamp import Timestamp
from store.sessions.session_checks import conflict_error, dump, later, location_of, require_valid_fields


@dataclass(frozen=True)
class RefreshOperation:
    core: Core

    def refresh(self, session: Session) -> bool:
        """Bring a Session up to date; its unsaved changes stay. Returns whether others had changed it.

        Raises MergeConflict, and leaves the Session alone, if both changed the same thing.
        """
        require_valid_fields(session)
        location = location_of(session)
        origin: LoadState | None = session._origin
        if origin is None:
            raise conflict_error(location, None)
        if origin.version == self.core.version(location):
            return False
        fresh = self._load(session, origin)
        if fresh._origin.version == origin.version:
            return False
        merge_into(session, fresh)
        return True

    def _load(self, session: Session, origin: LoadState) -> Session:
        """The stored version: of a Session without messages, only the sidecar."""
        location = location_of(session)
        if origin.partial:
            found = session_reader.load_sidecar(self.core.disk, location, self.core.limit_bytes)
            if found is not None:
                return found
        loaded = self.core.load(location)
        if loaded is None:
            raise NotFound(f"session {location} was deleted since it was loaded")
        fresh = loaded.session
        fresh._origin = load_state_of(loaded)
        return fresh


def merge_into(session: Session, fresh: Session) -> None:
    """Make `session` what `fresh`, the stored version, becomes with the unsaved changes of `session`."""
    origin, current = session._origin, fresh._origin
    path = location_of(session).path(layout.SESSION)
    # API keys and sealed headers are never written by a save, so they are not merged either.
    base, ours, theirs = (
        {k: v for k, v in without_api_key_members(members).items() if k != AUTHORITY}
        for members in (origin.dump, dump(session), current.dump)
    )
    if not same(base, ours):
        latest = later(Timestamp(ours[UPDATED_AT]), Timestamp(theirs[UPDATED_AT]))
        merged = merge_documents(base, ours, theirs, path, updated_at=latest).data
        try:
            fresh = type(session).model_validate(merged)
        except pydantic.ValidationError as error:  # a value that the program assigned
            raise InvalidContent(path, type_problem(error)) from None
    session.replace_content(fresh)
    session._origin = current
