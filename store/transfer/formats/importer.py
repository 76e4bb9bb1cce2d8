"""Types shared by all formats, and the grouping of sessions into trees.

A format reads a source and never writes. It yields trees: a root and its children, each as a draft. A draft holds the
documents and all other files of a session, so it can be saved in one commit. What cannot be read is yielded as a
problem with file and line, and reading continues.
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
    """Something that was not imported as usual: its file and line, and the reason."""

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
    side: bytes | None = None  # runtime.json, if the source has one
    files: tuple[SourceFile, ...] = ()
    # Ids of messages in other sessions of the same tree: these do not count as lost when they are not in this one.
    moved: frozenset[str] = frozenset()


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


@dataclass(frozen=True)
class Format:
    """A foreign format. `recognise` returns its confidence in a source, 1 to 100, or None."""

    name: str
    description: str
    recognise: Callable[[Source], int | None]
    iter_records: Callable[[Source], Iterator[SessionTree | StateDocument | ImportProblem]]
    base: str = ""  # the directory of the sessions, if the source is the agent's whole home


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
