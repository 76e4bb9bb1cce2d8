"""The catalog: one row per session in index.db, derived from its files only (rule 1).

A row records the versions of the files it was built from. A partial update (append, runtime save)
is allowed only while the files still have these versions. Otherwise the whole session is read
again: a partial update would hide an outside edit forever.

What only changes rows is imported where it is used: `grovefs ls` just reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import apsw
import orjson

from store import layout
from store.disk.disk import Disk
from store.disk.file import Stamp
from store.documents.append_offsets import AppendOffsets
from store.errors import NotFound
from store.index.database import Database
from store.index.schema import SHIFT
from store.index.text_update import NO_TEXTS, TextUpdate
from store.layout import Location
from store.model.preview import Preview
from store.model.timestamp import Timestamp, clip_ns

if TYPE_CHECKING:
    from store.index.fulltext import Message
    from store.model.index_entry import IndexEntry

Order = Literal["updated", "created", "title", "messages"]

NO_STAMP = Stamp(0, 0, 0, 0)

_ORDERS: dict[Order, str] = {
    "updated": "updated_ns {0}, key {0}",
    "created": "created_ns {0}, key {0}",
    "title": "title COLLATE NOCASE {0}, key {0}",
    "messages": "message_count {0}, key {0}",
}


class Version(NamedTuple):
    """The stamps of a session's two documents. None: no such file."""

    main: Stamp | None
    side: Stamp | None


NO_VERSION = Version(None, None)


@dataclass(frozen=True)
class CatalogRow:
    """The row of one session."""

    key: int
    location: Location
    entry: IndexEntry
    version: Version
    append_offsets: AppendOffsets | None
    preview: Preview


@dataclass(frozen=True)
class SessionFacts:
    """Everything the index stores about a session. `messages` as parsed from session.json, or prepared from it."""

    location: Location
    entry: IndexEntry
    version: Version
    append_offsets: AppendOffsets | None
    summary: str
    preview: Preview
    messages: Sequence[Message]


@dataclass(frozen=True)
class IndexUpdate:
    """What one commit changes in the index: a row of `sessions`, and the search rows that differ.

    It is computed before the transaction. Only the stamps of the files are missing, which are known once the
    files are in place.
    """

    location: Location
    columns: dict[str, Any]
    texts: TextUpdate = NO_TEXTS

    def apply(self, db: apsw.Connection, disk: Disk, known: Mapping[str, Stamp | None] | None = None) -> None:
        """Write it, inside the transaction of its commit. The files are in place.

        `known` has stamps of files by path, taken since they were put in place.
        """
        _apply(db, (self, read_version(disk, self.location, known)))


ALL = -1  # as the limit of a list: no limit


