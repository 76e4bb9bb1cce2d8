"""Read one session from its files, and compute what the index stores about it.

Nothing here writes. A `DocumentPair` holds both documents of one version; either can be absent.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from store import layout
from store.disk.disk import Disk
from store.disk.file import File, Stamp
from store.documents import append_offsets, attachment_names
from store.documents.append_offsets import AppendOffsets
from store.documents.document import Document, identity_problem, parse_document, parse_to_index
from store.documents.secrets import find_api_key
from store.documents.sidecar import is_stale, overlay
from store.errors import Busy, Corrupt, InvalidContent, StoreError, describe
from store.index.catalog import NO_VERSION, SessionFacts, Version, read_version
from store.index.database import now_ns
from store.index.fulltext import Message
from store.index.prepared_messages import PreparedMessages
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.preview import Preview
from store.model.session import Session

log = logging.getLogger("grovefs.store")

READ_ATTEMPTS = 20

# Errors of a single file. They must not keep the whole home from being opened.
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO)


class DocumentPair(NamedTuple):
    """The two documents of a session as they were on disk at one moment."""

    location: Location
    main: File | None
    side: File | None

    @property
    def version(self) -> Version:
        return Version(self.main.stamp if self.main else None, self.side.stamp if self.side else None)


@dataclass(frozen=True)
class LoadedSession:
    """A session read from disk. `side` is None if there is no valid sidecar, or a stale one."""

    pair: DocumentPair
    main: Document
    side: Document | None
    session: Session


@dataclass(frozen=True)
class LoadState:
    """What a Session remembers of the version it was loaded from or saved as."""

    version: Version
    dump: dict[str, Any]  # the merged session, as the caller got it
    main: dict[str, Any]  # session.json alone
    has_side: bool  # whether there was a valid sidecar that was not stale
    partial: bool = False  # loaded from the sidecar alone, without messages


@dataclass(frozen=True)
class SessionScan:
    """What the index is to store about a session: facts, damage, or neither if it is gone."""

    location: Location
    facts: SessionFacts | None = None
    pair: DocumentPair | None = None  # None: it could not be read
    damage: tuple[Version, str] | None = None
    size_bytes: int = 0


def read(disk: Disk, location: Location, limit: int) -> DocumentPair:
    """Read both documents of one version.

    Busy if session.json changed during each of READ_ATTEMPTS reads.
    """
    for _ in range(READ_ATTEMPTS):
        main = disk.read(location.path(layout.SESSION), limit)
        side = _read_side(disk, location, limit)
        if disk.stamp(location.path(layout.SESSION)) == (main.stamp if main else None):
            return DocumentPair(location, main, side)
    raise Busy(f"{location.path(layout.SESSION)}: file is being modified continuously; try again")


def _read_side(disk: Disk, location: Location, limit: int) -> File | None:
    try:
        return disk.read(location.path(layout.RUNTIME), limit)
    except (Corrupt, PermissionError) as error:
        log.warning("ignoring an unreadable sidecar: %s", error)
        return None


def parse(pair: DocumentPair, *, with_messages: bool = True) -> LoadedSession:
    """Parse a pair that has a session.json. Corrupt names the file and the position.

    Without messages they are validated, but not in the session: `main.data` has them.
    """
    location = pair.location
    assert pair.main is not None
    path = location.path(layout.SESSION)
    try:
        main = (parse_document if with_messages else parse_to_index)(pair.main.data, path)
    except InvalidContent as error:
        raise Corrupt(path, error.problem) from None
    side = parse_side(pair)
    if side is not None and is_stale(side.record, main.record):
        log.info("ignoring the sidecar of %s: session.json is newer", location)
        side = None
    return LoadedSession(pair, main, side, overlay(main.record, side.record if side else None))


def parse_side(pair: DocumentPair, raw: bytes | None = None) -> Document | None:
    """Parse the sidecar, or `raw` if that is about to replace it; None if it is missing or invalid.

    An invalid sidecar must not make its session unreadable.
    """
    if raw is None and pair.side is not None:
        raw = pair.side.data
    if raw is None:
        return None
    path = pair.location.path(layout.RUNTIME)
    try:
        side = parse_document(raw, path)
    except InvalidContent as error:
        log.warning("ignoring a corrupt sidecar: %s", error)
        return None
    problem = identity_problem(side, pair.location)
    if problem is not None:
        log.warning("ignoring the sidecar of another session: %s: %s", path, problem)
        return None
    return side


def check_identity(loaded: LoadedSession) -> None:
    """Raise Corrupt if session.json belongs to another path (rule 9)."""
    problem = identity_problem(loaded.main, loaded.pair.location)
    if problem is not None:
        raise Corrupt(loaded.pair.location.path(layout.SESSION), problem)


def load_state_of(loaded: LoadedSession) -> LoadState:
    dump = loaded.session.model_dump()  # with an API key found on disk: the next save removes it
    main = dump if loaded.side is None else {**loaded.main.record.model_dump(exclude={"messages"})}
    main.setdefault("messages", dump["messages"])
    return LoadState(loaded.pair.version, dump, main, has_side=loaded.side is not None)


def with_load_state(loaded: LoadedSession) -> Session:
    loaded.session._origin = load_state_of(loaded)
    return loaded.session


def load_sidecar(disk: Disk, location: Location, limit: int) -> Session | None:
    """Load a session from its sidecar alone, without messages; None if that is missing or invalid."""
    main = disk.stamp(location.path(layout.SESSION))
    side = disk.read(location.path(layout.RUNTIME), limit)
    document = parse_side(DocumentPair(location, None, side))
    if side is None or document is None:
        return None
    session = document.record
    dump = session.model_dump()
    session._origin = LoadState(Version(main, side.stamp), dump, dump, has_side=True, partial=True)
    return session


def facts(
    location: Location,
    main: Document,
    record: Session,
    version: Version = NO_VERSION,
    *,
    has_attachments: bool,
    prepared: PreparedMessages | None = None,
) -> SessionFacts:
    """Everything the index stores about a session.

    Its identity comes from the path, not from the document. With `prepared` the messages in `main.data` are not used.
    """
    messages: Sequence[Message] = prepared.rows if prepared is not None else main.data["messages"]
    preview = prepared.preview if prepared is not None else Preview().with_messages(main.data["messages"])
    return SessionFacts(
        location=location,
        entry=entry_of(record, location, len(messages), has_attachments=has_attachments),
        version=version,
        append_offsets=offsets_of(main, location),
        summary=summary_of(record),
        preview=preview.with_owner(record.metadata),
        messages=messages,
    )


def facts_on_disk(disk: Disk, loaded: LoadedSession, version: Version) -> SessionFacts:
    """The facts of a session as it was read from its files."""
    location = loaded.pair.location
    present = has_attachments(disk, location)
    return facts(location, loaded.main, loaded.session, version, has_attachments=present)


def summary_of(record: Session) -> str:
    return record.conversation_summary.content if record.conversation_summary else ""


def offsets_of(main: Document, location: Location) -> AppendOffsets | None:
    """Where an append can splice in messages; None if it has to rewrite the document.

    A document of another session is never appended to. One that contains an API key is rewritten
    without it.
    """
    if identity_problem(main, location) is not None or find_api_key(main.data) is not None:
        return None
    return append_offsets.find(main)


def entry_of(session: Session, location: Location, message_count: int, *, has_attachments: bool) -> IndexEntry:
    return IndexEntry.of(
        session,
        location_id=location.id,
        rel_path=location.dir,
        kind=location.kind,
        root_id=location.root,
        message_count=message_count,
        has_attachments=has_attachments,
    )


def has_attachments(disk: Disk, location: Location) -> bool:
    try:
        entries = disk.entries(location.path(layout.ATTACHMENTS))
    except Corrupt:  # a link or a file, which `check` reports: it holds no attachments
        return False
    return any(not layout.is_leftover(entry.name) for entry in entries)


def find_attachment(disk: Disk, location: Location, attachment_id: str) -> str | None:
    """The path of the attachment with this id; None if there is none."""
    directory = location.path(layout.ATTACHMENTS)
    names = [e.name for e in disk.entries(directory) if e.is_file]
    name = attachment_names.find_name(attachment_id, names)
    return f"{directory}/{name}" if name else None


def scan(disk: Disk, location: Location, limit: int) -> SessionScan:
    """Read what the index is to store about a session. The caller holds the lock."""
    before_ns = now_ns()
    pair: DocumentPair | None = None
    try:
        pair = read(disk, location, limit)
        if pair.main is None:
            return SessionScan(location, pair=pair)
        loaded = parse(pair, with_messages=False)
    except (Corrupt, Busy) as error:  # Busy: its version is not settled, so the next sweep scans it again
        return replace(_damaged(disk, location, error), pair=pair)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return _damaged(disk, location, error)
    version = settled_version(pair.version, before_ns)
    found = facts_on_disk(disk, loaded, version)
    return SessionScan(location, found, pair, size_bytes=len(pair.main.data))


def _damaged(disk: Disk, location: Location, error: StoreError | OSError) -> SessionScan:
    log.warning("not indexed: %s", describe(error))
    version = settled_version(read_version(disk, location), now_ns())
    return SessionScan(location, damage=(version, describe(error)))


def settled_version(version: Version, at_ns: int) -> Version:
    """This version, with stamps that match no file in place of those too recent to be reliable."""
    return Version(_settled(version.main, at_ns), _settled(version.side, at_ns))


def _settled(stamp: Stamp | None, at_ns: int) -> Stamp | None:
    return stamp.if_settled(at_ns) if stamp else None
