"""Import: save the sessions of a source, one commit per session. An import can be repeated.

A receipt (`.import.json`) in each imported session has the digests of the version last imported. A repeated import
compares them:

- source unchanged: nothing happens; if no file of it has changed, it is not even read
- source changed, session unchanged here: the session is updated
- both changed: the source's changes are merged into the session; what both changed stays as it is here

An import never removes messages. It does not bring back what was deleted here (`import_ledger`), and continues
with a renamed session under its new name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.write_request import WriteRequest
from store.errors import Busy, Corrupt, InvalidContent, InvalidName
from store.history.authors import acting_as, this_process
from store.layout import Location
from store.model.timestamp import Timestamp
from store.path_kinds import PathKind, classify_path
from store.sessions.delete import DeleteOperations
from store.transfer.draft_saver import DraftSaver, ImportOutcome, ImportState, qualified_id
from store.transfer.formats.coerce import reading_from, reading_renamed
from store.transfer.formats.importer import (
    Format,
    ImportProblem,
    SessionDraft,
    SessionTree,
    SourceUnit,
    StateDocument,
)
from store.transfer.formats.source import Source
from store.transfer.import_append import GrownFile, LineAppender
from store.transfer.import_cursors import ImportCursors, ImportedUnit, KnownUnit, UnitState, state_of
from store.transfer.import_ledger import ImportLedger
from store.transfer.import_receipts import digest_messages, find_source_path, load_receipt
from store.workspace.state import State

if TYPE_CHECKING:
    from store.transfer.import_places import Discovery

__all__ = ["ImportOptions", "ImportOutcome", "ImportState", "ImportSummary", "Imports", "Progress"]

Progress = Callable[[int, int], None]
Report = Callable[[ImportOutcome | ImportProblem], None]


class ImportOptions(NamedTuple):
    """How an import treats what it finds."""

    dry_run: bool = False
    overwrite: bool = False  # take the source's version of a session that was changed or deleted here
    deleted: bool = False  # import sessions again that were deleted here
    since: Timestamp | None = None  # pass over sessions that have not changed since then
    is_complete: bool = True  # all of the source is compared, not only files known to have changed


@dataclass
class ImportSummary:
    """The result of an import."""

    format: str
    source: str
    counts: Counter[ImportState] = field(default_factory=Counter)
    problems: list[ImportProblem] = field(default_factory=list)

    def add(self, item: ImportOutcome | ImportProblem) -> None:
        if isinstance(item, ImportProblem):
            self.problems.append(item)
        else:
            self.counts[item.state] += 1


class _Run(NamedTuple):
    """One import: how it treats what it finds, where each session of it was read, and what was imported before."""

    options: ImportOptions
    seen: dict[Location, str]
    ledger: ImportLedger
    not_read: set[Location]  # of `seen`: in parts that have not changed, so they were where the last import put them


class _GrownUnit(NamedTuple):
    """A part of a source that was brought up to date without reading all of it."""

    updated: set[Location]
    problems: list[ImportProblem]


_NOTHING_NEW = _GrownUnit(set(), [])


@dataclass(frozen=True)
class Imports:
    core: Core
    commits: Commits
    deleter: DeleteOperations

    @staticmethod
    def find(path: str | None = None, *, agent: str | None = None, home: Path | None = None) -> Discovery:
        """The sources below a path, or in the places where the known agents keep their sessions.

        An ssh:// URL copies what has changed on that machine first. No home is needed for this; the sessions in `home`
        are passed over, because they are imported into it.
        """
        from store.transfer import import_places, remote_source  # loads all formats

        if path is None:
            return import_places.find_agents(os.environ, agent)
        if remote_source.is_remote(path):
            return import_places.find_remote(remote_source.parse_url(path), os.environ, agent)
        return import_places.find_below(path, agent, home)

    def run(
        self,
        path: str,
        *,
        format: str | None = None,
        dry_run: bool = False,
        overwrite: bool = False,
        deleted: bool = False,
        since: Timestamp | None = None,
        paths: set[str] | None = None,
        host: str = "",
        progress: Progress | None = None,
        report: Report | None = None,
    ) -> ImportSummary:
        """Import all sessions at `path`. `report` is called for each session when it is saved or skipped.

        `host` is the machine that `path` was copied from; "" for this one.

        `paths` are changed files, relative to `path`: only the parts of the source they belong to are imported.
        `deleted` imports sessions again that were deleted here, and so does `overwrite`.
        """
        from store.transfer.formats import registry  # loads all formats, which opening a store does not need

        if not dry_run:
            self.core.check_writable()
        options = ImportOptions(dry_run, overwrite, deleted or overwrite, since, is_complete=paths is None)
        begun = _Run(options, {}, ImportLedger(self.core), set())
        with Source(path) as source:
            chosen = registry.get_format(format) if format else registry.recognise(source)
            summary = ImportSummary(chosen.name, source.display_path(source.name or ""))
            total = source.total_bytes(chosen.base) if progress else 0
            with acting_as(this_process("import", chosen.name)), reading_from(host):
                try:
                    for item in self._import_all(source, chosen, begun, paths):
                        summary.add(item)
                        if report is not None:
                            report(item)
                        if progress is not None:
                            progress(min(source.done_bytes, total), total)
                finally:
                    self._save_ledger(begun)
            return summary

    def origin(self, session_id: str) -> tuple[str, str] | None:
        """The agent an imported session came from, and its id there; None for any other session."""
        location = self.core.locate(session_id)
        receipt = load_receipt(self.core.disk, location) if location is not None else None
        return (receipt.format, receipt.source_id) if receipt is not None else None

    def source_path(self, session_id: str) -> str | None:
        """The file that an imported session was last read from, as it was shown."""
        location = self.core.locate(session_id)
        return find_source_path(self.core.disk, location) if location is not None else None

    def count_changed(self, session_id: str) -> int:
        """How many messages were changed, added or deleted here since the last import, or export to the source."""
        location = self.core.locate(session_id)
        receipt = load_receipt(self.core.disk, location) if location is not None else None
        main = self.core.read(location).main if location is not None and receipt is not None else None
        if receipt is None or main is None:
            return 0
        here = digest_messages(orjson.loads(main.data))
        return sum(here.get(id) != receipt.messages.get(id) for id in here.keys() | receipt.messages.keys())

    # -- units -----------------------------------------------------------------------------------------

    def _import_all(
        self, source: Source, format: Format, run: _Run, paths: set[str] | None
    ) -> Iterator[ImportOutcome | ImportProblem]:
        for unit in format.units(source) if paths is None else format.units_of(source, paths):
            if not _is_older(source, unit, run.options):
                yield from self._import_unit(source, format, unit, run)
        for link in sorted(source.links):
            yield ImportProblem(source.display_path(link), None, "is a link; links are not followed")
        for path, why in sorted(source.unreadable.items()):
            text = f"{why}; nothing in it was imported"
            yield ImportProblem(source.display_path(path), None, text, is_temporary=True)

    def _import_unit(
        self, source: Source, format: Format, unit: SourceUnit, run: _Run
    ) -> Iterator[ImportOutcome | ImportProblem]:
        """Import a part of a source, or its new lines, or nothing if it is as it was at the last import."""
        options, seen = run.options, run.seen
        cursors = ImportCursors(self.core)
        state = state_of(source, unit, by_file=format.resume is not None)
        known = None if options.overwrite else cursors.find(source, format.name, unit)
        if known is not None and known.result.deleted and options.deleted:
            known = None
        if known is not None and format.resume is not None and not known.result.locations:
            yield from (
                ImportOutcome(location, "deleted", source.display_path(unit.key)) for location in known.result.deleted
            )
            return  # its only session was deleted here, so what it grew by is not wanted
        changed = known.state.changed_files(state) if known is not None else None
        if known is not None and changed is not None and not seen.keys() & set(known.result.locations):
            if options.is_complete:  # following is not to read the ledger for every line
                run.ledger.add_present(known.result.locations)
                self._save_ledger(run)
            grown = self._append_lines(source, format, unit, known, state, run) if changed else _NOTHING_NEW
            if grown is not None:
                source.done_bytes += sum(source.size(path) for path in unit.files)
                path = source.display_path(unit.key)
                seen.update(dict.fromkeys(known.result.locations, path))
                run.not_read.update(known.result.locations)
                yield from known.result.problems if options.is_complete else ()
                yield from grown.problems
                for location in known.result.locations:
                    yield ImportOutcome(location, "updated" if location in grown.updated else "unchanged", path)
                yield from (ImportOutcome(location, "deleted", path) for location in known.result.deleted)
                return
        result, is_complete = ImportedUnit([], []), not options.dry_run
        for item in self._read_unit(format, unit, run):
            yield item
            if isinstance(item, ImportProblem):
                result.problems.append(item)
                is_complete &= not item.is_temporary
            elif item.location.root.startswith("/"):
                is_complete = False  # a state document: it has no receipt
            elif item.state == "deleted":
                result.deleted.append(item.location)
            else:
                result.add(item.location, item.followed)
                is_complete &= item.state != "kept"
        self._save_ledger(run)  # before the cursor: without it the next import reads this part again, and adds it
        if is_complete and (result.locations or result.deleted):
            cursors.save(source, format.name, unit, state, result)

    @staticmethod
    def _save_ledger(run: _Run) -> None:
        if not run.options.dry_run:
            run.ledger.save()

    def _append_lines(
        self,
        source: Source,
        format: Format,
        unit: SourceUnit,
        known: KnownUnit,
        state: UnitState,
        run: _Run,
    ) -> _GrownUnit | None:
        """Append the new lines of a part; None if it has to be imported as a whole."""
        options, result, updated = run.options, known.result, set()
        problems: list[ImportProblem] = []
        has_rest = False
        shown = {source.display_path(path): path for path in unit.files}
        for name in known.state.changed_files(state) or ():
            location = result.followed.get(name)
            if options.dry_run or location is None:
                return None
            is_replaced = state.files[name][-1] != known.state.files[name][-1]
            file = GrownFile(source, format, shown[name], location, options.is_complete or is_replaced)
            with reading_renamed(run.ledger.find_new_id):
                done = LineAppender(self.core, self.commits).append(file)
            if done is None:
                return None
            has_rest |= done.has_rest
            problems += done.problems
            if done.has_changed:
                updated.add(location)
            if not done.can_go_on:
                del result.followed[name]
        if not has_rest:
            after = replace(result, problems=[*result.problems, *problems])
            ImportCursors(self.core).save(source, format.name, unit, state, after)
        return _GrownUnit(updated, problems)

    def _read_unit(self, format: Format, unit: SourceUnit, run: _Run) -> Iterator[ImportOutcome | ImportProblem]:
        with reading_renamed(None if format.is_verbatim else run.ledger.find_new_id):
            for found in unit.read():
                if isinstance(found, ImportProblem):
                    yield found
                elif isinstance(found, StateDocument):
                    yield self._import_state(found, run.options)
                elif not _is_session_older(found.root, run.options):
                    yield from self._import_tree(found, run)
                    self._save_ledger(run)  # a part of a source may be thousands of sessions

    # -- trees -----------------------------------------------------------------------------------------

    def _import_tree(self, tree: SessionTree, run: _Run) -> Iterator[ImportOutcome | ImportProblem]:
        """Import a new root before its children, so that no child is ever without a root.

        If the root exists, import the children first: a message that moved from the root to a child is then stored
        twice for a moment, but never missing. A root that was deleted here is passed over with its children.
        """
        location = tree.root.location
        if self._is_duplicate(tree.root, run):
            yield _duplicate(tree.root, run.seen)
            yield from map(_skipped_with_root, tree.children)
            return
        is_new = self.core.disk.stat(location.path(layout.SESSION)) is None
        if not is_new:
            yield from self._import_children(tree.children, run)
        root = self._import_draft(tree.root, run)
        yield root
        if isinstance(root, ImportOutcome) and root.state == "deleted":
            return
        if is_new and isinstance(root, ImportProblem):
            yield from map(_skipped_with_root, tree.children)
        elif is_new:
            yield from self._import_children(tree.children, run)
        elif tree.is_complete and not run.options.dry_run and isinstance(root, ImportOutcome) and root.state != "kept":
            self._remove_moved_children(tree.root, run)

    def _remove_moved_children(self, root: SessionDraft, run: _Run) -> None:
        """Delete the children that an earlier import created and whose messages are elsewhere in the tree now.

        A child that was changed here since then stays.
        """
        directory = root.location.path(layout.CHILDREN)
        for entry in self.core.disk.entries(directory) if self.core.disk.stat(directory) else ():
            child = Location(root.location.root, entry.name)
            receipt = load_receipt(self.core.disk, child) if entry.is_dir and child not in run.seen else None
            if receipt is None or receipt.format != root.format or self._saver.changed(child, receipt.files):
                continue
            main = self.core.disk.read(child.path(layout.SESSION))
            messages = orjson.loads(main.data)["messages"] if main else []
            if all(message.get("id") in root.moved for message in messages):
                self.deleter.delete_one(child)
                run.ledger.forget(child)

    def _import_children(
        self, children: Iterable[SessionDraft | ImportProblem], run: _Run
    ) -> Iterator[ImportOutcome | ImportProblem]:
        for child in children:
            yield child if isinstance(child, ImportProblem) else self._import_draft(child, run)

    def _import_draft(self, draft: SessionDraft, run: _Run) -> ImportOutcome | ImportProblem:
        if self._is_duplicate(draft, run):
            return _duplicate(draft, run.seen)
        run.seen[draft.location] = draft.path
        if not run.options.deleted and self._was_deleted(draft, run.ledger):
            return ImportOutcome(draft.location, "deleted", draft.path)
        try:
            is_known = run.ledger.is_at(draft.location, draft.format, qualified_id(draft))
            options = run.options
            outcome = self._saver.save(
                draft, dry_run=options.dry_run, overwrite=options.overwrite, was_imported=is_known
            )
            if outcome.state != "kept":
                run.ledger.add(draft.location, draft.format, qualified_id(draft))
            return outcome
        except (InvalidContent, InvalidName, Corrupt, Busy) as error:
            text = f"session {draft.location} skipped: {error}"
            return ImportProblem(draft.path, None, text, is_temporary=isinstance(error, Busy))

    def _is_duplicate(self, draft: SessionDraft, run: _Run) -> bool:
        """Whether the source has a session twice. Two sessions that exchanged their names here are not the same."""
        location = draft.location
        if location not in run.seen:
            return False
        return location not in run.not_read or find_source_path(self.core.disk, location) != draft.path

    def _was_deleted(self, draft: SessionDraft, ledger: ImportLedger) -> bool:
        """Whether a session was imported before and is not here any more."""
        if self.core.disk.stat(draft.location.path(layout.SESSION)) is not None:
            return False
        known = (draft.location, draft.format, qualified_id(draft))
        return ledger.was_imported(*known) or ledger.was_trashed(*known)

    def save_draft(self, draft: SessionDraft, *, dry_run: bool = False, overwrite: bool = False) -> ImportOutcome:
        """Save a draft if it is new or has changed. Raises if the saved session could not be loaded."""
        return self._saver.save(draft, dry_run=dry_run, overwrite=overwrite)

    @property
    def _saver(self) -> DraftSaver:
        return DraftSaver(self.core, self.commits)

    # -- state documents -----------------------------------------------------------------------------------

    def _import_state(self, found: StateDocument, options: ImportOptions) -> ImportOutcome | ImportProblem:
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
            if not options.dry_run:
                self.core.check_writable()
                State(self.core, self.commits).put(WriteRequest(place, found.data), found.data)
        except InvalidContent as error:
            return ImportProblem(found.source, error.problem.line, f"{error.problem.reason}; skipped")
        except (InvalidName, Corrupt, Busy) as error:
            return ImportProblem(found.source, None, f"{error}; skipped")
        return ImportOutcome(location, "new", found.source)


def _is_older(source: Source, unit: SourceUnit, options: ImportOptions) -> bool:
    """Whether no file of a unit has changed since the time from which sessions are wanted."""
    newest = max((source.mtime_ns(path) for path in unit.files), default=0)
    return options.since is not None and newest < options.since.ns


def _is_session_older(draft: SessionDraft, options: ImportOptions) -> bool:
    return options.since is not None and draft.updated_at is not None and draft.updated_at.ns < options.since.ns


def _skipped_with_root(child: SessionDraft | ImportProblem) -> ImportProblem:
    if isinstance(child, ImportProblem):
        return child
    return ImportProblem(child.path, None, f"session {child.location} skipped with its root")


def _duplicate(draft: SessionDraft, seen: dict[Location, str]) -> ImportProblem:
    text = f"session {draft.location} was already read from {seen[draft.location]}; skipped"
    return ImportProblem(draft.path, None, text)
