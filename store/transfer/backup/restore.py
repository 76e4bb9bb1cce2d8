"""Restore: what a backup holds, brought back through the store's own commits, so that index and search follow.

Everything that is to be restored is checked against the manifest before the first byte is written here. A session comes
back as one: its documents, attachments, logs and records in one commit, with their times. One that is newer here stays
as it is unless told; what is replaced goes to the trash. What lies here and not in the backup is left alone. Mail comes
back only with a session that was gone: who has read a message shall not read it again. Done twice, nothing happens.
"""

from __future__ import annotations

import hashlib
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
from store.disk.file import NewFile
from store.documents import document as documents
from store.documents import secrets, sidecar
from store.documents.document import Document, parse_document
from store.errors import Busy, Corrupt, InvalidContent, InvalidName, Problem
from store.layout import Location
from store.namespace.dispatch import Dispatcher
from store.path_kinds import PathInfo, PathKind
from store.sessions import artifacts
from store.transfer.backup import tree as backup_tree
from store.transfer.backup.selection import RestoreFile, Selection, holdings
from store.transfer.backup.tree import BackupTree, Damage, Progress
from store.transfer.backup.units import location_of, unit_of

Verdict = Literal["restored", "same", "kept", "skipped"]


class RestoreOutcome(NamedTuple):
    """What became of a session, or of another file of the home; `reason` says why it was not restored."""

    name: str
    state: Verdict
    reason: str | None = None


class DamagedBackup(Corrupt):
    """Files of a backup are not what was backed up; nothing was restored."""

    def __init__(self, place: Path, damages: list[Damage]) -> None:
        self.damages = damages
        count = f"{len(damages)} files are" if len(damages) > 1 else f"{damages[0].path} is"
        super().__init__(str(place), Problem(f"{count} not what was backed up; nothing was restored"))


@dataclass
class RestoreSummary:
    """What a restore did."""

    source: str
    has_manifest: bool
    counts: Counter[Verdict] = field(default_factory=Counter)
    damages: list[Damage] = field(default_factory=list)  # whose sessions were skipped


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
        progress: Progress | None = None,
        report: Callable[[RestoreOutcome], None] | None = None,
    ) -> RestoreSummary:
        """Bring back all of a backup, or the sessions that are named, each with those below it.

        `overwrite` also replaces what is newer here; `skip_damaged` restores what is whole of a damaged backup;
        `report` is told of each session and file when it is done.
        """
        if not dry_run:
            self.core.check_writable()
        backup_tree.check_apart(Path(source).expanduser().absolute(), self.core.home)
        with backup_tree.reading(source) as tree:
            units = holdings(tree)
            chosen = Selection(self.core, tree, units).choose(names)
            summary = RestoreSummary(str(tree.place), tree.has_manifest)
            bar = _RestoreProgress(progress, sum(wanted.size for unit in chosen for wanted in units[unit]))
            summary.damages = self._check(tree, [w.path for unit in chosen for w in units[unit]], bar)
            if summary.damages and not skip_damaged:
                raise DamagedBackup(tree.place, summary.damages)
            broken = {unit_of(damage.path) for damage in summary.damages}
            work = RestoreRun(self, tree, overwrite=overwrite, dry_run=dry_run)
            for unit in chosen:
                outcomes = [_broken(unit)] if unit in broken else work.unit(unit, units[unit])
                for outcome in outcomes:
                    work.done[outcome.name] = outcome.state
                    summary.counts[outcome.state] += 1
                    if report is not None:
                        report(outcome)
                bar.add(sum(wanted.size for wanted in units[unit]))
            return summary

    def _check(self, tree: BackupTree, paths: list[str], bar: _RestoreProgress) -> list[Damage]:
        """Every file by its hash, before anything is touched. A plain tree has nothing to be checked against."""
        if not tree.has_manifest:
            bar.add(bar.half)
            return []
        return list(tree.damages(paths, lambda done, total: bar.show(done)))


class _RestoreProgress:
    """Bytes checked, and then bytes restored."""

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


def _broken(unit: str) -> RestoreOutcome:
    return RestoreOutcome(_name(unit), "skipped", "its copy is damaged")


def _name(unit: str) -> str:
    location = location_of(unit)
    return str(location) if location else unit


