"""Commits that span several files: all renames are made, or none.

The order of the steps is what makes a crash after any of them safe (rules 2, 3, 7):

1. write the new files under tmp/ and sync them; in a grove, let the other hosts agree meanwhile;
2. store a journal entry in index.db (table `marks`) that names the renames to come;
3. rename;
4. sync the directories;
5. record the new versions in the history, move lineages with their files, and record edits made on
   disk that the moved files contain;
6. update index, search and feed, and remove the journal entry, in one transaction.

The journal entry is synced unless the commit renames a single file: a power cut then leaves the old or
the new version without it, and the next opening finds the changed file (`reindex.sweep`). After kill -9
the entry is there, synced or not.

Before step 2 the history makes sure that it has what will be replaced. A history that fails stops
neither a commit nor its recovery: what it missed is stored in index.db and made up for later.
What a grove has agreed to is not undone: if a later step fails, recovery or the log finishes it.
Recovery redoes: it finishes the renames of a journal entry, repeats its moves in the history, and
indexes its sessions again. The caller holds the lock.
"""

from __future__ import annotations

import errno
import json  # not orjson: a foreign name may not be UTF-8, and only json keeps surrogates
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import apsw

from store import layout
from store.commit.agreement import Agreement
from store.commit.commit import WHOLE_TREE, AgreedVersion, Commit, IndexRefresh
from store.commit.meanwhile import Meanwhile
from store.commit.missed_history import MissedHistory
from store.commit.write_request import UnfinishedCommit
from store.disk import reserve
from store.disk.disk import Disk, unsynced_error
from store.disk.file import File, NewFile, Stamp, Temp, is_same_content
from store.disk.rejects import Rejects
from store.errors import Conflict, StoreError
from store.history.authors import Author, acting_as
from store.history.versions import place_of
from store.index import changed_files
from store.index.catalog import IndexUpdate, apply_updates
from store.index.change_feed import ChangeFeed
from store.index.database import Database
from store.layout import Location

if TYPE_CHECKING:
    from store.commit.session_reader import SessionScan
    from store.history.history import History
    from store.history.planning import RecordingPlan

log = logging.getLogger("grovefs.store")

_REMOVED = (f"{layout.TRASH}/", f"{layout.TMP}/")  # where a deletion moves files
_LINK = "link"  # third member of a journaled move that is a hard link
_AGREED = "agreed"  # member of an object in place of a move: a version that a grove has agreed to
_REPLACED = "replaced"  # member of another one: by target, the stamp of what the commit replaces, as it was read


@dataclass(frozen=True)
class AgreedCommit:
    """A commit of another host: files of one session, what the index stores of it, and its author."""

    commit: Commit
    index: IndexUpdate | IndexRefresh | None
    author: Author


@dataclass
class _GroupMember:
    """One of several commits that are made together."""

    each: AgreedCommit
    moves: list[tuple[str, str]]
    plan: RecordingPlan | None = None
    written: dict[str, Stamp | None] = field(default_factory=dict)  # by path: before the files are in place
    stamps: dict[str, Stamp | None] = field(default_factory=dict)  # by path: since they are


