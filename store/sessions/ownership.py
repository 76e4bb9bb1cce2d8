"""Whose a session is and where it is filed: its user, its persona, its project.

All three are members of the session itself, so changing one is a save like any other: under the session's lock, in
both documents, followed by the index. User and persona lie in `metadata`, the project in `runtime_metadata` too.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.commit.session_reader import with_load_state
from store.errors import InvalidName
from store.layout import Location
from store.model.session import Session
from store.sessions.save import SaveOperations


@dataclass(frozen=True)
class Ownership:
    core: Core
    saver: SaveOperations

    def get_or_create(
        self, session_id: str | None = None, *, user_id: str | None = None, model: str = "", title: str | None = None
    ) -> Session:
        """The session of this id as it is, or else a new root, saved, that belongs to `user_id`.

        Without an id there is always a new one. Of many who ask at once one creates it, and all get that one.
        """
        self.core.check_writable()
        location = self._place_of(session_id)
        with self.core.locked(location):
            loaded = self.core.load(location)
            if loaded is not None:
                return with_load_state(loaded)
            session = Session.new(location.id, model)
            session.user_id = user_id
            session.title = session.title if title is None else title
            self.saver.save(session)
            return session

    def _place_of(self, session_id: str | None) -> Location:
        if session_id is None:
            return Location(str(uuid.uuid4()))
        return self.core.locate(session_id) or Location(layout.check_new_id(session_id))

    def move_to_project(self, session_id: str, project_id: str | None) -> bool:
        """File a session under a project, or (None) under none; False for an unknown id."""
        if project_id is not None and not project_id.strip():
            raise InvalidName("a project's id cannot be blank; None files a session under no project")
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        with self.core.locked(location):
            loaded = self.core.load(location)
            if loaded is None:
                return False  # deleted since it was located
            session = with_load_state(loaded)
            session.project_id = project_id
            self.saver.save(session)
            return True
