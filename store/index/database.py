"""The SQLite tables, every column's meaning beside it, and the connections to them.

All of it is derived from the files and may be deleted at any time (rule 1). One connection writes, one
thread at a time; each thread that reads has a connection of its own, so that readers never wait.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from store.documents import search_text
from store.documents.transcript import RENDERER_VERSION
from store.errors import Busy, StoreError

log = logging.getLogger("grovefs.store")

VERSION = 2
APPLICATION_ID = 0x47524F56  # "GROV"
BUSY_MS = 10_000
# A row of texts, pieces and search is the session's key and the message's place: 16 million messages a session.
SHIFT = 24
# Checkpoints belong to idle time; this is only the brake for a process that never rests (pages of 4 KiB).
AUTOCHECKPOINT_PAGES = 8_000

GATHERED_BYTES = 32 << 20

TOKENIZER = "unicode61 remove_diacritics 2"

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,            -- epoch, clean, renderer, feed_floor, export_stamps, _digest, _cursor, _head,
                                     --   pruned_ns (the last automatic run), health (a trial write),
                                     --   grep_next (document), grep_token (of who vouches)
    value
) WITHOUT ROWID;

CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,         -- names the session within this database only
    root TEXT NOT NULL,              -- location: root id,
    child TEXT NOT NULL,             --   and child id, '' for a root
    id TEXT NOT NULL,                -- the last name of the path; several roots may have a child of one id
    parent TEXT,                     -- parent_session_id
    title TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    model TEXT NOT NULL,
    status TEXT,                     -- last_run_status
    project TEXT,                    -- runtime_metadata.project_id
    created_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    name TEXT NOT NULL,              -- what it is called in the views; others may be called the same
    header_bytes INTEGER NOT NULL,   -- of its transcript
    text_bytes INTEGER NOT NULL DEFAULT 0, -- of all pieces of its transcript: the sum of pieces.bytes
    entry TEXT NOT NULL,             -- the entry of sessions.json, as it is exported
    extra TEXT,                      -- members of the entry that someone else wrote and we do not know
    main_stamp TEXT NOT NULL,        -- session.json as it was when this row was made
    side_stamp TEXT,                 -- runtime.json likewise; NULL without one
    append_at INTEGER,               -- offset in session.json behind the last message
    updated_at_span INTEGER,         -- offset in session.json of the value of updated_at
    updated_at_text TEXT,            -- that value in session.json; the sidecar's may be fresher
    user TEXT,                       -- metadata.user_id: whose the session is
    persona TEXT,                    -- metadata.active_persona_id
    opening TEXT,                    -- a title made from the user's first words; NULL before they said any
    asked INTEGER NOT NULL,          -- messages of the user,
    answered INTEGER NOT NULL        --   and final answers to them
) STRICT;
CREATE UNIQUE INDEX sessions_location ON sessions (root, child);
CREATE INDEX sessions_id ON sessions (id);
CREATE INDEX sessions_updated ON sessions (updated_ns DESC, key);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_pinned ON sessions (root) WHERE pinned;
CREATE INDEX sessions_project ON sessions (project);
CREATE INDEX sessions_status ON sessions (status);
CREATE INDEX sessions_model ON sessions (model);
CREATE INDEX sessions_name ON sessions (name);

CREATE TABLE damaged (               -- session.json files that cannot be read, so that a sweep need not retry
    root TEXT NOT NULL,
    child TEXT NOT NULL,
    main_stamp TEXT NOT NULL,
    side_stamp TEXT,
    reason TEXT NOT NULL,
    PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;

CREATE TABLE texts (                 -- what the full-text rows stand for
    row INTEGER PRIMARY KEY,         -- sessions.key << 24, plus 0 for title and summary, index + 1 for a message;
                                     --   -state_documents.key for a state document
    number INTEGER NOT NULL,         -- the rowid in `search`: what was written later has the higher one
    role TEXT NOT NULL,              -- '' for what is no message
    message_id TEXT,
    created_ns INTEGER,
    digest INTEGER NOT NULL          -- of the message's JSON: equal digest, nothing to do
) STRICT;
CREATE UNIQUE INDEX texts_number ON texts (number);
CREATE TABLE pieces (                -- the pieces of transcripts
    row INTEGER PRIMARY KEY,         -- as in texts; 0 is the summary
    bytes INTEGER NOT NULL           -- its length, without the targets of links to attachments
) STRICT;
CREATE TABLE links (                 -- attachments that transcripts link to; where they lie, the disk says
    row INTEGER NOT NULL,            -- as in texts
    url TEXT NOT NULL,               -- bamboo-attachment://…
    times INTEGER NOT NULL,          -- how often in that piece
    PRIMARY KEY (row, url)
) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5(text, content='', contentless_delete=1, tokenize="{tokenizer}");

CREATE TABLE state_documents (       -- state documents that search knows
    key INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,       -- from the home: state/<category>/<name>.md
    title TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE grep_files (            -- files below sessions/ whose trigrams are in a segment
    document INTEGER PRIMARY KEY,    -- its number there, never given to another version
    path BLOB NOT NULL UNIQUE,       -- relative to the home, as the disk has it
    stamp BLOB NOT NULL              -- of the version that was read, packed as in store/stamps.py
) STRICT;
CREATE TABLE grep_changed (          -- files to be read whatever is asked for: no segment knows them as they are
    path BLOB PRIMARY KEY,
    at_ns INTEGER NOT NULL           -- when they changed last, as far as we know
) STRICT, WITHOUT ROWID;
CREATE TABLE grep_folders (          -- directories of which every file is in one of the two tables above
    path BLOB PRIMARY KEY,
    stamp BLOB NOT NULL              -- as it was then
) STRICT, WITHOUT ROWID;
CREATE TABLE grep_segments (         -- the files in .grovefs/trigrams/ that count; others belong to no one
    name TEXT PRIMARY KEY,
    documents INTEGER NOT NULL,      -- in it, those that are no more among them
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE changes (               -- the change feed
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    root TEXT NOT NULL,
    child TEXT NOT NULL,
    what TEXT NOT NULL,              -- saved, runtime, appended, deleted, attachment, log, …
    at_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE marks (                 -- commits under way: what recovery has to finish
    root TEXT NOT NULL,
    child TEXT NOT NULL,             -- '*' for the whole tree
    moves TEXT NOT NULL,             -- JSON: [[from, to], …], in order
    touched TEXT NOT NULL,           -- JSON: [[root, child], …], the sessions to read again
    PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;
"""


