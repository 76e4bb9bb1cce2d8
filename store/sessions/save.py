"""What programs write: save, save_runtime, append, clear.

Each takes the session's lock, looks at what is on disk now, refuses what is outdated (rule 8) or could
not be loaded (rule 6), and makes one commit. A Session remembers what it was when it was loaded; only
what differs from that is spliced into the texts on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pydantic

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits, trash_copy_of_sidecar
from store.commit.core import Core
from store.commit.journal import Commit
from store.commit.session_reader import DocumentPair, LoadState, load_state_of, with_load_state
from store.commit.to_trash import TrashPart, to_trash
from store.disk.file import NewFile
from store.documents import append_offsets, json_text, secrets, sidecar
from store.documents import document as documents
from store.documents.document import Document, parse_document
from store.documents.json_splice import same, splice
from store.errors import Conflict, InvalidContent, NotFound, Problem
from store.index.catalog import CatalogRow
from store.index.change_feed import What
from store.layout import Location
from store.model.message import Message, truncate_tool_output
from store.model.record import ALIASES
from store.model.session import Session
from store.model.timestamp import Timestamp


@dataclass(frozen=True)
class SaveOperations:
    core: Core
    commits: Commits

    # -- save: the whole record ------------------------------------------------------------------------

    def save(self, session: Session, *, overwrite: bool = False, shorten: bool = False) -> None:
        """Write both documents. The session is up to date afterwards and may be saved again."""
        self.core.check_writable()
        refuse_wrong_shape(session)
        location = location_of(session)
        with self.core.locked(location):
            snapshot = self.core.read(location)
            if snapshot.main is None:
                self._create(session, snapshot, overwrite=overwrite)
            else:
                self._rewrite(session, snapshot, overwrite=overwrite, shorten=shorten)

    def _create(self, session: Session, snapshot: DocumentPair, *, overwrite: bool) -> None:
        location = snapshot.location
        if session._origin is not None and not overwrite:
            raise Conflict(f"session {location} was deleted since it was loaded; say overwrite to create it again")
        if self.core.disk.stat(location.dir) is None:
            layout.check_new(location)
        now = {k: v for k, v in _dumped(session).items() if k != sidecar.AUTHORITY}
        main = check_rendered(now, location, self.core.limit_bytes)
        side = sidecar.sidecar_of(main.raw, main.data)
        self.commits.commit_session(snapshot, main, main.record, side, "saved", kept=trash_copy_of_sidecar(snapshot))
        self._remember(session, location, now, now)

    def clear(self, location: Location) -> bool:
        """Keep only the first system message; all else goes to the trash. False if there is no session."""
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
            kept = _kept_documents(loaded.snapshot, [attached] if self.core.disk.entries(attached) else [])
            self._rewrite(
                session,
                loaded.snapshot,
                overwrite=False,
                shorten=True,
                what="cleared",
                kept=kept.files,
                moves=kept.moves,
            )
            with suppress(OSError):  # Bamboo leaves an empty one; whoever attaches makes it anyway
                self.core.disk.make_dirs(attached)
        return True

    def _rewrite(
        self,
        session: Session,
        snapshot: DocumentPair,
        *,
        overwrite: bool,
        shorten: bool,
        what: What = "saved",
        kept: Sequence[NewFile] = (),
        moves: Sequence[tuple[str, str]] = (),
    ) -> None:
        location, origin = snapshot.location, session._origin
        if origin is not None and origin.partial:
            raise Conflict(f"session {location} was loaded without its messages; save it with save_runtime")
        if overwrite or origin is None or origin.version != snapshot.version:
            if not overwrite:
                raise conflict_error(location, origin)
            origin = load_state_of(session_reader.parse(snapshot))
        now = sidecar.complete_api_changes(origin.dump, session)
        if same(origin.dump, now):
            return
        refuse_shortening(location, origin.dump, session, shorten=shorten)
        session.updated_at = now["updated_at"] = next_updated_at(origin, session.updated_at)
        assert snapshot.main is not None
        new = secrets.without_api_key_members(sidecar.merged_main(origin.main, origin.dump, now))
        row = self._row_to_keep(snapshot, origin.main["messages"], new["messages"])
        raw = _spliced(snapshot.main.data, origin.main, new)
        main = self._checked_main(raw, new, location, same_messages=row is not None)
        side = self._saved_side(snapshot, origin, now, main)
        if not origin.has_side:
            kept = [*kept, *trash_copy_of_sidecar(snapshot)]
        self.commits.commit_session(snapshot, main, main.record, side, what, row=row, kept=kept, moves=moves)
        self._remember(session, location, now, new)

    def _row_to_keep(self, snapshot: DocumentPair, before: list[Any], after: list[Any]) -> CatalogRow | None:
        """The session's row, if that and all its search rows stay right because no message changes."""
        if not same(before, after):
            return None
        row = self.core.index.find(snapshot.location)
        return row if row is not None and row.version == snapshot.version else None

    def _checked_main(self, raw: bytes, data: dict[str, Any], location: Location, *, same_messages: bool) -> Document:
        """The new session.json, if it may be one. Messages that did not change have been checked before."""
        limit = self.core.limit_bytes
        if not same_messages:
            return _checked(raw, location, layout.SESSION, limit)
        json_text.check_size(len(raw), location.path(layout.SESSION), limit)
        control = _rendering(lambda: json_text.render_compact({**data, "messages": []}))
        small = _checked(control, location, layout.SESSION, limit)
        return Document(raw, {**small.data, "messages": data["messages"]}, small.record)

    def _saved_side(self, snapshot: DocumentPair, origin: LoadState, now: dict[str, Any], main: Document) -> bytes:
        if snapshot.side is None or not origin.has_side:
            return sidecar.sidecar_of(main.raw, main.data)
        before, after = (sidecar.control_plane(d) for d in (origin.dump, now))
        raw = _spliced(snapshot.side.data, before, after)
        return _checked(raw, snapshot.location, layout.RUNTIME, self.core.limit_bytes).raw

    def _remember(self, session: Session, location: Location, dump: dict[str, Any], main: dict[str, Any]) -> None:
        session._origin = LoadState(self.core.version(location), dump, main, has_side=True)

    # -- save_runtime: the sidecar alone ----------------------------------------------------------------

    def save_runtime(self, session: Session) -> None:
        """Write the control plane only: the cost does not depend on the conversation's length."""
        self.core.check_writable()
        refuse_wrong_shape(session)
        location = location_of(session)
        with self.core.locked(location):
            version = self.core.version(location)
            if version.main is None:
                return self.save(session)
            origin = session._origin
            if origin is None or origin.version.side != version.side:
                raise conflict_error(location, origin)
            if version.side is None or not origin.has_side:
                return self._first_sidecar(session, location)
            sidecar.complete_control_changes(origin.dump, session)
            self._rewrite_side(session, location, origin)

    def _rewrite_side(self, session: Session, location: Location, origin: LoadState) -> None:
        before = sidecar.control_plane(origin.dump)
        if same(before, sidecar.control_plane(_dumped(session, without_messages=True))):
            return
        session.updated_at = next_updated_at(origin, session.updated_at)
        now = _dumped(session, without_messages=True)
        side = self.core.disk.read(location.path(layout.RUNTIME), self.core.limit_bytes)
        assert side is not None
        raw = _spliced(side.data, before, sidecar.control_plane(now))
        self.commits.commit_sidecar(location, _checked(raw, location, layout.RUNTIME, self.core.limit_bytes), side)
        dump = {**now, "messages": origin.dump["messages"]}
        session._origin = replace(origin, version=self.core.version(location), dump=dump)

    def _first_sidecar(self, session: Session, location: Location) -> None:
        """No sidecar to splice into: what session.json says, changed by what the caller changed."""
        snapshot = self.core.read(location)
        loaded = session_reader.parse(snapshot)
        origin = load_state_of(loaded)
        sidecar.complete_control_changes(origin.dump, session)
        session.updated_at = next_updated_at(origin, session.updated_at)
        now = _dumped(session, without_messages=True)
        raw = sidecar.sidecar_of(loaded.main.raw, loaded.main.data)
        raw = _spliced(raw, sidecar.control_plane(origin.main), sidecar.control_plane(now))
        side = _checked(raw, location, layout.RUNTIME, self.core.limit_bytes)
        self.commits.commit_sidecar(
            location, side, snapshot.side, kept=[] if loaded.side else trash_copy_of_sidecar(snapshot)
        )
        dump = {**now, "messages": origin.dump["messages"]}
        session._origin = LoadState(self.core.version(location), dump, origin.main, has_side=True)

    # -- append: the live agent's hot path ----------------------------------------------------------------

    def append(self, target: Session | str, messages: Iterable[Message | dict[str, Any]]) -> None:
        """Add messages at the end. Never conflicts; a Session that is up to date stays so."""
        if isinstance(messages, str | bytes | Mapping | Message):  # all of them iterable, none of them a list
            raise TypeError(f"append: expected a list of messages, got a single {type(messages).__name__}")
        self.core.check_writable()
        location = locate(self.core, target)
        added = [_message(m) for m in messages]
        if not added:
            return
        with self.core.locked(location):
            was_current = isinstance(target, Session) and self._is_current(target, location)
            appended_at = self._append_fast(location, added) or self._append_by_rewrite(location, added)
            if was_current and isinstance(target, Session):
                target.messages += [Message.model_validate(m) for m in added]
                target.updated_at = appended_at
                origin: LoadState = target._origin
                dump = {
                    **origin.dump,
                    "messages": origin.dump["messages"] + added,
                    "updated_at": appended_at,
                }
                main = {**origin.main, "messages": dump["messages"], "updated_at": appended_at}
                target._origin = LoadState(self.core.version(location), dump, main, has_side=True)

    def _is_current(self, session: Session, location: Location) -> bool:
        origin: LoadState | None = session._origin
        return origin is not None and not origin.partial and origin.version == self.core.version(location)

    def _append_fast(self, location: Location, added: Sequence[dict[str, Any]]) -> Timestamp | None:
        """Cut the new messages into the text without reading the old ones; None where that is not safe."""
        row = self.commits.fresh_row(location)
        main = self.core.disk.read(location.path(layout.SESSION), self.core.limit_bytes)
        side = self.core.disk.read(location.path(layout.RUNTIME), self.core.limit_bytes)
        if row is None or row.append_offsets is None or main is None or side is None:
            return None
        has_authority = sidecar.AUTHORITY.encode() in main.data[:64]
        if has_authority or not append_offsets.still_valid(main.data, row.append_offsets):
            return None
        try:
            old_side = json_text.parse(side.data, layout.RUNTIME)
            latest = _later(Timestamp(row.append_offsets.updated_at_text), Timestamp(old_side["updated_at"]))
        except (InvalidContent, KeyError, ValueError, TypeError):
            return None
        now = Timestamp.after(latest)
        parts, moved = append_offsets.splice_messages(main.data, row.append_offsets, added, now)
        json_text.check_size(sum(map(len, parts)), location.path(layout.SESSION), self.core.limit_bytes)
        new_side = splice(side.data, {"updated_at": old_side["updated_at"]}, {"updated_at": now})
        entry = row.entry.model_copy(
            update={
                "message_count": row.entry.message_count + len(added),
                "updated_at": now,
                "last_activity_at": now,
            }
        )
        files = [
            NewFile(location.path(layout.RUNTIME), [new_side], side),
            NewFile(location.path(layout.SESSION), parts, main),
        ]
        self.commits.run_session(
            Commit(location, files), self.core.index.plan_append(row, entry, moved, added), "appended"
        )
        return now

    def _append_by_rewrite(self, location: Location, added: Sequence[dict[str, Any]]) -> Timestamp:
        session = self._get(location)
        for message in added:
            session.add_message(Message.model_validate(message))
        self.save(session)
        return session.updated_at

    def _get(self, location: Location) -> Session:
        loaded = self.core.load(location)
        if loaded is None:
            raise NotFound(f"there is no session {location}")
        return with_load_state(loaded)


