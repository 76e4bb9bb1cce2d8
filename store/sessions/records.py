"""Record files of a session: artifacts.json, traces.json, verification.json.

`save_` replaces a file, `add_` adds to it under the session's lock, `load_` returns None if there is
none. The files are in the session's directory, so they are deleted, moved and restored with it. The
mount stores bytes unchanged; API changes are spliced into the existing text (rule 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.to_trash import NOTHING_KEPT, TrashPart, to_trash
from store.commit.write_request import WriteRequest
from store.disk.file import File, NewFile
from store.documents import json_text
from store.documents.json_splice import splice
from store.errors import Corrupt, InvalidContent, NotFound, Problem
from store.layout import ARTIFACTS, TRACES, VERIFICATION, Location
from store.path_kinds import PathInfo
from store.sessions import artifacts
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationReport


@dataclass(frozen=True)
class Records:
    core: Core
    commits: Commits

    # -- artifacts ---------------------------------------------------------------------------------

    def load_artifacts(self, session_id: str) -> ArtifactSet | None:
        """All artifacts, even if they exceed the limits of a save."""
        found: ArtifactSet | None = self._load(session_id, ARTIFACTS)
        return found

    @repeats
    def save_artifacts(self, session_id: str, found: ArtifactSet) -> list[str]:
        """Replace the set. Returns the URIs of evicted artifacts, oldest first."""
        with self._locked(session_id) as location:
            return self._put_artifacts(location, found)

    def add_artifacts(self, session_id: str, added: Iterable[ToolArtifact]) -> list[str]:
        """Add artifacts, replacing those with the same URI. Returns the URIs of evicted ones."""
        return self._add_artifacts(session_id, list(added))

    @repeats
    def _add_artifacts(self, session_id: str, added: Sequence[ToolArtifact]) -> list[str]:
        with self._locked(session_id) as location:
            found = self._read(location, ARTIFACTS) or ArtifactSet.of()
            for artifact in added:
                found.put(artifact)
            return self._put_artifacts(location, found)

    def _put_artifacts(self, location: Location, found: ArtifactSet) -> list[str]:
        found = found.model_copy()  # eviction must not change the caller's object
        evicted = found.evict()
        self._rewrite(location, ARTIFACTS, found)
        return [artifact.artifact_uri for artifact in evicted]

    # -- traces and reports ------------------------------------------------------------------------

    def load_traces(self, session_id: str) -> list[TraceEvent] | None:
        found: list[TraceEvent] | None = self._load(session_id, TRACES)
        return found

    def save_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None:
        new = list(events)  # read once: a grove may repeat the change
        self._save(session_id, TRACES, lambda present: new)

    def add_traces(self, session_id: str, events: Iterable[TraceEvent]) -> None:
        new = list(events)  # read once: a grove may repeat the change
        self._save(session_id, TRACES, lambda present: [*present(), *new])

    def load_verification(self, session_id: str) -> list[VerificationReport] | None:
        found: list[VerificationReport] | None = self._load(session_id, VERIFICATION)
        return found

    def save_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        """Replace the reports, each with the status that the caller gave it."""
        new = list(reports)  # read once: a grove may repeat the change
        self._save(session_id, VERIFICATION, lambda present: new)

    def add_verification(self, session_id: str, reports: Iterable[VerificationReport]) -> None:
        new = list(reports)  # read once: a grove may repeat the change
        self._save(session_id, VERIFICATION, lambda present: [*present(), *new])

    @repeats
    def _save(self, session_id: str, name: str, make: Callable[[Callable[[], list[Any]]], list[Any]]) -> None:
        """Replace a file by the records that `make` returns.

        `make` gets a function that reads the present ones: replacing must not require reading.
        """
        with self._locked(session_id) as location:
            self._rewrite(location, name, make(lambda: self._read(location, name) or []))

    # -- used by the mount -------------------------------------------------------------------------

    @repeats
    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Commit a record file byte for byte. Returns False if nothing changes."""
        place = request.target
        assert place.location is not None
        self.core.check_writable()
        record = artifacts.parse_record(place.name, raw, place.path, limit=self.core.limit_bytes)
        artifacts.check_statuses(place.name, record, raw, place.path)
        with self.core.locked(place.location):
            return self.commits.put_file(place.location, request, raw, "record")

    @repeats
    def remove(self, place: PathInfo) -> None:
        """Move a record file to the trash."""
        assert place.location is not None
        with self.core.locked(place.location):
            if self.core.disk.stat(place.path) is None:
                raise NotFound(f"{place.path} does not exist")
            self._commit(place.location, to_trash(place.location, "record deleted", moved=[place.path]))

    def announce(self, location: Location) -> None:
        """Add a change to the feed after a record file was renamed."""
        with self.core.db.write() as db:
            self.core.feed.add(db, [location], "record")
        self.core.on_commit()

    def check(self, location: Location) -> Iterator[tuple[str, str]]:
        """Path and problem of every record file of a session that cannot be read."""
        for name in layout.RECORDS:
            try:
                if self.core.disk.stat_file(location.path(name)) is not None:
                    self._read(location, name)  # another check reports a file that is not regular
            except Corrupt as error:
                yield error.path, str(error.problem)
            except PermissionError as error:
                yield location.path(name), f"cannot be read: {error.strerror}"

    # -- reading and writing -----------------------------------------------------------------------

    @contextmanager
    def _locked(self, session_id: str) -> Iterator[Location]:
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            raise NotFound(f"there is no session {session_id!r}")
        with self.core.locked(location):
            if self.core.disk.stat(location.path(layout.SESSION)) is None:
                raise NotFound(f"session {location} was deleted")
            yield location

    def _load(self, session_id: str, name: str) -> Any:
        location = self.core.locate(session_id)
        return None if location is None else self._read(location, name)

    def _read(self, location: Location, name: str) -> Any:
        """The record, or None if there is no such file.

        Raises Corrupt with the position of the error.
        """
        file = self.core.disk.read(location.path(name), self.core.limit_bytes)
        return None if file is None else self._parse(file, location.path(name), name)

    def _parse(self, file: File, path: str, name: str) -> Any:
        try:
            return artifacts.parse_record(name, file.data, path, limit=self.core.limit_bytes)
        except InvalidContent as error:
            raise Corrupt(path, error.problem) from None

    def _rewrite(self, location: Location, name: str, record: Any) -> None:
        path = location.path(name)
        present = self.core.disk.read(path)
        new = render_record(name, record, path, self.core.limit_bytes)
        kept = NOTHING_KEPT
        if present is not None:
            try:
                old = artifacts.dump_record(name, self._parse(present, path, name))
            except Corrupt:
                # A user may still be able to use a file that cannot be parsed.
                kept = to_trash(location, "unreadable record replaced", copied=[(path, present)])
            else:
                new = splice_record(present.data, old, artifacts.dump_record(name, record), new)
                if new == present.data:
                    return
        self._commit(location, kept, NewFile(path, [new], present))

    def _commit(self, location: Location, kept: TrashPart, *files: NewFile) -> None:
        commit = Commit(location, [*kept.files, *files], kept.moves, kept.dirs)
        self.commits.run(commit, None, "record")


def render_record(name: str, record: Any, path: str, limit: int) -> bytes:
    """Render a record. Raises InvalidContent if it could not be parsed again."""
    try:
        raw = json_text.render(artifacts.dump_record(name, record))
    except TypeError as error:  # orjson: a lone surrogate, or an object without a JSON type
        raise InvalidContent(path, Problem(str(error))) from None
    artifacts.parse_record(name, raw, path, limit=limit)
    return raw


def splice_record(raw: bytes, before: Any, after: Any, new: bytes) -> bytes:
    """The text `raw` with only the differences between `before` and `after` changed.

    `new` is `after` rendered as a whole, used if `before` is empty.
    """
    if not before:
        return new if after else raw
    if isinstance(before, dict):
        return splice(raw, before, after)
    # Only objects can be spliced: wrap the array into one, and unwrap the result.
    head, tail = b'{"":', b"}"
    return splice(head + raw + tail, {"": before}, {"": after})[len(head) : -len(tail)]
