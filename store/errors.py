"""What can go wrong, by meaning. The store never mentions errno; `fusefs/errors.py` translates.

    StoreError
    ├── NotFound              no such session, document or attachment
    ├── AlreadyExists         something is there already
    ├── NotEmpty              a directory still holds something
    ├── InvalidName           an id or name that cannot be used
    │   ├── Ambiguous         an id that lives under several roots
    │   └── InvalidQuery      a query in which there is nothing to look for, or far too much
    ├── InvalidContent        a document that the owning agent could not load
    │   └── TooLarge          over the size limit
    ├── Protected             a pinned session
    ├── ReadOnly              nothing may be written here now
    │   ├── Generated         a derived file
    │   └── BambooAtWork      a Bamboo server has this home open
    ├── Conflict              a newer version has been committed meanwhile
    ├── Busy                  a lock was not had in time
    ├── Closed                the store was closed before
    └── Corrupt               damage on disk; carries path and position

An OSError (disk full, permission denied) keeps its own type and errno: it is not ours to rename.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHOWN = 8  # candidates that an error names: it is one line


class StoreError(Exception):
    """The family of everything the store refuses or finds broken."""


class NotFound(StoreError):
    pass


class AlreadyExists(StoreError):
    pass


class NotEmpty(StoreError):
    pass


class InvalidName(StoreError):
    pass


class Ambiguous(InvalidName):
    """An id that exists under several roots; `candidates` are the exact names to choose from."""

    def __init__(self, session_id: str, candidates: Iterable[str]) -> None:
        self.candidates = sorted(candidates)
        shown, left = self.candidates[:_SHOWN], len(self.candidates) - _SHOWN
        more = f" and {left} more" if left > 0 else ""
        super().__init__(f"{session_id!r} is ambiguous; say which: {', '.join(shown)}{more}")


class InvalidQuery(InvalidName):
    pass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a document: the reason, and where it is. Lines and columns count from 1."""

    reason: str
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line is not None else ""
        return place + (f"{self.field}: " if self.field else "") + self.reason


class InvalidContent(StoreError):
    """A document that may not be committed; `flaw` says why and where. Nothing was changed."""

    def __init__(self, name: str, flaw: Problem) -> None:
        self.name = name
        self.problem = flaw
        super().__init__(f"{name}:{'' if flaw.line is not None else ' '}{flaw}")


class TooLarge(InvalidContent):
    pass


class Protected(StoreError):
    pass


class MustBeCopied(StoreError):
    """It cannot come in by one rename: what it holds has to be checked, file by file."""


class ReadOnly(StoreError):
    pass


class Generated(ReadOnly):
    pass


class BambooAtWork(ReadOnly):
    pass


class Conflict(StoreError):
    pass


class Busy(StoreError):
    pass


class Closed(StoreError):
    pass


class Corrupt(StoreError):
    """Damage found on disk. The file is left exactly as it is."""

    def __init__(self, path: str, flaw: Problem) -> None:
        self.path = path
        self.problem = flaw
        super().__init__(f"{path}:{'' if flaw.line is not None else ' '}{flaw}")
