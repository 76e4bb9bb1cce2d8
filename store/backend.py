"""The small protocol that every backend keeps: sessions by id, their records, and whether it works at all.

Who programs against it runs on the home of a disk (`Store`) and in memory (`MemoryStore`) alike; one suite of tests,
`tests/store/test_backend.py`, says what both do. Ids are those of a filesystem everywhere: what has a separator, other
than the one between root and child, is refused and never rewritten to something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from store.check.health import Health
from store.model.session import Session
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationReport


class RecordStore(Protocol):
    """What runs left beside conversations. All of it goes with its session; NotFound for one that is not there.

    `load_` answers None where nothing was saved, `save_` replaces, `add_` adds without losing what others add.
    """

    def load_artifacts(self, session_id: str) -> ArtifactSet | None: ...
    def save_artifacts(self, session_id: str, found: ArtifactSet) -> list[str]:
        """The uris of those that had to go, the oldest first: 256 and 16 MiB are kept, unless retained."""
        ...

    def add_artifacts(self, session_id: str, added: Iterable[ToolArtifact]) -> list[str]: ...
    def load_traces(self, session_id: str) -> list[TraceEvent] | None: ...
    def save_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None: ...
    def add_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None: ...
    def load_verification(self, session_id: str) -> list[VerificationReport] | None: ...
    def save_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        """Each gets the status that follows from its checks and risks."""
        ...

    def add_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A place for sessions. An id is a root's or a child's, or `root/child`, which is exact."""

    @property
    def backend_name(self) -> str: ...
    @property
    def records(self) -> RecordStore: ...

    def save(self, session: Session, *, overwrite: bool = False, shorten: bool = False) -> None:
        """Conflict if another was saved since this one was loaded, or if it would lose messages, unless asked."""
        ...

    def load(self, session_id: str) -> Session | None:
        """None if there is none; Corrupt if it cannot be read."""
        ...

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """With all that descends from it; False if there is none, Protected if one of them is pinned."""
        ...

    def ids(self) -> list[str]:
        """The exact name of every session, in order."""
        ...

    def exists(self, session_id: str) -> bool: ...
    def health(self) -> Health: ...
