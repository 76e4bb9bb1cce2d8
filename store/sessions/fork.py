"""Fork a session: copy it with all its files to another id.

This is `cp -r` through the mount in one commit, except that copied children get new ids: Bamboo
finds a session by its id alone. The ids in the copied documents, and references to sessions that are
copied too, are updated; every other byte is unchanged (rule 5). The copy is made under tmp/ and
renamed into place: readers and crashes see all of it or nothing.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from store import layout
from store.commit.commit import Commit, IndexRefresh
from store.commit.core import Core
from store.disk.file import DirEntry, NewFile
from store.documents import secrets
from store.documents.document import fork_document, parse_document
from store.errors import AlreadyExists, LocalOnly, NotEmpty, NotFound
from store.layout import Location
from store.sessions.rename import RenameOperation

# The import receipt and Bamboo's own files describe the original, not the copy.
_NOT_COPIED = (layout.RECEIPT, *layout.BAMBOO_FILES)

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_children_of_child(path: str) -> bool:
    place = layout.locate_path(path)
    return place is not None and place[0].child is not None and place[1] == layout.CHILDREN


def _is_children_of_root(path: str) -> bool:
    place = layout.locate_path(path)
    return place is not None and place[0].child is None and place[1] == layout.CHILDREN


@dataclass(frozen=True)
class ForkOperation:
    core: Core
    renamer: RenameOperation

    def fork(self, source: Location, target: Location) -> list[Location]:
        """Copy a session to an unused id and return the new sessions.

        A root is copied with its children. A child is copied alone: its descendants are its
        siblings on disk.
        """
        self.core.check_writable()
        layout.check_new(target)
        with self.renamer.lock_both_trees(source, target):
            self._check_allowed(source, target)
            draft = self.core.disk.temp_path()
            try:
                new_ids = self._new_ids(source, target)
                created = [target, *(Location(target.root, new_ids[child.id]) for child in self._children(source))]
                dirs = list(_Copy(self.core, new_ids).copy(source.dir, draft, target.dir))
                self.core.disk.sync_dirs(dirs)
                self._run(draft, target, created, self._notes(source, created))
            except BaseException:
                # Report the original error. The next open removes what stays in tmp/.
                with suppress(OSError):
                    self.core.disk.drop_temp(draft)
                raise
        return created

    def _check_allowed(self, source: Location, target: Location) -> None:
        if self.core.agreement.is_joined:
            raise LocalOnly(f"{source} cannot be forked: a grove cannot do that yet; nothing was changed")
        if self.core.disk.stat(source.path(layout.SESSION)) is None:
            raise NotFound(f"there is no session {source}")
        if self.core.disk.entries(target.dir):
            raise AlreadyExists(f"{target.dir} exists and is not empty; nothing was forked")
        if target.child is not None and self._children(source):
            raise NotEmpty(f"{source} has children, so its fork cannot be a child; fork it to a root id")
        if target.child is not None and self.core.disk.stat(Location(target.root).path(layout.SESSION)) is None:
            raise NotFound(f"there is no session {target.root!r} to be the parent")

    def _children(self, source: Location) -> list[Location]:
        if source.child is not None:
            return []
        return layout.children_among(source.root, self.core.disk.directories(source.path(layout.CHILDREN)))

    def _new_ids(self, source: Location, target: Location) -> dict[str, str]:
        """The new id of each session to copy, by its old id."""
        found = {source.id: target.id}
        for child in self._children(source):
            found[child.id] = next(i for i in _candidates(child.id) if self._is_unused(i) and i not in found.values())
        return found

    def _is_unused(self, session_id: str) -> bool:
        return len(session_id.encode()) <= layout.MAX_NAME_BYTES and not self.core.index.locate(session_id)

    def _notes(self, source: Location, created: list[Location]) -> dict[str, str]:
        """By directory: the version each new session is a copy of."""
        originals = [source, *self._children(source)]
        return {
            location.dir: self.core.history.fork_note(original)
            for location, original in zip(created, originals, strict=True)
        }

    def _run(self, draft: str, target: Location, created: list[Location], notes: dict[str, str]) -> None:
        self.core.disk.remove_dirs([target.dir])  # may exist and be empty
        parent = target.dir.rpartition("/")[0]
        moves = [(draft, target.dir)]
        commit = Commit(target, [], moves, dirs=[parent], touched=created, whole_tree=True, label="forked", notes=notes)
        self.core.journal.run(commit, IndexRefresh(created, "saved"))
        self.core.on_commit()


def _candidates(session_id: str) -> Iterator[str]:
    """New ids for the copy of a child: `a-2`, `a-3` … for `a`; a new UUID for a UUID."""
    if not _UUID.fullmatch(session_id):
        yield from (f"{session_id}-{number}" for number in range(2, 1000))
    while True:
        yield str(uuid.uuid4())


@dataclass(frozen=True)
class _Copy:
    """The copying of files, with documents changed to their new ids."""

    core: Core
    new_ids: Mapping[str, str]

    def copy(self, source: str, draft: str, target: str) -> Iterator[str]:
        """Copy a directory to `draft`, to be renamed to `target`.

        Yields every directory created.
        """
        self.core.disk.make_dirs(draft)
        yield draft
        for entry in self.core.disk.entries(source):
            new_name = self._new_name(target, entry)
            here, there, name = f"{source}/{entry.name}", f"{draft}/{new_name}", f"{target}/{new_name}"
            if entry.name in _NOT_COPIED or layout.is_leftover(entry.name):
                continue
            if entry.is_dir and _is_children_of_child(name) and not self.core.disk.entries(here):
                continue  # the empty children/ of a root; a child has none
            if entry.is_dir:
                yield from self.copy(here, there, name)
            elif entry.is_symlink:  # a foreign file; its target is kept
                self._copy_link(source, draft, entry.name)
            elif entry.is_file:
                self._copy_file(here, there, name)

    def _new_name(self, target: str, entry: DirEntry) -> str:
        """The name of the copy: a child's directory is named after its new id."""
        is_child = entry.is_dir and layout.is_session_dir(entry.name) and _is_children_of_root(target)
        return self.new_ids.get(entry.name, entry.name) if is_child else entry.name

    def _copy_file(self, source: str, draft: str, target: str) -> None:
        place = layout.locate_path(target)
        like = self.core.disk.stat_file(source)
        if place is not None and place[1] in layout.DOCUMENTS:
            parts: Iterator[bytes] = iter([self._forked_document(source, *place)])
        else:
            parts = self.core.disk.iter_chunks(source)
        temp = self.core.disk.write_temps([NewFile("", parts, like)])[0]
        try:
            self.core.disk.move(temp, draft)
        except BaseException:
            with suppress(OSError):
                self.core.disk.drop_temp(temp)
            raise

    def _copy_link(self, source: str, draft: str, name: str) -> None:
        with self.core.disk.open_dir(source) as here, self.core.disk.open_dir(draft) as there:
            os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)

    def _forked_document(self, source: str, location: Location, name: str) -> bytes:
        file = self.core.disk.read(source, self.core.limit_bytes)
        document = parse_document(file.data if file else b"", source)
        secrets.reject_api_keys(document.raw, document.data, source)
        raw = fork_document(document, location, self.new_ids)
        return parse_document(raw, location.path(name), limit=self.core.limit_bytes).raw