# -- records and their origin --------------------------------------------------------------------------------


def locate(core: Core, target: Session | str) -> Location:
    """Where an existing session lies."""
    location = location_of(target) if isinstance(target, Session) else core.locate(target)
    if location is None or core.disk.stat(location.path(layout.SESSION)) is None:
        raise NotFound(f"there is no session {target.id if isinstance(target, Session) else target!r}")
    return location


def location_of(session: Session) -> Location:
    """Where a session belongs, by what it says of itself."""
    layout.check_id(session.id)
    if session.kind == "root":
        return Location(session.id)
    if session.kind != "child":
        raise InvalidContent(layout.SESSION, Problem(f"expected 'root' or 'child', got {session.kind!r}", field="kind"))
    root, parent = session.root_session_id, session.parent_session_id or ""
    if not root.strip() or not parent.strip():
        raise InvalidContent(layout.SESSION, Problem("a child needs root_session_id and parent_session_id"))
    return Location(layout.check_id(root), session.id)


def _dumped(session: Session, *, without_messages: bool = False) -> dict[str, Any]:
    """What of a session is to be written: all but keys."""
    # Warnings would speak of types that the check of the rendered text reports properly.
    return secrets.without_api_key_members(
        session.model_dump(warnings=False, exclude={"messages"} if without_messages else None)
    )