@dataclass(frozen=True)
class RestoreRun:
    """One restore, unit by unit."""

    restores: Restores
    tree: BackupTree
    overwrite: bool = field(kw_only=True)
    dry_run: bool = field(kw_only=True)
    done: dict[str, Verdict] = field(default_factory=dict)

    @property
    def core(self) -> Core:
        return self.restores.core

    def unit(self, unit: str, files: list[RestoreFile]) -> Iterator[RestoreOutcome]:
        location = location_of(unit)
        try:
            if location is not None and any(w.path == location.path(layout.SESSION) for w in files):
                layout.check_location(location)
                rootless = self._missing_root(location)
                yield rootless or self._session(location, files)
                return
        except (InvalidContent, InvalidName, Corrupt, Busy) as error:
            yield RestoreOutcome(_name(unit), "skipped", str(error))
            return
        for wanted in files:
            try:
                yield self._file(wanted)
            except (InvalidContent, InvalidName, Corrupt, Busy) as error:
                yield RestoreOutcome(wanted.path, "skipped", str(error))

    # -- a session -----------------------------------------------------------------------------------------

    def _missing_root(self, location: Location) -> RestoreOutcome | None:
        """No child is ever without its root."""
        root = Location(location.root)
        if location == root or self.done.get(str(root)) == "restored":  # as a dry run has it
            return None
        if self.core.disk.stat(root.path(layout.SESSION)) is not None:
            return None
        return RestoreOutcome(str(location), "skipped", f"its root {root} was not restored")

    def _session(self, location: Location, files: list[RestoreFile]) -> RestoreOutcome:
        by_path = {wanted.path: wanted for wanted in files}
        main_at = by_path.pop(location.path(layout.SESSION))
        side_at = by_path.pop(location.path(layout.RUNTIME), None)
        main = self._document(location, main_at)
        side, note = self._side(location, side_at, main)
        with self.core.locked(location):
            snapshot = self.core.read(location)
            differing = [
                wanted
                for wanted in by_path.values()
                if _belongs(wanted, is_new=snapshot.main is None) and not self._is_same(wanted)
            ]
            if not differing and _matches(snapshot, main, side if side_at else None):
                return RestoreOutcome(str(location), "same")
            newer = self._newer_document(snapshot, main, side, main_at, side_at) or self._newer_file(differing)
            if newer is not None and not self.overwrite:
                return RestoreOutcome(str(location), "kept", newer)
            if not self.dry_run:
                self._commit(snapshot, main, side, main_at, side_at, differing)
        return RestoreOutcome(str(location), "restored", note)

    def _document(self, location: Location, wanted: RestoreFile) -> Document:
        """A document that may be committed here, byte for byte; but a key that it carries stays behind."""
        if wanted.link is not None:
            raise Corrupt(wanted.path, Problem("a link; links are not followed"))
        limit = self.core.limit_bytes
        document = parse_document(b"".join(self.tree.sure_chunks(wanted.path)), wanted.path, limit=limit)
        flaw = documents.identity_problem(document, location)
        if flaw is not None:
            raise InvalidContent(wanted.path, flaw)
        documents.check_authority(document, wanted.path)
        clean = secrets.without_api_keys(document.raw, document.data)
        return document if clean == document.raw else parse_document(clean, wanted.path, limit=limit)

    def _side(self, location: Location, wanted: RestoreFile | None, main: Document) -> tuple[Document, str | None]:
        """The sidecar; where there is none, or none that can be read, one that says what session.json says."""
        note = None
        try:
            if wanted is not None:
                return self._document(location, wanted), None
        except (InvalidContent, Corrupt) as error:
            note = f"its {layout.RUNTIME} could not be read, and was made anew: {error}"
        return parse_document(sidecar.sidecar_of(main.raw, main.data), location.path(layout.RUNTIME)), note

    def _newer_document(
        self, snapshot: DocumentPair, main: Document, side: Document, main_at: RestoreFile, side_at: RestoreFile | None
    ) -> str | None:
        """Why the session here is newer than its copy; None if it is not, or cannot be read."""
        if snapshot.main is None or _matches(snapshot, main, side if side_at else None):
            return None
        try:
            here = session_reader.parse(snapshot).session
        except Corrupt:
            return None
        there = sidecar.overlay(main.record, side.record)
        if here.updated_at.ns != there.updated_at.ns:
            is_newer = here.updated_at.ns > there.updated_at.ns
            return f"it was changed here at {here.updated_at}, the copy is of {there.updated_at}" if is_newer else None
        times = [file.stamp.mtime_ns for file in (snapshot.main, snapshot.side) if file is not None]
        if max(times) > max(at.mtime_ns for at in (main_at, side_at) if at is not None):
            return "its files were written here since they were backed up"
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
        kept = _to_trash(location, [*files, *documents], {side.raw, main.raw})
        record = sidecar.overlay(main.record, side.record)
        self.restores.commits.commit_session(
            snapshot, main, record, None, "saved", kept=[*kept, *files], mtime_ns=main_at.mtime_ns, mode=main_at.mode
        )
        for wanted in differing:
            if wanted.link is not None:
                self._put_link(wanted)

    def _check_record(self, wanted: RestoreFile) -> None:
        if wanted.place.kind is PathKind.RECORD:
            raw = b"".join(self.tree.sure_chunks(wanted.path))
            artifacts.parse_record(wanted.place.name, raw, wanted.path, limit=self.core.limit_bytes)

    # -- single files --------------------------------------------------------------------------------------

    def _new_file(self, wanted: RestoreFile) -> NewFile:
        """With the bytes that it replaces: a commit that fails half-way puts them back."""
        present = self.core.disk.read(wanted.path)
        mode = present.mode if present else wanted.mode
        return NewFile(wanted.path, self.tree.sure_chunks(wanted.path), present, wanted.mtime_ns, mode)

    def _is_same(self, wanted: RestoreFile) -> bool:
        info = self.core.disk.stat(wanted.path)
        if info is None:
            return False
        if wanted.link is not None:
            return os.path.islink(self.core.home / wanted.path) and self._link_here(wanted) == wanted.link
        present = self.core.disk.stat_file(wanted.path)
        return present is not None and present.stamp.size == wanted.size and self._digests_agree(wanted)

    def _link_here(self, wanted: RestoreFile) -> str:
        return backup_tree.read_link(self.core.disk, wanted.path)

    def _digests_agree(self, wanted: RestoreFile) -> bool:
        item = self.tree.manifest.files.get(wanted.path)
        there = item.sha256 if item else _digest(self.tree.chunks(wanted.path))
        return _digest(self.core.disk.iter_chunks(wanted.path)) == there

    def _reason_to_keep(self, wanted: RestoreFile) -> str | None:
        """Why a file that differs here stays; None if nothing speaks for it."""
        info = self.core.disk.stat(wanted.path)
        if info is None:
            return None
        if self.core.disk.stat_file(wanted.path) is None or wanted.link is not None:
            return f"something else is at {wanted.path}"
        return f"{wanted.path} was changed here since it was backed up" if info.st_mtime_ns > wanted.mtime_ns else None

    def _file(self, wanted: RestoreFile) -> RestoreOutcome:
        """A state document, a payload, or a foreign file; by itself."""
        place = wanted.place
        if place.kind is PathKind.DERIVED:
            return RestoreOutcome(wanted.path, "same")  # it follows by itself
        if wanted.link is not None and place.kind is not PathKind.FOREIGN:
            return RestoreOutcome(wanted.path, "skipped", "a link; nothing of ours can be one")
        if self._is_same(wanted):
            return RestoreOutcome(wanted.path, "same")
        why = self._reason_to_keep(wanted)
        is_read_mail = place.kind is PathKind.MESSAGE and self._has_owner(place)
        if is_read_mail or (why is not None and not self.overwrite):
            return RestoreOutcome(wanted.path, "kept", why or "its session is here, and has had its mail")
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
            data = b"".join(self.tree.sure_chunks(wanted.path))
            if self.core.disk.stat_file(wanted.path) is not None:
                self.restores.parts.remove(place)  # to the trash
            self.restores.parts.put(place, data, mode=wanted.mode, mtime_ns=wanted.mtime_ns)
            return
        directory = wanted.path.rpartition("/")[0]
        self.core.disk.make_dirs(directory)
        temp = self.core.disk.write_temps([self._new_file(wanted)])[0]
        self.core.disk.move(temp, wanted.path)
        self.core.disk.sync_dirs([directory])
        self.restores.parts.notify_changed(place)

    def _put_link(self, wanted: RestoreFile) -> None:
        """A link is made again as it was, where nothing is; it is never followed."""
        if self.core.disk.stat(wanted.path) is not None:
            raise Corrupt(wanted.path, Problem("something else is here; the link was not restored"))
        directory = wanted.path.rpartition("/")[0]
        self.core.disk.make_dirs(directory)
        with self.core.disk.open_dir(directory) as parent:
            os.symlink(str(wanted.link), wanted.place.name, dir_fd=parent)
            times = (wanted.mtime_ns, wanted.mtime_ns)
            os.utime(wanted.place.name, ns=times, dir_fd=parent, follow_symlinks=False)


def _belongs(wanted: RestoreFile, *, is_new: bool) -> bool:
    """Whether a file comes back with its session: mail only with a new one, and nothing of ours is a link."""
    kind = wanted.place.kind
    return kind is PathKind.FOREIGN if wanted.link is not None else is_new or kind is not PathKind.MESSAGE


def _to_trash(location: Location, files: Iterable[NewFile], same: set[bytes]) -> list[NewFile]:
    """What is replaced, as it goes to the trash, from where it can be had back."""
    replaced = [(file.path, file.like) for file in files if file.like is not None and file.like.data not in same]
    return to_trash(location, "replaced by a restore", copied=replaced, numbered=True).files


def _matches(snapshot: DocumentPair, main: Document, side: Document | None) -> bool:
    """Whether the documents here say the very same; `side` is None where the backup has no sidecar."""
    if snapshot.main is None or snapshot.main.data != main.raw:
        return False
    return side is None or (snapshot.side is not None and snapshot.side.data == side.raw)


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
