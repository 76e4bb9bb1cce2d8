"""Errors of the store, by meaning; fusefs/requests/errnos.py maps them to errno.

    StoreError
    ├── NotFound              no such session, document or attachment
    ├── AlreadyExists         the target exists
    ├── NotEmpty              the directory is not empty
    ├── InvalidName           an id or name that cannot be used
    │   ├── Ambiguous         an id that exists under several roots
    │   └── InvalidQuery      a query without search terms, or with too many
    │       └── EmptyQuery    without search terms: store/search/results.py
    ├── InvalidContent        a document that its agent could not load
    │   ├── TooLarge          over the size limit
    │   └── SecretRefused     contains an API key: store/documents/secrets.py
    ├── Protected             a pinned session
    ├── MustBeCopied          a rename that would bypass the checks; copying is allowed
    ├── ReadOnly              writing is not allowed here or now
    │   ├── Generated         a derived file
    │   ├── BambooAtWork      a Bamboo server uses this home
    │   ├── Unreachable       the database of the grove does not answer
    │   └── LostHistory       the database of the grove lost commits: store/grove/applying.py
    ├── Conflict              a newer version has been committed meanwhile
    │   ├── FileGone          the file has been deleted or renamed meanwhile
    │   ├── MergeConflict     both sides changed the same thing: store/documents/merge.py
    │   │   └── SidecarConflict  it would undo a change of runtime.json: store/documents/merge.py
    │   └── Stale             another host committed first: store/commit/agreement.py
    ├── Unsure                the database did not answer: the change may or may not have been made
    ├── LocalOnly             other hosts of the grove could not follow this change
    ├── BadRow                a row of the grove's log cannot be applied: store/grove/wire.py
    ├── Busy                  a lock was not obtained in time
    │   └── ChangedMeanwhile  another program changed the file meanwhile: store/disk/disk.py
    ├── EditedOutside         a file was edited on disk and not published yet: store/grove/proposing.py
    ├── Closed                the store is closed
    ├── Corrupt               damage on disk; has path and position
    │   └── DamagedBackup     files of a backup are damaged: store/transfer/backup/restore.py
    ├── NewerSchema           index.db of a newer GroveFS: store/index/database.py
    ├── OlderInUse            index.db of an older GroveFS that has it open: store/index/database.py
    ├── DatabaseUnusable      index.db is not a GroveFS database: store/index/database.py
    ├── HistoryUnusable       history.db cannot be used: store/history/database.py
    ├── ProbeFailed           a health probe failed: store/check/health.py
    ├── RetryLookup           the kernel must look a name up again: fusefs/tree/nodes.py
    ├── NotJoined             the home belongs to no grove: store/grove/replica.py
    ├── ServerMissing         PostgreSQL is not installed: store/grove/private_server.py
    ├── NoBrowser             no browser could be started: fusefs/cli/commands/open.py
    ├── NoPictureLibrary      matplotlib is not installed: fusefs/cli/png.py
    └── MountError            mounting failed: fusefs/daemon/mountpoint.py

An OSError (disk full, permission denied) is passed on unchanged, with its errno.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

_SHOWN = 8  # candidates named in the error text, which is one line
_OTHERS_IN_LINE = 2  # further faults of a document named in the error text; the .error file has all


def describe(error: BaseException) -> str:
    """An error for people: `No space left on device: PATH` instead of `[Errno 28] …`."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else error.strerror
    return str(error)


class StoreError(Exception):
    """Base class of all errors of the store."""


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
        super().__init__(f"{session_id!r} is ambiguous; candidates: {', '.join(shown)}{more}")


class InvalidQuery(InvalidName):
    pass


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in a document: its reason and position, and the other faults of the same document.

    Lines and columns start at 1. As a string it is one line and names three faults.
    """

    reason: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    others: tuple[Problem, ...] = ()
    left_out: int = 0  # number of faults that are not in `others` either

    def __str__(self) -> str:
        others = "".join(f"; {other}" for other in self.others[:_OTHERS_IN_LINE])
        left = len(self.others[_OTHERS_IN_LINE:]) + self.left_out
        more = f" (and {left} more error{'s' if left > 1 else ''})" if left else ""
        return f"{self.alone}{others}{more}"

    @property
    def alone(self) -> str:
        """This fault without the others."""
        place = f"{self.line}:{self.column}: " if self.line is not None else ""
        return place + (f"{self.field}: " if self.field else "") + self.reason

    def without_positions(self) -> Problem:
        others = tuple(other.without_positions() for other in self.others)
        return replace(self, line=None, column=None, others=others)


class InvalidContent(StoreError):
    """A rejected document; `problem` has the reason and position. Nothing was changed."""

    def __init__(self, name: str, problem: Problem) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"{name}:{'' if problem.line is not None else ' '}{problem}")


class TooLarge(InvalidContent):
    pass


class Protected(StoreError):
    pass


class MustBeCopied(StoreError):
    """A rename cannot do this, because the content has to be checked file by file; a copy can."""


class ReadOnly(StoreError):
    pass


class Generated(ReadOnly):
    pass


class BambooAtWork(ReadOnly):
    pass


class Unreachable(ReadOnly):
    """The database of the grove did not answer, and nothing was changed. Reading still works."""


class Conflict(StoreError):
    pass


class FileGone(Conflict):
    """The file to save was deleted, or renamed, since the writer opened it. Nothing was stored."""


class Unsure(StoreError):
    """The connection was lost while the grove agreed: the change may still appear. The only exception from rule 3."""


class LocalOnly(StoreError):
    """Refused in a home of a grove, because other hosts could not follow the change yet."""


class Busy(StoreError):
    pass


class Closed(StoreError):
    pass


class Corrupt(StoreError):
    """Damage found on disk. The file is not changed."""

    def __init__(self, path: str, problem: Problem) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}:{'' if problem.line is not None else ' '}{problem}")
