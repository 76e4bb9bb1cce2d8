"""Import: save the drafts of a format, one commit per session. An import can be repeated.

A receipt (`.import.json`) in each imported session stores the digests of its files at the time of the import. A
repeated import compares them:

- source unchanged: nothing happens
- source grown: the session is updated
- session changed here since the import: it is kept, and reported

An import never removes messages.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.write_request import WriteRequest
from store.disk.file import NewFile
from store.documents import document as documents
from store.documents import secrets, sidecar
from store.documents.document import Document, parse_document
from store.errors import Busy, Corrupt, InvalidContent, InvalidName, Problem
from store.history.authors import acting_as, this_process
from store.layout import Location
from store.path_kinds import PathKind, classify_path
from store.sessions import artifacts
from store.sessions.delete import DeleteOperations
from store.transfer.digests import HashedChunks
from store.transfer.formats.importer import Format, ImportProblem, SessionDraft, SessionTree, SourceFile, StateDocument
from store.transfer.formats.source import Source
from store.workspace.state import State

ImportState = Literal["new", "updated", "unchanged", "kept"]
Progress = Callable[[int, int], None]


class ImportOutcome(NamedTuple):
    """The result for one session. `reason` says why a session was kept unchanged."""

    location: Location
    state: ImportState
    path: str
    reason: str | None = None


@dataclass
class ImportSummary:
    """The result of an import."""

    format: str
    source: str
    counts: Counter[ImportState] = field(default_factory=Counter)
    problems: list[ImportProblem] = field(default_factory=list)


class _Receipt(NamedTuple):
    """The receipt of an imported session: its source, and the digests of all its files when it was imported."""

    format: str
    source_id: str
    files: dict[str, str]

    def render(self, path: str) -> bytes:
        return orjson.dumps({**self._asdict(), "path": path}, option=orjson.OPT_INDENT_2)


@dataclass(frozen=True)
class Imports:
    core: Core
    commits: Commits
    deleter: DeleteOperations

    def run(
        self,
        path: str,
        *,
        format: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        report: Callable[[ImportOutcome | ImportProblem], None] | None = None,
    ) -> ImportSummary:
        """Import all sessions at `path`. `report` is called for each session when it is saved or skipped."""
        from store.transfer.formats import registry  # loads six formats, which opening a store does not need

        with Source(path) as source:
            chosen = registry.get_format(format) if format else registry.recognise(source)
            summary = ImportSummary(chosen.name, source.display_path(source.name or ""))
            total = source.total_bytes(chosen.base) if progress else 0
            with acting_as(this_process("import", chosen.name)):
                for item in self._import_all(source, chosen, dry_run=dry_run):
                    if isinstance(item, ImportProblem):
                        summary.problems.append(item)
                    else:
                        summary.counts[item.state] += 1
                    if report is not None:
                        report(item)
                    if progress is not None:
                        progress(min(source.done_bytes, total), total)
            return summary

    def _import_all(self, source: Source, format: Format, *, dry_run: bool) -> Iterator[ImportOutcome | ImportProblem]:
        seen: dict[Location, str] = {}
        for found in format.iter_records(source):
            if isinstance(found, ImportProblem):
                yield found
            elif isinstance(found, StateDocument):
                yield self._import_state(found, dry_run=dry_run)
            else:
                yield from self._import_tree(found, seen, dry_run=dry_run)
        for link in sorted(source.links):
            yield ImportProblem(source.display_path(link), None, "is a link; links are not followed")

    def _import_tree(
        self, tree: SessionTree, seen: dict[Location, str], *, dry_run: bool
    ) -> Iterator[ImportOutcome | ImportProblem]:
        """Import a new root before its children, so that no child is ever without a root.

        If the root exists, import the children first: a message that moved from the root to a child is then stored
        twice for a moment, but never missing.
        """
        location = tree.root.location
        if location in seen:
            yield _duplicate(tree.root, seen)
            yield from map(_skipped_with_root, tree.children)
            return
        is_new = self.core.disk.stat(location.path(layout.SESSION)) is None
        if not is_new:
            yield from self._import_children(tree.children, seen, dry_run=dry_run)
        root = self._import_draft(tree.root, seen, dry_run=dry_run)
        yield root
        if is_new and isinstance(root, ImportProblem):
            yield from map(_skipped_with_root, tree.children)
        elif is_new:
            yield from self._import_children(tree.children, seen, dry_run=dry_run)
        elif tree.is_complete and not dry_run and isinstance(root, ImportOutcome) and root.state != "kept":
            self._remove_moved_children(tree.root, seen)

    def _remove_moved_children(self, root: SessionDraft, seen: dict[Location, str]) -> None:
        """Delete the children that an earlier import created and whose messages are elsewhere in the tree now.

        A child that was changed here since then stays.
        """
        directory = root.location.path(layout.CHILDREN)
        for entry in self.core.disk.entries(directory) if self.core.disk.stat(directory) else ():
            child = Location(root.location.root, entry.name)
            receipt = self._load_receipt(child) if entry.is_dir and child not in seen else None
            if receipt is None or receipt.format != root.format or self._changed(child, receipt.files):
                continue
            main = self.core.disk.read(child.path(layout.SESSION))
            messages = orjson.loads(main.data)["messages"] if main else []
            if all(message.get("id") in root.moved for message in messages):
                self.deleter.delete_one(child)

    def _import_children(
        self, children: Iterable[SessionDraft | ImportProblem], seen: dict[Location, str], *, dry_run: bool
    ) -> Iterator[ImportOutcome | ImportProblem]:
        for child in children:
            yield child if isinstance(child, ImportProblem) else self._import_draft(child, seen, dry_run=dry_run)

    def _import_draft(
        self, draft: SessionDraft, seen: dict[Location, str], *, dry_run: bool
    ) -> ImportOutcome | ImportProblem:
        if draft.location in seen:
            return _duplicate(draft, seen)
        seen[draft.location] = draft.path
        try:
            return self.save_draft(draft, dry_run=dry_run)
        except (InvalidContent, InvalidName, Corrupt, Busy) as error:
            return ImportProblem(draft.path, None, f"session {draft.location} skipped: {error}")

    def _import_state(self, found: StateDocument, *, dry_run: bool) -> ImportOutcome | ImportProblem:
        """Import a state document that does not exist yet. It has no receipt: an existing different one is kept."""
        place = classify_path(found.path)
        if place.kind not in (PathKind.STATE_JSON, PathKind.STATE_TEXT) or place.location is None:
            return ImportProblem(found.source, None, "not a valid name for a state document; skipped")
        location = Location(f"/{layout.STATE}", found.path.removeprefix(f"{layout.STATE}/"))
        try:
            present = self.core.disk.read(found.path)
            if present is not None:
                same = present.data == found.data
                reason = None if same else "a different document exists here"
                return ImportOutcome(location, "unchanged" if same else "kept", found.source, reason)
            if not dry_run:
                self.core.check_writable()
                State(self.core, self.commits).put(WriteRequest(place, found.data), found.data)
        except InvalidContent as error:
            return ImportProblem(found.source, error.problem.line, f"{error.problem.reason}; skipped")
        except (InvalidName, Corrupt, Busy) as error:
            return ImportProblem(found.source, None, f"{error}; skipped")
        return ImportOutcome(location, "new", found.source)

    # -- one session -----------------------------------------------------------------------------------

    def save_draft(self, draft: SessionDraft, *, dry_run: bool = False) -> ImportOutcome:
        """Save a draft if it is new or has grown. Raises if the saved session could not be loaded."""
        if not dry_run:
            self.core.check_writable()
        location = draft.location
        main, side = self._checked(draft)
        files = _digests(draft)
        files |= {layout.SESSION: _digest(main.raw), layout.RUNTIME: _digest(side)}
        receipt = _Receipt(draft.format, draft.source_id, files)
        with self.core.locked(location):
            snapshot = self.core.read(location)
            state, reason = self._decide(draft, receipt, snapshot)
            if state in ("new", "updated") and not dry_run:
                self._commit(draft, receipt, snapshot, main, side)
        return ImportOutcome(location, state, draft.path, reason)

    def _checked(self, draft: SessionDraft) -> tuple[Document, bytes]:
        layout.check_new(draft.location)
        path, limit = draft.location.path(layout.SESSION), self.core.limit_bytes
        main = _without_keys(draft.main, path, limit)
        problem = documents.identity_problem(main, draft.location)
        if problem is not None:
            raise InvalidContent(path, problem)
        documents.check_authority(main, path)
        for file in draft.files:
            _check_name(file.name)
            if file.name in layout.RECORDS:
                artifacts.parse_record(file.name, b"".join(file.read()), draft.location.path(file.name), limit=limit)
        if draft.side is None:
            return main, sidecar.sidecar_of(main.raw, main.data)
        return main, _without_keys(draft.side, draft.location.path(layout.RUNTIME), limit).raw

    def _decide(self, draft: SessionDraft, receipt: _Receipt, snapshot: DocumentPair) -> tuple[ImportState, str | None]:
        known = self._load_receipt(draft.location)
        came = known.files if known else {}
        added = {file.name: receipt.files[file.name] for file in draft.files if file.name not in came}
        foreign = self._changed(draft.location, added, absent_ok=True)
        if snapshot.main is None:
            return ("kept", f"{foreign} already exists here") if foreign else ("new", None)
        if known is None:
            same = snapshot.main.data == draft.main
            return ("unchanged", None) if same else ("kept", "another session with this id exists here")
        if known[:2] != receipt[:2]:
            return "kept", f"the session with this id was imported from {known.format} {known.source_id}"
        if known.files == receipt.files:
            return "unchanged", None
        changed = self._changed(draft.location, known.files)
        if changed:
            return "kept", f"{changed} was changed here since the import, and the source has changed too"
        if foreign:
            return "kept", f"{foreign} was created here, and the source now has a different one"
        lost = _count_lost(snapshot.main.data, draft)
        if lost:
            return "kept", f"{lost} messages here are no longer in the source"
        return "updated", None

    def _changed(self, location: Location, files: dict[str, str], *, absent_ok: bool = False) -> str | None:
        """The first file that differs from its digest in a receipt; None if all match."""
        for name, digest in files.items():
            found = self.core.disk.read(location.path(name))
            if (found is None and not absent_ok) or (found is not None and _digest(found.data) != digest):
                return name
        return None

    def _load_receipt(self, location: Location) -> _Receipt | None:
        file = self.core.disk.read(location.path(layout.RECEIPT), 64 * 1024 * 1024)
        try:
            found: Any = orjson.loads(file.data) if file else None
            return _Receipt(found["format"], found["source_id"], dict(found["files"])) if found else None
        except (ValueError, KeyError, TypeError):
            return None  # edited or damaged: treated as no receipt, so nothing is overwritten

    def _commit(
        self, draft: SessionDraft, receipt: _Receipt, snapshot: DocumentPair, main: Document, side: bytes
    ) -> None:
        known = self._load_receipt(draft.location)
        written = dict(receipt.files)
        files = [
            self._new_file(draft.location, file.name, _recording_digest(file, written))
            for file in draft.files
            if known is None or known.files.get(file.name) != receipt.files[file.name]
        ]
        # Rendered after the files are written: a source file may have grown since its digest was computed.
        text = (receipt._replace(files=written).render(draft.path) for _ in range(1))
        files.append(self._new_file(draft.location, layout.RECEIPT, text))
        over = parse_document(side, draft.location.path(layout.RUNTIME))
        record = sidecar.overlay(main.record, over.record)
        self.commits.commit_session(snapshot, main, record, side, "saved", kept=files)

    def _new_file(self, location: Location, name: str, parts: Iterable[bytes]) -> NewFile:
        path = location.path(name)
        return NewFile(path, parts, self.core.disk.read(path))


def _without_keys(raw: bytes, path: str, limit: int) -> Document:
    """Parse a document of the source and remove API keys from it."""
    document = parse_document(raw, path, limit=limit)
    clean = secrets.without_api_keys(raw, document.data)
    return document if clean == raw else parse_document(clean, path, limit=limit)


def _skipped_with_root(child: SessionDraft | ImportProblem) -> ImportProblem:
    if isinstance(child, ImportProblem):
        return child
    return ImportProblem(child.path, None, f"session {child.location} skipped with its root")


def _duplicate(draft: SessionDraft, seen: dict[Location, str]) -> ImportProblem:
    text = f"session {draft.location} was already read from {seen[draft.location]}; skipped"
    return ImportProblem(draft.path, None, text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digests(draft: SessionDraft) -> dict[str, str]:
    try:
        return {file.name: file.digest() for file in draft.files}
    except OSError as error:  # from the source; an OSError from the home must end the import
        raise InvalidContent(str(error.filename), Problem(error.strerror or str(error))) from None


def _recording_digest(file: SourceFile, digests: dict[str, str]) -> Iterator[bytes]:
    """The chunks of a file; after the last one its digest is stored in `digests`."""
    hashed = HashedChunks(file.read())
    yield from hashed
    digests[file.name] = hashed.hexdigest()


def _check_name(name: str) -> None:
    """Raise InvalidName for a file outside the session directory, or for one that only the store writes."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidName(f"{name!r} is not a valid file name in a session")
    if name in (*layout.DOCUMENTS, layout.RECEIPT) or parts[0] == layout.CHILDREN:
        raise InvalidName(f"{name!r} is reserved and cannot be written by an import")


def _count_lost(here: bytes, draft: SessionDraft) -> int:
    """The number of stored messages that the draft lacks."""
    have, get = (orjson.loads(raw)["messages"] for raw in (here, draft.main))
    if any("id" not in message for message in (*have, *get)):
        return max(0, len(have) - len(get))
    present = {message["id"] for message in get} | draft.moved
    return sum(message["id"] not in present for message in have)
