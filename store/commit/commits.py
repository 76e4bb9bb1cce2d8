"""Commits of documents and other files, together with the index rows that depend on them.

The caller decides the content and holds the lock. This module decides the order in which files are
replaced and which part of the index is updated.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from store import layout
from store.commit import session_reader
from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.to_trash import to_trash
from store.commit.write_request import WriteRequest, stale_error
from store.disk.file import File, NewFile, is_same_content
from store.documents.document import Document, parse_document
from store.documents.json_splice import splice
from store.history.versions import KnownChange
from store.index.catalog import CatalogRow, IndexUpdate
from store.index.change_feed import What
from store.index.prepared_messages import PreparedMessages
from store.layout import Location
from store.model.session import Session
from store.model.timestamp import Timestamp, clip_ns
from store.path_kinds import CHECKED

log = logging.getLogger("grovefs.store")


@dataclass(frozen=True)
class Commits:
    core: Core

    def commit_session(
        self,
        pair: DocumentPair,
        main: Document,
        record: Session,
        side: bytes | None,
        what: What,
        *,
        row: CatalogRow | None = None,
        request: WriteRequest | None = None,
        kept: Sequence[NewFile] = (),
        moves: Sequence[tuple[str, str]] = (),
        label: str = "",
        note: str = "",
        prepared: PreparedMessages | None = None,
    ) -> None:
        """Commit both documents, or only session.json if `side` is None.

        `record` is the merged session. Pass `row`, the session's row, if no message has changed:
        its message rows are then not touched. `request` describes the write of session.json. The
        sidecar is replaced first: a crash in between leaves a sidecar at least as new as the
        messages. `label` and `note` describe the change in the history. With `prepared`, `main.data` has no messages.
        """
        location = pair.location
        files = [*kept]
        if side is not None:
            files.append(NewFile(location.path(layout.RUNTIME), [side], pair.side))
        if request is not None:
            files.append(request.new_file(main.raw, pair.main))
        else:
            files.append(NewFile(location.path(layout.SESSION), [main.raw], pair.main))
        is_complete = pair.main is not None and pair.side is not None
        adds_dirs = not is_complete and (request is None or request.add_missing or pair.main is not None)
        dirs = [*_session_dirs(location), *_dirs_of(files)] if adds_dirs else _dirs_of(files)
        notes = {location.dir: note} if note else {}
        known = {location.path(layout.SESSION): KnownChange(clip_ns(main.record.updated_at.ns))}
        commit = Commit(location, files, moves, dirs=dirs, label=label, notes=notes, known=known)
        self.run(commit, self._plan(commit, main, record, row, prepared), what)

    def _plan(
        self,
        commit: Commit,
        main: Document,
        record: Session,
        row: CatalogRow | None,
        prepared: PreparedMessages | None,
    ) -> IndexUpdate:
        location = commit.location
        has_attachments = self._will_have_attachments(commit, row)
        if row is None:
            facts = session_reader.facts(location, main, record, has_attachments=has_attachments, prepared=prepared)
            return self.core.index.plan(facts)
        entry = session_reader.entry_of(record, location, row.entry.message_count, has_attachments=has_attachments)
        preview = row.preview.with_owner(record.metadata)
        offsets = session_reader.offsets_of(main, location)
        return self.core.index.plan_control(row, entry, session_reader.summary_of(record), preview, offsets)

    def _will_have_attachments(self, commit: Commit, row: CatalogRow | None) -> bool:
        """Whether the session has attachments after the commit, which may add or remove them."""
        directory = commit.location.path(layout.ATTACHMENTS)
        if any(file.path.startswith(f"{directory}/") for file in commit.files):
            return True
        if any(source == directory for source, _ in commit.moves):
            return False
        if row is not None:
            return row.entry.has_attachments
        return session_reader.has_attachments(self.core.disk, commit.location)

    def commit_sidecar(
        self,
        location: Location,
        side: Document,
        replaced: File | None,
        row: CatalogRow | None,
        request: WriteRequest | None = None,
        *,
        kept: Sequence[NewFile] = (),
    ) -> None:
        """Commit runtime.json alone. `row` is the session's row, up to date; None if it has no session.json."""
        if request is not None:
            file = request.new_file(side.raw, replaced)
        else:
            file = NewFile(location.path(layout.RUNTIME), [side.raw], replaced)
        files = [*kept, file]
        commit = Commit(location, files, dirs=_dirs_of(files))
        if row is None:  # incoming: nothing is indexed before session.json exists
            return self.run(commit, None, "runtime")
        record, has_attachments = side.record, row.entry.has_attachments
        entry = session_reader.entry_of(record, location, row.entry.message_count, has_attachments=has_attachments)
        preview = row.preview.with_owner(record.metadata)
        update = self.core.index.plan_control(row, entry, session_reader.summary_of(record), preview)
        self.run(commit, update, "runtime")

    def touch(self, location: Location, used_at: Timestamp) -> None:
        """Set `updated_at`, in the sidecar alone: the session was used without a change of its documents.

        Nothing changes if it was used later too. A time in the future counts as now.
        """
        row = self.fresh_row(location)
        side = self.core.disk.read(location.path(layout.RUNTIME), self.core.limit_bytes)
        document = session_reader.parse_side(DocumentPair(location, None, side))
        if row is None or side is None or document is None or document.record.updated_at.ns < row.entry.updated_at.ns:
            return  # without a valid sidecar there is no cheap place for it
        used_at = min(used_at, Timestamp.after(document.record.updated_at), key=lambda at: at.ns)
        if used_at.ns <= document.record.updated_at.ns:
            return
        raw = splice(side.data, {"updated_at": document.data["updated_at"]}, {"updated_at": used_at})
        self.commit_sidecar(location, parse_document(raw, location.path(layout.RUNTIME)), side, row)

    def commit_ignored_sidecar(self, request: WriteRequest, side: Document, replaced: File | None) -> None:
        """Commit a runtime.json that is older than session.json: the index keeps the members of that."""
        location = request.target.location
        assert location is not None
        files = [request.new_file(side.raw, replaced)]
        self.run(Commit(location, files, dirs=_dirs_of(files)), IndexRefresh([location]), "runtime")

    def run(self, commit: Commit, index: IndexUpdate | IndexRefresh | None, what: What) -> None:
        """Run a commit whose change is listed in the feed as `what`."""
        with self.core.disk.holding_dirs() if not commit.moves else nullcontext():
            self.core.journal.run(replace(commit, what=what), index)
        self.core.on_use(commit.location.owner)
        self.core.on_commit()

    def put_file(
        self,
        location: Location,
        request: WriteRequest,
        raw: bytes,
        what: What,
        *,
        index: IndexRefresh | None = None,
    ) -> bool:
        """Commit a file that is not a session's document; False if it already has these bytes.

        The caller holds the lock and has checked `raw`, the content of the request.
        """
        path, base = request.target.path, request.checked_base
        present = self.core.disk.read(path)
        if present is not None and present.data == raw:
            return False
        if base is not None and not self._is_current(request, present):
            raise stale_error(path, is_gone=present is None)
        if present is not None and request.is_outdated(present.stamp):
            raise stale_error(path)
        files = [request.new_file(raw, present)]
        self.run(Commit(location, files, dirs=_dirs_of(files)), index, what)
        return True

    def _is_current(self, request: WriteRequest, present: File | None) -> bool:
        """Whether the file is still the version the writer started from.

        Of a file that is not validated only the bytes count, not its mode.
        """
        known, stamp = request.base.main if request.base else None, present.stamp if present else None
        return known == stamp if request.target.kind in CHECKED else is_same_content(known, stamp)

    def discard(
        self,
        location: Location,
        paths: Sequence[str],
        what: What,
        index: IndexRefresh | None = None,
    ) -> None:
        """Delete files permanently, in one commit.

        They are moved to tmp/ first, so a crash deletes all or none.
        """
        if not paths:
            return
        moves = [(path, self.core.disk.temp_path()) for path in paths]
        self.run(Commit(location, moves=moves), index, what)
        for _, temp in moves:
            try:
                self.core.disk.remove_tree(temp)
            except OSError as error:  # the next opening of the home removes it
                log.info("a temporary file stays until the home is opened again: %s", error)

    def move_to_trash(
        self,
        location: Location,
        path: str,
        why: str,
        what: What,
        index: IndexRefresh | None = None,
    ) -> None:
        """Move a file to the trash.

        On a full disk delete it permanently: the user is making room. Not a receipt, which an import needs.
        """
        row = self.core.index.find(location)
        part = to_trash(location, why, moved=[path], title=row.entry.title if row else None)
        try:
            self.run(Commit(location, part.files, part.moves, part.dirs), index, what)
        except OSError as error:
            is_receipt = path.endswith(f"/{layout.RECEIPT}")
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or is_receipt or self.core.disk.stat(path) is None:
                raise
            self.discard(location, [path], what, index)

    def fresh_row(self, location: Location) -> CatalogRow | None:
        """The session's row, up to date with its files; None if it has no session.json."""
        row = self.core.index.find(location)
        version = self.core.version(location)
        if row is None or row.version != version:
            if version.main is None:
                return None
            self.core.reread(location)
            row = self.core.index.find(location)
        return row


def _session_dirs(location: Location) -> list[str]:
    """The directories Bamboo creates in a new session. A session with both documents is not looked after."""
    dirs = [location.path(layout.ATTACHMENTS)]
    return dirs if location.child is not None else [*dirs, location.path(layout.CHILDREN)]


def _dirs_of(files: Sequence[NewFile]) -> list[str]:
    return list(dict.fromkeys(file.path.rpartition("/")[0] for file in files))


def trash_copy_of_sidecar(pair: DocumentPair) -> list[NewFile]:
    """The trash copy of a sidecar that is replaced without having been read."""
    if pair.side is None:
        return []
    path = pair.location.path(layout.RUNTIME)
    return to_trash(pair.location, "sidecar replaced", copied=[(path, pair.side)]).files
