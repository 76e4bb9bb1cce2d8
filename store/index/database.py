"""Connections to index.db: one writer, used by one thread at a time, and one reader per thread.

Readers never wait for the writer (WAL). SQLite errors caused by the disk are raised as OSError with
its errno.
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

from store.errors import Busy, Closed, StoreError
from store.index import schema

log = logging.getLogger("grovefs.store")

BUSY_MS = 10_000
# Checkpoints run when idle; this limit is for a process that is never idle (pages of 4 KiB).
AUTOCHECKPOINT_PAGES = 8_000

# Errors caused by the disk are raised as OSError.
DISK_ERRORS = {
    apsw.FullError: errno.ENOSPC,
    apsw.ReadOnlyError: errno.EROFS,
    apsw.PermissionsError: errno.EACCES,
    apsw.IOError: errno.EIO,
}
# SQLITE_IOERR covers these too; Connection.system_errno has the real one.
_IO_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})


class NewerSchema(StoreError):
    """index.db was written by a newer GroveFS."""


class OlderInUse(StoreError):
    """index.db was written by an older GroveFS that still has it open."""


class DatabaseUnusable(StoreError):
    """index.db is damaged or not a GroveFS database; set it aside and rebuild it."""


def require_regular_file(path: Path) -> None:
    """Reject a symbolic link, which SQLite would follow, and anything else that is not a file."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EIO, "not a regular file; cannot be opened as a database", str(path))


def _fold(*values: Any) -> str:
    from store.documents import search_text  # only a search by title or model calls this

    return search_text.casefold_nfc(str(values[0]))


