"""rename(2), case by case: onto a document, away from one, and everything else.

Renaming onto a document is a commit; renaming one away hides it and leaves a copy under the other name. All
else is the store's affair. Runs in a thread, one at a time for each session.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

from fusefs.tree.nodes import Node
from fusefs.tree.tree import Tree
from fusefs.tree.writers import Writers
from store.disk.file import Stamp
from store.errors import AlreadyExists, Conflict, NotFound, Protected
from store.path_kinds import CHECKED, PathInfo, PathKind


@dataclass(frozen=True)
class RenameRules:
    tree: Tree
    writers: Writers
    overwrite: bool

    def rename(self, source: PathInfo, target: PathInfo, node: Node | None, *, replace: bool) -> bool:
        """Whether what bears the name now is, byte for byte, what was brought."""
        names = self.tree.store.names
        is_there = names.stat(target.path) is not None and self.writers.hidden(target.path) is None
        if not replace and is_there:
            raise AlreadyExists(f"{target.path} exists")
        if target.kind in CHECKED:
            return self._onto_document(source, target, node)
        if source.can_be_hidden or source.kind is PathKind.DOCUMENT:
            self._document_away(source, target)
        else:
            names.move(source, target, replace=replace)
        return True

    def _onto_document(self, source: PathInfo, target: PathInfo, node: Node | None) -> bool:
        names = self.tree.store.names
        info = names.stat(source.path)
        if info is not None and not stat.S_ISREG(info.st_mode):
            raise Protected(f"{target.path} can only be a plain file")
        data = names.read(source) if self.writers.hidden(source.path) is None else None
        if info is None or data is None:
            raise NotFound(f"{source.path} does not exist")
        base = names.version(target)  # first: a version that comes while this one waits is not to be overwritten
        try:
            self._reject_stale(source, target, node, data)
            changed = names.commit(
                target,
                data,
                base=base,
                overwrite=self.overwrite,
                deleted_before=self.writers.was_deleted(target.path),
                mode=info.st_mode & 0o7777,
                mtime_ns=info.st_mtime_ns,
            )
        finally:
            self.writers.show(target.path)
        if not changed and node is not None and node.has_set_times:  # rsync, cp -p: the time is what was meant
            times = (info.st_atime_ns, info.st_mtime_ns)
            names.set_attributes(target, mode=info.st_mode & 0o7777, times_ns=times)
        if source.can_be_hidden:
            self.writers.hide(source, info, was_deleted=False)
        else:
            names.remove_moved(source)
        return names.read(target) == data

    def _reject_stale(self, source: PathInfo, target: PathInfo, node: Node | None, data: bytes) -> None:
        """A file made here before the present version was committed cannot know of it.

        A document that is moved is no edit of the one it replaces, however old it is.
        """
        committed = self.tree.store.names.stat(target.path)
        if self.overwrite or committed is None or source.kind in CHECKED:
            return
        limbo = self.writers.hidden(target.path)
        if limbo is not None and Stamp.of(committed) == limbo.stamp:  # no other came since it was taken away
            return
        if self._is_newer(committed, source, target, node):
            error = Conflict(
                f"{target.path} was committed anew since {source.name} was begun; the newer version stands"
            )
            self.tree.store.names.rejects.store(target.directory, target.name, data, error)
            raise error

    def _is_newer(self, committed: os.stat_result, source: PathInfo, target: PathInfo, node: Node | None) -> bool:
        """Whether a version came since a file was made: by what was there then, else by the times of both."""
        if node is not None and target.path in node.seen_at_create:
            return node.seen_at_create[target.path] != Stamp.of(committed)
        # The kernel may have forgotten the node since, and we with it; the disk remembers when the file was made.
        begun_ns = node.created_ns if node is not None else None
        begun_ns = begun_ns or self.tree.store.names.birth_ns(source)
        if committed.st_ctime_ns > time.time_ns():
            return False  # the clock was set back since, and times tell nothing; what the documents say still does
        return begun_ns is not None and begun_ns < committed.st_ctime_ns

    def _document_away(self, source: PathInfo, target: PathInfo) -> None:
        """On disk the document stays; what bears the other name is a copy."""
        names = self.tree.store.names
        names.core.check_writable()
        if target.kind not in (PathKind.FOREIGN, PathKind.ATTACHMENT):
            raise Protected(f"{source.path} can only become a foreign file")
        info, data = names.stat(source.path), names.read(source)
        if info is None or data is None or self.writers.hidden(source.path) is not None:
            raise NotFound(f"{source.path} does not exist")
        names.write_copy(target, data, info)
        if source.can_be_hidden:
            self.writers.hide(source, info, was_deleted=False)
        else:
            names.remove_file(source)

    def exchange(self, one: PathInfo, other: PathInfo) -> None:
        """Both names at once. Of a document and a foreign file, the file's bytes are committed first."""
        if one.kind in CHECKED and other.kind in CHECKED:
            raise Protected(f"{one.path} and {other.path} each say who they are; they cannot change places")
        if one.kind in CHECKED or other.kind in CHECKED:
            document, file = (one, other) if one.kind in CHECKED else (other, one)
            self._exchange_document(document, file)
        else:
            self.tree.store.names.exchange(one, other)

    def _exchange_document(self, document: PathInfo, file: PathInfo) -> None:
        names = self.tree.store.names
        base = names.version(document)  # before its bytes: a version that comes meanwhile is not to be overwritten
        was, old, new = names.stat(document.path), names.read(document), names.read(file)
        if was is None or old is None or new is None or self.writers.hidden(document.path) is not None:
            raise NotFound(f"{document.path} or {file.path} does not exist")
        if file.kind is not PathKind.FOREIGN:
            raise Protected(f"{document.path} can only change places with a foreign file")
        kept = file._replace(path=f"{file.directory}/.{file.name}.old", name=f".{file.name}.old")
        names.write_copy(kept, old, was)  # first: whatever happens now, the old version is there under some name
        try:
            names.commit(document, new, base=base, overwrite=self.overwrite)
        except BaseException:  # also an interrupt: the copy is ours to take back
            names.remove_file(kept, keep=False)
            raise
        names.move(kept, file)