# What is the disk's fault is reported as the disk would.
_DISK_ERRORS = {
    apsw.FullError: errno.ENOSPC,
    apsw.ReadOnlyError: errno.EROFS,
    apsw.PermissionsError: errno.EACCES,
    apsw.IOError: errno.EIO,
}
_TOLD_AS_IO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})


class NewerSchema(StoreError):
    """index.db belongs to a newer GroveFS."""


class OlderInUse(StoreError):
    """index.db belongs to an older GroveFS, which has it open."""


class DatabaseUnusable(StoreError):
    """index.db is no database of ours; it can be set aside and made anew."""


def _recognise(path: Path) -> None:
    """Look before opening: SQLite would follow a link."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EIO, "this is no plain file and cannot be opened as a database", str(path))


def _fold(*values: Any) -> str:
    return search_text.casefold_nfc(str(values[0]))


def _make_ours_alone(path: Path) -> None:
    """SQLite would make it readable for others; what it writes beside it takes its mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def set_aside(path: Path) -> None:
    """Keep a database that is of no use, beside where it was."""
    os.replace(path, path.with_name(f"{path.name}.spoiled"))
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _create(db: apsw.Connection) -> None:
    db.execute(SCHEMA.replace("{tokenizer}", TOKENIZER))
    db.execute(f"PRAGMA user_version = {VERSION}; PRAGMA application_id = {APPLICATION_ID}")
    db.execute("INSERT INTO meta VALUES ('renderer', ?)", (RENDERER_VERSION,))
    # Merges inside a commit stall it by tens of milliseconds; they are done when idle.
    # What is gathered in memory before it is written out: a first index makes few large pieces, not many small ones.
    settings = f"('automerge', 0), ('crisismerge', 64), ('hashsize', {GATHERED_BYTES})"
    db.execute(f"INSERT INTO search(search, rank) VALUES {settings}")


def _disk_error(db: apsw.Connection | None, error: BaseException) -> int | None:
    """What was wrong with the disk, if anything: of most errors SQLite only says that there was one."""
    number = next((number for kind, number in _DISK_ERRORS.items() if isinstance(error, kind)), None)
    said = db.system_errno if db is not None else 0
    return said if number == errno.EIO and said in _TOLD_AS_IO else number


def _renderer(db: apsw.Connection) -> object:
    """Whose lengths of transcripts these are: those of another renderer are wrong."""
    return db.execute("SELECT value FROM meta WHERE key = 'renderer'").get


