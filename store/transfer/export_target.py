"""The files of another agent that an export replaces. What the agent wrote since the last import is not overwritten.

A file there is known if an export of this home wrote it, or if it has nothing that was not imported. The digests of
exported files are in index.db: losing them costs a refusal and no data.

A file that a session was imported from and that an export replaces becomes the base of the next import. Otherwise that
import would take the changes exported from here for changes of the agent. The file is written before the receipt: a
crash in between makes the next import report a conflict, and it keeps what is here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from store.commit.commits import Commits
from store.commit.core import Core
from store.disk.file_io import replace_file
from store.errors import Busy
from store.layout import Location
from store.transfer.draft_saver import DraftSaver
from store.transfer.formats.coerce import reading_renamed
from store.transfer.formats.exported_session import BEFORE_EXPORT, FileToWrite
from store.transfer.formats.importer import ImportProblem, SessionDraft, SessionTree
from store.transfer.formats.source import Source
from store.transfer.import_ledger import ImportLedger
from store.transfer.import_receipts import Receipt, digest_file, find_source_path, load_receipt

_PREFIX = "export:"


@dataclass
class ExportTarget:
    """A directory with the sessions of an agent, into which one export writes."""

    core: Core
    commits: Commits
    agent: str  # name of the format
    dest: Path
    _present: dict[Location, Receipt] = field(default_factory=dict)  # of the files there, before they are replaced
    _seen: dict[Path, str | None] = field(default_factory=dict)  # digests of the files there
    _written: dict[Location, list[str]] = field(default_factory=dict)  # paths

    def place(self, location: Location, files: Sequence[FileToWrite]) -> Sequence[FileToWrite]:
        """The files to write. A session that was imported from a file there is written to that file.

        Otherwise the agent would have the session twice: where it keeps it, and under the name that an export chooses.
        """
        path = find_source_path(self.core.disk, location)
        is_shared = location.child is not None and path == find_source_path(self.core.disk, Location(location.root))
        base = f"{_display(self.dest)}/"
        if path is None or is_shared or not (path.startswith(base) and path.endswith(".jsonl") and Path(path).exists()):
            return files
        old, new = (place.rpartition("/")[0] for place in (files[-1].path, path.removeprefix(base)))
        others = [file._replace(path=f"{new}{file.path.removeprefix(old)}".lstrip("/")) for file in files[:-1]]
        return [*others, files[-1]._replace(path=path.removeprefix(base))]

    # -- what is there ---------------------------------------------------------------------------------

    def find_unknown(self, location: Location, files: Iterable[FileToWrite]) -> ImportProblem | None:
        """The problem if a file to be replaced has something that was not imported."""
        unknown = [file for file in files if self._is_unknown(file)]
        if not unknown:
            return None
        path = unknown[-1].path
        if location not in self._present:
            self._present |= {draft.location: self._saver.receipt_of(draft) for draft in self._read([location], path)}
        present = self._present.get(location)
        known = load_receipt(self.core.disk, location)
        if present is None or known is None or not known.is_from(present):
            return self._problem(path, "it exists, and was not imported")
        new = sum(known.messages.get(id) != digest for id, digest in present.messages.items())
        if new:
            return self._problem(path, f"{new} {'message was' if new == 1 else 'messages were'} not imported")
        if known.files != present.files:
            return self._problem(path, "it has changed since it was imported")
        return None

    def _problem(self, path: str, reason: str) -> ImportProblem:
        advice = f"Run `grovefs import {shlex.quote(str(self.dest))}` first, or pass --overwrite"
        return ImportProblem(str(self.dest / path), None, f"{reason}; not exported. {advice}")

    def _is_unknown(self, file: FileToWrite) -> bool:
        """Whether a file exists that is not known to be written by this home."""
        path = self.dest / file.path
        digest = self._seen[path] = _digest_at(path)
        return digest not in (None, digest_file(file.data), self.core.db.get_meta(_key(path)))

    def _read(self, locations: Iterable[Location], *paths: str) -> Iterator[SessionDraft]:
        """The sessions that an import would read from files at the destination."""
        from store.transfer.formats import registry  # loads all formats

        format = registry.get_format(self.agent)
        roots = {f"{location.root}.jsonl" for location in locations} if self.agent == "claude-code" else {*paths}
        with Source(self.dest) as source, reading_renamed(ImportLedger(self.core).find_new_id):
            for unit in format.units_of(source, roots):
                for found in unit.read():
                    if isinstance(found, SessionTree):
                        yield found.root
                        yield from (child for child in found.children if isinstance(child, SessionDraft))

    @property
    def _saver(self) -> DraftSaver:
        return DraftSaver(self.core, self.commits)

    # -- writing ---------------------------------------------------------------------------------------

    def write(self, location: Location, files: Iterable[FileToWrite], *, keep_old: bool) -> None:
        """Replace the files of a session. `keep_old` keeps one that is not known as `<name>.before-export`.

        Raises Busy if the agent has written a file since it was looked at.
        """
        for file in files:
            path = self.dest / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if keep_old and self._is_unknown(file):
                replace_file(path.with_name(path.name + BEFORE_EXPORT), path.read_bytes())
            if _digest_at(path) != self._seen.get(path):
                raise Busy(f"{path} is being written by another program")
            replace_file(path, file.data)
            self.core.db.set_meta(**{_key(path): digest_file(file.data)})
            self._written.setdefault(location, []).append(file.path)

    def set_bases(self) -> None:
        """Let the next import compare the sessions that were imported from replaced files with these files."""
        written = {_display(self.dest / path) for paths in self._written.values() for path in paths}
        sources = {location: find_source_path(self.core.disk, location) for location in self._written}
        replaced = [location for location, path in sources.items() if path in written]
        if replaced:
            for draft in self._read(replaced, *(path for location in replaced for path in self._written[location])):
                if draft.location in replaced:
                    self._saver.set_base(draft)


def _digest_at(path: Path) -> str | None:
    """The digest of a file; None if there is none, or a link, which is replaced and not followed."""
    return None if path.is_symlink() or not path.exists() else digest_file(path.read_bytes())


def _display(path: Path) -> str:
    """A path as a receipt has it."""
    return os.fsencode(str(path.resolve())).decode(errors="replace")


def _key(path: Path) -> str:
    return _PREFIX + digest_file(os.fsencode(str(path.resolve())))[:32]