@dataclass
class Journal:
    """Runs commits, and finishes those that a crash interrupted."""

    disk: Disk
    db: Database
    feed: ChangeFeed
    read_again: Callable[[Sequence[Location]], list[SessionScan]]  # what `refresh` needs, before the transaction
    refresh: Callable[[apsw.Connection, IndexRefresh, Sequence[SessionScan]], None]  # inside a transaction
    open_history: Callable[[], History]
    agreement: Callable[[], Agreement]
    # By journal entry: why the index could not be updated.
    index_failures: dict[tuple[str, str], str] = field(default_factory=dict)
    missed: MissedHistory = field(init=False)

    def __post_init__(self) -> None:
        self.missed = MissedHistory(self.db, self.open_history)

    @property
    def history(self) -> History:
        return self.open_history()

    def run(self, commit: Commit, index: IndexUpdate | IndexRefresh | None = None) -> None:
        """Run the commit, and update the index in the transaction that ends it.

        A deletion that fails because the disk is full is repeated with the space of the home's reserve.
        """
        try:
            self._run(commit, index)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, UnfinishedCommit)
            if not (is_full and self._is_undone_deletion(commit)):
                raise
            reserve.release(self.disk.home)
            with suppress(apsw.Error):  # it may need space too
                self.db.checkpoint()  # what is in the WAL needs no more space
            self._run(commit, index)

    def _is_undone_deletion(self, commit: Commit) -> bool:
        """Whether a commit moves files to the trash, and all of them are still where they were."""
        is_deletion = bool(commit.moves) and all(target.startswith(_REMOVED) for _, target in commit.moves)
        is_repeatable = all(isinstance(file.content, list | tuple) for file in commit.files)
        return is_deletion and is_repeatable and all(self.disk.stat(source) is not None for source, _ in commit.moves)

    def _run(self, commit: Commit, index: IndexUpdate | IndexRefresh | None) -> None:
        self.missed.repeat_moves()
        commit = _with_contents_read(commit)
        history = self.history
        versions: RecordingPlan | None = None
        created: list[str] = []
        temps: list[str] = []
        moves: list[tuple[str, str]] = []
        agreed: Sequence[AgreedVersion] = commit.agreed
        written: dict[str, Stamp | None] = {}  # the stamps of the new files before they are in place
        is_shared = not agreed and self.agreement().is_joined
        try:
            for path in commit.dirs:
                created += self.disk.make_dirs(path)
            temps = self.disk.write_temps(commit.files, sync=not is_shared)
            moves = [*zip(temps, (file.path for file in commit.files), strict=True), *commit.moves]
            # Here, not before the files are written: long ones would displace it from the processor's caches.
            if is_shared:
                meanwhile = Meanwhile(self.disk, temps, lambda: history.prepare(commit.for_history))
                agreed = self._agree(commit, temps, meanwhile)
                versions = meanwhile.result()
            else:
                versions = history.prepare(commit.for_history)
            written = {file.path: self.disk.stamp(temp) for file, temp in zip(commit.files, temps, strict=True)}
            self._record(commit, moves, agreed, durable=bool(created) or not commit.is_atomic)
            for source, target in commit.links:
                self.disk.link(source, target)
            for source, target in moves:
                self._move(source, target, commit.replaced.get(target))
        except BaseException as error:
            if agreed:
                return self._leave_unfinished(commit, agreed, error)
            self._roll_back(commit, moves, temps, created, error)
            raise
        sync_error = self._sync(moves, created)
        stamps = {path: self._stamp_of(_where_now(path, commit.moves), before) for path, before in written.items()}
        is_recorded = history.add(versions, stamps, {version.unit: version.number for version in agreed})
        self._finish(commit, index, stamps, is_recorded=is_recorded)
        if agreed:
            self.agreement().record(agreed, stamps)
        if sync_error is not None:
            raise unsynced_error(sync_error, commit.location.dir) from sync_error

    def _stamp_of(self, path: str, before: Stamp | None) -> Stamp | None:
        """The stamp of a new file, which a rename has changed. `before` is the one it had under tmp/.

        If another program has written the file since the rename, it is `before`, which matches no file:
        index, history and grove then notice the edit, instead of taking it for this commit's text.
        """
        now = self.disk.stamp(path)
        return now if is_same_content(now, before) else before

    def _agree(self, commit: Commit, temps: Sequence[str], meanwhile: Meanwhile) -> Sequence[AgreedVersion]:
        self.disk.step("agree")
        return self.agreement().agree(commit, temps, meanwhile.run)

    def _move(self, source: str, target: str, expected: Stamp | None) -> None:
        """Rename a file into place. `expected` is what it replaces, as it was read; anything else is kept."""
        if expected is None:
            return self.disk.move(source, target)
        if self.disk.swap_in(source, target):
            self._keep_replaced(source, target, expected)
            self.disk.drop_temp(source)

    def _keep_replaced(self, source: str, target: str, expected: Stamp | None) -> None:
        """Keep what `target` was, and `source` is now, unless it was expected: another program was faster."""
        if self.disk.stat_file(source) is None:
            log.warning("%s was not a regular file; a version of another host has replaced it", target)
        elif not is_same_content(self.disk.stamp(source), expected):
            directory, _, name = target.rpartition("/")
            why = Conflict(f"{target} was edited on disk while a version of another host replaced it; the text is kept")
            log.warning("%s", why)
            Rejects(self.disk).store(directory, name, self.disk.iter_chunks(source), why)

    def _leave_unfinished(self, commit: Commit, agreed: Sequence[AgreedVersion], error: BaseException) -> None:
        """Keep what was done: the other hosts have this commit. Success, except for an interrupt.

        With a journal entry, the next holder of the lock finishes it; without one, the log brings it.
        """
        why = f"agreed to, but not stored in this home yet: {error}"
        log.warning("%s: %s", commit.location, why)
        self.agreement().fall_behind(agreed, why)
        if not isinstance(error, OSError | apsw.Error | StoreError):
            raise error

    def _roll_back(
        self,
        commit: Commit,
        moves: Sequence[tuple[str, str]],
        temps: Sequence[str],
        created: Sequence[str],
        error: BaseException,
    ) -> None:
        """Undo a failed commit.

        If undoing fails too, the journal entry stays and recovery finishes the commit.
        """
        is_interrupt = not isinstance(error, OSError)  # an OSError means that a step failed
        if moves and is_interrupt and all(self.disk.stat(source) is None for source, _ in moves):
            return  # interrupted after the point of no return: recovery will update the index
        where = str(getattr(error, "filename", None) or commit.location)
        try:
            replaced = [file.like for file in commit.files] + [None] * len(commit.moves)
            for (source, target), old in reversed([*zip(moves, replaced, strict=False)]):
                # Ask the disk which renames happened: an interrupt can precede any bookkeeping.
                if self.disk.stat(source) is None:
                    self._undo(source, target, old)
            for source, target in commit.links:
                self._unlink(source, target)
            self._remove_record(commit)
        except (OSError, StoreError, apsw.Error) as worse:
            text = f"{error}; the commit is half done and will be finished when the disk works again"
            raise UnfinishedCommit(getattr(error, "errno", None) or errno.EIO, text, where) from worse
        for temp, file in zip(temps, commit.files, strict=False):
            if not isinstance(file.content, Temp):  # a Temp belongs to the caller, which may retry
                self._remove_quietly(temp)
        self.disk.remove_dirs(created)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{error.strerror}; nothing was changed", where) from error

    def _record(
        self, commit: Commit, moves: Sequence[tuple[str, str]], agreed: Sequence[AgreedVersion], *, durable: bool
    ) -> None:
        self._store_entries([_entry(commit, moves, agreed)], durable=durable)

    def _store_entries(self, entries: Sequence[tuple[str, ...]], *, durable: bool) -> None:
        self.disk.step("journal")
        with self.db.write(durable=durable and self.disk.durability == "full") as db:
            db.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", entries)

    def _remove_record(self, commit: Commit) -> None:
        if not self.pending(commit.location.root):
            return  # it was never stored
        self.disk.step("unjournal")
        with self.db.write(durable=self.disk.durability == "full") as db:
            db.execute("DELETE FROM marks WHERE root = ? AND child = ?", _entry_key(commit))

    def _undo(self, source: str, target: str, old: File | None) -> None:
        """Restore bytes, mode and time of the replaced file; if there was none, move the file back.

        The new file is linked to its temporary name before it loses the other: if undoing fails
        from here on, the whole commit can still be finished.
        """
        if old is None:
            return self.disk.move(target, source)
        if old.start:  # only its end was read: the commit is finished instead
            raise OSError(errno.EIO, "the replaced file is not in memory", target)
        temps = self.disk.write_temps([NewFile(target, [old.data], old, old.stamp.mtime_ns)])
        self.disk.link(target, source)
        self.disk.move(temps[0], target)

    def _unlink(self, source: str, target: str) -> None:
        """Undo a hard link, or the rename that replaced it where links are not supported."""
        if self.disk.stat(target) is None:
            return
        if self.disk.stat(source) is None:
            self.disk.move(target, source)
        else:
            self.disk.remove(target)

    def _remove_quietly(self, path: str) -> None:
        """Remove a temporary file.

        A leftover under tmp/ is not an error: the next opening removes it.
        """
        try:
            self.disk.remove(path)
        except OSError as error:
            log.info("a temporary file stays until the home is opened again: %s", error)

    def _sync(self, moves: Sequence[tuple[str, str]], created: Sequence[str] = ()) -> OSError | None:
        # Also the directories that files were moved out of: a deletion must be durable.
        sources = (s for s, _ in moves if not s.startswith(layout.TMP))
        targets = (_where_now(t, moves[i + 1 :]) for i, (_, t) in enumerate(moves))
        try:
            self.disk.sync_dirs(path.rpartition("/")[0] for path in (*targets, *sources, *created))
        except OSError as error:
            return error
        return None

    def _finish(
        self,
        commit: Commit,
        index: IndexUpdate | IndexRefresh | None,
        stamps: Mapping[str, Stamp | None],
        *,
        is_recorded: bool,
    ) -> None:
        """Update the index, and store what the history missed.

        A failure is not an error: the files are in place, and the journal entry is retried.
        """
        try:
            self.disk.step("index")
            scans = self._scans(index)
            with self.db.write() as db:
                if isinstance(index, IndexUpdate):
                    index.apply(db, self.disk, stamps)
                elif index is not None:
                    self.refresh(db, index, scans)
                self._end(db, commit, stamps, is_recorded=is_recorded)
        except (apsw.Error, OSError, StoreError) as error:
            self.index_failures[_entry_key(commit)] = str(error)
            log.warning("%s is saved but not indexed yet: %s", commit.location, error)
        else:
            self.index_failures.pop(_entry_key(commit), None)

    def _scans(self, index: IndexUpdate | IndexRefresh | None) -> list[SessionScan]:
        return self.read_again(index.reread) if isinstance(index, IndexRefresh) else []

    def _end(
        self, db: apsw.Connection, commit: Commit, stamps: Mapping[str, Stamp | None], *, is_recorded: bool
    ) -> None:
        """Update the feed and remove the journal entry, in the transaction that updates the index."""
        if commit.what is not None:
            self.feed.add(db, [place.owner for place in commit.touched or [commit.location]], commit.what)
        changed_files.note(db, (file.path for file in commit.files))
        if not is_recorded:
            self.missed.store_commit(commit, stamps)
        db.execute("DELETE FROM marks WHERE root = ? AND child = ?", _entry_key(commit))

    # -- commits of other hosts, together ------------------------------------------------------------

    def run_together(self, group: Sequence[AgreedCommit]) -> None:
        """Make commits of other hosts to different sessions. The caller holds the locks of all.

        They share syncs and transactions, and nothing else: each has its own journal entry, which the
        next holder of its lock finishes. If an error is raised, nothing was changed, or a sync failed
        after everything was done. A commit whose files cannot be put in place is noted as behind.
        """
        self.missed.repeat_moves()
        parts = self._write_together(group)
        done = [part for part in parts if self._move_part(part)]
        sync_error = self._sync([move for part in done for move in part.moves])
        for part in done:
            part.stamps = {path: self._stamp_of(path, before) for path, before in part.written.items()}
        is_recorded = self.history.add_together([(part.plan, part.each.author) for part in done], _all_stamps(done))
        self._finish_together(done, is_recorded=is_recorded)
        self.agreement().record([version for part in done for version in part.each.commit.agreed], _all_stamps(done))
        if sync_error is not None:
            raise unsynced_error(sync_error, group[0].commit.location.dir) from sync_error

    def _write_together(self, group: Sequence[AgreedCommit]) -> list[_GroupMember]:
        """Write the new files of all commits, and their journal entries."""
        temps = self.disk.write_temps([file for each in group for file in each.commit.files])
        try:
            left = iter(temps)
            parts = [_GroupMember(each, [(next(left), file.path) for file in each.commit.files]) for each in group]
            for part in parts:
                commit = part.each.commit
                part.plan = self.history.prepare(commit.for_history)
                if part.plan is not None:
                    part.plan.agreed.update({version.unit: version.number for version in commit.agreed})
                part.written = {target: self.disk.stamp(temp) for temp, target in part.moves}
            entries = [_entry(part.each.commit, part.moves, part.each.commit.agreed) for part in parts]
            self._store_entries(entries, durable=True)
        except (OSError, StoreError, apsw.Error):
            for temp in temps:
                self._remove_quietly(temp)
            raise
        return parts

    def _move_part(self, part: _GroupMember) -> bool:
        """Put the files of one commit in place. False if that failed: its journal entry stays."""
        commit = part.each.commit
        try:
            for source, target in part.moves:
                self._move(source, target, commit.replaced.get(target))
        except BaseException as error:
            self._leave_unfinished(commit, commit.agreed, error)
            return False
        return True

    def _finish_together(self, parts: Sequence[_GroupMember], *, is_recorded: bool) -> None:
        """Update the index in one transaction; if that fails, in one for each commit."""
        try:
            self.disk.step("index")
            updates = [part.each.index for part in parts]
            scans = [self._scans(index) for index in updates]
            with self.db.write() as db:
                apply_updates(db, self.disk, [u for u in updates if isinstance(u, IndexUpdate)], _all_stamps(parts))
                for part, index, found in zip(parts, updates, scans, strict=True):
                    if isinstance(index, IndexRefresh):
                        self.refresh(db, index, found)
                    with acting_as(part.each.author):
                        self._end(db, part.each.commit, part.stamps, is_recorded=is_recorded)
        except (apsw.Error, OSError, StoreError) as error:
            log.info("%d commits of other hosts are indexed one by one: %s", len(parts), error)
            for part in parts:
                with acting_as(part.each.author):
                    self._finish(part.each.commit, part.each.index, part.stamps, is_recorded=is_recorded)

    # -- recovery ----------------------------------------------------------------------------------

    def pending(self, root: str) -> list[str]:
        """Journal entries of a tree: child ids, '' for the root itself, '*' for the whole tree."""
        rows = self.db.reader.execute("SELECT child FROM marks WHERE root = ?", (root,))
        return [child for (child,) in rows]

    def all_pending(self) -> list[tuple[str, str]]:
        return list(self.db.reader.execute("SELECT root, child FROM marks"))

    def _was_rolled_back(self, moves: Sequence[tuple[str, str]]) -> bool:
        """Whether a commit was undone and only its journal entry was not removed.

        One of its new files is then missing under both names.
        """
        return any(
            source.startswith(layout.TMP) and self.disk.stat(source) is None and self.disk.stat(target) is None
            for source, target in moves
        )

    def _made(self, moves: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
        """The moves of files that were not temporary, and that have been made."""
        found = [(source, target) for source, target in moves if not source.startswith(layout.TMP)]
        # A path may be in use again after its file was moved away.
        return [move for move in found if self.disk.stat(move[0]) is None or self.disk.stat(move[1]) is not None]

    def _drop_replaced(
        self, moves: Sequence[Sequence[str]], agreed: Sequence[AgreedVersion], replaced: Mapping[str, Stamp]
    ) -> None:
        """Remove temporary files that have changed places with the new ones: those have the agreed content.

        What another program wrote is kept first: the commit may have ended before it did that.
        """
        digests = {f"{version.unit}/{name}": digest for version in agreed for name, digest in version.digests.items()}
        for source, target in moves:
            is_new_file = source.startswith(layout.TMP) and digests.get(target) is not None
            if is_new_file and self.disk.stat(source) is not None and self._digest(source) != digests[target]:
                self._keep_replaced(source, target, replaced.get(target))
                self.disk.drop_temp(source)

    def _is_in_place(self, version: AgreedVersion) -> bool:
        """Whether no other program has changed its files meanwhile."""
        found = {name: f"{version.unit}/{name}" for name, digest in version.digests.items() if digest is not None}
        return all(
            self.disk.stat(path) is not None and self._digest(path) == version.digests[name]
            for name, path in found.items()
        )

    def _digest(self, path: str) -> str:
        """The SHA-256 of a file; "" for what is not a regular one."""
        if self.disk.stat_file(path) is None:
            return ""
        found = sha256()
        for chunk in self.disk.iter_chunks(path):
            found.update(chunk)
        return found.hexdigest()

    def _relink(self, links: Sequence[Sequence[str]], moves: Sequence[Sequence[str]]) -> None:
        """Make the links of an interrupted commit, unless the new file has replaced the old one already."""
        waiting = {target for source, target in moves if self.disk.stat(source) is not None}
        for source, target in links:
            if source in waiting and self.disk.stat(source) is not None and self.disk.stat(target) is None:
                self.disk.make_dirs(target.rpartition("/")[0])
                self.disk.link(source, target)

    def recover(self, root: str, child: str) -> None:
        """Finish one interrupted commit. The caller holds its lock."""
        row = self.db.reader.execute(
            "SELECT moves, touched FROM marks WHERE root = ? AND child = ?", (root, child)
        ).fetchone()
        if row is None:
            return
        entries, touched = json.loads(row[0]), json.loads(row[1])
        recorded: list[Any] = [entry for entry in entries if isinstance(entry, list)]
        objects = [entry for entry in entries if isinstance(entry, dict)]
        agreed = [AgreedVersion.from_json(entry[_AGREED]) for entry in objects if _AGREED in entry]
        stamps = [entry[_REPLACED] for entry in objects if _REPLACED in entry]
        replaced = {target: Stamp(*stamp) for found in stamps for target, stamp in found.items()}
        moves = [move for move in recorded if len(move) == 2]
        self._drop_replaced(moves, agreed, replaced)
        self._relink([link[:2] for link in recorded if link[2:] == [_LINK]], moves)
        for source, target in moves if not self._was_rolled_back(moves) else ():
            # A path outside tmp/ may be in use again after its file was moved away.
            is_done = not source.startswith(layout.TMP) and self.disk.stat(target) is not None
            if self.disk.stat(source) is not None and not is_done:
                self.disk.make_dirs(target.rpartition("/")[0])
                self._move(source, target, replaced.get(target))
                if source.startswith(layout.TMP):
                    self.disk.remove(source)  # rename(2) keeps both names of one file
        # On an error the journal entry stays and the next caller retries. A removed directory
        # needs no sync.
        parents = {path.rpartition("/")[0] for move in moves for path in move}
        self.disk.sync_dirs(path for path in sorted(parents) if self.disk.stat(path) is not None)
        is_moved = self.history.repeat_moves(self._made(moves))
        for place in touched:
            rows = IndexRefresh([Location(*place)])
            scans = self._scans(rows)
            with self.db.write() as db:
                self.refresh(db, rows, scans)
        for _, target in moves:  # indexing a session records its documents only
            kept = place_of(target)
            if kept is not None and kept.dir == target:
                self.history.observe(target)
        with self.db.write() as db:
            changed_files.note(db, (target for _, target in moves))
            if not self.history.is_working:
                lineages = {place.dir for _, target in moves if (place := place_of(target)) is not None}
                self.missed.store_recovered([] if is_moved else self._made(moves), lineages)
            db.execute("DELETE FROM marks WHERE root = ? AND child = ?", (root, child))
        self.index_failures.pop((root, child), None)
        if agreed:
            self.agreement().record(agreed, {})
            for version in agreed:
                if self._is_in_place(version):
                    self.history.note_agreed(version.numbers())


def _with_contents_read(commit: Commit) -> Commit:
    """The commit with its iterators replaced by lists: the history reads what is written.

    Files without versions are written chunk by chunk, as before: an attachment may be large.
    """
    if all(isinstance(file.content, Temp | list | tuple) or place_of(file.path) is None for file in commit.files):
        return commit
    files = [
        file
        if isinstance(file.content, Temp) or place_of(file.path) is None
        else file._replace(content=[*file.content])
        for file in commit.files
    ]
    return replace(commit, files=files)


def _entry(commit: Commit, moves: Sequence[tuple[str, str]], agreed: Sequence[AgreedVersion]) -> tuple[str, ...]:
    """The journal entry of a commit."""
    touched = [list(location) for location in commit.touched or [commit.location]]
    links = [(*link, _LINK) for link in commit.links]
    versions: list[dict[str, Any]] = [{_AGREED: version.to_json()} for version in agreed]
    if commit.replaced:
        versions.append({_REPLACED: dict(commit.replaced)})
    return (*_entry_key(commit), json.dumps([*versions, *links, *moves]), json.dumps(touched))


def _all_stamps(parts: Sequence[_GroupMember]) -> dict[str, Stamp | None]:
    return {path: stamp for part in parts for path, stamp in part.stamps.items()}


def _entry_key(commit: Commit) -> tuple[str, str]:
    return commit.location.root, WHOLE_TREE if commit.whole_tree else commit.location.child or ""


def _where_now(path: str, later: Sequence[tuple[str, str]]) -> str:
    """The path after later moves, one of which may have moved its directory."""
    for source, target in later:
        if path.startswith(f"{source}/"):
            path = target + path[len(source) :]
    return path