def create_private(path: Path) -> None:
    """Create the file with mode 0600.

    SQLite would use the umask; -wal and -shm take the mode of the database.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def set_aside(path: Path) -> None:
    """Rename an unusable database to `index.db.corrupt`, replacing an earlier one."""
    os.replace(path, path.with_name(f"{path.name}.corrupt"))
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def disk_errno(db: apsw.Connection | None, error: BaseException) -> int | None:
    """The errno of an error caused by the disk, else None.

    SQLite reports most of them only as SQLITE_IOERR.
    """
    number = next((number for kind, number in DISK_ERRORS.items() if isinstance(error, kind)), None)
    system_errno = db.system_errno if db is not None else 0
    return system_errno if number == errno.EIO and system_errno in _IO_ERRNOS else number


class Database:
    """index.db: one writer connection, one reader connection per thread."""

    path: Path

    def __init__(self, path: Path, *, alone: bool = True) -> None:
        self.path = path
        self._alone = alone
        require_regular_file(path)
        self._writing = threading.RLock()
        self._is_writing = False
        self._is_closed = False
        self._local = threading.local()
        self._readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()  # a reader is closed when its thread ends
        self._writer = self._connect()
        try:
            self._prepare()
        except BaseException:
            self._writer.close()
            raise

    def _connect(self) -> apsw.Connection:
        connection: apsw.Connection | None = None
        try:
            create_private(self.path)
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(BUSY_MS)
            connection.create_scalar_function("fold", _fold, 1, deterministic=True)
            # Check before any PRAGMA that writes: a database of another application must stay
            # unchanged.
            is_ours = connection.execute("PRAGMA application_id").get == schema.APPLICATION_ID
            if not is_ours and connection.execute("SELECT count(*) FROM sqlite_schema").get:
                raise DatabaseUnusable(f"{self.path} is not a GroveFS index")
            settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY"
            connection.execute(settings).fetchall()  # else what follows a statement with a result does not run
            connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise DatabaseUnusable(f"{self.path}: {error}") from error
        except apsw.CantOpenError as error:
            raise OSError(errno.EIO, "cannot be opened as a database", str(self.path)) from error
        except tuple(DISK_ERRORS) as error:
            number = disk_errno(connection, error) or errno.EIO
            raise OSError(number, os.strerror(number), str(self.path)) from error
        return connection

    def _prepare(self) -> None:
        """Create or upgrade the tables."""
        try:
            with self.write() as db:
                version = int(db.execute("PRAGMA user_version").get)
                if version == 0 and db.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                    schema.create(db)
                elif schema.needs_upgrade(db, version):
                    self._upgrade(db, version)
                if version <= schema.VERSION:
                    return
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            raise DatabaseUnusable(f"{self.path}: {error}") from error
        raise NewerSchema(
            f"{self.path} was created by a newer GroveFS (schema {version}, supported {schema.VERSION}); "
            "nothing was changed. Upgrade GroveFS, or delete the file to rebuild it from the sessions"
        )

    def _upgrade(self, db: apsw.Connection, version: int) -> None:
        if not self._alone:
            raise OlderInUse(
                f"{self.path} was created by an older GroveFS (schema {version}) that still has it open; "
                "close that one first"
            )
        schema.upgrade(db)
        log.info("index.db (schema %d) is rebuilt from the sessions as schema %d", version, schema.VERSION)

    def close(self) -> None:
        with self._writing:
            self._is_closed = True
            for connection in [*self._readers, self._writer]:
                connection.close()
            self._readers.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"the store of {self.path.parent.parent} is closed")

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[apsw.Connection]:
        """One transaction, committed on exit. With `durable` the commit is synced to disk.

        Nested calls join the outer transaction.
        """
        with self._writing:
            self._check_open()
            if self._is_writing:
                yield self._writer
                return
            # Not Connection.in_transaction: an interrupt may leave a transaction open that no
            # caller owns.
            self._is_writing = True
            try:
                self._begin(durable=durable)
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as error:
                number = disk_errno(self._writer, error)
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
            raise Busy(f"{self.path} is locked by another process; nothing was changed, try again") from error

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @property
    def reader(self) -> apsw.Connection:
        """This thread's connection for queries. It does not see an open `write` transaction."""
        self._check_open()
        connection: apsw.Connection | None = getattr(self._local, "reader", None)
        if connection is None:
            connection = self._local.reader = self._connect()
            with self._writing:
                self._readers.add(connection)
        return connection

    def probe_tables(self) -> None:
        """Read one row of every table and index.

        Raises apsw.CorruptError if the first page of one is damaged.
        """
        for table in ("sessions", "damaged", "texts", "state_documents", "pieces", "links", "changes", "marks", "meta"):
            self._writer.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
        for order in ("root, child", "id", "updated_ns DESC, key"):
            self._writer.execute(f"SELECT 1 FROM sessions ORDER BY {order} LIMIT 1").fetchall()

    def integrity_errors(self) -> list[str]:
        """Errors found by PRAGMA quick_check, which reads all pages without blocking writers."""
        return [text for (text,) in self.reader.execute("PRAGMA quick_check(10)") if text != "ok"]

    def recreate(self) -> None:
        """Set the database aside and create an empty one. Requires exclusive use of the home."""
        self.close()
        set_aside(self.path)
        self._local = threading.local()
        self._alone = True
        self._writer = self._connect()
        self._is_closed = False
        self._prepare()

    def get_meta(self, key: str, default: Any = None) -> Any:
        row = self.reader.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return default if row is None else row[0]

    def set_meta(self, **values: Any) -> None:
        with self.write() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def checkpoint(self) -> None:
        """Copy the WAL into the database, as far as readers allow."""
        with self._writing:
            try:
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.BusyError:
                log.debug("checkpoint postponed: the database is busy")

    def erase_deleted(self) -> bool:
        """Remove what deleted rows left in the file. False if another process prevented it.

        Words of deleted messages stay in FTS5 segments until these are merged, and deleted text in
        free pages until the file is written again.
        """
        with self._writing:
            try:
                self._writer.execute("INSERT INTO search(search) VALUES ('optimize')")
                self._writer.execute("VACUUM")
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                return False
            log_file = Path(f"{self.path}-wal")
            return not log_file.exists() or log_file.stat().st_size == 0

    def merge_search(self) -> bool:
        """Run one bounded step of the FTS5 merges that commits leave out.

        True if more may remain.
        """
        with self.write() as db:
            before = db.total_changes()
            db.execute("INSERT INTO search(search, rank) VALUES ('merge', 200)")
            return bool(db.total_changes() - before >= 2)


def now_ns() -> int:
    return time.time_ns()
