"""Projects: session payloads of any format, and index files derived from them.

The payloads, `projects/<key>/sessions/<parent>/session.json` and `…/children/<child>/session.json`,
are JSON objects and the source of truth. Every write updates `index.json` and `children.json` in
the same commit; if lost or corrupt, they are rebuilt from the payloads. A child removed from the
indices keeps its payload; a marker file in its directory records the removal. Each project has a lock.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from store import layout
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.to_trash import to_trash
from store.commit.write_request import WriteRequest, stale_error
from store.disk.file import File, NewFile, Stamp
from store.documents import json_text
from store.errors import Corrupt, InvalidContent, InvalidName, NotFound, ReadOnly
from store.layout import PROJECTS, Location
from store.path_kinds import PathInfo, PathKind, classify_path
from store.workspace.project_index_files import ProjectIndexFiles
from store.workspace.project_records import (
    ChildEntry,
    Extractor,
    ProjectIndex,
    ProjectSession,
    RootEntry,
    TopLevelExtractor,
    member_of,
    payload_members,
    render_key,
)

log = logging.getLogger("grovefs.store")


def project_key(workspace: str | os.PathLike[str]) -> str:
    """The key of a workspace, from its real path; from the given path if it does not exist."""
    if not os.fspath(workspace):
        raise InvalidName("the path of a workspace must not be empty; for the working directory pass '.'")
    try:
        path = os.path.realpath(workspace, strict=True)
    except OSError:
        path = os.fspath(workspace)
    return check_key(render_key(os.fsencode(path).decode(errors="replace")))


def check_key(key: str) -> str:
    """Raise InvalidName if a key cannot be the name of a directory below projects/."""
    is_name = "/" not in key and classify_path(f"{PROJECTS}/{key}").kind is PathKind.PROJECT
    if not is_name or len(key.encode()) > layout.MAX_NAME_BYTES:
        raise InvalidName(
            f"{key[:80]!r} is not a valid project key: it contains '/', begins with a dot, or is too long"
        )
    return key


def check_member(member: ProjectSession) -> ProjectSession:
    check_key(member.key)
    for name in (member.parent, member.child):
        if name is not None:
            layout.check_new_id(name)
    return member


@dataclass(frozen=True)
class Projects:
    core: Core
    commits: Commits
    extractor: Extractor = field(default_factory=TopLevelExtractor)
    _cache: dict[str, tuple[Stamp, ProjectIndex]] = field(default_factory=dict, repr=False)

    @staticmethod
    def key_of(workspace: str | os.PathLike[str]) -> str:
        """The key of a workspace, by its path."""
        return project_key(workspace)

    def with_extractor(self, extractor: Extractor) -> Projects:
        """The same projects with another extractor."""
        return replace(self, extractor=extractor)

    @property
    def _derived(self) -> ProjectIndexFiles:
        return ProjectIndexFiles(self.core.disk, self.extractor, self.core.limit_bytes)

    # -- payloads ----------------------------------------------------------------------------------

    def save(self, member: ProjectSession, payload: Mapping[str, Any]) -> None:
        """Write a payload, any JSON object, and update the index files."""
        self.core.check_writable()
        path = check_member(member).payload
        if not isinstance(payload, Mapping):
            raise TypeError(f"projects.save: expected a JSON object as a dict, got {type(payload).__name__}")
        raw = json_text.render_strict(dict(payload), path)
        with self._locked(member.key):
            self._put(member, raw, WriteRequest(classify_path(path), raw))

    def load(self, member: ProjectSession) -> dict[str, Any] | None:
        """A payload, or None if there is none. Raises Corrupt with line and column."""
        path = check_member(member).payload
        self.core.on_use(member.location)
        file = self.core.disk.read(path, self.core.limit_bytes)
        try:
            return json_text.parse(file.data, path, limit=self.core.limit_bytes) if file else None
        except InvalidContent as error:
            raise Corrupt(path, error.problem) from None

    def update(self, member: ProjectSession, change: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
        """Read, change in place and write under the project's lock.

        Returns None if there is no payload.
        """
        with self._locked(member.key):
            payload = self.load(member)
            if payload is not None:
                change(payload)
                self.save(member, payload)
        return payload

    def exists(self, member: ProjectSession) -> bool:
        return self.core.disk.stat(check_member(member).payload) is not None

    def delete(self, member: ProjectSession) -> bool:
        """Move a payload to the trash and remove its entries. Returns False if there is none."""
        self.core.check_writable()
        with self._locked(member.key):
            is_there = self.exists(member)
            if is_there:
                self._remove_payload(member)
        return is_there

    # -- indices -----------------------------------------------------------------------------------

    def all_keys(self) -> list[str]:
        """The keys of all projects."""
        return [key for key in self.core.disk.directories(PROJECTS) if _is_key(key)]

    def members(self, key: str) -> Iterator[ProjectSession]:
        """All session directories of a project, with or without a payload."""
        for parent in self._derived.parents(check_key(key)):
            yield ProjectSession(key, parent)
            yield from (ProjectSession(key, parent, child) for child in self._derived.children_of(key, parent))

    def stale_files(self, key: str) -> list[str]:
        """Paths of the index files that do not match the payloads."""
        return [file.path for file in self._derived.for_project(key, known=True)]

    def roots(self, key: str) -> list[RootEntry]:
        """The sessions of a project that have a payload, sorted by id."""
        return self._index(key).roots

    def children(self, key: str, parent: str) -> list[ChildEntry]:
        """The children of a session, sorted by id."""
        check_member(ProjectSession(key, parent))
        self._finish_interrupted(key)
        found = self._derived.find_children(key, parent)
        if found is None:
            self._restore_index(key)
            found = self._derived.find_children(key, parent) or self._derived.scan_children(key, parent)
        return found.children

    def resolve(self, key: str, child_id: str) -> ProjectSession | None:
        """Find a child by its id alone, in constant time."""
        parent = self._index(key).child_lookup.get(child_id)
        return ProjectSession(key, parent, child_id) if parent is not None else None

    def upsert_root(self, key: str, entry: RootEntry) -> None:
        """Set the index entry of a session, until its payload changes.

        The payload stays as it is. A missing one is created, so that a rebuild finds the session.
        """
        self._upsert(ProjectSession(key, entry.session_id), entry)

    def upsert_child(self, key: str, parent: str, entry: ChildEntry) -> None:
        """Set the index entry of a child, like `upsert_root`. Undoes `remove_child`."""
        self._upsert(ProjectSession(key, parent, entry.child_id), entry)

    def _upsert(self, member: ProjectSession, entry: RootEntry | ChildEntry) -> None:
        self.core.check_writable()
        path = check_member(member).payload
        with self._locked(member.key):
            file = self.core.disk.read(path, self.core.limit_bytes)
            raw = file.data if file else json_text.render_strict(payload_members(entry), path)
            files = [] if file is None else self._set_entry(member, file, entry)
            self._put(member, raw, WriteRequest(classify_path(path), raw), entry=entry, others=files)

    def _set_entry(self, member: ProjectSession, payload: File, entry: RootEntry | ChildEntry) -> list[NewFile]:
        """The file that keeps an entry which differs from its payload; none if it does not."""
        path = member.set_entry
        present = self.core.disk.read(path)
        if present is None and self._derived.matches_entry(member, payload, entry):
            return []
        raw = self._derived.render_set_entry(entry, payload.data)
        return [] if present is not None and present.data == raw else [NewFile(path, [raw], present)]

    def remove_child(self, key: str, parent: str, child_id: str) -> bool:
        """Remove a child from the indices and keep its payload.

        Returns False if it was not listed.
        """
        self.core.check_writable()
        member = check_member(ProjectSession(key, parent, child_id))
        with self._locked(key):
            is_listed = any(entry.child_id == child_id for entry in self.children(key, parent))
            if is_listed:
                markers = [NewFile(member.removed_marker, [b""])] if self.exists(member) else []
                self._run(member, [*markers, *self._derived.without(member)])
        return is_listed

    def rebuild(self, key: str, extractor: Extractor | None = None) -> None:
        """Rebuild the index files of a project from the payloads alone."""
        self.core.check_writable()
        derived = replace(self._derived, extractor=extractor or self.extractor)
        with self._locked(check_key(key)):
            files = derived.for_project(key, known=False)
            if files:
                self._run(key, files)

    def rebuild_all(self) -> None:
        """Rebuild the index files of all projects.

        Fields missing in the payloads keep their values.
        """
        for key in self.all_keys():
            with self._locked(key):
                self.core.reread(layout.project_location(key))

    def _index(self, key: str) -> ProjectIndex:
        """index.json, parsed once per version."""
        path = layout.project_location(check_key(key)).path(layout.PROJECT_INDEX)
        self._finish_interrupted(key)
        stamp = self.core.disk.stamp(path)
        cached = self._cache.get(key)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        found = self._derived.find_index(key)
        if found is None:
            self._restore_index(key)
            found = self._derived.find_index(key) or self._derived.scan(key)
        if stamp is not None and self.core.disk.stamp(path) == stamp:
            self._cache[key] = stamp, found
        return found

    def _finish_interrupted(self, key: str) -> None:
        """Finish an interrupted commit, so that readers see one version of both indices."""
        location = layout.project_location(key)
        if self.core.locks.holds(location) or not self.core.journal.pending(location.root):
            return
        try:
            with self.core.locked(location):
                pass
        except OSError as error:  # for example a full disk; reading still works
            log.warning("cannot finish an interrupted commit of %s now: %s", location.dir, error)

    def _restore_index(self, key: str) -> None:
        """Rebuild a missing or corrupt index from the payloads, if the home is writable."""
        location = layout.project_location(key)
        if self.core.disk.stat(location.path(layout.SESSIONS)) is None:
            return
        try:
            self.core.check_writable()
        except ReadOnly as error:
            log.info("index files of %s cannot be written, computing them for each read: %s", location.dir, error)
            return
        with self._locked(key):
            self.sync_index(location)

    # -- used by the mount -------------------------------------------------------------------------

    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Write a payload byte for byte. Returns False if nothing changes."""
        member = _member_at(request.target)
        with self._locked(member.key):
            return self._put(member, raw, request)

    def remove(self, place: PathInfo, *, keep: bool = True) -> None:
        """Delete a payload and its entries. `keep`: move it to the trash instead of erasing it."""
        member = _member_at(place)
        with self._locked(member.key):
            if not self.exists(member):
                raise NotFound(f"{place.path} does not exist")
            self._remove_payload(member, keep=keep)

    def move_away(self, source: PathInfo, target: PathInfo) -> None:
        """Rename a payload to a path that is not a payload."""
        member = _member_at(source)
        with self._locked(member.key):
            self._run(member, self._derived.without(member), [(source.path, target.path)])

    def is_empty(self, place: PathInfo) -> bool:
        """Whether an index file has no entries."""
        assert place.location is not None
        member, key = member_of(place.location), place.location.dir.split("/")[1]
        children = self._derived.find_children(key, member.parent) if member else None
        index = children if member else self._derived.find_index(key)
        return index is not None and index.is_empty

    # -- index files after changes on disk ---------------------------------------------------------

    def sync_index(self, location: Location) -> bool:
        """Update the index files of a session, a project or all projects.

        Returns True if any was stale.
        """
        if location.dir == PROJECTS:
            return sum(self._sync_if_older(key) for key in self.all_keys()) > 0
        member = member_of(location)
        key = location.dir.split("/")[1]
        # Not `core.locked`: that recovers interrupted commits, and recovery calls this method.
        with self.core.locks.session(layout.project_location(key)):
            files = self._derived.for_member(member) if member else self._derived.for_project(key, known=True)
            self.core.journal.missed.note_observed(is_complete=self.core.history.observe_below(location.dir))
            self._write(files)
        return bool(files)

    def _sync_if_older(self, key: str) -> bool:
        if self._derived.looks_current(key):
            return False
        return self.sync_index(layout.project_location(key))

    def _write(self, files: Sequence[NewFile]) -> None:
        """Write index files without a commit: after a crash the next call writes them again."""
        files = [file for file in files if self.core.disk.stat(file.path.rpartition("/")[0]) is not None]
        for temp, file in zip(self.core.disk.write_temps(files), files, strict=True):
            self.core.disk.move(temp, file.path)
        self.core.disk.sync_dirs(file.path.rpartition("/")[0] for file in files)

    # -- commits -----------------------------------------------------------------------------------

    def _locked(self, key: str) -> AbstractContextManager[None]:
        return self.core.locked(layout.project_location(check_key(key)))

    def _put(
        self,
        member: ProjectSession,
        raw: bytes,
        request: WriteRequest,
        *,
        entry: RootEntry | ChildEntry | None = None,
        others: Sequence[NewFile] = (),
    ) -> bool:
        """Commit a payload with its index files.

        `entry` replaces the computed entry, also of a removed child. `others` are written too.
        """
        path = member.payload
        json_text.parse(raw, path, limit=self.core.limit_bytes)
        present = self.core.disk.read(path)
        is_same = present is not None and present.data == raw
        if is_same and entry is None:
            return False
        base = request.checked_base
        if base is not None and base.main != (present.stamp if present else None):
            raise stale_error(path, is_gone=present is None)
        if present is not None and request.is_outdated(present.stamp):
            raise stale_error(path)
        mtime_ns = request.mtime_ns if request.mtime_ns is not None else time.time_ns()
        files = [] if is_same else [replace(request, mtime_ns=mtime_ns).new_file(raw, present)]
        files += others
        is_back = entry is not None and self.core.disk.stat(member.removed_marker) is not None
        files += self._derived.with_payload(member, raw, mtime_ns, entry)
        moves = [(member.removed_marker, self.core.disk.temp_path())] if is_back else []
        if files or moves:
            self._run(member, files, moves)
        for _, temp in moves:
            self.core.disk.remove(temp)
        return bool(files)

    def _remove_payload(self, member: ProjectSession, *, keep: bool = True) -> None:
        derived = self._derived.without(member)
        removed = [path for path in (member.payload, member.set_entry) if self.core.disk.stat(path) is not None]
        if keep:
            part = to_trash(member.location, "payload deleted", moved=removed, numbered=True)
            self._run(member, [*part.files, *derived], part.moves)
            return
        moves = [(path, self.core.disk.temp_path()) for path in removed]
        self._run(member, derived, moves)
        for _, temp in moves:
            self.core.disk.remove(temp)

    def _run(self, what: ProjectSession | str, files: Sequence[NewFile], moves: Sequence[tuple[str, str]] = ()) -> None:
        key, touched = (what, layout.project_location(what)) if isinstance(what, str) else (what.key, what.location)
        targets = [file.path for file in files] + [target for _, target in moves]
        dirs = list(dict.fromkeys(path.rpartition("/")[0] for path in targets))
        commit = Commit(layout.project_location(key), files, moves, dirs, [touched])
        self.commits.run(commit, None, "project")


def _member_at(place: PathInfo) -> ProjectSession:
    member = member_of(place.location) if place.location is not None else None
    assert member is not None
    return check_member(member)


def _is_key(name: str) -> bool:
    return classify_path(f"{PROJECTS}/{name}").kind is PathKind.PROJECT
