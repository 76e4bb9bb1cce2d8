"""The one shape of all importers: what they make of a source, and what they could not make anything of.

An importer reads and never writes. It yields trees, a root with its children, each session as a draft:
the documents and the files beside them, complete, so that it can be saved in one commit or not at all.
What it cannot read it yields as a problem, by file and line, and goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from store.layout import Location
from store.transfer.formats.source import Source


class ImportProblem(NamedTuple):
    """What was skipped, where it is, and why."""

    path: str
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


@dataclass(frozen=True)
class SourceFile:
    """A file beside the documents; `read` may be called more than once, and a large one comes in pieces."""

    name: str  # relative to the session's directory
    read: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, name: str, data: bytes) -> SourceFile:
        return cls(name, lambda: (data,))

    def digest(self) -> str:
        digest = hashlib.sha256()
        for piece in self.read():
            digest.update(piece)
        return digest.hexdigest()


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
    about: str
    recognise: Callable[[Source], int | None]
    iter_records: Callable[[Source], Iterator[SessionTree | StateDocument | ImportProblem]]
    base: str = ""  # the directory that holds the sessions, where the source is the agent's whole home
