"""Fork a session: copy it with all its files to another id.

This is `cp -r` through the mount in one commit. The ids in the copied documents, and their
references to attachments, match the new path; every other byte is unchanged (rule 5). The copy is
made under tmp/ and renamed into place: readers and crashes see all of it or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import apsw

from store import layout
from store.commit.core import Core
from store.commit.journal import Commit
from store.disk.file import NewFile
from store.documents import secrets
from store.documents.document import fork_document, parse_document
from store.errors import AlreadyExists, NotEmpty, NotFound
from store.layout import Location
from store.sessions.rename import RenameOperation

# The import receipt and Bamboo's own files describe the original, not the copy.
_NOT_COPIED = (layout.RECEIPT, *layout.BAMBOO_FILES)


def _is_children_of_child(path: str) -> bool:
    place = layout.locate_path(path)
    return place is not None and place[0].child is not None and place[1] == layout.CHILDREN


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
                created = [target, *self._children(source, target)]
                dirs = list(self._copy_dir(source.dir, draft, target.dir))
                self.core.disk.sync_dirs(dirs)
                self._run(draft, target, created)
            except BaseException:
                # Report the original error. The next open removes what stays in tmp/.
                with suppress(OSError):
                    self.core.disk.drop_temp(draft)
                raise
        return created

    def _check_allowed(self, source: Location, target: Location) -> None:
        if self.core.disk.stat(source.path(layout.SESSION)) is None:
            raise NotFound(f"there is no session {source}")
        if self.core.disk.entries(target.dir):
            raise AlreadyExists(f"{target.dir} exists and is not empty; nothing was forked")
        if source.child is None and target.child is not None and self._children(source, target):
            raise NotEmpty(f"{source} has children, so its fork cannot be a child; fork it to a root id")
        if target.child is not None and self.core.disk.stat(Location(target.root).path(layout.SESSION)) is None:
            raise NotFound(f"there is no session {target.root!r} to be the parent")

    def _children(self, source: Location, target: Location) -> list[Location]:
        if source.child is not None:
            return []
        return layout.children_among(target.root, self.core.disk.directories(source.path(layout.CHILDREN)))

    # -- copying -----------------------------------------------------------------------------------

    def _copy_dir(self, source: str, draft: str, target: str) -> Iterator[str]:
        """Copy a directory to `draft`, to be renamed to `target`.

        Yields every directory created.
        """
        self.core.disk.make_dirs(draft)
        yield draft
        for entry in self.core.disk.entries(source):
            here, there, name = f"{source}/{entry.name}", f"{draft}/{entry.name}", f"{target}/{entry.name}"
            if entry.name in _NOT_COPIED or layout.is_leftover(entry.name):
                continue
            if entry.is_dir and _is_children_of_child(name) and not self.core.disk.entries(here):
                continue  # the empty children/ of a root; a child has none
            if entry.is_dir:
                yield from self._copy_dir(here, there, name)
            elif entry.is_symlink:  # a foreign file; its target is kept
                self._copy_link(source, draft, entry.name)
            elif entry.is_file:
                self._copy_file(here, there, name)

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
        raw = fork_document(document, location)
        return parse_document(raw, location.path(name), limit=self.core.limit_bytes).raw

    def _run(self, draft: str, target: Location, created: list[Location]) -> None:
        def finish(db: apsw.Connection) -> None:
            for location in created:
                self.core.reread(location, "saved")

        self.core.disk.remove_dirs([target.dir])  # may exist and be empty
        parent = target.dir.rpartition("/")[0]
        commit = Commit(target, [], [(draft, target.dir)], dirs=[parent], touched=created, whole_tree=True)
        self.core.journal.run(commit, finish)
        self.core.on_commit()
