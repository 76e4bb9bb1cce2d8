"""Bamboo homes of either generation, and GroveFS homes: documents are imported byte for byte, with all other files.

The layouts are `sessions/<root>/session.json` with sidecar, attachments, logs and children, and the older flat
`<id>.json` with its events in `<id>.jsonl`. If a document contradicts its path, the path counts, as in Bamboo. An
unreadable sidecar is reported and kept as an attachment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from store import layout
from store.documents import document as documents
from store.documents import secrets
from store.documents.document import Document, parse_document
from store.errors import InvalidContent, Problem
from store.layout import Location
from store.transfer.formats.coerce import digest, find_keys, make_id, record_problem
from store.transfer.formats.importer import Format, ImportProblem, SessionDraft, SessionTree, SourceFile, read_problem
from store.transfer.formats.source import Source

NAME = "bamboo"


def _base(source: Source) -> str:
    return layout.SESSIONS if source.name is None and source.is_dir(layout.SESSIONS) else ""


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _tree_dirs(source: Source) -> list[str]:
    """The directories of root sessions, including those with children but no session.json."""
    base = _base(source)
    paths = [_join(base, name) for name in source.directories(base) if not name.startswith(".")]
    return [path for path in paths if source.is_file(f"{path}/{layout.SESSION}") or source.is_dir(f"{path}/children")]


def _flat_files(source: Source) -> list[str]:
    base = _base(source)
    names = [entry.name for entry in source.entries(base) if entry.is_file and entry.name.endswith(".json")]
    return [_join(base, name) for name in names if not name.startswith(".") and name != layout.INDEX_EXPORT]


def recognise(source: Source) -> int | None:
    if any(source.is_file(f"{path}/{layout.SESSION}") for path in _tree_dirs(source)):
        return 85
    for raw in source.iter_samples(_flat_files(source)):
        keys = find_keys(raw)
        if {"id", "messages", "created_at", "updated_at"} <= keys and "config" not in keys:
            return 60
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    for path in _tree_dirs(source):
        yield from _read_tree(source, path)
    yield from _read_flat(source)


# -- trees ---------------------------------------------------------------------------------------------------


def _read_tree(source: Source, path: str) -> Iterator[SessionTree | ImportProblem]:
    root = Location(make_id(NAME, path.rpartition("/")[2]))
    below = f"{path}/{layout.CHILDREN}"
    children = [f"{below}/{name}" for name in source.directories(below)]
    if not source.is_file(f"{path}/{layout.SESSION}"):
        yield ImportProblem(
            source.display_path(path), None, f"no {layout.SESSION}; skipped with {len(children)} children"
        )
        return
    for item in read_session(source, path, root):
        if isinstance(item, SessionDraft):
            yield SessionTree(item, _read_children(source, children, root))
            return
        yield item
    for child in children:
        yield ImportProblem(source.display_path(child), None, "skipped with its root")


def _read_children(source: Source, paths: list[str], root: Location) -> Iterator[SessionDraft | ImportProblem]:
    for path in paths:
        if source.is_file(f"{path}/{layout.SESSION}"):
            yield from read_session(source, path, Location(root.root, make_id(NAME, path.rpartition("/")[2])))
        else:
            yield ImportProblem(source.display_path(path), None, f"no {layout.SESSION}; skipped")


def read_session(source: Source, path: str, location: Location) -> Iterator[SessionDraft | ImportProblem]:
    """Yield the problems of a session, then its draft unless session.json is invalid."""
    main_path = f"{path}/{layout.SESSION}"
    main = _read_document(source, main_path, location)
    if isinstance(main, ImportProblem):
        yield main
        return
    if secrets.find_api_key(main.data):
        yield ImportProblem(
            source.display_path(main_path), None, "an API key was left out; GroveFS does not store API keys"
        )
    side, files = _read_sidecar(source, path, location)
    if isinstance(side, ImportProblem):
        yield side
    other_files = _OtherFiles(source, path, location)
    yield from other_files.problems
    yield SessionDraft(
        location=location,
        main=main.raw,
        side=side.raw if isinstance(side, Document) else None,
        format=NAME,
        source_id=main.record.id,
        path=source.display_path(main_path),
        files=(*other_files.files, *files),
    )


def _read_document(source: Source, path: str, location: Location) -> Document | ImportProblem:
    """A document valid at `location`; if its identity contradicts the path, the identity is changed."""
    try:
        document = parse_document(source.read(path), path)
        if documents.identity_problem(document, location) is None:
            with suppress(InvalidContent):
                documents.check_authority(document, path)
                return document
        return parse_document(documents.fork_document(document, location), path)
    except InvalidContent as error:
        return _problem(source, path, error)
    except OSError as error:
        return read_problem(source, path, error)


def _problem(source: Source, path: str, error: InvalidContent) -> ImportProblem:
    problem = error.problem
    return ImportProblem(
        source.display_path(path),
        problem.line,
        f"{problem.field + ': ' if problem.field else ''}{problem.reason}; skipped",
    )


class _SidecarRead(NamedTuple):
    found: Document | ImportProblem | None
    kept: tuple[SourceFile, ...] = ()


def _read_sidecar(source: Source, path: str, location: Location) -> _SidecarRead:
    """Read the sidecar. An unreadable one is kept as an attachment, and the store derives a new one."""
    side_path = f"{path}/{layout.RUNTIME}"
    if not source.is_file(side_path):
        return _SidecarRead(None)
    found = _read_document(source, side_path, location)
    if isinstance(found, Document) and found.data["messages"]:
        found = ImportProblem(
            source.display_path(side_path), None, "the sidecar contains messages; kept as an attachment"
        )
    if isinstance(found, Document):
        return _SidecarRead(found)
    kept = SourceFile(f"{layout.ATTACHMENTS}/unreadable-runtime.json", lambda: source.iter_chunks(side_path))
    return _SidecarRead(found, (kept,))


class _OtherFiles:
    """All other files in the directory of a session."""

    def __init__(self, source: Source, path: str, location: Location) -> None:
        self.problems: list[ImportProblem] = []
        self.files: list[SourceFile] = []
        for found in source.iter_files(path):
            name = found.removeprefix(f"{path}/")
            if self._is_excluded(name):
                continue
            if name.startswith(f"{layout.CHILDREN}/"):
                if location.child is not None:
                    self.problems.append(
                        ImportProblem(source.display_path(found), None, "children/ below a child; skipped")
                    )
                continue
            name = self._unicode_name(source, found, self._name_of_record(source, found, name))
            self.files.append(SourceFile(name, lambda found=found: source.iter_chunks(found)))  # type: ignore[misc]

    def _is_excluded(self, name: str) -> bool:
        return name in (*layout.DOCUMENTS, layout.RECEIPT) or layout.is_leftover(name)

    def _name_of_record(self, source: Source, path: str, name: str) -> str:
        """The name for a record file; an invalid one is kept as an attachment."""
        if name not in layout.RECORDS:
            return name
        try:
            problem = record_problem(name, source.read(path))
        except (OSError, InvalidContent) as error:
            problem = Problem(str(error))
        if problem is None:
            return name
        self.problems.append(
            ImportProblem(source.display_path(path), problem.line, f"{problem.reason}; kept as an attachment")
        )
        return f"{layout.ATTACHMENTS}/unreadable-{name}"

    def _unicode_name(self, source: Source, path: str, name: str) -> str:
        """A valid Unicode name: receipts cannot store any other."""
        try:
            name.encode()
            return name
        except UnicodeEncodeError:
            self.problems.append(
                ImportProblem(source.display_path(path), None, "file name is not Unicode; imported under another name")
            )
            return f"{layout.ATTACHMENTS}/{digest(name)}.bin"


# -- flat files ------------------------------------------------------------------------------------------------


class _FlatSession(NamedTuple):
    path: str
    id: str
    root: str | None  # for a child


def _read_flat(source: Source) -> Iterator[SessionTree | ImportProblem]:
    found: list[_FlatSession] = []
    for path in _flat_files(source):
        document = _parse_flat(source, path)
        if isinstance(document, ImportProblem):
            yield document
            continue
        record = document.record
        found.append(_FlatSession(path, record.id, record.root_session_id if record.kind == "child" else None))
    source.done_bytes = 0
    roots = {flat.id for flat in found if flat.root is None}
    for flat in found:
        if flat.root in roots:
            continue
        root = Location(make_id(NAME, flat.id))
        for item in _read_flat_session(source, flat, root):
            if isinstance(item, ImportProblem):
                yield item
            else:
                yield SessionTree(item, _read_flat_children(source, [f for f in found if f.root == flat.id], root.root))


def _read_flat_children(source: Source, below: list[_FlatSession], root: str) -> Iterator[SessionDraft | ImportProblem]:
    for flat in below:
        yield from _read_flat_session(source, flat, Location(root, make_id(NAME, flat.id)))


def _read_flat_session(
    source: Source, flat: _FlatSession, location: Location
) -> Iterator[SessionDraft | ImportProblem]:
    main = _read_document(source, flat.path, location)
    if isinstance(main, ImportProblem):
        yield main
        return
    files: list[SourceFile] = []
    if (
        location.child is None and flat.root is not None
    ):  # a child whose root is missing: keep the original with its parent ids
        files.append(SourceFile(f"{layout.ATTACHMENTS}/original.json", lambda: source.iter_chunks(flat.path)))
    events = flat.path.removesuffix(".json") + ".jsonl"
    if source.is_file(events):
        files.append(SourceFile(f"{layout.ATTACHMENTS}/events.jsonl", lambda: source.iter_chunks(events)))
    yield SessionDraft(location, main.raw, NAME, flat.id, source.display_path(flat.path), files=tuple(files))


def _parse_flat(source: Source, path: str) -> Document | ImportProblem:
    """Parse a flat file unchanged: only its content identifies the session."""
    try:
        return parse_document(source.read(path), path)
    except InvalidContent as error:
        return _problem(source, path, error)
    except OSError as error:
        return read_problem(source, path, error)


FORMAT = Format(
    NAME,
    "a Bamboo home or a GroveFS home: ~/.bamboo",
    recognise,
    iter_records,
    base=layout.SESSIONS,
    is_verbatim=True,
)