class Catalog:
    """Reads and writes the tables `sessions` and `damaged`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # -- planning, before a transaction --------------------------------------------------------------

    def plan(self, facts: SessionFacts, db: apsw.Connection | None = None) -> IndexUpdate:
        """Plan the row and search rows of a session; rows of unchanged messages are left alone."""
        from store.index import fulltext

        reader = db or self._db.reader
        key = reader.execute("SELECT key FROM sessions WHERE root = ? AND child = ?", _key(facts.location)).get
        texts = fulltext.plan_session(reader, key, facts.entry.title, facts.summary, facts.messages)
        columns = _columns(facts.location, facts.entry, facts.append_offsets, facts.preview)
        return IndexUpdate(facts.location, columns, texts)

    def plan_control(
        self,
        row: CatalogRow,
        entry: IndexEntry,
        summary: str,
        preview: Preview,
        append_offsets: AppendOffsets | None = None,
    ) -> IndexUpdate:
        """Plan the update of a session whose messages did not change; pass `append_offsets` if they moved."""
        from store.index import fulltext

        texts = fulltext.plan_title(self._db.reader, row.key, entry.title, summary)
        columns = _columns(row.location, entry, append_offsets or row.append_offsets, preview)
        return IndexUpdate(row.location, columns, texts)

    def plan_append(
        self,
        row: CatalogRow,
        entry: IndexEntry,
        append_offsets: AppendOffsets,
        messages: Sequence[dict[str, Any]],
        summary: str = "",
    ) -> IndexUpdate:
        """Plan the update after an append. It may have changed the title and what else the entry has.

        `summary` is needed only if the title has changed.
        """
        from store.index import fulltext

        texts = fulltext.plan_append(self._db.reader, row.key, row.entry.message_count, messages)
        if entry.title != row.entry.title:
            texts = texts.and_also(fulltext.plan_title(self._db.reader, row.key, entry.title, summary))
        columns = _columns(row.location, entry, append_offsets, row.preview.with_messages(messages))
        return IndexUpdate(row.location, columns, texts)

    # -- writing, inside a transaction ---------------------------------------------------------------

    def put(self, db: apsw.Connection, *found: SessionFacts) -> None:
        """Store sessions as they were read from their files."""
        _apply(db, *((self.plan(facts, db), facts.version) for facts in found))

    def put_entry(self, db: apsw.Connection, row: CatalogRow, entry: IndexEntry) -> None:
        """Update the entry after a change outside the documents: an attachment was added or deleted."""
        columns = _columns(row.location, entry, row.append_offsets, row.preview)
        _put_row(db, IndexUpdate(row.location, columns), row.version)

    def put_version(self, db: apsw.Connection, row: CatalogRow, version: Version) -> None:
        """Update the stamps of documents whose times or modes changed, but not their content."""
        columns = _columns(row.location, row.entry, row.append_offsets, row.preview)
        _put_row(db, IndexUpdate(row.location, columns), version)

    def remove(self, db: apsw.Connection, location: Location) -> bool:
        """Delete a session from the index; False if it was not there."""
        from store.index import fulltext

        found = db.execute("DELETE FROM sessions WHERE root = ? AND child = ? RETURNING key", _key(location)).fetchone()
        if found is not None:
            fulltext.remove_session(db, found[0])
        return self._clear_damaged(db, location) or found is not None

    def put_damaged(self, db: apsw.Connection, location: Location, version: Version, reason: str) -> None:
        """Record a session that exists but cannot be read, instead of its row."""
        self.remove(db, location)
        main, side = version
        db.execute(
            "INSERT INTO damaged VALUES (?, ?, ?, ?, ?)",
            (*_key(location), _pack(main or NO_STAMP), _pack(side) if side else None, reason),
        )

    def put_extra(self, db: apsw.Connection, location: Location, extra: dict[str, Any]) -> None:
        """Store unknown members of its entry in sessions.json; the export writes them back."""
        db.execute(
            "UPDATE sessions SET extra = ? WHERE root = ? AND child = ?",
            (orjson.dumps(extra).decode() if extra else None, *_key(location)),
        )

    def _clear_damaged(self, db: apsw.Connection, location: Location) -> bool:
        db.execute("DELETE FROM damaged WHERE root = ? AND child = ?", _key(location))
        return bool(db.changes())

    # -- queries -------------------------------------------------------------------------------------

    def find(self, location: Location) -> CatalogRow | None:
        row = self._db.reader.execute(f"{_SELECT} WHERE root = ? AND child = ?", _key(location)).fetchone()
        return _row(row) if row else None

    def find_version(self, location: Location) -> Version | None:
        """The version that a session's row was built from."""
        row = self._db.reader.execute(
            "SELECT main_stamp, side_stamp FROM sessions WHERE root = ? AND child = ?", _key(location)
        ).fetchone()
        return unpack_version(row[0], row[1]) if row else None

    def locate(self, session_id: str) -> list[Location]:
        """All locations of sessions with this id, readable or not."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE id = ?1 "
            "UNION SELECT root, child FROM damaged WHERE child = ?1 OR (child = '' AND root = ?1)",
            (session_id,),
        )
        return [Location(root, child or None) for root, child in rows]

    def locations_in_tree(self, root: str) -> list[Location]:
        """A root and all its indexed descendants, readable or not."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE root = ?1 UNION SELECT root, child FROM damaged WHERE root = ?1",
            (root,),
        )
        return [Location(r, child or None) for r, child in rows]

    def versions(self) -> Iterator[tuple[Location, Version]]:
        """The version of every session, damaged ones included."""
        rows = self._db.reader.execute(
            "SELECT root, child, main_stamp, side_stamp FROM sessions "
            "UNION ALL SELECT root, child, main_stamp, side_stamp FROM damaged"
        )
        for root, child, main, side in rows:
            yield Location(root, child or None), unpack_version(main, side)

    def attachment_flags(self) -> Iterator[tuple[Location, bool]]:
        """Whether each session has attachments, according to the index; False for damaged ones."""
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
        return [_parse_entry(entry) for (entry,) in rows]

    def summaries(
        self, where: Filter, order: Order, *, descending: bool, limit: int, offset: int
    ) -> Iterator[tuple[Location, dict[str, Any], Preview]]:
        """Like `entries`, with location and preview. Entries are plain JSON objects: a list shows little of them."""
        clause, values = where.sql()
        order_by = _ORDERS[order].format("DESC" if descending else "ASC")
        rows = self._db.reader.execute(
            f"SELECT root, child, entry, {_PREVIEW} FROM sessions {clause} ORDER BY {order_by} LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        for root, child, entry, *preview in rows:
            yield Location(root, child or None), orjson.loads(entry), Preview(*preview)

    def changed_since(self, since: Timestamp) -> list[Location]:
        """Locations of sessions with updated_at >= `since`, in this order."""
        rows = self._db.reader.execute(
            "SELECT root, child FROM sessions WHERE updated_ns >= ? ORDER BY updated_ns, key", (clip_ns(since.ns),)
        )
        return [Location(root, child or None) for root, child in rows]

    def with_lone_system_prompt(self) -> set[Location]:
        """Sessions whose only message is a system prompt."""
        rows = self._db.reader.execute(
            f"SELECT root, child FROM sessions JOIN texts ON texts.row = (key << {SHIFT}) + 1 "
            "WHERE message_count = 1 AND texts.role = 'system'"
        )
        return {Location(root, child or None) for root, child in rows}

    def all_entries(self) -> Iterator[tuple[Location, IndexEntry]]:
        for root, child, entry in self._db.reader.execute(
            "SELECT root, child, entry FROM sessions ORDER BY root, child"
        ):
            yield Location(root, child or None), _parse_entry(entry)


# A question of the agent is open, or its run was suspended until somebody answers.
_IS_WAITING = "coalesce(status, '') = 'suspended' OR coalesce(json_extract(entry, '$.has_pending_question'), 0)"


@dataclass(frozen=True)
class Filter:
    """Conditions on entries; all that are not None must match."""

    kind: str | None = None
    root: str | None = None
    parent: str | None = None
    pinned: bool | None = None
    status: str | None = None
    model: str | None = None
    project: str | None = None
    user: str | None = None
    persona: str | None = None
    seed: str | None = None
    host: str | None = None
    title: str | None = None
    waiting: bool | None = None  # for an answer of the user
    updated_since: Timestamp | str | None = None
    updated_before: Timestamp | str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """The WHERE clause and its parameters."""
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
            ("seed = ?", self.seed),
            ("host = ?", self.host),
            ("title LIKE '%' || ? || '%' ESCAPE '\\'", escaped),
            (f"({_IS_WAITING}) = ?", None if self.waiting is None else int(self.waiting)),
            ("updated_ns >= ?", _instant_ns(self.updated_since)),
            ("updated_ns < ?", _instant_ns(self.updated_before)),
        ]
        used = [(text, value) for text, value in parts if value is not None]
        if not all(layout.is_text(value) for _, value in used if isinstance(value, str)):
            return "WHERE 0", []  # not valid Unicode: matches nothing
        return ("WHERE " + " AND ".join(t for t, _ in used) if used else "", [v for _, v in used])


