"""Commits that span several files: all of their moves are made, or none.

The order is the law, and each step may be the last one before a crash (rules 2, 3, 7): new files are
written under tmp/ and synced; a mark in index.db names the moves to come; the moves; the directories
are synced; one transaction brings index, search and feed up to date and clears the mark. Recovery is
redo: the moves a mark names are finished, and its sessions are read again. The caller holds the lock.
"""

from __future__ import annotations

import errno
import json  # not orjson: a foreign name may be bytes that are no UTF-8, which only json carries
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import apsw

from store import layout
from store.disk.disk import Disk, unsynced_error
from store.disk.file import File, NewFile
from store.errors import StoreError
from store.index import changed_files
from store.index.database import Database
from store.layout import Location

log = logging.getLogger("grovefs.store")

WHOLE_TREE = "*"


@dataclass(frozen=True)
class Commit:
    """What is to happen, as one. `files` before `moves`, each in its order; the last is the point of no return."""

    location: Location
    files: Sequence[NewFile] = ()
    moves: Sequence[tuple[str, str]] = ()
    dirs: Sequence[str] = ()  # directories that must exist first; made in vain, they are taken back
    touched: Sequence[Location] = ()
    whole_tree: bool = False


@dataclass
class Journal:
    """Carries out commits, and finishes those that a crash has interrupted."""

    disk: Disk
    db: Database
    reread: Callable[[Location], None]  # brings index and search in step with one session's files
    index_failures: dict[tuple[str, str], str] = field(default_factory=dict)  # mark → why it is not yet in the index

    def run(self, commit: Commit, index: Callable[[apsw.Connection], None]) -> None:
        """Make the commit real; `index` is called inside the transaction that ends it."""
        made: list[str] = []
        temps: list[str] = []
        moves: list[tuple[str, str]] = []
        try:
            for path in commit.dirs:
                made += self.disk.make_dirs(path)
            temps = self.disk.write_temps(commit.files)
            moves = [*zip(temps, (file.path for file in commit.files), strict=True), *commit.moves]
            self._record(commit, moves)
            for source, target in moves:
                self.disk.move(source, target)
        except BaseException as error:
            self._roll_back(commit, moves, temps, made, error)
            raise
        sync_error = self._sync(moves, made)
        self._finish(commit, index)
        if sync_error is not None:
            raise unsynced_error(sync_error, commit.location.dir) from sync_error

    def _roll_back(
        self,
        commit: Commit,
        moves: Sequence[tuple[str, str]],
        temps: Sequence[str],
        made: Sequence[str],
        error: BaseException,
    ) -> None:
        """Nothing shall have happened. If not even that works, the mark stays: then it will be finished."""
        if moves and all(self.disk.stat(source) is None for source, _ in moves):
            return  # an interrupt behind the point of no return: all is in place, and the mark sees to the index
        where = str(getattr(error, "filename", None) or commit.location)
        try:
            replaced = [file.like for file in commit.files] + [None] * len(commit.moves)
            for (source, target), old in reversed([*zip(moves, replaced, strict=False)]):
                # Whether a move was made is told by the disk: an interrupt may come before we could note it.
                if self.disk.stat(source) is None:
                    self._undo(source, target, old)
            self._remove_record(commit)
        except (OSError, StoreError, apsw.Error) as worse:
            text = f"{error}; half of it is in place, and will be finished once the disk works again"
            raise OSError(getattr(error, "errno", None) or errno.EIO, text, where) from worse
        for temp in temps:
            self._remove_quietly(temp)
        self.disk.remove_dirs(made)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{error.strerror}; nothing was changed", where) from error

    def _record(self, commit: Commit, moves: Sequence[tuple[str, str]]) -> None:
        touched = [list(location) for location in commit.touched or [commit.location]]
        self.disk.step("mark")
        with self.db.write(durable=self.disk.durability == "full") as db:
            db.execute(
                "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)",
                (*_entry_key(commit), json.dumps(moves), json.dumps(touched)),
            )

    def _remove_record(self, commit: Commit) -> None:
        if not self.pending(commit.location.root):
            return  # it was never made
        self.disk.step("unmark")
        with self.db.write(durable=self.disk.durability == "full") as db:
            db.execute("DELETE FROM marks WHERE root = ? AND child = ?", _entry_key(commit))

    def _undo(self, source: str, target: str, old: File | None) -> None:
        """Put back what a move replaced, bytes, mode and time; or just move back.

        The new file has its first name again before it loses the other: if no more can be taken back, all of
        the commit can still be finished.
        """
        if old is None:
            return self.disk.move(target, source)
        temps = self.disk.write_temps([NewFile(target, [old.data], old, old.stamp.mtime_ns)])
        self.disk.link(target, source)
        self.disk.move(temps[0], target)

    def _remove_quietly(self, path: str) -> None:
        """After the point of no return a leftover under tmp/ is not worth an error."""
        try:
            self.disk.remove(path)
        except OSError as error:
            log.info("a temporary stays until the next opening: %s", error)

    def _sync(self, moves: Sequence[tuple[str, str]], made: Sequence[str] = ()) -> OSError | None:
        # A directory that something left for the trash is synced too: the deletion must last.
        sources = (s for s, _ in moves if not s.startswith(layout.TMP))
        targets = (_where_now(t, moves[i + 1 :]) for i, (_, t) in enumerate(moves))
        try:
            self.disk.sync_dirs(path.rpartition("/")[0] for path in (*targets, *sources, *made))
        except OSError as error:
            return error
        return None

    def _finish(self, commit: Commit, index: Callable[[apsw.Connection], None]) -> None:
        """A failure here is success all the same: the files are in place, the mark stays and is retried."""
        try:
            self.disk.step("index")
            with self.db.write() as db:
                index(db)
                changed_files.note(db, (file.path for file in commit.files))
                db.execute("DELETE FROM marks WHERE root = ? AND child = ?", _entry_key(commit))
        except (apsw.Error, OSError, StoreError) as error:
            self.index_failures[_entry_key(commit)] = str(error)
            log.warning("%s is saved, its index row is not yet: %s", commit.location, error)
        else:
            self.index_failures.pop(_entry_key(commit), None)

    # -- recovery ----------------------------------------------------------------------------------

    def pending(self, root: str) -> list[str]:
        """The marks on a tree: child ids, '' for the root itself, '*' for the whole tree."""
        rows = self.db.reader.execute("SELECT child FROM marks WHERE root = ?", (root,))
        return [child for (child,) in rows]

    def all_pending(self) -> list[tuple[str, str]]:
        return list(self.db.reader.execute("SELECT root, child FROM marks"))

    def _was_rolled_back(self, moves: Sequence[tuple[str, str]]) -> bool:
        """Whether a commit was undone and only its mark could not be removed: a new file of it is nowhere."""
        return any(
            source.startswith(layout.TMP) and self.disk.stat(source) is None and self.disk.stat(target) is None
            for source, target in moves
        )

    def recover(self, root: str, child: str) -> None:
        """Finish one interrupted commit. Its lock is held, so nobody else is at it."""
        row = self.db.reader.execute(
            "SELECT moves, touched FROM marks WHERE root = ? AND child = ?", (root, child)
        ).fetchone()
        if row is None:
            return
        moves, touched = json.loads(row[0]), json.loads(row[1])
        for source, target in moves if not self._was_rolled_back(moves) else ():
            # A name outside tmp/ may have come into use again after it was moved away.
            is_done = not source.startswith(layout.TMP) and self.disk.stat(target) is not None
            if self.disk.stat(source) is not None and not is_done:
                self.disk.make_dirs(target.rpartition("/")[0])
                self.disk.move(source, target)
                if source.startswith(layout.TMP):
                    self.disk.remove(source)  # rename(2) leaves two names of one file as they are
        # An error leaves the mark, and whoever comes next tries again. What has gone since needs no syncing.
        parents = {path.rpartition("/")[0] for move in moves for path in move}
        self.disk.sync_dirs(path for path in sorted(parents) if self.disk.stat(path) is not None)
        for location_root, location_child in touched:
            self.reread(Location(location_root, location_child))
        with self.db.write() as db:
            changed_files.note(db, (target for _, target in moves))
            db.execute("DELETE FROM marks WHERE root = ? AND child = ?", (root, child))
        self.index_failures.pop((root, child), None)


def _entry_key(commit: Commit) -> tuple[str, str]:
    return commit.location.root, WHOLE_TREE if commit.whole_tree else commit.location.child or ""


def _where_now(path: str, later: Sequence[tuple[str, str]]) -> str:
    """Where something lies after the moves that came later: its directory may have been one of them."""
    for source, target in later:
        if path.startswith(f"{source}/"):
            path = target + path[len(source) :]
    return path