def _spliced(raw: bytes, before: dict[str, Any], after: dict[str, Any]) -> bytes:
    return _rendering(lambda: splice(raw, before, after, aliases=ALIASES))


def _rendering(render: Callable[[], bytes], name: str = layout.SESSION) -> bytes:
    try:
        return render()
    except TypeError as error:  # orjson: a lone surrogate, an integer over 64 bits, an object of no JSON type
        raise InvalidContent(name, Problem(str(error))) from None


def _checked(raw: bytes, location: Location, name: str, limit: int) -> Document:
    """The gate for what the API writes: it must be loadable, and belong where it goes."""
    path = location.path(name)
    try:
        document = parse_document(raw, path, limit=limit)
    except InvalidContent as error:  # the caller has set fields, and never seen a line of this text
        raise type(error)(path, replace(error.problem, line=None, column=None)) from None
    flaw = documents.identity_problem(document, location)
    if flaw is not None:
        raise InvalidContent(path, replace(flaw, line=None, column=None))
    return document


def check_rendered(members: dict[str, Any], location: Location, limit: int) -> Document:
    """A new session.json that says this, if it may be one."""
    return _checked(_rendering(lambda: json_text.render(members)), location, layout.SESSION, limit)


def _message(message: Message | dict[str, Any]) -> dict[str, Any]:
    """A message as it will be written, a tool's output cut to size."""
    try:
        record = Message.model_validate(message.model_dump(warnings=False) if isinstance(message, Message) else message)
    except pydantic.ValidationError as error:
        raise InvalidContent("message", documents.type_problem(error)) from None
    if record.role == "tool":
        record.content = truncate_tool_output(record.content)
    raw = _rendering(lambda: json_text.render_compact(record.model_dump()), "message")
    return json_text.parse(raw, "message")


