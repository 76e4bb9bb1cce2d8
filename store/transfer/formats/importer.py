"""The one shape of all importers: what they make of a source, and what they could not make anything of.

An importer reads and never writes. It yields trees, a root with its children, each session as a draft:
the documents and the files beside them, complete, so that it can be saved in one commit or not at all.
What it cannot read it yields as a problem, by file and line, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from store.errors import InvalidContent
from store.layout import Location
from store.transfer.digests import sha256_of
from store.transfer.formats.coerce import BadRecord, make_id
from store.transfer.formats.source import Source

MAX_DEPTH = 1000  # of a chain of parents


class ImportProblem(NamedTuple):
    """What was skipped, where it is, and why."""

    path: str
    line: int | None
    text: str

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
    """A file beside the documents; `read` may be called more than once, and a large one comes in pieces."""

    name: str  # relative to the session's directory
    read: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, name: str, data: bytes) -> SourceFile:
        return cls(name, lambda: (data,))

    def digest(self) -> str:
        return sha256_of(self.read())


@dataclass(frozen=True)
class SessionDraft:
    """One session as it shall be saved."""

    location: Location
    main: bytes  # session.json
    format: str
    source_id: str  # what the source calls it
    path: str  # the file it came from
    side: bytes | None = None  # runtime.json, where the source has one of its own
    files: tuple[SourceFile, ...] = ()
    # Messages that moved to another session of the same tree: here they are not missing.
    moved: frozenset[str] = frozenset()


class SessionTree(NamedTuple):
    """A root and its children; these are read when they are asked for."""

    root: SessionDraft
    children: Iterable[SessionDraft | ImportProblem] = ()


class StateDocument(NamedTuple):
    """A plain document that is no session: where it goes in a home, and what it says."""

    path: str  # `state/<category>/<name>.json` or `.md`
    data: bytes
    source: str


@dataclass(frozen=True)
class Format:
    """A foreign format. `recognise` says how sure it is of a source, 1 to 100, or None."""

    name: str
    description: str
    recognise: Callable[[Source], int | None]
    iter_records: Callable[[Source], Iterator[SessionTree | StateDocument | ImportProblem]]
    base: str = ""  # the directory that holds the sessions, where the source is the agent's whole home


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
    roots, below = _group_by_root(sessions)

    def read_children(root: str, children: list[tuple[S, int]]) -> Iterator[SessionDraft | ImportProblem]:
        for child, depth in children:
            yield from read(source, child, Location(root, make_id(format, child.id)), depth)

    for session in roots:
        location = Location(make_id(format, session.id))
        for draft in read(source, session, location, 0):
            if isinstance(draft, ImportProblem):
                yield draft
            else:
                yield SessionTree(draft, read_children(location.root, below.pop(session.id, [])))


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
