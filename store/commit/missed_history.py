"""What a failing history missed, kept in index.db until it is made up for.

A commit that could not be recorded stores its moves and versions here, in the transaction that ends
it. Moves are repeated before the next commit: nothing may be recorded under a name that has moved.
Versions are recorded when the home is idle, unless the next commit of their files was earlier. Of edits
made on disk it only keeps that there were some: later all files are compared with their versions.
"""

from __future__ import annotations

import json  # not orjson: a foreign name may not be UTF-8, and only json keeps surrogates
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from store.commit.commit import Commit
from store.disk.file import Stamp
from store.history.authors import OUTSIDE, Author, current_author
from store.history.versions import FOUND, lineage_path, mark_of, place_of
from store.index.database import Database

if TYPE_CHECKING:
    from store.history.history import History

MAX_VERSIONS = 500  # more are found by the next commit of each, or by `check --repair`
_MOVES, _VERSIONS, _EDITS_AT = "history_moves", "history_missed", "history_edits_at"  # keys in the table `meta`


class MissedVersion(NamedTuple):
    """A version that was not recorded. `marks` are those of its files, by path."""

    lineage: str
    marks: Mapping[str, int]
    what: str
    author: Author


@dataclass
class MissedHistory:
    db: Database
    open_history: Callable[[], History]
    _has_moves: bool = True  # until index.db was asked; another process may have stored some

    @property
    def history(self) -> History:
        return self.open_history()

    def store_commit(self, commit: Commit, stamps: Mapping[str, Stamp | None]) -> None:
        """Keep the moves and versions of a commit, inside the transaction that ends it."""
        marks: dict[str, dict[str, int]] = {}
        for path, stamp in stamps.items():
            if stamp is not None and place_of(path) is not None:
                marks.setdefault(lineage_path(path), {})[path] = mark_of(stamp)
        author, what = current_author(self.history.author), commit.for_history.what
        self._store(commit.moves, [MissedVersion(lineage, found, what, author) for lineage, found in marks.items()])

    def store_recovered(self, moves: Sequence[tuple[str, str]], lineages: Iterable[str]) -> None:
        """The same for a commit that recovery has finished: its author is no longer known."""
        self._store(moves, [MissedVersion(lineage, {}, FOUND, OUTSIDE) for lineage in lineages])

    def _store(self, moves: Sequence[tuple[str, str]], versions: Sequence[MissedVersion]) -> None:
        if not self.history.is_on:
            return
        with self.db.write() as db:  # most often that of the caller, which may have stored others before
            if moves:
                self.db.set_meta(**{_MOVES: json.dumps([*_load(db, _MOVES), *moves])})
                self._has_moves = True
            if versions:
                newer = {version.lineage for version in versions}
                older = [version for version in _versions(_load(db, _VERSIONS)) if version.lineage not in newer]
                self._write([*older, *versions][-MAX_VERSIONS:])

    # -- versions ----------------------------------------------------------------------------------

    def versions(self) -> list[MissedVersion]:
        return _versions(_load(self.db.reader, _VERSIONS))

    def _write(self, versions: list[MissedVersion]) -> None:
        rows = [(v.lineage, v.marks, v.what, [*vars(v.author).values()]) for v in versions]
        self.db.set_meta(**{_VERSIONS: json.dumps(rows)})

    def record(self, version: MissedVersion) -> bool:
        """Record a version now. The caller holds its lock. False if the history does not work yet.

        Files that another program has changed since are recorded as that program's.
        """
        is_unchanged = all(self.history.mark_now(path) == mark for path, mark in version.marks.items())
        author, what = (version.author, version.what) if is_unchanged else (OUTSIDE, FOUND)
        if not self.history.observe(version.lineage, author=author, what=what):
            return False
        with self.db.write():
            self._write([other for other in self.versions() if other != version])
        return True

    # -- edits on disk -----------------------------------------------------------------------------

    def note_observed(self, *, is_complete: bool) -> None:
        """Note that edits on disk could not be recorded, before they are indexed."""
        if not is_complete and self.history.is_on:
            self.db.set_meta(**{_EDITS_AT: time.time_ns()})

    def edits_at_ns(self) -> int:
        """When edits on disk were last missed; 0 if none are."""
        return int(self.db.get_meta(_EDITS_AT, 0))

    def forget_edits(self, at_ns: int) -> None:
        """All files were compared with their versions, after this moment."""
        with self.db.write() as db:
            db.execute("DELETE FROM meta WHERE key = ? AND value = ?", (_EDITS_AT, at_ns))

    # -- moves -------------------------------------------------------------------------------------

    def repeat_moves(self) -> bool:
        """Move lineages as earlier commits did. False if some are still missing."""
        if not self._has_moves:
            return True
        missed = _load(self.db.reader, _MOVES)
        if missed and not self.history.repeat_moves([(source, target) for source, target in missed]):
            return False
        if missed:
            self.db.set_meta(**{_MOVES: "[]"})
        self._has_moves = False
        return True


def _load(db: apsw.Connection, key: str) -> list[Any]:
    """A list in `meta`, as this connection sees it."""
    text: str | None = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    found: list[Any] = json.loads(text or "[]")
    return found


def _versions(rows: list[Any]) -> list[MissedVersion]:
    return [MissedVersion(lineage, marks, what, Author(*author)) for lineage, marks, what, author in rows]