def _instant_ns(moment: Timestamp | str | None) -> int | None:
    """A time for the index. Raises ValueError if it is not RFC 3339."""
    return None if moment is None else clip_ns(Timestamp(moment).ns)


def read_version(disk: Disk, location: Location, known: Mapping[str, Stamp | None] | None = None) -> Version:
    """The stamps of a session's files as they are now, or as `known`."""
    paths = (location.path(layout.SESSION), location.path(layout.RUNTIME))
    main, side = (known[path] if known is not None and path in known else disk.stamp(path) for path in paths)
    return Version(main, side)


def apply_updates(
    db: apsw.Connection, disk: Disk, updates: Sequence[IndexUpdate], known: Mapping[str, Stamp | None]
) -> None:
    """Write updates of different sessions, as `IndexUpdate.apply` does for one."""
    _apply(db, *((update, read_version(disk, update.location, known)) for update in updates))


def _apply(db: apsw.Connection, *updates: tuple[IndexUpdate, Version]) -> None:
    """Write planned updates, each with the stamps of its files.

    All sessions are written before all messages: a statement that may need a rollback makes FTS5 flush its
    buffer, and many small segments cost far more than one large one.
    """
    from store.index import fulltext

    bases = [_put_row(db, update, version) << SHIFT for update, version in updates]
    present = [_key(update.location) for update, _ in updates]
    db.executemany("DELETE FROM damaged WHERE root = ? AND child = ?", present)
    fulltext.apply(db, *((base, update.texts) for base, (update, _) in zip(bases, updates, strict=True)))


