"""The ledger of imports: which sessions of other agents were ever imported into this home.

It is the append-only file `.grovefs/imported.jsonl`. A session in it whose directory is gone was deleted or renamed
here: an import does not bring it back, and continues with a renamed one under its new name.

An import adds the sessions of each part of a source before it saves the part's cursor. After a crash, or if the file
was deleted, the next import of the same source adds the sessions that are still here under the name they were imported
with. Others are new then if their source is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.disk.append_log import appending
from store.layout import Location
from store.transfer.formats.coerce import RenamedIds
from store.transfer.import_receipts import load_receipt


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

    @cached_property
    def _entries(self) -> dict[Location, LedgerEntry]:
        entries: dict[Location, LedgerEntry] = {}
        file = self._core.disk.read(layout.IMPORT_LEDGER)
        for line in file.data.splitlines() if file else ():
            try:
                found: Any = orjson.loads(line)
                location = Location(found["root"], found["child"])
                if found.get("forgotten"):
                    entries.pop(location, None)
                else:
                    new = Location(*found["renamed_to"]) if found.get("renamed_to") else None
                    is_deleted = bool(found.get("deleted"))
                    entries[location] = LedgerEntry(found["format"], found["source_id"], is_deleted, new)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # an incomplete line, after a crash
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
        roots = (location.root, *self._old_roots.get(location.root, ()))
        found = (self._entries.get(Location(root, location.child)) for root in roots)
        return any(entry is not None and entry[:2] == (format, source_id) for entry in found)

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

    def forget(self, location: Location) -> None:
        """Let a session be imported again: an import deleted it, not the user."""
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
        known = {"format": entry.format, "source_id": entry.source_id}
        new = {"renamed_to": tuple(entry.renamed_to)} if entry.renamed_to else {}
        self._lines.append(_line(location, **known, **({"deleted": True} if entry.is_deleted else {}), **new))

    # -- what was renamed ------------------------------------------------------------------------------

    @cached_property
    def _old_roots(self) -> dict[str, list[str]]:
        """The names with which renamed roots were imported, by their names now."""
        found: dict[str, list[str]] = {}
        for old, new in self._new_ids.roots.items():
            found.setdefault(new, []).append(old)
        return found

    @cached_property
    def _new_ids(self) -> RenamedIds:
        renamed = self._find_renamed()
        roots = {old.root: new.root for old, new in renamed.items() if old.child is None}
        children = {
            (new.root, old.child): new.child
            for old, new in renamed.items()
            if old.child is not None and new.child is not None and old.child != new.child
        }
        return RenamedIds(roots, children)

    def new_ids(self) -> RenamedIds:
        """The ids of renamed sessions by the ids they were imported with. A child that left its tree is not there."""
        return self._new_ids

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
        assert self._renamed is not None
        root = self._renamed.get(Location(location.root), Location(location.root)).root
        above = None if location.child is None else root
        known = entry.renamed_to
        if known is not None and (None if known.child is None else known.root) == above:
            receipt = load_receipt(self._core.disk, known)
            if receipt is not None and (receipt.format, receipt.source_id) == entry[:2]:
                return known
        return self._receipts.get((above, *entry[:2]))

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


def _line(location: Location, **members: Any) -> bytes:
    return orjson.dumps({"root": location.root, "child": location.child, **members}) + b"\n"
