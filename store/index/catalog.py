"""The derived catalogue: one row a session, made from its files and from nothing else (rule 1).

A row says which versions of the files it was made from. It may be changed in part (append, runtime
save) only while those are still the files' stamps; else the session is read again as a whole, for
otherwise an outside edit that nobody noticed would be sealed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import apsw
import orjson

from store import layout
from store.disk.file import Stamp
from store.documents import display_names, json_text, transcript
from store.documents.append_offsets import AppendOffsets
from store.errors import NotFound
from store.index import fulltext
from store.index.database import Database
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.model.preview import Preview
from store.model.timestamp import Timestamp

Order = Literal["updated", "created", "title", "messages"]

NO_STAMP = Stamp(0, 0, 0, 0)
# SQLite integers end at 2^63; no clock does.
_LARGEST = 2**63 - 1

_ORDERS: dict[Order, str] = {
    "updated": "updated_ns {0}, key {0}",
    "created": "created_ns {0}, key {0}",
    "title": "title COLLATE NOCASE {0}, key {0}",
    "messages": "message_count {0}, key {0}",
}


class Version(NamedTuple):
    """One state of a session on disk. None: there is no such file."""

    main: Stamp | None
    side: Stamp | None


@dataclass(frozen=True)
class CatalogRow:
    key: int
    location: Location
    entry: IndexEntry
    version: Version
    anchors: AppendOffsets | None
    gist: Preview


@dataclass(frozen=True)
class SessionFacts:
    """All that the index wants to know of a session. `messages` as parsed from session.json."""

    location: Location
    entry: IndexEntry
    version: Version
    anchors: AppendOffsets | None
    summary: str
    gist: Preview
    messages: Sequence[dict[str, Any]]


class Catalog:
    def __init__(self, db: Database) -> None:
        self._db = db

    # -- writing, inside a transaction ---------------------------------------------------------------

    def put(self, db: apsw.Connection, *found: SessionFacts) -> None:
        """Make rows and search rows say what the files say; rows of unchanged messages are not touched.

        All sessions before all messages: a statement that might have to be undone makes FTS5 write out what it
        has gathered, and many small pieces cost far more than one.
        """
        keys = [self._put_row(db, f.location, f.entry, f.version, f.anchors, f.gist) for f in found]
        for facts in found:
            self._clear_damaged(db, facts.location)
        fulltext.put_all(
            db,
            (
                fulltext.SearchContent(key, f.entry.title, f.summary, f.messages)
                for key, f in zip(keys, found, strict=True)
            ),
        )

    def put_control(
        self,
        db: apsw.Connection,
        row: CatalogRow,
        entry: IndexEntry,
        version: Version,
        summary: str,
        gist: Preview,
        anchors: AppendOffsets | None = None,
    ) -> None:
        """The control plane changed, the messages did not; `anchors`, if they lie elsewhere now."""
        self._put_row(db, row.location, entry, version, anchors or row.anchors, gist)
        fulltext.put_session(db, row.key, entry.title, summary)

    def put_entry(self, db: apsw.Connection, row: CatalogRow, entry: IndexEntry) -> None:
        """The entry changed by something beside the documents: an attachment came or went."""
        self._put_row(db, row.location, entry, row.version, row.anchors, row.gist)

    def put_version(self, db: apsw.Connection, row: CatalogRow, version: Version) -> None:
        """The same documents with other times or modes: only their stamps changed."""
        self._put_row(db, row.location, row.entry, version, row.anchors, row.gist)

    def put_appended(
        self,
        db: apsw.Connection,
        row: CatalogRow,
        entry: IndexEntry,
        version: Version,
        anchors: AppendOffsets,
        messages: Sequence[dict[str, Any]],
    ) -> None:
        """Messages were added at the end; nothing else changed but the time."""
        self._put_row(db, row.location, entry, version, anchors, row.gist.with_messages(messages))
        fulltext.add_messages(db, row.key, row.entry.message_count, messages)

    def forget(self, db: apsw.Connection, location: Location) -> bool:
        """Drop all that is known of a session; False if nothing was."""
        found = db.execute("DELETE FROM sessions WHERE root = ? AND child = ? RETURNING key", _key(location)).fetchone()
        if found is not None:
            fulltext.remove_session(db, found[0])
        return self._clear_damaged(db, location) or found is not None

    def put_damaged(self, db: apsw.Connection, location: Location, version: Version, reason: str) -> None:
        """A session that is there but cannot be read: no row, yet not forgotten."""
        self.forget(db, location)
        main, side = version
        db.execute(
            "INSERT INTO damaged VALUES (?, ?, ?, ?, ?)",
            (*_key(location), _pack(main or NO_STAMP), _pack(side) if side else None, reason),
        )

    def put_extra(self, db: apsw.Connection, location: Location, extra: dict[str, Any]) -> None:
        """Members of its entry in sessions.json that we do not know; the export gives them back."""
        db.execute(
            "UPDATE sessions SET extra = ? WHERE root = ? AND child = ?",
            (orjson.dumps(extra).decode() if extra else None, *_key(location)),
        )

    def _clear_damaged(self, db: apsw.Connection, location: Location) -> bool:
        db.execute("DELETE FROM damaged WHERE root = ? AND child = ?", _key(location))
        return bool(db.changes())

    def _put_row(
        self,
        db: apsw.Connection,
        location: Location,
        entry: IndexEntry,
        version: Version,
        anchors: AppendOffsets | None,
        gist: Preview,
    ) -> int:
        if version.main is None:  # a commit that comes to this keeps its mark, and the session is read again
            raise NotFound(f"{location.path(layout.SESSION)} was taken away right after it was saved")
        columns = {
            "root": location.root,
            "child": location.child or "",
            "id": location.id,
            "parent": entry.parent_session_id,
            "title": entry.title,
            "pinned": int(entry.pinned),
            "model": entry.model,
            "status": entry.last_run_status,
            "project": entry.project_id,
            "created_ns": _clip(entry.created_at.ns),
            "updated_ns": _clip(entry.updated_at.ns),
            "message_count": entry.message_count,
            "name": display_names.session_name(entry.title, gist.opening, location),
            "header_bytes": transcript.length(transcript.render_header(entry)),
            "entry": render_entry(entry),
            "main_stamp": _pack(version.main),
            "side_stamp": _pack(version.side) if version.side else None,
            "append_at": anchors.append_at if anchors else None,
            "updated_at_span": anchors.updated_at if anchors else None,
            "updated_at_text": anchors.updated_at_text if anchors else None,
            "user": gist.user,
            "persona": gist.persona,
            "opening": gist.opening,
            "asked": gist.asked,
            "answered": gist.answered,
        }
        return int(db.execute(_UPSERT, tuple(columns.values())).get)

    # -- asking --------------------------------------------------------------------------------------

    def find(self, location: Location) -> CatalogRow | None:
        row = self._db.reader.execute(f"{_SELECT} WHERE root = ? AND child = ?", _key(location)).fetchone()
        return _row(row) if row else None

    def find_version(self, location: Location) -> Version | None:
        """What a session's row was made from, without the rest of it."""
        row = self._db.reader.execute(
            "SELECT main_stamp, side_stamp FROM sessions WHERE root = ? AND child = ?", _key(location)
        ).fetchone()
        return unpack_version(row[0], row[1]) if row else None

    def locate(self, session_id: str) -> list[Location]:
        """Every place where a session of this id lies, readable or not."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE id = ?1 "
            "UNION SELECT root, child FROM damaged WHERE child = ?1 OR (child = '' AND root = ?1)",
            (session_id,),
        )
        return [Location(root, child or None) for root, child in rows]

    def tree(self, root: str) -> list[Location]:
        """A root and all its descendants that are known, readable or not."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE root = ?1 UNION SELECT root, child FROM damaged WHERE root = ?1",
            (root,),
        )
        return [Location(r, child or None) for r, child in rows]

    def stamps(self) -> Iterator[tuple[Location, Version]]:
        """What every row was made from, damaged ones too."""
        rows = self._db.reader.execute(
            "SELECT root, child, main_stamp, side_stamp FROM sessions "
            "UNION ALL SELECT root, child, main_stamp, side_stamp FROM damaged"
        )
        for root, child, main, side in rows:
            yield Location(root, child or None), unpack_version(main, side)

    def attached(self) -> Iterator[tuple[Location, bool]]:
        """Which sessions have attachments, as far as is known; a damaged one has none that matter."""
        rows = self._db.reader.execute(
            "SELECT root, child, json_extract(entry, '$.has_attachments') FROM sessions "
            "UNION ALL SELECT root, child, 0 FROM damaged"
        )
        for root, child, has_some in rows:
            yield Location(root, child or None), bool(has_some)

    def damaged(self) -> dict[Location, str]:
        rows = self._db.reader.execute("SELECT root, child, reason FROM damaged")
        return {Location(root, child or None): reason for root, child, reason in rows}

    def count(self) -> int:
        return int(self._db.reader.execute("SELECT count(*) FROM sessions").get)

    def pinned_in(self, root: str) -> list[Location]:
        rows = self._db.reader.execute("SELECT root, child FROM sessions WHERE pinned AND root = ?", (root,))
        return [Location(r, child or None) for r, child in rows]

    def entries(self, where: Filter, order: Order, *, descending: bool, limit: int, offset: int) -> list[IndexEntry]:
        clause, values = where.sql()
        order_by = _ORDERS[order].format("DESC" if descending else "ASC")
        rows = self._db.reader.execute(
            f"SELECT entry FROM sessions {clause} ORDER BY {order_by} LIMIT ? OFFSET ?", (*values, limit, offset)
        )
        return [IndexEntry.model_validate(orjson.loads(entry)) for (entry,) in rows]

    def summaries(
        self, where: Filter, order: Order, *, descending: bool, limit: int, offset: int
    ) -> list[tuple[Location, IndexEntry, Preview]]:
        """As `entries`, with what a list says beside."""
        clause, values = where.sql()
        order_by = _ORDERS[order].format("DESC" if descending else "ASC")
        rows = self._db.reader.execute(
            f"{_SELECT} {clause} ORDER BY {order_by} LIMIT ? OFFSET ?", (*values, limit, offset)
        )
        return [(row.location, row.entry, row.gist) for row in map(_row, rows)]

    def changed_since(self, since: Timestamp) -> list[Location]:
        """Where the sessions lie that were changed at a moment or after it, in the order they were."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE updated_ns >= ? ORDER BY updated_ns, key", (_clip(since.ns),)
        )
        return [Location(root, child or None) for root, child in rows]

    def all_entries(self) -> Iterator[tuple[Location, IndexEntry]]:
        for root, child, entry in self._db.reader.execute(
            "SELECT root, child, entry FROM sessions ORDER BY root, child"
        ):
            yield Location(root, child or None), IndexEntry.model_validate(orjson.loads(entry))


@dataclass(frozen=True)
class Filter:
    """Which entries are wanted; every part that is not None must hold."""

    kind: str | None = None
    root: str | None = None
    parent: str | None = None
    pinned: bool | None = None
    status: str | None = None
    model: str | None = None
    project: str | None = None
    user: str | None = None
    persona: str | None = None
    title: str | None = None
    updated_since: Timestamp | None = None
    updated_before: Timestamp | None = None

    def sql(self) -> tuple[str, list[Any]]:
        escaped = None if self.title is None else "".join(f"\\{c}" if c in "\\%_" else c for c in self.title)
        parts: list[tuple[str, Any]] = [
            ("(child = '') = ?", None if self.kind is None else int(self.kind == "root")),
            ("root = ?", self.root),
            ("parent = ?", self.parent),
            ("pinned = ?", None if self.pinned is None else int(self.pinned)),
            ("status = ?", self.status),
            ("model = ?", self.model),
            ("project = ?", self.project),
            ("user = ?", self.user),
            ("persona = ?", self.persona),
            ("title LIKE '%' || ? || '%' ESCAPE '\\'", escaped),
            ("updated_ns >= ?", _clip(self.updated_since.ns) if self.updated_since else None),
            ("updated_ns < ?", _clip(self.updated_before.ns) if self.updated_before else None),
        ]
        used = [(text, value) for text, value in parts if value is not None]
        if not all(layout.is_text(value) for _, value in used if isinstance(value, str)):
            return "WHERE 0", []  # no entry says what is no text
        return ("WHERE " + " AND ".join(t for t, _ in used) if used else "", [v for _, v in used])


def render_entry(entry: IndexEntry) -> str:
    """The entry as sessions.json has it, but for the indentation."""
    return json_text.render(entry.model_dump()).decode()


_COLUMNS = (
    "root, child, id, parent, title, pinned, model, status, project, created_ns, updated_ns, message_count, "
    "name, header_bytes, entry, main_stamp, side_stamp, append_at, updated_at_span, updated_at_text, "
    "user, persona, opening, asked, answered"
)
_UPSERT = (
    f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))}) "
    "ON CONFLICT (root, child) DO UPDATE SET "
    + ", ".join(f"{c.strip()} = excluded.{c.strip()}" for c in _COLUMNS.split(",")[2:])
    + " RETURNING key"
)
_SELECT = (
    "SELECT key, root, child, entry, main_stamp, side_stamp, append_at, updated_at_span, updated_at_text, "
    "user, persona, opening, asked, answered FROM sessions"
)


def _row(row: tuple[Any, ...]) -> CatalogRow:
    key, root, child, entry, main, side, append_at, updated_at, updated_at_text, *gist = row
    return CatalogRow(
        key,
        Location(root, child or None),
        IndexEntry.model_validate(orjson.loads(entry)),
        unpack_version(main, side),
        AppendOffsets(append_at, updated_at, updated_at_text) if append_at is not None else None,
        Preview(*gist),
    )


def _key(location: Location) -> tuple[str, str]:
    return location.root, location.child or ""


def _pack(stamp: Stamp) -> str:
    return ":".join(map(str, stamp))


def unpack_version(main: str, side: str | None) -> Version:
    """From the columns main_stamp and side_stamp."""
    return Version(_unpack(main), _unpack(side) if side else None)


def _unpack(text: str) -> Stamp:
    return Stamp(*map(int, text.split(":")))


def _clip(ns: int) -> int:
    return max(-_LARGEST, min(ns, _LARGEST))