def _put_row(db: apsw.Connection, update: IndexUpdate, version: Version) -> int:
    if version.main is None:  # the commit keeps its journal entry; recovery reads the session again
        raise NotFound(f"{update.location.path(layout.SESSION)} was deleted right after it was saved")
    stamps = _pack(version.main), _pack(version.side) if version.side else None
    return int(db.execute(_UPSERT, (*update.columns.values(), *stamps)).get)


def _columns(
    location: Location, entry: IndexEntry, append_offsets: AppendOffsets | None, preview: Preview
) -> dict[str, Any]:
    """The columns of a session's row, but for the stamps of its files."""
    from store.documents import display_names, transcript

    return {
        "root": location.root,
        "child": location.child or "",
        "id": location.id,
        "parent": entry.parent_session_id,
        "title": entry.title,
        "pinned": int(entry.pinned),
        "model": entry.model,
        "status": entry.last_run_status,
        "project": entry.project_id,
        "created_ns": clip_ns(entry.created_at.ns),
        "updated_ns": clip_ns(entry.updated_at.ns),
        "message_count": entry.message_count,
        "name": display_names.session_name(entry.title, preview.opening, location),
        "header_bytes": transcript.length(transcript.render_header(entry)),
        "entry": render_entry(entry),
        "append_at": append_offsets.append_at if append_offsets else None,
        "updated_at_span": append_offsets.updated_at if append_offsets else None,
        "updated_at_text": append_offsets.updated_at_text if append_offsets else None,
        "user": preview.user,
        "persona": preview.persona,
        "seed": preview.seed,
        "host": preview.host,
        "opening": preview.opening,
        "asked": preview.asked,
        "answered": preview.answered,
    }


def render_entry(entry: IndexEntry) -> str:
    """The entry as in sessions.json, except for indentation."""
    from store.documents import json_text

    return json_text.render(entry.model_dump()).decode()


# In the order of `_columns`, and the stamps.
_COLUMNS = (
    "root, child, id, parent, title, pinned, model, status, project, created_ns, updated_ns, message_count, "
    "name, header_bytes, entry, append_at, updated_at_span, updated_at_text, "
    "user, persona, seed, host, opening, asked, answered, main_stamp, side_stamp"
)
_UPSERT = (
    f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))}) "
    "ON CONFLICT (root, child) DO UPDATE SET "
    + ", ".join(f"{c.strip()} = excluded.{c.strip()}" for c in _COLUMNS.split(",")[2:])
    + " RETURNING key"
)
_PREVIEW = "user, persona, seed, host, opening, asked, answered"
_SELECT = (
    "SELECT key, root, child, entry, main_stamp, side_stamp, append_at, updated_at_span, updated_at_text, "
    f"{_PREVIEW} FROM sessions"
)


def _parse_entry(text: str) -> IndexEntry:
    from store.model.index_entry import IndexEntry

    return IndexEntry.model_validate(orjson.loads(text))


def _row(row: tuple[Any, ...]) -> CatalogRow:
    key, root, child, entry, main, side, append_at, updated_at, updated_at_text, *preview = row
    return CatalogRow(
        key,
        Location(root, child or None),
        _parse_entry(entry),
        unpack_version(main, side),
        AppendOffsets(append_at, updated_at, updated_at_text) if append_at is not None else None,
        Preview(*preview),
    )


def _key(location: Location) -> tuple[str, str]:
    return location.root, location.child or ""


def _pack(stamp: Stamp) -> str:
    return ":".join(map(str, stamp))


def unpack_version(main: str, side: str | None) -> Version:
    """Parse the columns main_stamp and side_stamp."""
    return Version(_unpack(main), _unpack(side) if side else None)


def mtime_of(main: str, side: str | None) -> int:
    """The later mtime of a session's two documents, given these columns: every change shows."""
    return max(int(stamp.split(":")[2]) for stamp in (main, side) if stamp)


def _unpack(text: str) -> Stamp:
    return Stamp(*map(int, text.split(":")))
