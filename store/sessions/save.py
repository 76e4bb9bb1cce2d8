"""Save changes of a session: save, save_runtime, clear, get_or_create, move_to_project.

Each takes the session's lock, reads the current version, rejects a stale copy (rule 8) or one that
could not be loaded again (rule 6), and makes one commit. A Session remembers the version it was
loaded from; only the members that differ from it are spliced into the files (rule 5).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commits import Commits, trash_copy_of_sidecar
from store.commit.core import Core
from store.commit.session_reader import DocumentPair, LoadState, load_state_of, with_load_state
from store.commit.to_trash import TrashPart, to_trash
from store.disk.file import NewFile
from store.documents import json_text, secrets, sidecar
from store.documents.document import Document
from store.documents.json_splice import same
from store.errors import Conflict, InvalidName, NotFound
from store.index.catalog import CatalogRow, Version
from store.index.change_feed import What
from store.layout import Location
from store.model.session import Session
from store.model.timestamp import Timestamp
from store.sessions.refresh import merge_into
from store.sessions.session_checks import (
    check_rendered,
    checked_document,
    conflict_error,
    dump,
    locate,
    location_of,
    next_updated_at,
    rendered,
    require_no_lost_messages,
    require_valid_fields,
    splice_changes,
)

OnStale = Literal["raise", "merge"]  # what `save` does with a Session that others changed since it was loaded


@dataclass(frozen=True)
class SaveOperations:
    core: Core
    commits: Commits

    # -- save: both documents ----------------------------------------------------------------------

    @repeats
    def save(
        self,
        session: Session,
        *,
        overwrite: bool = False,
        shorten: bool = False,
        on_conflict: OnStale = "raise",
    ) -> None:
        """Write both documents. The Session is up to date afterwards and can be saved again."""
        self.core.check_writable()
        require_valid_fields(session)
        location = location_of(session)
        with self.core.locked(location):
            pair = self.core.read(location)
            self._allow_touch(session, location, pair.version)
            if pair.main is None:
                self._create(session, pair, overwrite=overwrite)
                return
            if on_conflict == "merge" and not overwrite and self._is_stale(session, pair):
                require_no_lost_messages(location, session._origin.dump, session, shorten=shorten)
                merge_into(session, with_load_state(session_reader.parse(pair)))
                shorten = True  # the check above compared with what was loaded: a merge adds no deletion
            self._rewrite(session, pair, overwrite=overwrite, shorten=shorten)

    def _is_stale(self, session: Session, pair: DocumentPair) -> bool:
        """Whether others changed the session since it was loaded as a whole."""
        origin: LoadState | None = session._origin
        return origin is not None and not origin.partial and origin.version != pair.version

    def _create(self, session: Session, pair: DocumentPair, *, overwrite: bool) -> None:
        location = pair.location
        if session._origin is not None and not overwrite:
            raise Conflict(
                f"session {location} was deleted since it was loaded; pass overwrite=True to create it again"
            )
        if self.core.disk.stat(location.dir) is None:
            layout.check_new(location)
        now = {k: v for k, v in dump(session).items() if k != sidecar.AUTHORITY}
        main = check_rendered(now, location, self.core.limit_bytes)
        side = sidecar.sidecar_of(main.raw, main.data)
        self.commits.commit_session(pair, main, main.record, side, "saved", kept=trash_copy_of_sidecar(pair))
        self._remember(session, location, now, now)

    @repeats
    def clear(self, location: Location) -> bool:
        """Keep only the first system message; move the rest to the trash.

        False if there is no session.
        """
        self.core.check_writable()
        with self.core.locked(location):
            loaded = self.core.load(location)
            if loaded is None:
                return False
            session = with_load_state(loaded)
            system = next((m for m in session.messages if m.role == "system"), None)
            session.messages = [system] if system else []
            session.token_usage = None
            session.conversation_summary = None
            session.updated_at = Timestamp.after(session.updated_at)
            attached = location.path(layout.ATTACHMENTS)
            kept = _kept_documents(loaded.pair, [attached] if self.core.disk.entries(attached) else [])
            self._rewrite(
                session,
                loaded.pair,
                overwrite=False,
                shorten=True,
                what="cleared",
                kept=kept.files,
                moves=kept.moves,
            )
            with suppress(OSError):  # Bamboo leaves an empty one; adding an attachment creates it too
                self.core.disk.make_dirs(attached)
        return True

    def _rewrite(
        self,
        session: Session,
        pair: DocumentPair,
        *,
        overwrite: bool,
        shorten: bool,
        what: What = "saved",
        kept: Sequence[NewFile] = (),
        moves: Sequence[tuple[str, str]] = (),
    ) -> None:
        location, origin = pair.location, session._origin
        if origin is not None and origin.partial:
            raise Conflict(f"session {location} was loaded without its messages; save it with save_runtime")
        if overwrite or origin is None or origin.version != pair.version:
            if not overwrite:
                raise conflict_error(location, origin)
            origin = load_state_of(session_reader.parse(pair))
        now = sidecar.complete_api_changes(origin.dump, session)
        if same(origin.dump, now):
            return
        require_no_lost_messages(location, origin.dump, session, shorten=shorten)
        session.updated_at = now["updated_at"] = next_updated_at(origin, session.updated_at)
        assert pair.main is not None
        new = secrets.without_api_key_members(sidecar.merged_main(origin.main, origin.dump, now))
        row = self._row_to_keep(pair, origin.main["messages"], new["messages"])
        raw = splice_changes(pair.main.data, origin.main, new)
        main = self._checked_main(raw, new, location, same_messages=row is not None)
        side = self._saved_side(pair, origin, now, main)
        if not origin.has_side:
            kept = [*kept, *trash_copy_of_sidecar(pair)]
        self.commits.commit_session(pair, main, main.record, side, what, row=row, kept=kept, moves=moves)
        self._remember(session, location, now, new)

    def _row_to_keep(self, pair: DocumentPair, before: list[Any], after: list[Any]) -> CatalogRow | None:
        """The session's row if no message changes: its search rows stay valid. Else None."""
        if not same(before, after):
            return None
        row = self.core.index.find(pair.location)
        return row if row is not None and row.version == pair.version else None

    def _checked_main(self, raw: bytes, data: dict[str, Any], location: Location, *, same_messages: bool) -> Document:
        """Validate the new session.json.

        Unchanged messages were validated when they were committed.
        """
        limit = self.core.limit_bytes
        if not same_messages:
            return checked_document(raw, location, layout.SESSION, limit)
        json_text.check_size(len(raw), location.path(layout.SESSION), limit)
        control = rendered(lambda: json_text.render_compact({**data, "messages": []}))
        small = checked_document(control, location, layout.SESSION, limit)
        return Document(raw, {**small.data, "messages": data["messages"]}, small.record)

    def _saved_side(self, pair: DocumentPair, origin: LoadState, now: dict[str, Any], main: Document) -> bytes:
        if pair.side is None or not origin.has_side:
            return sidecar.sidecar_of(main.raw, main.data)
        before, after = (sidecar.control_plane(d) for d in (origin.dump, now))
        raw = splice_changes(pair.side.data, before, after)
        return checked_document(raw, pair.location, layout.RUNTIME, self.core.limit_bytes).raw

    def _remember(self, session: Session, location: Location, members: dict[str, Any], main: dict[str, Any]) -> None:
        session._origin = LoadState(self.core.version(location), members, main, has_side=True)

    # -- save_runtime: the sidecar alone -----------------------------------------------------------

    @repeats
    def save_runtime(self, session: Session) -> None:
        """Write the sidecar only. The cost does not depend on the number of messages."""
        self.core.check_writable()
        require_valid_fields(session)
        location = location_of(session)
        with self.core.locked(location):
            version = self.core.version(location)
            if version.main is None:
                return self.save(session)
            self._allow_touch(session, location, version)
            origin, row = session._origin, self.commits.fresh_row(location)
            if origin is None or origin.version.side != version.side or _is_outdated(origin, row):
                raise conflict_error(location, origin, of_runtime=True)
            if version.side is None or not origin.has_side:
                return self._first_sidecar(session, location, row)
            sidecar.complete_control_changes(origin.dump, session)
            self._rewrite_side(session, location, origin, row)

    def _allow_touch(self, session: Session, location: Location, version: Version) -> None:
        """Let the session catch up if only `updated_at` of its sidecar changed, as a new trajectory step does."""
        origin = session._origin
        if origin is None or origin.version == version or origin.version.main != version.main or not origin.has_side:
            return
        side = session_reader.load_sidecar(self.core.disk, location, self.core.limit_bytes)
        if side is None or side._origin.version != version:
            return
        touched = {**origin.dump, "updated_at": side.updated_at}
        if same(sidecar.control_plane(touched), sidecar.control_plane(side._origin.dump)):
            session._origin = replace(origin, version=version, dump=touched)

    def _rewrite_side(self, session: Session, location: Location, origin: LoadState, row: CatalogRow | None) -> None:
        before = sidecar.control_plane(origin.dump)
        if same(before, sidecar.control_plane(dump(session, without_messages=True))):
            return
        session.updated_at = next_updated_at(origin, session.updated_at)
        now = dump(session, without_messages=True)
        side = self.core.disk.read(location.path(layout.RUNTIME), self.core.limit_bytes)
        assert side is not None
        raw = splice_changes(side.data, before, sidecar.control_plane(now))
        document = checked_document(raw, location, layout.RUNTIME, self.core.limit_bytes)
        self.commits.commit_sidecar(location, document, side, row)
        loaded_dump = {**now, "messages": origin.dump["messages"]}
        session._origin = replace(origin, version=self.core.version(location), dump=loaded_dump)

    def _first_sidecar(self, session: Session, location: Location, row: CatalogRow | None) -> None:
        """Create a sidecar from session.json and the caller's changes."""
        pair = self.core.read(location)
        loaded = session_reader.parse(pair)
        origin = load_state_of(loaded)
        sidecar.complete_control_changes(origin.dump, session)
        session.updated_at = next_updated_at(origin, session.updated_at)
        now = dump(session, without_messages=True)
        raw = sidecar.sidecar_of(loaded.main.raw, loaded.main.data)
        raw = splice_changes(raw, sidecar.control_plane(origin.main), sidecar.control_plane(now))
        side = checked_document(raw, location, layout.RUNTIME, self.core.limit_bytes)
        kept = [] if loaded.side else trash_copy_of_sidecar(pair)
        self.commits.commit_sidecar(location, side, pair.side, row, kept=kept)
        loaded_dump = {**now, "messages": origin.dump["messages"]}
        session._origin = LoadState(self.core.version(location), loaded_dump, origin.main, has_side=True)

    # -- user and project --------------------------------------------------------------------------

    def get_or_create(
        self, session_id: str | None = None, *, user_id: str | None = None, model: str = "", title: str | None = None
    ) -> Session:
        """Return the session of this id, unchanged, or create and save a root for `user_id`.

        Without an id, always create a new one. Concurrent callers with the same id get the same
        session.
        """
        self.core.check_writable()
        location = self._location_for(session_id)
        with self.core.locked(location):
            loaded = self.core.load(location)
            if loaded is not None:
                return with_load_state(loaded)
            session = Session.new(location.id, model)
            session.user_id = user_id
            session.title = session.title if title is None else title
            self.save(session)
            return session

    def new_child(self, parent: Session | str, child_id: str | None, *, model: str, title: str) -> Session:
        """Create and save a child of an existing session."""
        self.core.check_writable()
        loaded = self.core.load(locate(self.core, parent))
        if loaded is None:
            raise NotFound(f"there is no session {parent if isinstance(parent, str) else parent.id!r}")
        above = loaded.session
        child = Session.new_child_of(child_id or str(uuid.uuid4()), above, model or above.model, title)
        self.save(child)
        return child

    def _location_for(self, session_id: str | None) -> Location:
        if session_id is None:
            return Location(str(uuid.uuid4()))
        return self.core.locate(session_id) or Location(layout.check_new_id(session_id))

    def move_to_project(self, session_id: str, project_id: str | None) -> bool:
        """Assign a session to a project; None removes it from its project. False: unknown id."""
        if project_id is not None and not project_id.strip():
            raise InvalidName("a project id must not be blank; pass None to remove the session from its project")
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
            self.save(session)
            return True


def _is_outdated(origin: LoadState, row: CatalogRow | None) -> bool:
    """Whether a program that does not write sidecars wrote session.json since the session was loaded."""
    return row is not None and row.entry.updated_at.ns > Timestamp(origin.dump["updated_at"]).ns


def _kept_documents(pair: DocumentPair, moved: Sequence[str]) -> TrashPart:
    """Trash copies of the documents that are about to be cleared, in one slot."""
    found = ((layout.SESSION, pair.main), (layout.RUNTIME, pair.side))
    copied = [(pair.location.path(name), file) for name, file in found if file is not None]
    return to_trash(pair.location, "cleared", moved=moved, copied=copied)