class Database:
    """`index.db`: one writer, a reader for each thread."""

    path: Path

    def __init__(self, path: Path, *, alone: bool = True) -> None:
        self.path = path
        self._alone = alone
        _recognise(path)
        self._writing = threading.RLock()
        self._is_writing = False
        self._local = threading.local()
        self._readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()  # one goes with its thread
        self._writer = self._connect()
        try:
            self._prepare()
        except BaseException:
            self._writer.close()
            raise

    def _connect(self) -> apsw.Connection:
        connection: apsw.Connection | None = None
        try:
            _make_ours_alone(self.path)
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(BUSY_MS)
            connection.create_scalar_function("fold", _fold, 1, deterministic=True)
            # Before anything is set: someone else's database must not be changed by our looking at it.
            is_ours = connection.execute("PRAGMA application_id").get == APPLICATION_ID
            if not is_ours and connection.execute("SELECT count(*) FROM sqlite_schema").get:
                raise DatabaseUnusable(f"{self.path} is not a GroveFS index")
            connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise DatabaseUnusable(f"{self.path}: {error}") from error
        except apsw.CantOpenError as error:
            raise OSError(errno.EIO, "this cannot be opened as a database", str(self.path)) from error
        except tuple(_DISK_ERRORS) as error:
            number = _disk_error(connection, error) or errno.EIO
            raise OSError(number, os.strerror(number), str(self.path)) from error
        return connection

    def _prepare(self) -> None:
        try:
            with self.write() as db:
                version = db.execute("PRAGMA user_version").get
                if version == 0 and db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                    _create(db)
                elif version < VERSION or (version == VERSION and _renderer(db) != RENDERER_VERSION):
                    self._upgrade(db, version)
                if version <= VERSION:
                    return
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            raise DatabaseUnusable(f"{self.path}: {error}") from error
        raise NewerSchema(
            f"{self.path} was made by a newer GroveFS (schema {version}, this one knows {VERSION}); "
            "nothing was changed. Upgrade, or delete the file to have it made anew from the sessions"
        )

    def _upgrade(self, db: apsw.Connection, version: int) -> None:
        """All tables but the marks are derived: they are made anew, empty, and the opening reads every session."""
        if not self._alone:
            raise OlderInUse(
                f"{self.path} was made by an older GroveFS (schema {version}) that still has it open; close that first"
            )
        marks = db.execute("SELECT root, child, moves, touched FROM marks").fetchall()
        # Virtual ones first: they take their own tables along, which nobody else may drop.
        for kind in ("CREATE VIRTUAL TABLE", "CREATE TABLE"):
            ours = "SELECT name FROM sqlite_schema WHERE sql LIKE ? AND name NOT LIKE 'sqlite%'"
            for (name,) in db.execute(ours, (f"{kind}%",)).fetchall():
                db.execute(f'DROP TABLE "{name}"')
        _create(db)
        db.executemany("INSERT INTO marks (root, child, moves, touched) VALUES (?, ?, ?, ?)", marks)
        log.info("index.db (schema %d) is made anew from the sessions, as schema %d", version, VERSION)

    def close(self) -> None:
        with self._writing:
            for connection in [*self._readers, self._writer]:
                connection.close()
            self._readers.clear()

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[apsw.Connection]:
        """One transaction. `durable` makes its commit reach the disk before it returns."""
        with self._writing:
            if self._is_writing:  # nested: part of the outer one
                yield self._writer
                return
            # What counts is our own note: an interrupt may leave SQLite in a transaction that nobody owns.
            self._is_writing = True
            try:
                self._begin(durable=durable)
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as error:
                number = _disk_error(self._writer, error)
                self._roll_back()
                if number is not None:
                    raise OSError(number, os.strerror(number), str(self.path)) from error
                raise
            finally:
                self._is_writing = False

    def _begin(self, *, durable: bool) -> None:
        self._roll_back()
        try:
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}; BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise Busy(f"{self.path} is locked by someone else; nothing was changed, try again") from error

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @property
    def reader(self) -> apsw.Connection:
        """This thread's connection for queries; inside `write` it does not see the open transaction."""
        connection: apsw.Connection | None = getattr(self._local, "reader", None)
        if connection is None:
            connection = self._local.reader = self._connect()
            with self._writing:
                self._readers.add(connection)
        return connection

    def look_through(self) -> None:
        """Touch every table and index once, at one place: CorruptError if the first page of one is damaged."""
        for table in ("sessions", "damaged", "texts", "state_documents", "pieces", "links", "changes", "marks", "meta"):
            self._writer.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
        for order in ("root, child", "id", "updated_ns DESC, key"):
            self._writer.execute(f"SELECT 1 FROM sessions ORDER BY {order} LIMIT 1").fetchall()

    def integrity(self) -> list[str]:
        """What SQLite finds wrong when it reads the whole database; nothing if it is sound. Writers go on meanwhile."""
        return [text for (text,) in self.reader.execute("PRAGMA quick_check(10)") if text != "ok"]

    def start_anew(self) -> None:
        """Set the database aside and begin an empty one. Only for one who is alone with the home."""
        self.close()
        set_aside(self.path)
        self._local = threading.local()
        self._alone = True
        self._writer = self._connect()
        self._prepare()

    def get_meta(self, key: str, default: Any = None) -> Any:
        row = self.reader.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return default if row is None else row[0]

    def set_meta(self, **values: Any) -> None:
        with self.write() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def checkpoint(self) -> None:
        """Move the WAL into the database, as far as readers allow."""
        with self._writing:
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.BusyError:
                log.debug("checkpoint put off: the database is busy")

    def tidy_search(self) -> bool:
        """A bounded share of the merging that commits leave undone; True while there may be more."""
        with self.write() as db:
            before = db.total_changes()
            db.execute("INSERT INTO search(search, rank) VALUES ('merge', 200)")
            return bool(db.total_changes() - before >= 2)


def now_ns() -> int:
    return time.time_ns()
