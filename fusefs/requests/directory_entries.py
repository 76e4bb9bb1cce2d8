"""Changes to directory entries: mkdir, rmdir, unlink, rename, symlink.

The kernel holds the directory's lock until we answer, so an invalidation from here would
deadlock. The kernel updates its own entries; other invalidations are sent after the answer.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import NamedTuple

from fusefs.requests.files import Files, require_writable
from fusefs.requests.kernel_cache import invalidate_later
from fusefs.tree.nodes import Invalidation, Node
from fusefs.tree.processes import Process
from store import SidecarConflict, layout
from store.commit.write_request import CommitResult, Writer
from store.disk.file import Stamp, is_same_content
from store.disk.rejects import is_reject
from store.errors import AlreadyExists, Busy, Generated, NotFound
from store.namespace.moves import RenameRequest
from store.path_kinds import CHECKED, MAY_BE_EMPTY, VERSIONED, PathInfo, PathKind, classify_path


class _Renaming(NamedTuple):
    """One rename, as a worker thread carries it out."""

    source: PathInfo
    target: PathInfo
    node: Node | None  # of the source
    caller: Process
    writer: Writer | None  # of the source, if the target is a document or log
    replace: bool


class DirectoryEntries:
    def __init__(self, files: Files, *, read_only: bool) -> None:
        self.files = files
        self.tree = files.tree
        self.names = files.names
        self.writers = files.writers
        self.threads = files.threads
        self.handles = files.handles
        self.moves = files.tree.store.moves
        self._read_only = read_only

    def writable_parent(self, parent_inode: int, name: bytes) -> tuple[Node, str]:
        """The directory of a name to be changed. Raises if it is read-only."""
        parent = self.tree.nodes.get(parent_inode)
        require_writable(parent, read_only=self._read_only)
        return parent, os.fsdecode(name)

    async def make_dir(self, parent: Node, name: str, mode: int) -> Node:
        path_info = classify_path(parent.path_of(name))
        await self.threads.run(lambda: self.names.make_dir(path_info, mode), path_info.location)
        self.writers.hidden.directory_created(path_info.path)
        parent.invalidate_listing(kernel_knows=True)
        return self.tree.lookup(parent, name)

    async def remove_dir(self, parent: Node, name: str, caller: Process) -> None:
        path_info = classify_path(parent.path_of(name))
        hidden = [
            n
            for n in self.writers.hidden.in_directory(path_info.path, caller.pid)
            if self._is_hidden_version(parent, name, n, caller)
        ]
        await self.threads.run(lambda: self.names.remove_dir(path_info, hidden), path_info.location)
        for hidden_name in hidden:
            self.writers.hidden.show(f"{path_info.path}/{hidden_name}", caller)
        self.names.rejects.clear_all(path_info.path)
        self._detach(parent, name)

    def _is_hidden_version(self, parent: Node, directory: str, name: str, caller: Process) -> bool:
        """Whether the file is still the hidden version. A newer version is shown and must not be deleted."""
        path = f"{parent.path_of(directory)}/{name}"
        hidden, info = self.writers.hidden.find(path, caller.pid), self.names.stat(path)
        if hidden is None or info is None or Stamp.of(info) == hidden.stamp:
            return True
        self.writers.hidden.show(path, caller)
        if directory in parent.children:
            parent.children[directory].invalidate_listing()
        return False

    async def unlink(self, parent: Node, name: str, caller: Process) -> None:
        path_info = classify_path(parent.path_of(name))
        if self._is_reject(parent, name):
            self.names.rejects.remove(parent.path, name)
        elif path_info.can_be_hidden:
            self.names.check_may_hide(path_info)
            info = self.names.stat(path_info.path)
            if info is not None:
                self.writers.hidden.hide(path_info, info, caller, was_deleted=True)
        else:
            await self.threads.run(lambda: self.names.remove_file(path_info), path_info.location)
            if path_info.kind in MAY_BE_EMPTY:
                self.files.detach_writers(path_info.path)
            if path_info.kind in CHECKED:
                self.writers.hidden.note_deleted(path_info.path)
        self._detach(parent, name)

    def _is_reject(self, parent: Node, name: str) -> bool:
        if not is_reject(name) or self.names.stat(parent.path_of(name)) is not None:
            return False
        return self.names.rejects.path(parent.path, name) is not None

    def _detach(self, parent: Node, name: str) -> None:
        parent.invalidate_listing(kernel_knows=True)
        node = parent.children.get(name)
        if node is not None:
            self.tree.nodes.detach(node)

    def symlink(self, parent: Node, name: str, target: str) -> Node:
        self.names.symlink(classify_path(parent.path_of(name)), target)
        parent.invalidate_listing(kernel_knows=True)
        return self.tree.lookup(parent, name)

    # -- rename ------------------------------------------------------------------------------------------

    async def rename(self, old: tuple[Node, str], new: tuple[Node, str], caller: Process, *, replace: bool) -> None:
        (old_parent, old_name), (new_parent, new_name) = old, new
        source, target = classify_path(old_parent.path_of(old_name)), classify_path(new_parent.path_of(new_name))
        node = old_parent.children.get(old_name)
        pending = self.writers.pending(source.path)
        is_same_kind = source.kind is target.kind and source.kind in MAY_BE_EMPTY
        if source.kind in MAY_BE_EMPTY and not is_same_kind and self.handles.buffered(source.path):
            raise Busy(f"{source.path} is still being written; close it first")
        if pending is not None:
            await self.files.commit_pending(pending)
        info = self.names.stat(source.path)
        stamp = Stamp.of(info) if info is not None else None
        evidence = self.files.evidence
        process, before = evidence.writer_of_file(info, caller)
        writer = (
            evidence.writer(process, target.path, before) if target.kind in CHECKED or target.is_session_log else None
        )
        renaming = _Renaming(source, target, node, caller, writer, replace)
        try:
            result = await self.threads.run(partial(self._rename_on_disk, renaming), target.location or source.location)
        except SidecarConflict:
            self.files.evidence.note_refused(process, target.path)  # with what was opened until now
            raise
        if result is not None:
            self._note_saved(process, target, result)
        if target.kind in MAY_BE_EMPTY:
            self.files.detach_writers(target.path)
        if is_same_kind:
            self.files.retarget_writers(source.path, new_parent, new_name, stamp)
        if info is not None and stat.S_ISDIR(info.st_mode):
            self.files.retarget_writers_below(source.path, target.path)
            self.writers.hidden.directory_created(target.path)
            self.writers.hidden.rename(source.path, target.path, self.names.stat)
        old_parent.invalidate_listing(kernel_knows=True)
        new_parent.invalidate_listing(kernel_knows=True)
        if node is not None:
            is_moved = is_same_kind and _has_content(node, stamp)
            notices = self._renamed(node, new_parent, new_name, source, target, is_moved=is_moved)
        else:  # the kernel has moved the entry of a node that was replaced meanwhile
            notices = [Invalidation(new_parent.inode, os.fsencode(new_name))]
        invalidate_later([*notices, *self._sidecar_invalidations(new_parent, new_name, target)])

    def _rename_on_disk(self, renaming: _Renaming) -> CommitResult | None:
        """Rename in a worker thread. Returns the result of a commit."""
        source, target, caller = renaming.source, renaming.target, renaming.caller
        hidden = self.writers.hidden
        is_visible = hidden.find(target.path, caller.pid) is None
        if not renaming.replace and is_visible and self.names.stat(target.path) is not None:
            raise AlreadyExists(f"{target.path} exists")
        if source.kind in CHECKED and hidden.find(source.path, caller.pid) is not None:
            raise NotFound(f"{source.path} does not exist")
        if target.kind in CHECKED:
            return self._rename_onto_document(renaming)
        if target.is_session_log and source.kind not in VERSIONED and renaming.replace:
            return self.moves.onto_log(self._request(renaming))
        if source.kind is PathKind.DOCUMENT:
            self._hide_or_remove(source, self.moves.copy_away(source, target), caller)
        else:
            self.moves.move(source, target, replace=renaming.replace)
        return None

    def _rename_onto_document(self, renaming: _Renaming) -> CommitResult:
        source, target, caller = renaming.source, renaming.target, renaming.caller
        info = self.names.stat(source.path)
        try:
            result = self.moves.onto_document(self._request(renaming))
        finally:
            self.writers.hidden.show(target.path, caller)
        if source.can_be_hidden and info is not None:
            self.writers.hidden.hide(source, info, caller, was_deleted=False)
        else:
            self.names.remove_moved(source)
        return result

    def _request(self, renaming: _Renaming) -> RenameRequest:
        source, target, node, caller = renaming.source, renaming.target, renaming.node, renaming.caller
        hidden = self.writers.hidden.find(target.path, caller.pid)
        return RenameRequest(
            source,
            target,
            self.files.on_conflict,
            seen_at_create=node.seen_at_create if node is not None else {},
            created_ns=node.created_ns if node is not None else None,
            removed=hidden.stamp if hidden is not None else None,
            unlinked_first=self.writers.hidden.was_deleted(target.path, caller.pid),
            has_set_times=node is not None and node.has_set_times,
            writer=renaming.writer,
        )

    def _note_saved(self, process: Process, target: PathInfo, result: CommitResult) -> None:
        stamp = Stamp.of(result.info) if result.info is not None else None
        self.files.evidence.note_saved(process, target.path, stamp, result.draft, result.base, result.at_ns)

    def _hide_or_remove(self, source: PathInfo, info: os.stat_result, caller: Process) -> None:
        """Hide a session.json that was renamed away; remove a sidecar at once."""
        if source.can_be_hidden:
            self.writers.hidden.hide(source, info, caller, was_deleted=False)
        else:
            self.names.remove_file(source)

    def _renamed(
        self, node: Node, parent: Node, name: str, source: PathInfo, target: PathInfo, *, is_moved: bool
    ) -> list[Invalidation]:
        """The node gets its new name. With `is_moved` the new name has the bytes of the node's version."""
        if target.kind in CHECKED:
            self.handles.refuse_writes(node, target.path)
            return self._replaced_by(node, parent, name)
        if source.kind is PathKind.DOCUMENT:  # the new name has a copy
            return self._left_behind(node, parent, name)
        info = self.names.stat(target.path)
        if source.kind in VERSIONED and not is_moved and not _is_its_file(node, info):
            return self._left_behind(node, parent, name)
        self.tree.nodes.rename(node, parent, name)
        node.set_stat(info or node.info)
        is_session = target.kind in (PathKind.SESSION, PathKind.PROJECT_SESSION)
        return self.tree.recheck_below(node) if is_session else []

    def _replaced_by(self, node: Node, parent: Node, name: str) -> list[Invalidation]:
        """A file was renamed onto a document: the committed version is another node.

        Its bytes may differ from the file's cached pages, or soon will if the file is still open.
        Until the kernel has looked up the name again, it has the file's node there. That shows the
        document's number, and opening it fails with ESTALE.
        """
        self.tree.nodes.rename(node, parent, name)
        number = self.tree.shown_numbers.find(node.path)
        if number is not None:
            self.tree.shown_numbers.show(node, number)
        self.tree.nodes.detach(node)
        return [Invalidation(parent.inode, os.fsencode(name))]

    def _left_behind(self, node: Node, parent: Node, name: str) -> list[Invalidation]:
        """A version was renamed, and the new name has a copy, or a newer version: that is another node.

        A version's size and pages never change: its readers would get one text with the end of
        another. So the node stays a replaced version of the old name, for all who have it open or
        are about to open it. The kernel has it under the new name until it looks that up again.
        """
        former = parent.children.get(name)
        for replaced in (node, former) if former is not None else (node,):
            self.tree.nodes.detach(replaced)
        # The next version of the document shows the number; two files must not show it.
        self.tree.shown_numbers.show(node, self.tree.nodes.number(node.path, ("renamed", node.inode)))
        return [Invalidation(parent.inode, os.fsencode(name))]

    def _sidecar_invalidations(self, directory: Node, name: str, target: PathInfo) -> list[Invalidation]:
        """Invalidations for the other documents: a commit by rename writes the sidecar too."""
        if target.kind is not PathKind.DOCUMENT:
            return []
        others = [n for n in layout.DOCUMENTS if n != name and n in directory.children]
        return [notice for n in others for notice in self.tree.recheck(directory, n)]

    async def exchange(self, one: tuple[Node, str], other: tuple[Node, str], caller: Process) -> None:
        """Exchange two names. The kernel swaps its entries and must look both up again."""
        (a, a_name), (b, b_name) = one, other
        first, second = classify_path(a.path_of(a_name)), classify_path(b.path_of(b_name))
        if any(self.writers.hidden.find(p.path, caller.pid) is not None for p in (first, second)):
            raise NotFound(f"{first.path} or {second.path} does not exist")
        document, file = (first, second) if first.kind in CHECKED else (second, first)
        file_node = (b.children if document is first else a.children).get(b_name if document is first else a_name)
        evidence = self.files.evidence
        process, before = evidence.writer_of_file(self.names.stat(file.path), caller)
        writer = evidence.writer(process, document.path, before)
        exchange = partial(self.moves.exchange, first, second, self.files.on_conflict, writer)
        try:
            result = await self.threads.run(exchange, second.location or first.location)
        except SidecarConflict:
            self.files.evidence.note_refused(process, document.path)
            raise
        if result is not None:
            self._note_saved(process, document, result)
            if file_node is not None:
                self.handles.refuse_writes(file_node, document.path)
        notices: list[Invalidation] = []
        for (parent, name), place in ((one, first), (other, second)):
            self._detach(parent, name)
            notices += [Invalidation(parent.inode, os.fsencode(name))]
            notices += self._sidecar_invalidations(parent, name, place)
        invalidate_later(notices)

    async def move_item(self, old: tuple[Node, str], new: tuple[Node, str]) -> None:
        """Rename within a view."""
        if self._read_only:
            raise Generated("the mount is read-only")
        await self.threads.run(lambda: self.tree.move_item(*old, *new))
        for parent, name in (old, new):
            self._detach(parent, name)
        invalidate_later([Invalidation(parent.inode, os.fsencode(name)) for parent, name in (old, new)])


def _has_content(node: Node, stamp: Stamp | None) -> bool:
    """Whether the node has the bytes of a file. A state text that is moved is committed again, as another file."""
    return node.info is not None and is_same_content(Stamp.of(node.info), stamp)


def _is_its_file(node: Node, info: os.stat_result | None) -> bool:
    """Whether a file has the bytes of a node's version."""
    return info is None or (node.info is not None and is_same_content(Stamp.of(node.info), Stamp.of(info)))
