"""Who keeps what of a home besides the conversations: messages, records, state documents, payloads.

The mount asks by place; each of these has a module that writes, removes and moves its own. What belongs to none of
them is answered False, and is the namespace's affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.commit.write_request import WriteRequest
from store.errors import MustBeCopied
from store.path_kinds import PathInfo, PathKind
from store.sessions.records import Records
from store.workspace.mailbox import Mailboxes
from store.workspace.project_moves import ProjectMover
from store.workspace.projects import Projects
from store.workspace.state import State

_STATE = (PathKind.STATE_JSON, PathKind.STATE_TEXT)


@dataclass(frozen=True)
class Dispatcher:
    core: Core
    mail: Mailboxes
    records: Records
    state: State
    projects: Projects
    mover: ProjectMover

    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Commit `raw`, the content of the request; False if the same bytes are there already."""
        keepers = {
            PathKind.MESSAGE: self.mail.put,
            PathKind.RECORD: self.records.put,
            PathKind.PAYLOAD: self.projects.put,
        }
        put = keepers.get(request.target.kind, self.state.put)
        return put(request, raw)

    def remove(self, place: PathInfo, *, keep: bool = True) -> bool:
        """Take a file away; to the trash, unless it lives on under another name. False if it is none of these."""
        if place.kind is PathKind.MESSAGE:
            self.mail.remove(place)
        elif place.kind is PathKind.RECORD:
            self.records.remove(place)
        elif place.kind in _STATE:
            self.state.remove(place, keep=keep)
        elif place.kind is PathKind.PAYLOAD:
            self.projects.remove(place, keep=keep)
        else:
            return False
        return True

    def move(self, source: PathInfo, target: PathInfo, *, is_dir: bool) -> bool:
        """Rename what an index has to follow, to a name that is not committed as a whole. False if none has to."""
        if source.kind is PathKind.PAYLOAD:
            self.projects.move_away(source, target)
        elif is_dir and any(place.kind in (PathKind.PROJECT, PathKind.PROJECT_SESSION) for place in (source, target)):
            if _is_state(source):  # both search and the project's index would have to follow, in one commit
                raise MustBeCopied(f"{source.path} holds state documents: they have to be copied to be none")
            self.mover.move(source, target)
        elif source.kind in _STATE or (is_dir and any(map(_is_state, (source, target)))):
            self.state.move(source, target)
        else:
            return False
        return True

    def notify_changed(self, place: PathInfo) -> None:
        """A file came or went by a plain rename or unlink: whoever has to know is told."""
        if place.location is None:
            return
        if place.kind is PathKind.MESSAGE:
            self.mail.announce(place.location)
        elif place.kind is PathKind.RECORD:
            self.records.announce(place.location)
        elif place.name == layout.REMOVED and not place.location.is_session:
            self.core.refresh(place.location)  # a child taken out of its project's indices, or back

    def notify_exchanged(self, place: PathInfo) -> None:
        """Two names changed places: directories may hold documents that search knows elsewhere."""
        if _is_state(place):
            self.core.refresh(layout.state_location())

    def notify_attributes(self, place: PathInfo) -> None:
        """The times of a file were set: an index may take them for its own."""
        if place.location is not None and (place.kind in _STATE or place.kind is PathKind.PAYLOAD):
            self.core.refresh(place.location)


def _is_state(place: PathInfo) -> bool:
    return place.path.startswith(f"{layout.STATE}/")
