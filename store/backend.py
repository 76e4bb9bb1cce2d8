"""Backend: the part of Store that MemoryStore implements too, for programs that want to test without
a disk.

Sessions by id, their records, and health. A program written against Backend runs on both;
`tests/store/test_backend.py` tests both with the same suite. It is not the interface of the
mount, which needs all of Store. Ids follow the rules of file names everywhere: an id with a
separator, other than the one in `root/child`, is rejected and never rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from store.check.health import Health
from store.model.session import Session
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationReport
from store.sessions.save import OnStale


class RecordStore(Protocol):
    """Artifacts, traces and verification reports of a session; deleted together with it.

    `load_` returns None if nothing was saved, `save_` replaces, `add_` appends and keeps what other writers add.
    `save_` and `add_` raise NotFound for an unknown session.
    """

    def load_artifacts(self, session_id: str) -> ArtifactSet | None: ...
    def save_artifacts(self, session_id: str, found: ArtifactSet) -> list[str]:
        """Return the URIs of evicted artifacts, oldest first. The limit is 256 artifacts and 16 MiB per session;
        retained ones are not evicted."""
        ...

    def add_artifacts(self, session_id: str, added: Iterable[ToolArtifact]) -> list[str]: ...
    def load_traces(self, session_id: str) -> list[TraceEvent] | None: ...
    def save_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None: ...
    def add_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None: ...
    def load_verification(self, session_id: str) -> list[VerificationReport] | None: ...
    def save_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        """The status of each report is computed from its checks and risks."""
        ...

    def add_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """Sessions by id. An id names a root or a child; `root/child` is exact."""

    @property
    def backend_name(self) -> str: ...
    @property
    def records(self) -> RecordStore: ...

    def save(
        self,
        session: Session,
        *,
        overwrite: bool = False,
        shorten: bool = False,
        on_conflict: OnStale = "raise",
    ) -> None:
        """Conflict if the session is stale (see `overwrite` and `on_conflict="merge"`) or would lose messages
        (see `shorten`)."""
        ...

    def refresh(self, session: Session) -> bool:
        """Take what others stored, and keep unsaved changes; False if nobody had changed it."""
        ...

    def load(self, session_id: str) -> Session | None:
        """None for an unknown id; Corrupt if it cannot be read."""
        ...

    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """Delete a session and its descendants; False for an unknown id, Protected if one is pinned."""
        ...

    def ids(self) -> list[str]:
        """List the exact name of every session, in order."""
        ...

    def exists(self, session_id: str) -> bool: ...
    def health(self) -> Health: ...
