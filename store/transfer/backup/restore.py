"""Restore a backup through the store's own commits, which also update index and search.

Every file to restore is verified against the manifest before the first write. A session is restored as a whole:
documents, attachments, logs and records in one commit, with their times. A session that is newer in the home is kept
unless `overwrite` is set; replaced files go to the trash. Files that only the home has are left alone.

Mail is restored only with a session that did not exist: a message must not be received twice. Repeating a restore
changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.to_trash import to_trash
from store.commit.write_request import WriteRequest
from store.disk.file import NewFile
from store.documents import document as documents
from store.documents import secrets, sidecar
from store.documents.document import Document, parse_document
from store.errors import Busy, Corrupt, InvalidContent, InvalidName, Problem
from store.layout import Location
from store.namespace.dispatch import Dispatcher
from store.path_kinds import PathInfo, PathKind
from store.sessions import artifacts
from store.transfer.backup.history_copy import bring_back, open_copy
from store.transfer.backup.ledger_copy import bring_back_ledger
from store.transfer.backup.selection import RestoreFile, Selection, files_by_unit
from store.transfer.backup.tree import BackupTree, Damage, Progress, check_not_nested, open_backup, read_link
from store.transfer.backup.units import location_of, unit_of
from store.transfer.digests import sha256_of

REPLACED = "replaced by a restore"
RestoreState = Literal["restored", "same", "kept", "skipped"]


class RestoreOutcome(NamedTuple):
    """The result for one session or one other file; `reason` says why it was not restored."""

    name: str
    state: RestoreState
    reason: str | None = None


class DamagedBackup(Corrupt):
    """Files of a backup differ from its manifest; nothing was restored."""

    def __init__(self, path: Path, damages: list[Damage]) -> None:
        self.damages = damages
        files = f"{len(damages)} files are" if len(damages) > 1 else f"{damages[0].path} is"
        text = f"{files} damaged; nothing was restored; `--skip-damaged` restores the rest"
        super().__init__(str(path), Problem(text))


@dataclass
class RestoreSummary:
    """The result of a restore."""

    source: str
    has_manifest: bool
    counts: Counter[RestoreState] = field(default_factory=Counter)
    damages: list[Damage] = field(default_factory=list)  # the units of these files were skipped


@dataclass(frozen=True)
class Restores:
    core: Core
    commits: Commits
    parts: Dispatcher

    def run(
        self,
        source: str | os.PathLike[str],
        names: Iterable[str] = (),
        *,
        overwrite: bool = False,
        skip_damaged: bool = False,
        dry_run: bool = False,
        history: bool = True,
        progress: Progress | None = None,
        report: Callable[[RestoreOutcome], None] | None = None,
    ) -> RestoreSummary:
        """Restore all of a backup, or the named sessions with their descendants.

        `overwrite` also replaces files that are newer in the home. `skip_damaged` restores the undamaged units of a
        damaged backup. `report` is called for each session and file when it is done. With `history`, files that have
        no versions in the home get those of the backup.
        """
        if not dry_run:
            self.core.check_writable()
        check_not_nested(Path(source).expanduser().absolute(), self.core.home)
        with open_backup(source) as tree, open_copy(tree) as copy:
            units = files_by_unit(tree)
            names = list(names)
            chosen = Selection(self.core, tree, units).select_units(names)
            summary = RestoreSummary(str(tree.path), tree.has_manifest)
            bar = _RestoreProgress(progress, sum(wanted.size for unit in chosen for wanted in units[unit]))
            summary.damages = self._check(tree, [w.path for unit in chosen for w in units[unit]], bar)
            if summary.damages and not skip_damaged:
                raise DamagedBackup(tree.path, summary.damages)
            broken = {unit_of(damage.path) for damage in summary.damages}
            left_out = set(broken)
            work = RestoreRun(self, tree, overwrite=overwrite, dry_run=dry_run)
            past = copy if history and not dry_run and self.core.history.is_on else None
            if past is not None and not names:
                past.bring_back_snapshots(self.core.history.database)
            for unit in chosen:
                if past is not None and unit not in broken:
                    bring_back(self.core, past, [wanted.path for wanted in units[unit]])
                outcomes = [_damaged_outcome(unit)] if unit in broken else work.restore_unit(unit, units[unit])
                for outcome in outcomes:
                    work.done[outcome.name] = outcome.state
                    summary.counts[outcome.state] += 1
                    if outcome.state == "skipped":
                        left_out.add(unit)
                    if report is not None:
                        report(outcome)
                bar.add(sum(wanted.size for wanted in units[unit]))
            if not names and not dry_run:
                bring_back_ledger(self.core, tree, left_out)
            return summary

    def _check(self, tree: BackupTree, paths: list[str], bar: _RestoreProgress) -> list[Damage]:
        """Verify every digest before anything is written. A plain tree has no digests."""
        if not tree.has_manifest:
            bar.add(bar.half)
            return []
        return list(tree.iter_damages(paths, lambda done, total: bar.show(done)))


class _RestoreProgress:
    """Progress in bytes: every byte counts once when verified and once when restored."""

    def __init__(self, progress: Progress | None, half: int) -> None:
        self.half = half
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        self.show(self._done + count)

    def show(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, 2 * self.half)


def _damaged_outcome(unit: str) -> RestoreOutcome:
    return RestoreOutcome(_name(unit), "skipped", "the copy is damaged")


def _name(unit: str) -> str:
    location = location_of(unit)
    return str(location) if location else unit


@dataclass(frozen=True)
class RestoreRun:
    """One run of a restore, unit by unit."""

    restores: Restores
    tree: BackupTree
    overwrite: bool = field(kw_only=True)
    dry_run: bool = field(kw_only=True)
    done: dict[str, RestoreState] = field(default_factory=dict)

    @property
    def core(self) -> Core:
        return self.restores.core

    def restore_unit(self, unit: str, files: list[RestoreFile]) -> Iterator[RestoreOutcome]:
        location = location_of(unit)
        try:
            if location is not None and any(w.path == location.path(layout.SESSION) for w in files):
                layout.check_location(location)
                rootless = self._missing_root(location)
                yield rootless or self._restore_session(location, files)
                return
        except (InvalidContent, InvalidName, Corrupt, Busy) as error:
            yield RestoreOutcome(_name(unit), "skipped", str(error))
            return
        for wanted in files:
            try:
                yield self._restore_file(wanted)
            except (InvalidContent, InvalidName, Corrupt, Busy) as error:
                yield RestoreOutcome(wanted.path, "skipped", str(error))

    # -- a session -----------------------------------------------------------------------------------------

    def _missing_root(self, location: Location) -> RestoreOutcome | None:
        """The outcome for a child whose root is neither present nor restored; None otherwise."""
        root = Location(location.root)
        if location == root or self.done.get(str(root)) == "restored":  # also in a dry run
            return None
        if self.core.disk.stat(root.path(layout.SESSION)) is not None:
            return None
        return RestoreOutcome(str(location), "skipped", f"its root session {root} was not restored")

    def _restore_session(self, location: Location, files: list[RestoreFile]) -> RestoreOutcome:
        by_path = {wanted.path: wanted for wanted in files}
        main_at = by_path.pop(location.path(layout.SESSION))
        side_at = by_path.pop(location.path(layout.RUNTIME), None)
        main = self._load_document(location, main_at)
        side, note = self._load_sidecar(location, side_at, main)
        with self.core.locked(location):
            snapshot = self.core.read(location)
            differing = [
                wanted
                for wanted in by_path.values()
                if _comes_with_session(wanted, is_new=snapshot.main is None) and not self._is_same(wanted)
            ]
            if not differing and _matches(snapshot, main, side if side_at else None):
                return RestoreOutcome(str(location), "same")
            newer = self._newer_document(snapshot, main, side, main_at, side_at) or self._newer_file(differing)
            if newer is not None and not self.overwrite:
                return RestoreOutcome(str(location), "kept", newer)
            if not self.dry_run:
                self._commit(snapshot, main, side, main_at, side_at, differing)
        return RestoreOutcome(str(location), "restored", note)

    def _load_document(self, location: Location, wanted: RestoreFile) -> Document:
        """Load a document byte for byte and validate it. API keys in it are removed."""
        if wanted.link is not None:
            raise Corrupt(wanted.path, Problem("is a link; links are not followed"))
        limit = self.core.limit_bytes
        document = parse_document(b"".join(self.tree.verified_chunks(wanted.path)), wanted.path, limit=limit)
        problem = documents.identity_problem(document, location)
        if problem is not None:
            raise InvalidContent(wanted.path, problem)
        documents.check_authority(document, wanted.path)
        clean = secrets.without_api_keys(document.raw, document.data)
        return document if clean == document.raw else parse_document(clean, wanted.path, limit=limit)

    def _load_sidecar(
        self, location: Location, wanted: RestoreFile | None, main: Document
    ) -> tuple[Document, str | None]:
        """Load the sidecar. A missing or unreadable one is derived from session.json; the note says so."""
        note = None
        try:
            if wanted is not None:
                return self._load_document(location, wanted), None
        except (InvalidContent, Corrupt) as error:
            note = f"{layout.RUNTIME} was unreadable and was rebuilt: {error}"
        return parse_document(sidecar.sidecar_of(main.raw, main.data), location.path(layout.RUNTIME)), note

    def _newer_document(
        self, snapshot: DocumentPair, main: Document, side: Document, main_at: RestoreFile, side_at: RestoreFile | None
    ) -> str | None:
        """Why the session in the home is newer than its copy; None if it is not, or is unreadable."""
        if snapshot.main is None or _matches(snapshot, main, side if side_at else None):
            return None
        try:
            here = session_reader.parse(snapshot).session
        except Corrupt:
            return None
        there = sidecar.overlay(main.record, side.record)
        if here.updated_at.ns != there.updated_at.ns:
            is_newer = here.updated_at.ns > there.updated_at.ns
            return f"updated at {here.updated_at}; the copy is from {there.updated_at}" if is_newer else None
        times = [file.stamp.mtime_ns for file in (snapshot.main, snapshot.side) if file is not None]
        if max(times) > max(at.mtime_ns for at in (main_at, side_at) if at is not None):
            return "its files were modified after the backup"
        return None

    def _newer_file(self, differing: list[RestoreFile]) -> str | None:
        return next(filter(None, map(self._reason_to_keep, differing)), None)

    def _commit(
        self,
        snapshot: DocumentPair,
        main: Document,
        side: Document,
        main_at: RestoreFile,
        side_at: RestoreFile | None,
        differing: list[RestoreFile],
    ) -> None:
        location = snapshot.location
        plain = [wanted for wanted in differing if wanted.link is None]
        for wanted in plain:
            self._check_record(wanted)
        files = [self._new_file(wanted) for wanted in plain]
        if snapshot.side is None or side_at is not None or not _matches(snapshot, main, None):
            about = (side_at.mtime_ns, side_at.mode) if side_at else (None, None)
            files.append(NewFile(location.path(layout.RUNTIME), [side.raw], snapshot.side, *about))
        documents = [NewFile(location.path(layout.SESSION), [main.raw], snapshot.main)]
        kept = _trash_copies(location, [*files, *documents], {side.raw, main.raw})
        record = sidecar.overlay(main.record, side.record)
        request = WriteRequest(main_at.place, main.raw, mode=main_at.mode, mtime_ns=main_at.mtime_ns, add_missing=True)
        self.restores.commits.commit_session(
            snapshot, main, record, None, "saved", request=request, kept=[*kept, *files]
        )
        for wanted in differing:
            if wanted.link is not None:
                self._put_link(wanted)

    def _check_record(self, wanted: RestoreFile) -> None:
        if wanted.place.kind is PathKind.RECORD:
            raw = b"".join(self.tree.verified_chunks(wanted.path))
            artifacts.parse_record(wanted.place.name, raw, wanted.path, limit=self.core.limit_bytes)

    # -- single files --------------------------------------------------------------------------------------

    def _new_file(self, wanted: RestoreFile) -> NewFile:
        """The file to write, with the content it replaces: a commit that fails halfway restores that."""
        present = self.core.disk.read(wanted.path)
        mode = present.mode if present else wanted.mode
        return NewFile(wanted.path, self.tree.verified_chunks(wanted.path), present, wanted.mtime_ns, mode)

    def _is_same(self, wanted: RestoreFile) -> bool:
        info = self.core.disk.stat(wanted.path)
        if info is None:
            return False
        if wanted.link is not None:
            return os.path.islink(self.core.home / wanted.path) and self._read_link(wanted) == wanted.link
        present = self.core.disk.stat_file(wanted.path)
        return present is not None and present.stamp.size == wanted.size and self._digests_match(wanted)

    def _read_link(self, wanted: RestoreFile) -> str:
        return read_link(self.core.disk, wanted.path)

    def _digests_match(self, wanted: RestoreFile) -> bool:
        item = self.tree.manifest.files.get(wanted.path)
        there = item.sha256 if item else sha256_of(self.tree.chunks(wanted.path))
        return sha256_of(self.core.disk.iter_chunks(wanted.path)) == there

    def _reason_to_keep(self, wanted: RestoreFile) -> str | None:
        """Why a file that differs in the home is kept; None if it may be replaced."""
        info = self.core.disk.stat(wanted.path)
        if info is None:
            return None
        if self.core.disk.stat_file(wanted.path) is None or wanted.link is not None:
            return f"{wanted.path} is not a plain file here"
        return f"{wanted.path} was modified after the backup" if info.st_mtime_ns > wanted.mtime_ns else None

    def _restore_file(self, wanted: RestoreFile) -> RestoreOutcome:
        """Restore a single file: a state document, a project payload, mail, or a foreign file."""
        place = wanted.place
        if place.kind is PathKind.DERIVED:
            return RestoreOutcome(wanted.path, "same")  # rebuilt from the files it is derived from
        if wanted.link is not None and place.kind is not PathKind.FOREIGN:
            return RestoreOutcome(wanted.path, "skipped", "is a link; only foreign files may be links")
        if self._is_same(wanted):
            return RestoreOutcome(wanted.path, "same")
        why = self._reason_to_keep(wanted)
        is_read_mail = place.kind is PathKind.MESSAGE and self._has_owner(place)
        if is_read_mail or (why is not None and not self.overwrite):
            return RestoreOutcome(wanted.path, "kept", why or "session exists; mail is not restored")
        if not self.dry_run:
            self._put(place, wanted)
        return RestoreOutcome(wanted.path, "restored")

    def _has_owner(self, place: PathInfo) -> bool:
        owner = place.location
        return owner is not None and self.core.disk.stat(owner.path(layout.SESSION)) is not None

    def _put(self, place: PathInfo, wanted: RestoreFile) -> None:
        if wanted.link is not None:
            return self._put_link(wanted)
        if place.kind in (PathKind.PAYLOAD, PathKind.STATE_JSON, PathKind.STATE_TEXT, PathKind.MESSAGE):
            data = b"".join(self.tree.verified_chunks(wanted.path))
            if self.core.disk.stat_file(wanted.path) is not None:
                self.restores.parts.remove(place)  # to the trash
            self.restores.parts.put(WriteRequest(place, data, mode=wanted.mode, mtime_ns=wanted.mtime_ns), data)
            return
        directory = wanted.path.rpartition("/")[0]
        self.core.disk.make_dirs(directory)
        temp = self.core.disk.write_temps([self._new_file(wanted)])[0]
        self._keep_replaced(place)
        self.core.disk.move(temp, wanted.path)
        self.core.disk.sync_dirs([directory])
        self.restores.parts.notify_changed(place)

    def _keep_replaced(self, place: PathInfo) -> None:
        """Link a foreign file into the trash before it is replaced. Until then it has both names."""
        if self.core.disk.stat_file(place.path) is None:
            return
        part = to_trash(place.location or Location(place.name), REPLACED, linked=[place.path], numbered=True)
        for directory in part.dirs:
            self.core.disk.make_dirs(directory)
        for source, target in part.links:
            self.core.disk.link(source, target)
        for file in part.files:
            self.core.disk.put(file)
        self.core.disk.sync_dirs([*part.dirs, layout.TRASH])

    def _put_link(self, wanted: RestoreFile) -> None:
        """Recreate a link where nothing exists. It is never followed."""
        if self.core.disk.stat(wanted.path) is not None:
            raise Corrupt(wanted.path, Problem("exists and is not the link in the backup; the link was not restored"))
        directory = wanted.path.rpartition("/")[0]
        self.core.disk.make_dirs(directory)
        with self.core.disk.open_dir(directory) as parent:
            os.symlink(str(wanted.link), wanted.place.name, dir_fd=parent)
            times = (wanted.mtime_ns, wanted.mtime_ns)
            os.utime(wanted.place.name, ns=times, dir_fd=parent, follow_symlinks=False)


def _comes_with_session(wanted: RestoreFile, *, is_new: bool) -> bool:
    """Whether a file is restored with its session: mail only with a new session, links only if foreign."""
    kind = wanted.place.kind
    return kind is PathKind.FOREIGN if wanted.link is not None else is_new or kind is not PathKind.MESSAGE


def _trash_copies(location: Location, files: Iterable[NewFile], same: set[bytes]) -> list[NewFile]:
    """Copies of the files that are replaced, in a new trash slot from which they can be restored."""
    replaced = [(file.path, file.like) for file in files if file.like is not None and file.like.data not in same]
    return to_trash(location, REPLACED, copied=replaced, numbered=True).files


def _matches(snapshot: DocumentPair, main: Document, side: Document | None) -> bool:
    """Whether the documents in the home are identical; `side` is None if the backup has no sidecar."""
    if snapshot.main is None or snapshot.main.data != main.raw:
        return False
    return side is None or (snapshot.side is not None and snapshot.side.data == side.raw)
