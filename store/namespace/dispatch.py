"""Dispatch by kind of path: mail messages, records, state documents and project payloads.

Each kind has a module that writes, removes and moves its files. The methods return False for other
kinds, which `Namespace` handles.
"""

from __future__ import annotations

from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.commit.write_request import PutResult, WriteRequest
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

    def put(self, request: WriteRequest, raw: bytes) -> PutResult:
        """Commit `raw`, the content of the request, or what a merge makes of it."""
        puts = {
            PathKind.MESSAGE: self.mail.put,
            PathKind.RECORD: self.records.put,
            PathKind.PAYLOAD: self.projects.put,
        }
        put = puts.get(request.target.kind)
        return PutResult(put(request, raw)) if put is not None else self.state.put(request, raw)

    def remove(self, place: PathInfo, *, keep: bool = True) -> bool:
        """Remove a file: to the trash, unless `keep` is False (it was renamed).

        False if it is of another kind.
        """
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
        """Rename an indexed file or directory to a path that is not committed whole.

        False if no index needs it.
        """
        if source.kind is PathKind.PAYLOAD:
            self.projects.move_away(source, target)
        elif is_dir and any(place.kind in (PathKind.PROJECT, PathKind.PROJECT_SESSION) for place in (source, target)):
            if _is_state(source):  # search and the project's index would have to change in one commit
                raise MustBeCopied(f"{source.path} contains state documents; copy it to {target.path} instead")
            self.mover.move(source, target)
        elif source.kind in _STATE or (is_dir and any(map(_is_state, (source, target)))):
            self.state.move(source, target)
        else:
            return False
        return True

    def notify_changed(self, place: PathInfo) -> None:
        """Update index and feed after a file was created or removed by a plain rename or unlink."""
        if place.location is None:
            return
        if place.kind is PathKind.MESSAGE:
            self.mail.announce(place.location)
        elif place.kind is PathKind.RECORD:
            self.records.announce(place.location)
        elif place.name in (layout.REMOVED, layout.ENTRY) and not place.location.is_session:
            self.core.refresh(place.location)  # they decide whether and how a session is listed

    def notify_exchanged(self, place: PathInfo) -> None:
        """Update the index after an exchange: directories may contain indexed documents."""
        if _is_state(place):
            self.core.refresh(layout.state_location())

    def notify_attributes(self, place: PathInfo) -> None:
        """Update the index after the times of a file were set: it may store them."""
        if place.location is not None and (place.kind in _STATE or place.kind is PathKind.PAYLOAD):
            self.core.refresh(place.location)


def _is_state(place: PathInfo) -> bool:
    return place.path.startswith(f"{layout.STATE}/")
