"""Connections to history.db: one writer, used by one thread at a time, and one reader per thread.

Connections are opened on first use, so a history that cannot be opened does not keep a home from
being opened. A writer waits for another process for BUSY_MS only. If the file was deleted or
replaced, the next use opens the new one. A corrupt file is renamed to `history.db.corrupt-<time>`
and a new one is created.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from store.disk import reserve
from store.errors import Busy, StoreError
from store.history import schema
from store.index.database import DISK_ERRORS, create_private, disk_errno, require_regular_file

log = logging.getLogger("grovefs.store")

BUSY_MS = 1_000  # a save waits no longer for the history; a version that it does not get is found by no merge
# Checkpoints run when idle; this limit is for a process that is never idle (pages of 4 KiB).
AUTOCHECKPOINT_PAGES = 2_000

_CORRUPT = (apsw.NotADBError, apsw.CorruptError)


class HistoryUnusable(StoreError):
    """history.db is damaged, of a newer GroveFS, or not a database of GroveFS."""


class HistoryDatabase:
    """history.db. `write` and `reader` open it on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = threading.RLock()
        self._is_writing = False
        self._writer: apsw.Connection | None = None
        self._is_durable = False  # the present setting of PRAGMA synchronous
        self._inode: tuple[int, int] | None = None
        self.generation = 0  # of the file: connections of an older one are replaced
        self._local = threading.local()

    def close(self) -> None:
        """Close the writer. The connection of a reading thread is closed when the thread ends."""
        with self._writing:
            self._drop_connections()

    def _drop_connections(self) -> None:
        self.generation += 1
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        reader: apsw.Connection | None = getattr(self._local, "reader", None)
        if reader is not None:
            reader.close()
            self._local.reader = None

    # -- transactions --------------------------------------------------------------------------------

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[apsw.Connection]:
        """One transaction, committed on exit. With `durable` the commit is synced to disk.

        Nested calls join the outer transaction. Raises Busy if another process holds the lock.
        """
        with self._writing:
            if self._is_writing:
                assert self._writer is not None
                yield self._writer
                return
            self._is_writing = True
            try:
                db = self._begin(durable=durable)
                yield db
                db.execute("COMMIT")
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._is_writing = False

    def _begin(self, *, durable: bool) -> apsw.Connection:
        db = self._open_writer()
        if db.in_transaction:  # an interrupt left it open
            db.execute("ROLLBACK")
        if durable != self._is_durable:
            self._is_durable = False  # an interrupt in between must not leave it True: then it is set again
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        try:
            db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise Busy(f"{self.path} is locked by another process") from error
        return db

    def _fail(self, error: BaseException) -> None:
        """Roll back; raise errors of the disk as OSError, and set a corrupt file aside."""
        number = disk_errno(self._writer, error)
        if self._writer is not None and self._writer.in_transaction:
            with suppress(apsw.Error):
                self._writer.execute("ROLLBACK")
        if isinstance(error, _CORRUPT):
            self._set_aside(str(error))
            raise HistoryUnusable(f"{self.path} is damaged ({error}) and was set aside") from error
        if number is not None:
            raise OSError(number, os.strerror(number), str(self.path)) from error

    @property
    def reader(self) -> apsw.Connection:
        """This thread's connection for queries. It does not see an open `write` transaction."""
        self._check_file()
        connection: apsw.Connection | None = getattr(self._local, "reader", None)
        if connection is None or self._local.generation != self.generation:
            with self._writing:
                self._open_writer()  # creates the tables
                connection = self._local.reader = self._connect()
                self._local.generation = self.generation
        return connection

    @contextmanager
    def exclusive(self) -> Iterator[apsw.Connection]:
        """Keep the other threads of this process from writing. For statements that run in no transaction."""
        with self._writing:
            yield self._open_writer()

    # -- opening -------------------------------------------------------------------------------------

    def _check_file(self) -> None:
        """Forget connections to a file that was deleted or replaced."""
        if self._inode is not None and self._inode_now() != self._inode:
            with self._writing:
                if self._inode is not None and not self._is_writing:
                    log.info("%s was replaced; it is opened again", self.path)
                    self._drop_connections()
                    self._inode = None

    def _inode_now(self) -> tuple[int, int] | None:
        try:
            info = os.lstat(self.path)
        except FileNotFoundError:
            return None
        return info.st_dev, info.st_ino

    def _open_writer(self) -> apsw.Connection:
        self._check_file()
        if self._writer is None:
            try:
                self._writer = self._open_or_replace()
            except tuple(DISK_ERRORS) as error:
                number = errno.ENOSPC if reserve.is_full(self.path.parent) else disk_errno(None, error) or errno.EIO
                raise OSError(number, os.strerror(number), str(self.path)) from error
            self._is_durable = False
            self._inode = self._inode_now()
        return self._writer

    def _open_or_replace(self) -> apsw.Connection:
        try:
            return self._prepared()
        except _CORRUPT as error:
            self._inode = self._inode_now()
            self._set_aside(str(error))
            return self._prepared()

    def _prepared(self) -> apsw.Connection:
        """A connection to a database whose tables are up to date and can be read."""
        db = self._connect()
        try:
            if int(db.execute("PRAGMA user_version").get) != schema.VERSION:
                db.execute("BEGIN IMMEDIATE")
                found = schema.migrate(db)
                db.execute("COMMIT")
                if found > schema.VERSION:
                    raise HistoryUnusable(
                        f"{self.path} was created by a newer GroveFS (schema {found}, supported "
                        f"{schema.VERSION}); no versions are kept until GroveFS is upgraded"
                    )
            for table in schema.TABLES:
                db.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
        except BaseException as error:
            db.close()
            if isinstance(error, apsw.SQLError):
                raise apsw.CorruptError(str(error)) from error
            raise
        return db

    def _connect(self) -> apsw.Connection:
        require_regular_file(self.path)
        create_private(self.path)
        try:
            db = apsw.Connection(str(self.path))
        except apsw.CantOpenError as error:
            raise OSError(errno.EIO, "cannot be opened as a database", str(self.path)) from error
        try:
            db.set_busy_timeout(BUSY_MS)
            if not db.execute("SELECT count(*) FROM sqlite_schema").get:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only possible before the first table
            elif db.execute("PRAGMA application_id").get != schema.APPLICATION_ID:
                raise apsw.NotADBError("not a history of GroveFS")
            # fetchall: statements after one that returns a row run only when the next row is asked for.
            db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY").fetchall()
            # Deleted text is overwritten: what `history purge` removes must not stay in the file.
            db.execute(f"PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    # -- a corrupt file --------------------------------------------------------------------------------

    def _set_aside(self, why: str) -> None:
        """Rename the file that is open, unless another process has replaced it already."""
        broken = self._inode
        self._drop_connections()
        self._inode = None
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if broken is not None and self._inode_now() != broken:
                return
            aside = self._aside_path()
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
            log.warning("%s is damaged (%s); it was renamed to %s and a new history begins", self.path, why, aside.name)
        finally:
            os.close(fd)

    def _aside_path(self) -> Path:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        path = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        return path if not path.exists() else path.with_name(f"{path.name}-{time.time_ns() % 10**9}")
