"""index.json and children.json of projects: read, and worked out from the payloads. Writes nothing.

Each question is answered by the files that have to be written for the indices to be in step: none, if they are.
What cannot be read among the payloads keeps the entry it had; `check` tells of it.
"""

from __future__ import annotations

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
    normal,
    root_entry,
)

log = logging.getLogger("grovefs.store")

AnyIndex = TypeVar("AnyIndex", bound=Record)


@dataclass(frozen=True)
class ProjectIndexFiles:
    disk: Disk
    extractor: Extractor
    limit_bytes: int

    # -- reading -------------------------------------------------------------------------------------------

    def find_index(self, key: str) -> ProjectIndex | None:
        """index.json; None if it is missing or broken."""
        return self._find(_index_path(key), ProjectIndex)

    def find_children(self, key: str, parent: str) -> ChildrenIndex | None:
        return self._find(_children_path(key, parent), ChildrenIndex)

    def _find(self, path: str, kind: type[AnyIndex]) -> AnyIndex | None:
        try:
            file = self.disk.read(path, self.limit_bytes)
            return kind.model_validate(json_text.parse(file.data, path)) if file else None
        except (Corrupt, InvalidContent, pydantic.ValidationError) as error:
            log.info("made anew from the payloads: %s: %s", path, error)
            return None

    def parents(self, key: str) -> list[str]:
        return self._members(layout.project_location(key).path(layout.SESSIONS))

    def children_of(self, key: str, parent: str) -> list[str]:
        return self._members(ProjectSession(key, parent).location.path(layout.CHILDREN))

    def _members(self, directory: str) -> list[str]:
        try:
            found = self.disk.directories(directory)
        except Corrupt:  # a link or a file of that name leads to no sessions
            return []
        return [name for name in found if layout.is_session_id(name) and not name.startswith(".")]

    # -- entries -------------------------------------------------------------------------------------------

    def says(self, member: ProjectSession, file: File, entry: RootEntry | ChildEntry) -> bool:
        """Whether a payload already says what an entry says."""
        found = self._entry(member, json_text.parse(file.data, member.payload), file.stamp.mtime_ns, None)
        return found == normal(entry)

    def _entry(
        self, member: ProjectSession, payload: Mapping[str, Any], mtime_ns: int, known: RootEntry | ChildEntry | None
    ) -> RootEntry | ChildEntry:
        if member.child is None:
            said = self.extractor.root(member.parent, payload)
            return root_entry(member.parent, said, mtime_ns, known if isinstance(known, RootEntry) else None)
        child = self.extractor.child(member.child, payload)
        return child_entry(member.child, child, mtime_ns, known if isinstance(known, ChildEntry) else None)

    def _entry_on_disk(
        self, member: ProjectSession, known: RootEntry | ChildEntry | None
    ) -> RootEntry | ChildEntry | None:
        """What the indices should say of a session now; None for nothing."""
        if member.child is not None and self.disk.stat(member.mark) is not None:
            return None
        try:
            file = self.disk.read(member.payload, self.limit_bytes)
            payload = json_text.parse(file.data, member.payload) if file else None
        except (Corrupt, InvalidContent, PermissionError) as error:
            log.info("its entry stays as it is: %s", error)
            return known
        if file is None or payload is None:
            return None
        return self._entry(member, payload, file.stamp.mtime_ns, known)

    # -- what follows from one session ---------------------------------------------------------------------

    def with_payload(
        self, member: ProjectSession, raw: bytes, mtime_ns: int, entry: RootEntry | ChildEntry | None = None
    ) -> list[NewFile]:
        """What follows from a payload about to be written; an `entry` is said instead of what it says."""
        is_removed = member.child is not None and self.disk.stat(member.mark) is not None
        if is_removed and entry is None:
            return []
        payload = json_text.parse(raw, member.payload)

        def said(known: RootEntry | ChildEntry | None) -> RootEntry | ChildEntry:
            return normal(entry) if entry is not None else self._entry(member, payload, mtime_ns, known)

        if member.child is None:
            index = self._index_or_scan(member.key)
            return self._put_root(member, index, said(index.find(member.parent)))
        children = self._children_or_scan(member)
        return self._put_child(member, children, said(children.find(member.child)))

    def without(self, member: ProjectSession) -> list[NewFile]:
        """What follows from a payload about to go, or from the removal of a child."""
        if member.child is None:
            return self._put_root(member, self._index_or_scan(member.key), None)
        return self._put_child(member, self._children_or_scan(member), None)

    def of_member(self, member: ProjectSession) -> list[NewFile]:
        """What follows from a session as it lies on disk."""
        if self.disk.stat(member.location.dir) is None:
            return self.all_anew(member.key, known=True)
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
        return self._changed(_index_path(member.key), index)

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
            self._look_elsewhere(member, index)
        files = self._changed(_children_path(member.key, member.parent), children)
        return [*files, *self._changed(_index_path(member.key), index)]

    def _look_elsewhere(self, member: ProjectSession, index: ProjectIndex) -> None:
        """Another parent may have a child of the same id."""
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

    # -- all anew ------------------------------------------------------------------------------------------

    def all_anew(self, key: str, *, known: bool) -> list[NewFile]:
        """Both indices of a whole project; with `known`, what payloads do not say stays as the indices have it."""
        lists = {parent: self.scan_children(key, parent, known=known) for parent in self.parents(key)}
        index = self._scan_roots(key, lists, known=known)
        files: list[NewFile] = []
        for parent, found in lists.items():
            files += self._changed(_children_path(key, parent), found, also_hollow=not known)
        return [*files, *self._changed(_index_path(key), index, also_hollow=not known)]

    def scan(self, key: str) -> ProjectIndex:
        """index.json as it should be."""
        return self._scan_roots(key, {parent: self.scan_children(key, parent) for parent in self.parents(key)})

    def scan_children(self, key: str, parent: str, *, known: bool = True) -> ChildrenIndex:
        """children.json as it should be."""
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
        homes: dict[str, list[tuple[str, ChildEntry]]] = {}
        for parent, children in lists.items():
            entry = self._entry_on_disk(ProjectSession(key, parent), present.find(parent))
            if isinstance(entry, RootEntry):
                index.roots.append(entry)
            for child in children.children:
                homes.setdefault(child.child_id, []).append((parent, child))
        for child_id, parents in sorted(homes.items()):
            before = present.child_lookup.get(child_id)
            is_still = before is not None and before in [parent for parent, _ in parents]
            index.child_lookup[child_id] = before if is_still and before else newest_parent(parents) or ""
        return index

    def _changed(self, path: str, index: ProjectIndex | ChildrenIndex, *, also_hollow: bool = False) -> list[NewFile]:
        """The file, if it is to be written: not where it says the same already, nor where nothing is to be said."""
        present = self.disk.stat_file(path)
        found: ProjectIndex | ChildrenIndex | None = self._find(path, type(index))
        if found is not None and found.dump() == index.dump():
            return []
        if present is None and index.is_hollow and not also_hollow:
            return []
        return [NewFile(path, [json_text.render(index.dump())], self._whole(path, present))]

    def _whole(self, path: str, present: File | None) -> File | None:
        """With its bytes, so that a commit that fails can put them back."""
        return self.disk.read(path) if present is not None else None

    # -- a quick look --------------------------------------------------------------------------------------

    def looks_current(self, key: str) -> bool:
        """Whether no payload is younger than the index that tells of it: what a sweep asks before it reads any."""
        return not any(self._younger(key))

    def _younger(self, key: str) -> Iterator[bool]:
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
