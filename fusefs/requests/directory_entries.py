"""Names that come, go and move: mkdir, rmdir, unlink, rename, symlink.

The caller holds the directory's lock until we answer, so nothing is told to the kernel here: it moves and drops
its entries itself, and what it cannot know is announced after the answer.
"""

from __future__ import annotations

import os
from functools import partial

from fusefs.requests.files import Files, require_writable
from fusefs.requests.kernel_cache import invalidate_later
from fusefs.tree.nodes import Invalidation, Node
from store import layout
from store.commit.write_request import OnConflict
from store.disk.file import Stamp
from store.errors import AlreadyExists, Busy, Generated, NotFound
from store.namespace.moves import RenameRequest
from store.path_kinds import CHECKED, PathInfo, PathKind, classify_path


class DirectoryEntries:
    def __init__(self, files: Files, *, overwrite: bool, read_only: bool) -> None:
        self.files = files
        self.tree = files.tree
        self.names = files.names
        self.writers = files.writers
        self.threads = files.threads
        self.handles = files.handles
        self.moves = files.tree.store.moves
        self._on_conflict: OnConflict = "overwrite" if overwrite else "reject"
        self._read_only = read_only

    def changing(self, parent_inode: int, name: bytes) -> tuple[Node, str]:
        """The directory in which a name is to change, if that may be."""
        parent = self.tree.nodes.get(parent_inode)
        require_writable(parent, read_only=self._read_only)
        return parent, os.fsdecode(name)

    async def make_dir(self, parent: Node, name: str) -> Node:
        place = classify_path(parent.path_of(name))
        await self.threads.run(lambda: self.names.make_dir(place), place.location)
        self.writers.directory_created(place.path)
        parent.invalidate_listing()
        return self.tree.lookup(parent, name)

    async def remove_dir(self, parent: Node, name: str) -> None:
        place = classify_path(parent.path_of(name))
        hidden = [n for n in self.writers.hidden_in(place.path) if self._is_hidden_version(parent, name, n)]
        await self.threads.run(lambda: self.names.remove_dir(place, hidden), place.location)
        for hidden_name in hidden:
            self.writers.show(f"{place.path}/{hidden_name}")
        self.names.rejects.clear_all(place.path)
        self._detach(parent, name)

    def _is_hidden_version(self, parent: Node, directory: str, name: str) -> bool:
        """Whether it is still the version that was taken away; one that came since goes with nobody, and is shown."""
        path = f"{parent.path_of(directory)}/{name}"
        limbo, info = self.writers.hidden(path), self.names.stat(path)
        if limbo is None or info is None or Stamp.of(info) == limbo.stamp:
            return True
        self.writers.show(path)
        if directory in parent.children:
            parent.children[directory].invalidate_listing()
        return False

    async def unlink(self, parent: Node, name: str) -> None:
        place = classify_path(parent.path_of(name))
        if self._is_reject(parent, name):
            self.names.rejects.remove(parent.path, name)
        elif place.can_be_hidden:
            self.names.check_may_write(place)  # else it would come back after limbo
            self.names.require_unpinned(place)
            info = self.names.stat(place.path)
            if info is not None:
                self.writers.hide(place, info, was_deleted=True)
        elif place.kind is PathKind.ATTACHMENT and self.writers.pending(place.path) is not None:
            self.files.detach_writers(place.path)
        else:
            await self.threads.run(lambda: self.names.remove_file(place), place.location)
            if place.kind is PathKind.ATTACHMENT:
                self.files.detach_writers(place.path)
            if place.kind in CHECKED:
                self.writers.note_deleted(place.path)
        self._detach(parent, name)

    def _is_reject(self, parent: Node, name: str) -> bool:
        if self.names.stat(parent.path_of(name)) is not None:
            return False
        return self.names.rejects.path(parent.path, name) is not None

    def _detach(self, parent: Node, name: str) -> None:
        parent.invalidate_listing()
        node = parent.children.get(name)
        if node is not None:
            self.tree.nodes.detach(node)

    def symlink(self, parent: Node, name: str, target: str) -> Node:
        self.names.symlink(classify_path(parent.path_of(name)), target)
        parent.invalidate_listing()
        return self.tree.lookup(parent, name)

    # -- rename ------------------------------------------------------------------------------------------

    async def rename(self, old: tuple[Node, str], new: tuple[Node, str], *, replace: bool) -> None:
        (old_parent, old_name), (new_parent, new_name) = old, new
        source, target = classify_path(old_parent.path_of(old_name)), classify_path(new_parent.path_of(new_name))
        node = old_parent.children.get(old_name)
        newborn = self.writers.pending(source.path)
        if newborn is not None and target.kind is not PathKind.ATTACHMENT:
            raise Busy(f"{source.path} is still being written; close it first")
        if newborn is not None:
            await self.files.settle(newborn)
        is_as_brought = await self.threads.run(
            partial(self._rename_on_disk, source, target, node, replace=replace), target.location or source.location
        )
        if source.kind is target.kind is PathKind.ATTACHMENT:
            self.files.detach_writers(target.path)
            self.files.retarget_writers(source.path, new_parent, new_name)
        old_parent.invalidate_listing()
        new_parent.invalidate_listing()
        self.writers.directory_created(target.path)
        self.writers.rename(source.path, target.path, self.names.stat)
        if node is not None:
            self._renamed(node, new_parent, new_name, target, is_as_brought=is_as_brought)
        invalidate_later(self._sidecar_invalidations(new_parent, new_name, target))

    def _rename_on_disk(self, source: PathInfo, target: PathInfo, node: Node | None, *, replace: bool) -> bool:
        """Rename in a worker thread. Returns whether the target has exactly the bytes of the source."""
        is_there = self.names.stat(target.path) is not None and self.writers.hidden(target.path) is None
        if not replace and is_there:
            raise AlreadyExists(f"{target.path} exists")
        if source.kind in CHECKED and self.writers.hidden(source.path) is not None:
            raise NotFound(f"{source.path} does not exist")
        if target.kind in CHECKED:
            return self._rename_onto_document(source, target, node)
        if source.kind is PathKind.DOCUMENT:
            self._hide_or_remove(source, self.moves.copy_away(source, target))
        else:
            self.moves.move(source, target, replace=replace)
        return True

    def _rename_onto_document(self, source: PathInfo, target: PathInfo, node: Node | None) -> bool:
        hidden, info = self.writers.hidden(target.path), self.names.stat(source.path)
        request = RenameRequest(
            source,
            target,
            self._on_conflict,
            seen_at_create=node.seen_at_create if node is not None else {},
            created_ns=node.created_ns if node is not None else None,
            removed=hidden.stamp if hidden is not None else None,
            unlinked_first=self.writers.was_deleted(target.path),
            has_set_times=node is not None and node.has_set_times,
        )
        try:
            is_as_brought = self.moves.onto_document(request)
        finally:
            self.writers.show(target.path)
        if source.can_be_hidden and info is not None:
            self.writers.hide(source, info, was_deleted=False)
        else:
            self.names.remove_moved(source)
        return is_as_brought

    def _hide_or_remove(self, source: PathInfo, info: os.stat_result) -> None:
        """A session.json that is renamed away stays on disk and is hidden for a while; a sidecar goes at once."""
        if source.can_be_hidden:
            self.writers.hide(source, info, was_deleted=False)
        else:
            self.names.remove_file(source)

    def _renamed(self, node: Node, parent: Node, name: str, target: PathInfo, *, is_as_brought: bool) -> None:
        self.tree.nodes.rename(node, parent, name)
        if target.kind in CHECKED and (not is_as_brought or self.handles.find_file(node) is not None):
            # The document is other bytes than the kernel has of this node, or soon may be: it is to look again. Until
            # it does, the node stands for the file that was brought, and who opens it is told so.
            self.tree.nodes.detach(node)
            invalidate_later([Invalidation(parent.inode, os.fsencode(name))])
            return
        node.set_stat(self.names.stat(target.path) or node.info)
        node.has_old_pages = target.kind in CHECKED
        if target.kind in (PathKind.SESSION, PathKind.PROJECT_SESSION):
            invalidate_later(self.tree.recheck_below(node))

    def _sidecar_invalidations(self, directory: Node, name: str, target: PathInfo) -> list[Invalidation]:
        """A commit by rename writes the sidecar too."""
        if target.kind is not PathKind.DOCUMENT:
            return []
        others = [n for n in layout.DOCUMENTS if n != name and n in directory.children]
        return [notice for n in others for notice in self.tree.recheck(directory, n)]

    async def exchange(self, one: tuple[Node, str], other: tuple[Node, str]) -> None:
        """Both names at once; the kernel swaps its entries, and is to look at both anew."""
        (a, a_name), (b, b_name) = one, other
        first, second = classify_path(a.path_of(a_name)), classify_path(b.path_of(b_name))
        if any(self.writers.hidden(place.path) is not None for place in (first, second)):
            raise NotFound(f"{first.path} or {second.path} does not exist")
        exchange = partial(self.moves.exchange, first, second, self._on_conflict)
        await self.threads.run(exchange, second.location or first.location)
        for parent, name in (one, other):
            self._detach(parent, name)
        invalidate_later([Invalidation(a.inode, os.fsencode(a_name)), Invalidation(b.inode, os.fsencode(b_name))])

    async def move_item(self, old: tuple[Node, str], new: tuple[Node, str]) -> None:
        """`mv` within a view."""
        if self._read_only:
            raise Generated("the mount is read-only")
        await self.threads.run(lambda: self.tree.move_item(*old, *new))
        for parent, name in (old, new):
            self._detach(parent, name)
        invalidate_later([Invalidation(parent.inode, os.fsencode(name)) for parent, name in (old, new)])