def _kept_documents(snapshot: DocumentPair, moved: Sequence[str]) -> TrashPart:
    """Copies for the trash of what is about to be cleared, to be had back as one."""
    found = ((layout.SESSION, snapshot.main), (layout.RUNTIME, snapshot.side))
    copied = [(snapshot.location.path(name), file) for name, file in found if file is not None]
    return to_trash(snapshot.location, "cleared", moved=moved, copied=copied)


def conflict_error(location: Location, origin: LoadState | None) -> Conflict:
    if origin is None:
        return Conflict(
            f"session {location} exists already and this one was not loaded from it; nothing was changed. "
            "Load it and change that, or say overwrite"
        )
    return Conflict(
        f"session {location} was changed by someone else since it was loaded; nothing was changed. "
        "Load it again, or use update()"
    )


def refuse_shortening(location: Location, loaded: dict[str, Any], session: Session, *, shorten: bool) -> None:
    lost = len(loaded["messages"]) - len(session.messages)
    if lost > 0 and not shorten:
        raise Conflict(
            f"saving {location} would drop {lost} message{'s' if lost > 1 else ''}; nothing was changed. "
            "Say shorten if that is meant"
        )


def refuse_wrong_shape(session: Session) -> None:
    """What is worked with before the whole is checked; records take any value that is assigned to them."""
    if not isinstance(session, Session):
        raise TypeError(f"save: expected a Session, got {type(session).__name__}")
    kinds = {"messages": list, "metadata": dict, "updated_at": str, "title_version": int, "metadata_version": int}
    for field, kind in kinds.items():
        if not isinstance(getattr(session, field), kind):
            reason = f"{getattr(session, field)!r} is not of the right type"
            raise InvalidContent(layout.SESSION, Problem(reason, field=field))
    try:
        session.updated_at = Timestamp(session.updated_at)
    except ValueError as error:
        raise InvalidContent(layout.SESSION, Problem(str(error), field="updated_at")) from None


def next_updated_at(origin: LoadState, wanted: Timestamp) -> Timestamp:
    """What the caller set, if that is later than all that is committed; else the first moment that is."""
    committed = _later(Timestamp(origin.dump["updated_at"]), Timestamp(origin.main["updated_at"]))
    return wanted if wanted.ns > committed.ns else Timestamp.after(committed)


def _later(one: Timestamp, other: Timestamp) -> Timestamp:
    return one if one.ns >= other.ns else other
