"""Export sessions as files that can be read without GroveFS: JSON, Markdown, a Bamboo home, files of other agents.

JSON and Markdown are written to `<dest>/<root>.<ext>` and `<dest>/<root>/<child>.<ext>`, attachments to a directory
named after the session. Each file is replaced atomically. A Bamboo home is written as an import into it: it can be
repeated, updates what has changed here, and keeps what was changed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pydantic

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import LoadedSession
from store.disk.file_io import replace_file
from store.documents import attachment_names, json_text, secrets, sidecar, transcript
from store.documents.transcript import Target
from store.errors import Busy, Corrupt, InvalidContent, InvalidName, NotFound, StoreError
from store.layout import Location
from store.transfer.export_target import ExportTarget
from store.transfer.formats import bamboo_home
from store.transfer.formats.exported_session import ExportedSession, Write
from store.transfer.formats.importer import ImportProblem, SessionDraft
from store.transfer.formats.source import Source
from store.transfer.imports import ImportOutcome, Imports

ExportFormat = Literal["json", "markdown"]
EXTENSIONS: dict[ExportFormat, str] = {"json": "json", "markdown": "md"}
AgentFormat = Literal["a3s", "claude-code", "codex", "oxios"]
# Module and function that write a session as an agent stores it.
_WRITERS: dict[AgentFormat, tuple[str, str]] = {
    "a3s": ("a3s_export", "write_a3s"),
    "claude-code": ("claude_export", "write_claude_code"),
    "codex": ("codex_export", "write_codex"),
    "oxios": ("oxios_export", "write_oxios"),
}


class ExportedFile(NamedTuple):
    """An exported session and its file."""

    location: Location
    path: Path


@dataclass(frozen=True)
class Exports:
    core: Core
    commits: Commits

    # -- selection ----------------------------------------------------------------------------

    def select(self, ids: Iterable[str] | None = None) -> list[Location]:
        """The named sessions, roots with all their descendants; all sessions if `ids` is None."""
        if ids is None:
            found = [*self._indexed("1", ()), *self.core.index.damaged()]
        else:
            found = [location for id in ids for location in self._tree(self._get(id))]
        return list(dict.fromkeys(found))

    def _get(self, id: str) -> Location:
        location = self.core.locate(id)
        if location is None:
            raise NotFound(f"no session {id!r}; nothing was exported. `grovefs ls` lists sessions")
        return location

    def _tree(self, location: Location) -> Iterator[Location]:
        return iter((location,)) if location.child is not None else self._indexed("root = ?", (location.root,))

    def _indexed(self, where: str, values: tuple[str, ...]) -> Iterator[Location]:
        query = f"SELECT root, child FROM sessions WHERE {where} ORDER BY root, child"
        rows: list[tuple[Any, ...]] = self.core.db.reader.execute(query, values).fetchall()
        return (Location(root, child or None) for root, child in rows)

    # -- rendering ---------------------------------------------------------------------------------

    def render_json(self, location: Location, *, redact: bool = False) -> bytes:
        """The merged session as one JSON object, including unknown members. `redact` replaces keys in its texts."""
        members = self._members(self._load(location))
        return json_text.render(secrets.redact_value(members) if redact else members) + b"\n"

    def render_line(self, location: Location, *, redact: bool = False) -> bytes:
        """The same, on one line."""
        members = self._members(self._load(location))
        return json_text.render_compact(secrets.redact_value(members) if redact else members) + b"\n"

    def render_markdown(
        self, location: Location, target: Target | None = None, *, marked: bool = False, redact: bool = False
    ) -> bytes:
        """The transcript, marked for a web page if asked for. Links to attachments point into the home, or to what
        `target` returns."""
        loaded = self._load(location)
        has_attachments = session_reader.has_attachments(self.core.disk, location)
        messages = loaded.main.data["messages"]
        entry = session_reader.entry_of(loaded.session, location, len(messages), has_attachments=has_attachments)
        summary = loaded.session.conversation_summary
        shown = summary.content if summary else ""
        text = transcript.render(entry, shown, messages, target or self._in_home, marked=marked)
        return transcript.encode(secrets.redact_text(text) if redact else text)

    def _load(self, location: Location) -> LoadedSession:
        loaded = self.core.load(location)
        if loaded is None:
            raise NotFound(f"session {location} does not exist")
        return loaded

    def _members(self, loaded: LoadedSession) -> dict[str, object]:
        dump = loaded.session.model_dump(warnings=False)
        return sidecar.merged_main(loaded.main.data, dump, dump)

    def _in_home(self, url: str) -> str:
        path = self.find_attachment(url)
        return transcript.quote_name(str(self.core.home / path)) if path else url

    def find_attachment(self, url: str) -> str | None:
        """The path of the attachment a reference names, in whichever session it is."""
        reference = attachment_names.parse_reference(url)
        with suppress(StoreError):  # an invalid or ambiguous id
            location = self.core.locate(reference[0]) if reference else None
            if reference and location:
                return session_reader.find_attachment(self.core.disk, location, layout.check_id(reference[1]))
        return None

    # -- files -------------------------------------------------------------------------------------------------

    def write(
        self, locations: Iterable[Location], format: ExportFormat, dest: Path, *, redact: bool = False
    ) -> Iterator[ExportedFile | ImportProblem]:
        """Write each session to a file below `dest`. A damaged session is yielded as a problem and skipped."""
        dest.mkdir(parents=True, exist_ok=True)
        for location in locations:
            path = dest.joinpath(*(part for part in location if part is not None))
            path = path.with_name(f"{path.name}.{EXTENSIONS[format]}")
            try:
                self._write_one(location, format, path, redact=redact)
            except (Busy, Corrupt, NotFound) as error:
                yield ImportProblem(location.path(layout.SESSION), None, f"{error}; not exported")
            else:
                yield ExportedFile(location, path)

    def _write_one(self, location: Location, format: ExportFormat, path: Path, *, redact: bool) -> None:
        attachments = path.parent / location.id / layout.ATTACHMENTS

        def target(url: str) -> str:
            found = self.find_attachment(url)
            if found is None or not found.startswith(f"{location.path(layout.ATTACHMENTS)}/"):
                return self._in_home(url)
            return transcript.quote_name(f"{location.id}/{layout.ATTACHMENTS}/{found.rpartition('/')[2]}")

        is_json = format == "json"
        if is_json:
            data = self.render_json(location, redact=redact)
        else:
            data = self.render_markdown(location, target, redact=redact)
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in self._attached(location):
            file = self.core.disk.read(location.path(f"{layout.ATTACHMENTS}/{name}"))
            if file is not None:  # None if it was deleted since it was listed
                attachments.mkdir(parents=True, exist_ok=True)
                replace_file(attachments / name, _redact_file(file.data) if redact else file.data)
        replace_file(path, data)  # last: when it exists, so do the attachments it refers to

    def _attached(self, location: Location) -> list[str]:
        try:
            entries = self.core.disk.entries(location.path(layout.ATTACHMENTS))
        except Corrupt:  # a link in place of the directory is not followed
            return []
        return [entry.name for entry in entries if entry.is_file and not layout.is_leftover(entry.name)]

    # -- files of other agents ---------------------------------------------------------------------

    def write_for_agent(
        self, agent: AgentFormat, locations: Iterable[Location], dest: Path, *, overwrite: bool = False
    ) -> Iterator[ExportedFile | ImportProblem]:
        """Write sessions below `dest` as another agent stores them. One that cannot be is yielded as a problem.

        So is one whose file there has changes that were not imported. `overwrite` replaces it and keeps a copy.
        """
        module = import_module(f"store.transfer.formats.{_WRITERS[agent][0]}")  # loads all of the format
        write: Write = getattr(module, _WRITERS[agent][1])
        target = ExportTarget(self.core, self.commits, agent, dest)
        try:
            for location in locations:
                try:
                    found = target.place(location, [*write(self._exported(location))])
                    problem = None if overwrite else target.find_unknown(location, found)
                    if problem is None:
                        target.write(location, found, keep_old=overwrite)
                except (Busy, Corrupt, InvalidContent, InvalidName, NotFound, pydantic.ValidationError) as error:
                    problem = ImportProblem(location.path(layout.SESSION), None, f"{error}; not exported")
                yield problem or ExportedFile(location, dest / found[-1].path)  # the session file is the last
        finally:
            target.set_bases()  # of what was written, also if the rest fails

    def _exported(self, location: Location) -> ExportedSession:
        def read(name: str) -> bytes | None:
            file = self.core.disk.read(location.path(name))
            return file.data if file is not None else None

        loaded = self._load(location)
        members = {**self._members(loaded), "messages": loaded.main.data["messages"]}
        return ExportedSession(location, members, read, self._read_attachment)

    def _read_attachment(self, url: str) -> tuple[bytes, str] | None:
        path = self.find_attachment(url)
        file = self.core.disk.read(path) if path else None
        if path is None or file is None:
            return None
        mime = attachment_names.extension_to_mime(path.rpartition(".")[2])
        return file.data, mime or attachment_names.OCTET_STREAM

    # -- a Bamboo home -------------------------------------------------------------------------------------------

    def copy(
        self, locations: Iterable[Location], target: Imports, report: Callable[[ImportOutcome | ImportProblem], None]
    ) -> None:
        """Copy whole sessions to another home, byte for byte. `report` is called for each."""
        if target.core.home.resolve() == self.core.home.resolve():
            raise InvalidName(f"{target.core.home} is this home; nothing was exported. Use another directory")
        locations = list(locations)
        roots = {location.root for location in locations if location.child is None}
        for location in locations:
            if location.root not in roots and target.core.locate(location.root) is None:
                raise InvalidName(
                    f"the root session {location.root!r} must be exported with {location}; nothing was exported"
                )
        with Source(self.core.home) as source:
            for location in locations:
                with self.core.locked(location):  # both documents must be of one version
                    items = [*bamboo_home.read_session(source, location.dir, location)]
                for item in items:
                    report(_save_copy(target, item) if isinstance(item, SessionDraft) else item)


def _redact_file(data: bytes) -> bytes:
    """A text file with its keys replaced; any other file unchanged."""
    try:
        return secrets.redact_text(data.decode()).encode()
    except UnicodeDecodeError:
        return data


def _save_copy(target: Imports, draft: SessionDraft) -> ImportOutcome | ImportProblem:
    try:
        return target.save_draft(draft)
    except (InvalidName, Corrupt) as error:
        return ImportProblem(draft.path, None, f"{error}; not exported")
