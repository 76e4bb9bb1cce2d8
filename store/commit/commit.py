"""Commit: the description of one change, which the journal makes as a whole. A value; it does nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import apsw

from store.disk.file import NewFile
from store.history.versions import FileChanges, KnownChange
from store.index.change_feed import What
from store.layout import Location

WHOLE_TREE = "*"
IndexWork = Callable[[apsw.Connection], None]  # for rare commits, which have no planned update


@dataclass(frozen=True)
class Commit:
    """A change made as a whole: `links`, then `files`, then `moves`, each in order.

    The last rename is the point of no return.
    """

    location: Location
    files: Sequence[NewFile] = ()
    moves: Sequence[tuple[str, str]] = ()
    dirs: Sequence[str] = ()  # created first if missing; removed again if the commit fails
    touched: Sequence[Location] = ()  # what recovery indexes again; default: `location`
    whole_tree: bool = False
    what: What | None = None  # for the change feed
    label: str = ""  # what the history calls the change; default: `what`
    known: Mapping[str, KnownChange] = field(default_factory=dict)  # by path of a file, for the history
    notes: Mapping[str, str] = field(default_factory=dict)  # by directory of a session, for the history
    links: Sequence[tuple[str, str]] = ()  # hard links to files that the commit replaces

    @property
    def for_history(self) -> FileChanges:
        label = self.label or self.what or "saved"
        return FileChanges(self.files, self.moves, label, self.known, self.notes)
