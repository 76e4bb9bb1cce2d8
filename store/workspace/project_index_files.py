"""index.json and children.json of projects, computed from the payloads. Writes nothing.

Most methods return the index files that have to be written to match the payloads: none if they
match already. An unreadable payload keeps the entry it had; `check` reports it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic

from store import layout
from store.disk.disk import Disk
from store.disk.file import File, NewFile
from store.documents import json_text
from store.errors import Corrupt, InvalidContent
from store.model.record import Record
from store.workspace.project_records import (
    ChildEntry,
    ChildrenIndex,
    Extractor,
    ProjectIndex,
    ProjectSession,
    RootEntry,
    child_entry,
    newest_parent,
    normalize_entry,
    root_entry,
)

log = logging.getLogger("grovefs.store")

AnyIndex = TypeVar("AnyIndex", bound=Record)


@dataclass(frozen=True)
class ProjectIndexFiles:
    disk: Disk
    extractor: Extractor
    limit_bytes: int

    # -- reading -----------------------------------------------------------------------------------

    def find_index(self, key: str) -> ProjectIndex | None:
        """index.json, or None if it is missing or corrupt."""
        return self._find(_index_path(key), ProjectIndex)

    def find_children(self, key: str, parent: str) -> ChildrenIndex | None:
        return self._find(_children_path(key, parent), ChildrenIndex)

    def _find(self, path: str, kind: type[AnyIndex]) -> AnyIndex | None:
        try:
            file = self.disk.read(path, self.limit_bytes)
            return kind.model_validate(json_text.parse(file.data, path)) if file else None
        except (Corrupt, InvalidContent, pydantic.ValidationError) as error:
            log.info("rebuilding %s from the payloads: %s", path, error)
            return None

    def parents(self, key: str) -> list[str]:
        return self._members(layout.project_location(key).path(layout.SESSIONS))

    def children_of(self, key: str, parent: str) -> list[str]:
        return self._members(ProjectSession(key, parent).location.path(layout.CHILDREN))

    def _members(self, directory: str) -> list[str]:
        try:
            found = self.disk.directories(directory)
        except Corrupt:  # a symlink or a file
            return []
        return [name for name in found if layout.is_session_id(name) and not name.startswith(".")]

    # -- entries -----------------------------------------------------------------------------------

    def matches_entry(self, member: ProjectSession, file: File, entry: RootEntry | ChildEntry) -> bool:
        """Whether the entry computed from a payload equals `entry`."""
        found = self._entry(member, json_text.parse(file.data, member.payload), file.stamp.mtime_ns, None)
        return found == normalize_entry(entry)

    def _entry(
        self, member: ProjectSession, payload: Mapping[str, Any], mtime_ns: int, known: RootEntry | ChildEntry | None
    ) -> RootEntry | ChildEntry:
        if member.child is None:
            fields = self.extractor.root(member.parent, payload)
            return root_entry(member.parent, fields, mtime_ns, known if isinstance(known, RootEntry) else None)
        child = self.extractor.child(member.child, payload)
        return child_entry(member.child, child, mtime_ns, known if isinstance(known, ChildEntry) else None)

    def _entry_on_disk(
        self, member: ProjectSession, known: RootEntry | ChildEntry | None
    ) -> RootEntry | ChildEntry | None:
        """The entry that a session on disk should have now; None if it should have none."""
        if member.child is not None and self.disk.stat(member.removed_marker) is not None:
            return None
        try:
            file = self.disk.read(member.payload, self.limit_bytes)
            payload = json_text.parse(file.data, member.payload) if file else None
        except (Corrupt, InvalidContent, PermissionError) as error:
            log.info("keeping the index entry of an unreadable payload: %s", error)
            return known
        if file is None or payload is None:
            return None
        return self._find_set_entry(member, file.data) or self._entry(member, payload, file.stamp.mtime_ns, known)

    def render_set_entry(self, entry: RootEntry | ChildEntry, payload: bytes) -> bytes:
        """The text of `.entry.json`: the entry, and the payload for which it was set."""
        digest = hashlib.sha256(payload).hexdigest()
        return json_text.render({"payload_sha256": digest, "entry": normalize_entry(entry).model_dump()})

    def _find_set_entry(self, member: ProjectSession, payload: bytes) -> RootEntry | ChildEntry | None:
        """The entry that an upsert set for this very payload; None if there is none."""
        try:
            file = self.disk.read(member.set_entry, self.limit_bytes)
            found = json_text.parse(file.data, member.set_entry) if file else {}
            if found.get("payload_sha256") != hashlib.sha256(payload).hexdigest():
                return None
            kind = RootEntry if member.child is None else ChildEntry
            return kind.model_validate(found["entry"])
        except (Corrupt, InvalidContent, KeyError, pydantic.ValidationError) as error:
            log.info("ignoring %s: %s", member.set_entry, error)
            return None

    # -- index files after a change of one session -------------------------------------------------

    def with_payload(
        self, member: ProjectSession, raw: bytes, mtime_ns: int, entry: RootEntry | ChildEntry | None = None
    ) -> list[NewFile]:
        """Index files after `raw` is written; `entry` replaces the one computed from it."""
        is_removed = member.child is not None and self.disk.stat(member.removed_marker) is not None
        if is_removed and entry is None:
            return []
        payload = json_text.parse(raw, member.payload)

        def new_entry(known: RootEntry | ChildEntry | None) -> RootEntry | ChildEntry:
            wanted = normalize_entry(entry) if entry is not None else self._find_set_entry(member, raw)
            return wanted or self._entry(member, payload, mtime_ns, known)

        if member.child is None:
            index = self._index_or_scan(member.key)
            return self._put_root(member, index, new_entry(index.find(member.parent)))
        children = self._children_or_scan(member)
        return self._put_child(member, children, new_entry(children.find(member.child)))

    def without(self, member: ProjectSession) -> list[NewFile]:
        """Index files after a payload is deleted, or a child is removed from the indices."""
        if member.child is None:
            return self._put_root(member, self._index_or_scan(member.key), None)
        return self._put_child(member, self._children_or_scan(member), None)

    def for_member(self, member: ProjectSession) -> list[NewFile]:
        """Index files that match a session as it is on disk."""
        if self.disk.stat(member.location.dir) is None:
            return self.for_project(member.key, known=True)
        if member.child is None:
            index = self._index_or_scan(member.key)
            return self._put_root(member, index, self._entry_on_disk(member, index.find(member.parent)))
        children = self._children_or_scan(member)
        return self._put_child(member, children, self._entry_on_disk(member, children.find(member.child)))

    def _put_root(
        self, member: ProjectSession, index: ProjectIndex, entry: RootEntry | ChildEntry | None
    ) -> list[NewFile]:
        assert entry is None or isinstance(entry, RootEntry)
        index.put(member.parent, entry)
        return self._if_changed(_index_path(member.key), index)

    def _put_child(
        self, member: ProjectSession, children: ChildrenIndex, entry: RootEntry | ChildEntry | None
    ) -> list[NewFile]:
        assert member.child is not None
        assert entry is None or isinstance(entry, ChildEntry)
        children.put(member.child, entry)
        index = self._index_or_scan(member.key)
        if entry is not None:
            index.child_lookup[member.child] = member.parent
        elif index.child_lookup.get(member.child) in (member.parent, None):
            self._find_other_parent(member, index)
        files = self._if_changed(_children_path(member.key, member.parent), children)
        return [*files, *self._if_changed(_index_path(member.key), index)]

    def _find_other_parent(self, member: ProjectSession, index: ProjectIndex) -> None:
        """Let the index point to another parent that has a child with the same id, if any."""
        assert member.child is not None
        others = [ProjectSession(member.key, p, member.child) for p in self.parents(member.key) if p != member.parent]
        found = [(other.parent, self._entry_on_disk(other, None)) for other in others]
        parent = newest_parent((parent, entry) for parent, entry in found if isinstance(entry, ChildEntry))
        index.child_lookup.pop(member.child, None)
        if parent is not None:
            index.child_lookup[member.child] = parent

    def _index_or_scan(self, key: str) -> ProjectIndex:
        return self.find_index(key) or self.scan(key)

    def _children_or_scan(self, member: ProjectSession) -> ChildrenIndex:
        found = self.find_children(member.key, member.parent)
        return found or self.scan_children(member.key, member.parent)

    # -- index files of a whole project ------------------------------------------------------------

    def for_project(self, key: str, *, known: bool) -> list[NewFile]:
        """All index files of a project.

        With `known`, fields missing in a payload keep their indexed value.
        """
        lists = {parent: self.scan_children(key, parent, known=known) for parent in self.parents(key)}
        index = self._scan_roots(key, lists, known=known)
        files: list[NewFile] = []
        for parent, found in lists.items():
            files += self._if_changed(_children_path(key, parent), found, write_empty=not known)
        return [*files, *self._if_changed(_index_path(key), index, write_empty=not known)]

    def scan(self, key: str) -> ProjectIndex:
        """index.json computed from the payloads."""
        return self._scan_roots(key, {parent: self.scan_children(key, parent) for parent in self.parents(key)})

    def scan_children(self, key: str, parent: str, *, known: bool = True) -> ChildrenIndex:
        """children.json computed from the payloads."""
        present = (self.find_children(key, parent) if known else None) or ChildrenIndex()
        children = present.model_copy(update={"children": []})
        for child in self.children_of(key, parent):
            entry = self._entry_on_disk(ProjectSession(key, parent, child), present.find(child))
            if isinstance(entry, ChildEntry):
                children.children.append(entry)
        return children

    def _scan_roots(self, key: str, lists: Mapping[str, ChildrenIndex], *, known: bool = True) -> ProjectIndex:
        present = (self.find_index(key) if known else None) or ProjectIndex()
        index = present.model_copy(update={"roots": [], "child_lookup": {}})
        parents_of: dict[str, list[tuple[str, ChildEntry]]] = {}
        for parent, children in lists.items():
            entry = self._entry_on_disk(ProjectSession(key, parent), present.find(parent))
            if isinstance(entry, RootEntry):
                index.roots.append(entry)
            for child in children.children:
                parents_of.setdefault(child.child_id, []).append((parent, child))
        for child_id, parents in sorted(parents_of.items()):
            before = present.child_lookup.get(child_id)
            is_still = before is not None and before in [parent for parent, _ in parents]
            index.child_lookup[child_id] = before if is_still and before else newest_parent(parents) or ""
        return index

    def _if_changed(
        self, path: str, index: ProjectIndex | ChildrenIndex, *, write_empty: bool = False
    ) -> list[NewFile]:
        """The file, unless it has this content already, or is missing and would be empty."""
        present = self.disk.stat_file(path)
        found: ProjectIndex | ChildrenIndex | None = self._find(path, type(index))
        if found is not None and found.dump() == index.dump():
            return []
        if present is None and index.is_empty and not write_empty:
            return []
        return [NewFile(path, [json_text.render(index.dump())], self._with_bytes(path, present))]

    def _with_bytes(self, path: str, present: File | None) -> File | None:
        """Read the present version: a commit that fails restores its bytes."""
        return self.disk.read(path) if present is not None else None

    # -- comparison by time ------------------------------------------------------------------------

    def looks_current(self, key: str) -> bool:
        """Whether no payload is newer than its index, by ctime. A sweep then reads none."""
        return not any(self._newer_than_index(key))

    def _newer_than_index(self, key: str) -> Iterator[bool]:
        parents = self.parents(key)
        index_ns = self._changed_ns(_index_path(key))
        if parents:
            yield self._directory_ns(layout.project_location(key).path(layout.SESSIONS)) > index_ns
        for parent in parents:
            yield self._changed_ns(ProjectSession(key, parent).payload) > index_ns
            children_ns = self._changed_ns(_children_path(key, parent))
            children = self.children_of(key, parent)
            if children:
                yield self._directory_ns(ProjectSession(key, parent).location.path(layout.CHILDREN)) > children_ns
            for child in children:
                member = ProjectSession(key, parent, child)
                yield max(self._changed_ns(member.payload), self._directory_ns(member.location.dir)) > children_ns

    def _changed_ns(self, path: str) -> int:
        stamp = self.disk.stamp(path)
        return stamp.ctime_ns if stamp is not None else -1

    def _directory_ns(self, path: str) -> int:
        stamp = self.disk.stamp(path)
        return stamp.mtime_ns if stamp is not None else -1


def _index_path(key: str) -> str:
    return layout.project_location(key).path(layout.PROJECT_INDEX)


def _children_path(key: str, parent: str) -> str:
    return ProjectSession(key, parent).location.path(layout.CHILDREN_INDEX)
