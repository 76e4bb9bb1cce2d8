"""The ledger of imports: which sessions of other agents were ever imported into this home.

It is the append-only file `.grovefs/imported.jsonl`. A session in it whose directory is gone was deleted or renamed
here: an import does not bring it back, and continues with a renamed one under its new name. The same is done if another
imported session has its name now: two sessions can exchange their names.

An import adds each session right after it was committed. After a crash the last one may be missing. The next import of
the same source adds the sessions that are still here under the name they were imported with, and those it finds in the
trash. Others are new then if their source is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.disk.append_log import appending
from store.disk.trash import list_slots
from store.layout import Location
from store.transfer.import_receipts import load_receipt, parse_receipt


class LedgerEntry(NamedTuple):
    """A session that was imported: its agent, and its id there, as in a receipt."""

    format: str
    source_id: str
    is_deleted: bool = False  # no session here had its receipt when an import looked for it
    renamed_to: Location | None = None  # where an import found it then


class ImportLedger:
    """The ledger as one import sees it. `save` appends what was added."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lines: list[bytes] = []
        self._renamed: dict[Location, Location] | None = None
        self._places: set[Location] | None = None
        self._forgotten: set[Location] = set()
        self._checked: dict[Location, Location | None] = {}  # where sessions are whose place another one may have
        self._displaced_roots: dict[str, str] = {}  # the former name of such a root by its present one

    @cached_property
    def _entries(self) -> dict[Location, LedgerEntry]:
        file = self._core.disk.read(layout.IMPORT_LEDGER)
        entries, forgotten = _parse_entries(file.data if file else b"")
        self._forgotten |= forgotten
        return entries

    @property
    def _new_places(self) -> set[Location]:
        """Where renamed sessions are: they are known by the place they were imported to."""
        if self._places is None:
            self._places = {entry.renamed_to for entry in self._entries.values() if entry.renamed_to is not None}
        return self._places

    # -- what was imported -----------------------------------------------------------------------------

    def was_imported(self, location: Location, format: str, source_id: str) -> bool:
        """Whether this session of this source was imported before, to this place or to that of its renamed root."""
        found = (self._entries.get(Location(root, location.child)) for root in self._former_roots(location.root))
        return any(entry is not None and entry[:2] == (format, source_id) for entry in found)

    def is_at(self, location: Location, format: str, source_id: str) -> bool:
        """Whether this session of this source was imported to this place, and neither deleted nor renamed since."""
        return self._entries.get(location) == LedgerEntry(format, source_id)

    def was_trashed(self, location: Location, format: str, source_id: str) -> bool:
        """Whether a session that the ledger lacks is in the trash: an import was killed, and then it was deleted."""
        root = Location(location.root).dir
        places = [(location.dir, "")] + ([(root, location.dir.removeprefix(root))] if location.child else [])
        found = (f"{target}{below}" for source, below in places for target in self._trash.get(source, ()))
        if location in self._forgotten or not any(self._is_copy(path, location, format, source_id) for path in found):
            return False
        self._put(location, LedgerEntry(format, source_id, is_deleted=True))
        return True

    def _is_copy(self, directory: str, location: Location, format: str, source_id: str) -> bool:
        file = self._core.disk.read(f"{directory}/{layout.RECEIPT}")
        receipt = parse_receipt(file.data) if file else None
        is_same = receipt is not None and (receipt.format, receipt.source_id) == (format, source_id)
        return is_same and receipt is not None and receipt.is_of(location)

    @cached_property
    def _trash(self) -> dict[str, list[str]]:
        """The directories in the trash, by where they were."""
        found: dict[str, list[str]] = {}
        for slot in list_slots(self._core.disk):
            for source, target in slot.moves:
                found.setdefault(source, []).append(target)
        return found

    def add(self, location: Location, format: str, source_id: str) -> None:
        """Remember a session that is here. One that was renamed is known by the name it was imported with."""
        entry = LedgerEntry(format, source_id)
        if self._entries.get(location) != entry and location not in self._new_places:
            self._put(location, entry)

    def add_present(self, locations: Iterable[Location]) -> None:
        """Remember imported sessions that are here and that the ledger lacks: after a crash, or if it was deleted."""
        for location in locations:
            entry = self._entries.get(location)
            is_known = location in self._new_places or (entry is not None and not entry.is_deleted)
            receipt = None if is_known else load_receipt(self._core.disk, location)
            if receipt is not None:
                self.add(location, receipt.format, receipt.source_id)

    def add_missing(self, data: bytes, left_out: Collection[str]) -> None:
        """Add what another ledger has and this one lacks, except for sessions in the directories `left_out`."""
        for location, entry in _parse_entries(data)[0].items():
            places = (location, entry.renamed_to or location)
            is_known = location in self._entries or location in self._new_places
            if not is_known and not any(place.dir in left_out for place in places):
                self._put(location, entry)

    def forget(self, location: Location) -> None:
        """Let a session be imported again: an import deleted it, not the user."""
        self._forgotten.add(location)
        if self._entries.pop(location, None) is not None:
            self._lines.append(_line(location, forgotten=True))

    def save(self) -> None:
        if self._lines:
            with appending(self._core.disk, layout.IMPORT_LEDGER) as append:
                append(b"".join(self._lines))
            self._lines = []

    def _put(self, location: Location, entry: LedgerEntry) -> None:
        before = self._entries.get(location)
        if entry.renamed_to is not None or (before is not None and before.renamed_to is not None):
            self._places = None
        self._entries[location] = entry
        self._forgotten.discard(location)
        known = {"format": entry.format, "source_id": entry.source_id}
        new = {"renamed_to": tuple(entry.renamed_to)} if entry.renamed_to else {}
        self._lines.append(_line(location, **known, **({"deleted": True} if entry.is_deleted else {}), **new))

    # -- what was renamed ------------------------------------------------------------------------------

    def find_new_id(self, id: str, root: str | None) -> str | None:
        """The id of a renamed root, or of a renamed child of `root`, by the id it was imported with.

        None if it was not renamed, or is a child that left its tree. `root` is the name of the root as it is now.
        """
        here = Location(id) if root is None else Location(root, id)
        for place in [here] if root is None else [Location(former, id) for former in self._former_roots(root)]:
            new = self._find_renamed().get(place) or self._displaced(place, here)
            if new is not None and (root is None) == (new.child is None) and root in (None, new.root):
                return new.id
        return None

    def _former_roots(self, root: str) -> Sequence[str]:
        """The names with which a root and its children may have been imported."""
        if root in self._displaced_roots:
            return [self._displaced_roots[root]]
        return [root, *self._old_roots.get(root, ())]

    @cached_property
    def _old_roots(self) -> dict[str, list[str]]:
        """The names with which renamed roots were imported, by their names now."""
        found: dict[str, list[str]] = {}
        for old, new in self._find_renamed().items():
            if old.child is None:
                found.setdefault(new.root, []).append(old.root)
        return found

    def _displaced(self, place: Location, here: Location) -> Location | None:
        """Where a session is that was imported to `place`, if another imported session is there now.

        `here` is the same place under the present name of its root.
        """
        if place not in self._checked:
            new = self._checked[place] = self._find_displaced(place, here)
            if new is not None and new.child is None:
                self._displaced_roots[new.root] = place.root
        return self._checked[place]

    def _find_displaced(self, place: Location, here: Location) -> Location | None:
        entry = self._entries.get(place)
        receipt = load_receipt(self._core.disk, here) if entry is not None and not entry.is_deleted else None
        if entry is None or receipt is None or (receipt.format, receipt.source_id) == entry[:2]:
            return None
        new = self._find_new_place(place, entry)
        if new is not None and new != entry.renamed_to:
            self._put(place, entry._replace(renamed_to=new))
        return new

    def _find_renamed(self) -> Mapping[Location, Location]:
        """Where sessions are now that are gone from the place they were imported to.

        All receipts are read, once, and only if such a session was not found before, or is gone again.
        """
        if self._renamed is None:
            self._renamed = {}
            missing = [place for place, entry in self._entries.items() if not entry.is_deleted and self._is_gone(place)]
            for location in sorted(missing, key=lambda place: place.child is not None):  # roots first
                entry = self._entries[location]
                new = self._find_new_place(location, entry)
                if new is not None:
                    self._renamed[location] = new
                if new is None or new != entry.renamed_to:
                    self._put(location, entry._replace(is_deleted=new is None, renamed_to=new))
        return self._renamed

    def _find_new_place(self, location: Location, entry: LedgerEntry) -> Location | None:
        """A child is searched in its own tree: the children of two roots can have the same id in their source."""
        above = None if location.child is None else self._root_now(location.root)
        known = entry.renamed_to
        if known is not None and (None if known.child is None else known.root) == above:
            receipt = load_receipt(self._core.disk, known)
            if receipt is not None and (receipt.format, receipt.source_id) == entry[:2]:
                return known
        return self._receipts.get((above, *entry[:2]))

    def _root_now(self, root: str) -> str:
        place = Location(root)
        new = self._find_renamed().get(place) or self._displaced(place, place)
        return new.root if new is not None else root

    def _is_gone(self, location: Location) -> bool:
        return self._core.disk.stat(location.path(layout.SESSION)) is None

    @cached_property
    def _receipts(self) -> dict[tuple[str | None, str, str], Location]:
        return dict(self._iter_receipts())

    def _iter_receipts(self) -> Iterator[tuple[tuple[str | None, str, str], Location]]:
        """The sessions with a receipt, by the root they are below, their agent, and their id there."""
        disk = self._core.disk
        for root in disk.directories(layout.SESSIONS):
            if not layout.is_text(root):
                continue
            directory = Location(root).path(layout.CHILDREN)
            children = disk.directories(directory) if disk.stat(directory) is not None else []
            for location in (Location(root), *layout.children_among(root, children)):
                receipt = load_receipt(disk, location)
                if receipt is not None:
                    yield (root if location.child else None, receipt.format, receipt.source_id), location


def _parse_entries(data: bytes) -> tuple[dict[Location, LedgerEntry], set[Location]]:
    """The entries of a ledger, and the sessions that may be imported again."""
    entries: dict[Location, LedgerEntry] = {}
    forgotten: set[Location] = set()
    for line in data.splitlines():
        try:
            found: Any = orjson.loads(line)
            location = Location(found["root"], found["child"])
            if found.get("forgotten"):
                entries.pop(location, None)
                forgotten.add(location)
            else:
                forgotten.discard(location)
                new = Location(*found["renamed_to"]) if found.get("renamed_to") else None
                is_deleted = bool(found.get("deleted"))
                entries[location] = LedgerEntry(found["format"], found["source_id"], is_deleted, new)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # an incomplete line, after a crash
    return entries, forgotten


def _line(location: Location, **members: Any) -> bytes:
    return orjson.dumps({"root": location.root, "child": location.child, **members}) + b"\n"
