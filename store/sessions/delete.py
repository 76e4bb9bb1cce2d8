"""Delete sessions, and restore them from the trash.

A deletion moves session directories to the trash and removes their index rows in one commit.
Files are erased only when their slot expires or the trash is emptied.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import AgreedVersion, Commit, IndexRefresh
from store.commit.core import Core
from store.commit.to_trash import to_trash
from store.disk import trash
from store.disk.rejects import Rejects
from store.disk.trash import TrashSlot
from store.errors import AlreadyExists, Busy, Corrupt, NotFound, Protected
from store.layout import Location
from store.model.index_entry import IndexEntry
from store.path_kinds import classify_path

log = logging.getLogger("grovefs.store")

Item = TypeVar("Item")
Deleted = TypeVar("Deleted")


@dataclass(frozen=True)
class DeleteOperations:
    core: Core

    # -- delete ------------------------------------------------------------------------------------

    @repeats
    def delete(self, session_id: str, *, force: bool = False) -> bool:
        """Delete a session and its descendants. Raises Protected if one is pinned, unless forced.

        Returns False for an unknown id.
        """
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        with self.core.locked_tree(location.root):
            return self._delete(location, force=force)

    def _delete(self, location: Location, *, force: bool) -> bool:
        if self.core.disk.stat(location.dir) is None:
            return False
        deleted = self._with_descendants(location)
        if not force:
            self._require_unpinned(location, deleted)
        # A root's directory contains its descendants; those of a child are its siblings on disk.
        self._run(location, [location] if location.child is None else deleted, deleted)
        return True

    @repeats
    def delete_one(self, location: Location) -> None:
        """Delete a session without its descendants, as rmdir does. `check` reports the orphans."""
        self.core.check_writable()
        with self.core.locked_tree(location.root):
            self._require_unpinned(location, [location])
            self._run(location, [location], [location])

    def delete_agreed(self, location: Location, agreed: Sequence[AgreedVersion]) -> None:
        """Delete what another host of the grove deleted. The caller holds the lock of the tree."""
        deleted = [location]
        if location.child is None:
            deleted += [other for other in self.core.index.locations_in_tree(location.root) if other != location]
        self._run(location, [location], deleted, agreed)

    def delete_if(
        self, location: Location, is_agreed: Callable[[dict[Location, IndexEntry], list[Location]], bool]
    ) -> list[Location]:
        """Delete a session and its descendants if `is_agreed` returns True under the lock.

        `is_agreed` gets the current entries of the tree and the sessions that would be deleted.
        Returns the deleted sessions.
        """
        with self.core.locked_tree(location.root):
            deleted = self._with_descendants(location)
            if not is_agreed(self._entries(location.root), deleted):
                return []
            return deleted if self._delete(location, force=True) else []

    def _with_descendants(self, location: Location) -> list[Location]:
        for known in {
            *self.core.index.locations_in_tree(location.root),
            *self._children_in(location.root, Location(location.root).dir),
        }:
            self.core.refresh(known)  # a direct edit on disk may have pinned or added a session
        below = descendants(location, self._entries(location.root))
        if location.child is None:  # includes unreadable sessions, which have no entry
            below = [other for other in self.core.index.locations_in_tree(location.root) if other != location]
        return [location, *below]

    def _entries(self, root: str) -> dict[Location, IndexEntry]:
        return {loc: row.entry for loc in self.core.index.locations_in_tree(root) if (row := self.core.index.find(loc))}

    def _children_in(self, root: str, directory: str) -> list[Location]:
        """Descendants of a root found in its directory, which may be in the trash."""
        try:
            found = self.core.disk.directories(f"{directory}/{layout.CHILDREN}")
        except Corrupt:  # children/ is a symlink: not followed
            return []
        return layout.children_among(root, found)

    def _require_unpinned(self, location: Location, deleted: Sequence[Location]) -> None:
        pinned = [p for p in self.core.index.pinned_in(location.root) if p in deleted]
        if not pinned:
            return
        which = "it is pinned" if pinned[0] == location else f"its descendant {pinned[0]} is pinned"
        raise Protected(f"{location} was not deleted: {which}")

    def _run(
        self,
        location: Location,
        moved: Sequence[Location],
        deleted: Sequence[Location],
        agreed: Sequence[AgreedVersion] = (),
    ) -> None:
        row = self.core.index.find(location)
        title = row.entry.title if row else None
        part = to_trash(location, trash.SESSION_DELETED, moved=[each.dir for each in moved], title=title, numbered=True)
        commit = Commit(location, part.files, part.moves, part.dirs, touched=deleted, whole_tree=True, agreed=agreed)
        self.core.journal.run(commit, IndexRefresh(gone=deleted))
        for each in deleted if not agreed else ():  # another host knows nothing of a text that was rejected here
            Rejects(self.core.disk).clear_all(each)
        self.core.on_commit()

    # -- undelete ----------------------------------------------------------------------------------

    @repeats
    def undelete(self, name: str, *, displace: bool = True) -> list[Location]:
        """Restore the contents of a trash slot.

        Raises AlreadyExists if an original path is in use. A file there is moved to the trash
        instead, unless `displace` is False.
        """
        self.core.check_writable()
        slot = next((d for d in trash.list_slots(self.core.disk) if d.name == name), None)
        if slot is None:
            raise NotFound(f"nothing named {name!r} in the trash")
        restored = self._contents(slot)
        if not restored:
            raise NotFound(f"{name!r} in the trash does not belong to a session; nothing was restored")
        with self.core.locked_tree(restored[0].root):
            self._restore(slot, restored, displace=displace)
        return restored

    def _restore(self, slot: TrashSlot, restored: list[Location], *, displace: bool) -> None:
        displaced: list[str] = []
        for original, _ in slot.moves:
            self._require_parent_session(original)
            info = self.core.disk.stat(original)
            if info is not None and stat.S_ISREG(info.st_mode) and displace:
                displaced.append(original)
            elif info is not None and not self._has_no_files(original):
                raise AlreadyExists(f"{original} exists again; move it away first")
            elif info is not None:
                self.core.disk.remove_tree(original)
        back = [(kept, original) for original, kept in slot.moves if self.core.disk.stat(kept) is not None]
        part = to_trash(restored[0], "displaced", moved=displaced, numbered=True)
        dirs = list(dict.fromkeys([*(original.rpartition("/")[0] for original, _ in slot.moves), *part.dirs]))
        moves = [*part.moves, *back]
        commit = Commit(restored[0], part.files, moves, dirs, touched=restored, whole_tree=True, label="restored")

        files = {original for original, kept in slot.moves if self.core.disk.stat_file(kept) is not None}
        # A foreign file directly in sessions/ has the path of a session, but it is a file.
        self.core.journal.run(commit, IndexRefresh([each for each in restored if each.dir not in files]))
        self.core.on_commit()
        if any(self.core.disk.stat(kept) is not None for kept, _ in back):
            return  # a grove has agreed, and the commit is finished later: from the slot, or without it from the log
        try:
            self.core.disk.remove_tree(f"{layout.TRASH}/{slot.name}")
        except OSError as error:  # everything is restored; the empty slot expires
            log.info("cannot remove the empty trash slot %s: %s", slot.name, error)

    def _has_no_files(self, path: str) -> bool:
        """Whether a directory contains only directories: remains of a deletion, not new data."""
        try:
            entries = self.core.disk.entries(path)
        except Corrupt:  # not a directory
            return False
        return all(entry.is_dir and self._has_no_files(f"{path}/{entry.name}") for entry in entries)

    def _require_parent_session(self, original: str) -> None:
        """Raise NotFound if the session owning `original`, or the root of a child, is in the trash."""
        place = layout.locate_path(original)
        if place is None:
            return
        above = place[0] if place[1] else Location(place[0].root)
        is_itself = not place[1] and place[0].child is None
        in_trash = any(d.session_id == str(above) and d.is_session for d in trash.list_slots(self.core.disk))
        if not is_itself and in_trash and self.core.disk.stat(above.path(layout.SESSION)) is None:
            raise NotFound(f"{original} belongs to session {above}, which was deleted; restore it first")

    def _contents(self, slot: TrashSlot) -> list[Location]:
        """The sessions in a slot: those its info.json names, and the descendants of a root."""
        found: list[Location] = []
        for original, kept in slot.moves:
            place = layout.locate_path(original)
            if place is None:  # mail, state or a project
                other = classify_path(original).location
                found += [other] if other is not None else []
                continue
            found.append(place[0])
            if not place[1] and place[0].child is None:
                found += self._children_in(place[0].root, kept)
        return list(dict.fromkeys(found))

    # -- purge -------------------------------------------------------------------------------------

    def empty_trash(self) -> int:
        """Erase all slots, each under the lock of its tree: it may be being restored just now."""
        self.core.check_writable()
        slots = trash.list_slots(self.core.disk)
        for slot in slots:
            self.purge_slot(slot.name)
        return len(slots)

    def purge(self, names: Iterable[str]) -> None:
        """Erase slots. A slot whose tree is locked is skipped; the next call erases it."""
        for name in names:
            with suppress(Busy):
                self.purge_slot(name, timeout_s=0)

    def purge_slot(self, name: str, timeout_s: float | None = None, *, keep_snapshots: bool = True) -> None:
        """Erase one slot, and the versions of what it contained, but for those that snapshots name."""
        slot = trash.find_slot(self.core.disk, name)
        owners = self._contents(slot) if slot is not None else []
        with self.core.locked_tree(owners[0].root, timeout_s=timeout_s) if owners else nullcontext():
            self.core.disk.remove_tree(f"{layout.TRASH}/{name}")
            self.core.history.erase(f"{layout.TRASH}/{name}", keep_snapshots=keep_snapshots)


def ancestors(location: Location, known: Mapping[Location, IndexEntry]) -> set[Location]:
    """The chain of parents, and the root, whose directory contains every descendant."""
    if location.child is None:
        return set()
    found = {Location(location.root)}
    entry = known.get(location)
    while entry is not None and entry.parent_session_id not in (None, location.root):
        parent = Location(location.root, entry.parent_session_id)
        if parent in found:  # a cycle, made by editing the documents
            break
        found.add(parent)
        entry = known.get(parent)
    return found


def descendants(location: Location, known: Mapping[Location, IndexEntry]) -> list[Location]:
    """All sessions below one, at any depth: deleting it deletes them too."""
    if location.child is None:
        return [other for other in known if other.root == location.root and other != location]
    return [other for other in known if other != location and location in ancestors(other, known)]


def apply_plan(
    items: Sequence[Item],
    delete: Callable[[Item], Sequence[Deleted]],
    progress: Callable[[int, int], None] | None = None,
) -> list[Deleted]:
    """Carry out a plan item by item and return what was deleted.

    A plan may be old. `delete` checks under a lock that the item is still as planned; if not, it
    deletes nothing and returns nothing.
    """
    deleted: list[Deleted] = []
    for done, item in enumerate(items, 1):
        deleted += delete(item)
        if progress is not None:
            progress(done, len(items))
    return deleted
