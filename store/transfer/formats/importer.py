"""Types shared by all formats, and the grouping of sessions into trees.

A format reads a source and never writes. It yields trees: a root and its children, each as a draft. A draft holds the
documents and all other files of a session, so it can be saved in one commit. What cannot be read is yielded as a
problem with file and line, and reading continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.digests import sha256_of
from store.transfer.formats.built_messages import BuiltMessages
from store.transfer.formats.coerce import BadRecord, make_id
from store.transfer.formats.source import Source

MAX_DEPTH = 1000  # of a chain of parents


class ImportProblem(NamedTuple):
    """Something that was not imported as usual: its file and line, and the reason."""

    path: str
    line: int | None
    text: str
    is_temporary: bool = False  # worth another try, although the source has not changed

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


def read_problem(source: Source, path: str, error: BadRecord | InvalidContent | OSError) -> ImportProblem:
    """The problem for a file that could not be read or parsed."""
    if isinstance(error, OSError):
        return ImportProblem(source.display_path(path), None, error.strerror or str(error))
    line = error.line if isinstance(error, BadRecord) else None
    return ImportProblem(source.display_path(path), line, f"{error}; skipped")


@dataclass(frozen=True)
class SourceFile:
    """A file of a session other than its documents. `read` yields its chunks and may be called repeatedly."""

    name: str  # relative to the session's directory
    read: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, name: str, data: bytes) -> SourceFile:
        return cls(name, lambda: (data,))

    def digest(self) -> str:
        return sha256_of(self.read())


@dataclass(frozen=True)
class SessionDraft:
    """A session as it is to be saved."""

    location: Location
    main: bytes  # session.json
    format: str
    source_id: str  # its id in the source
    path: str  # the file it was read from
    data: dict[str, Any] | None = None  # its members, without messages; None: `main` is a text of the source
    messages: BuiltMessages | None = None  # with `data`: what is known of the messages
    side: bytes | None = None  # runtime.json, if the source has one
    files: tuple[SourceFile, ...] = ()
    updated_at: Timestamp | None = None  # of its last record
    # Ids of messages in other sessions of the same tree: these do not count as lost when they are not in this one.
    moved: frozenset[str] = frozenset()
    cursor: dict[str, Any] | None = None  # from where the next lines of its file can be read alone


class SessionTree(NamedTuple):
    """A root and its children. The children are read lazily."""

    root: SessionDraft
    children: Iterable[SessionDraft | ImportProblem] = ()
    # No other child of this root came from the source: one imported earlier whose messages have moved is removed.
    is_complete: bool = False


class StateDocument(NamedTuple):
    """A document that is not part of a session: its path in the home and its content."""

    path: str  # `state/<category>/<name>.json` or `.md`
    data: bytes
    source: str


Records = Iterator[SessionTree | StateDocument | ImportProblem]


@dataclass(frozen=True)
class SourceUnit:
    """A part of a source that is read as a whole: for most agents one session and its sub-agents.

    If none of its files has changed since the last import, it is not read again.
    """

    key: str  # the path of its main file
    files: tuple[str, ...]
    read: Callable[[], Records]
    state: str = ""  # what it takes from files that all units share


class ResumedFile(NamedTuple):
    """A file that was imported before, and the session it became."""

    source: Source
    path: str
    location: Location
    source_id: str
    state: Any  # from `resuming.LineReader.dump`


class Place(NamedTuple):
    """Where an agent keeps its sessions: below a directory named by a variable, or below the default."""

    default: str  # "~/.claude"
    variable: str = ""  # CLAUDE_CONFIG_DIR
    below: str = ""  # in either directory


@dataclass(frozen=True)
class Format:
    """A foreign format. `recognise` returns its confidence in a source, 1 to 100, or None."""

    name: str
    description: str
    recognise: Callable[[Source], int | None]
    iter_records: Callable[[Source], Records]
    base: str = ""  # the directory of the sessions, if the source is the agent's whole home
    iter_units: Callable[[Source], Iterator[SourceUnit]] | None = None  # None: the source is one unit
    # The units that changed files belong to, without looking at the others. None: all units are compared.
    find_units: Callable[[Source, Iterable[str]], Iterable[SourceUnit] | None] | None = None
    # A `resuming.LineReader` for the next lines of a file. None: a changed file is read as a whole.
    resume: Callable[[ResumedFile], Any] | None = None
    places: tuple[Place, ...] = ()
    # The sessions are single files among others: directories next to them can hold those of other agents.
    is_scattered: bool = False
    # Documents are taken as they are, with the ids in them: a session that was renamed here is not followed.
    is_verbatim: bool = False

    def units_of(self, source: Source, paths: Iterable[str]) -> Iterator[SourceUnit]:
        """The units that changed files belong to; all units if the format cannot tell."""
        found = self.find_units(source, sorted(paths)) if self.find_units is not None else None
        if found is None:
            yield from self.units(source)
        else:
            yield from {unit.key: unit for unit in found}.values()

    def units(self, source: Source) -> Iterator[SourceUnit]:
        if self.iter_units is not None:
            yield from self.iter_units(source)
            return
        base = self.base if source.name is None and source.is_dir(self.base) else ""
        files = (source.name,) if source.name else tuple(source.iter_files(base))
        yield SourceUnit(source.name or "", files, lambda: self.iter_records(source))


def read_units(units: Iterator[SourceUnit]) -> Records:
    """The records of all units: what a format with units yields."""
    for unit in units:
        yield from unit.read()


# -- sessions that name their parents ------------------------------------------------------------------


@dataclass(frozen=True)
class SourceSession:
    """One session file of a source, with the ids it states; a parent id may be wrong or unknown."""

    path: str
    id: str
    parent: str | None


S = TypeVar("S", bound=SourceSession)
Read = Callable[[Source, S, Location, int], Iterator[SessionDraft | ImportProblem]]


def iter_trees(
    source: Source, format: str, found: Iterable[S | ImportProblem], read: Read[S]
) -> Iterator[SessionTree | ImportProblem]:
    """Group sessions by their topmost known ancestor and read them tree by tree.

    `read` gets the location and the depth of a session, and yields its problems and then its draft.
    """
    sessions: list[S] = []
    for item in found:
        if isinstance(item, ImportProblem):
            yield item
        else:
            sessions.append(item)
    source.done_bytes = 0  # `read` reads the same files again, and progress counts those bytes
    for root, below in group_by_root(sessions):
        yield from read_tree(source, format, root, below, read)


def read_tree(
    source: Source, format: str, root: S, below: list[tuple[S, int]], read: Read[S]
) -> Iterator[SessionTree | ImportProblem]:
    """Read a root, and lazily its descendants, each with its depth."""
    location = Location(make_id(format, root.id))

    def read_children() -> Iterator[SessionDraft | ImportProblem]:
        for child, depth in below:
            yield from read(source, child, Location(location.root, make_id(format, child.id, location.root)), depth)

    for draft in read(source, root, location, 0):
        yield draft if isinstance(draft, ImportProblem) else SessionTree(draft, read_children())


def group_by_root(sessions: list[S]) -> list[tuple[S, list[tuple[S, int]]]]:
    """Each session without a known ancestor, with all below it and their depth."""
    roots, below = _group_by_root(sessions)
    return [(root, below.pop(root.id, [])) for root in roots]


def _group_by_root(sessions: list[S]) -> tuple[list[S], dict[str, list[tuple[S, int]]]]:
    """The sessions without a known ancestor; and all others with their depth, by their topmost ancestor."""
    parents = {session.id: session.parent for session in reversed(sessions)}  # the first of equal ids counts
    roots: list[S] = []
    below: dict[str, list[tuple[S, int]]] = {}
    for session in sessions:
        above = _ancestors(session.id, parents)
        if above:
            below.setdefault(above[-1], []).append((session, len(above)))
        else:
            roots.append(session)
    return roots, below


def _ancestors(id: str, parents: Mapping[str, str | None]) -> list[str]:
    """The known ancestors of a session, nearest first; none where the parents form a cycle."""
    found: list[str] = []
    parent = parents.get(id)
    while parent is not None and parent in parents:
        if parent == id or parent in found or len(found) == MAX_DEPTH:
            return []
        found.append(parent)
        parent = parents[parent]
    return found
