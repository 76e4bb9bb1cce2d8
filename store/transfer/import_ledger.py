"""The ledger of imports: which sessions of other agents were ever imported into this home.

It is the append-only file `.grovefs/imported.jsonl`. A session in it whose directory is gone was deleted or renamed
here: an import does not bring it back, and continues with a renamed one under its new name.

An import adds the sessions of each part of a source when that part is saved, before the part's cursor. So a crash loses
only lines that the next import of the same source adds again. The same is true if the file is deleted, but only for
sessions that are still here under the name they were imported with: others are new if their source is read again.
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
from store.transfer.import_receipts import load_receipt


class LedgerEntry(NamedTuple):
    """A session that was imported: its agent, and its id there, as in a receipt."""

    format: str
    source_id: str
    is_deleted: bool = False  # no session here had its receipt when an import looked for it


class ImportLedger:
    """The ledger as one import sees it. `save` appends what was added."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lines: list[bytes] = []
        self._renamed: dict[Location, Location] | None = None

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
                    entries[location] = LedgerEntry(found["format"], found["source_id"], bool(found.get("deleted")))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # an incomplete line, after a crash
        return entries

    # -- what was imported -----------------------------------------------------------------------------

    def was_imported(self, location: Location, format: str, source_id: str) -> bool:
        """Whether this session of this source was imported before, to this place."""
        entry = self._entries.get(location)
        return entry is not None and entry[:2] == (format, source_id)

    def add(self, location: Location, format: str, source_id: str) -> None:
        """Remember a session that is here. One that was renamed is known by the name it was imported with."""
        entry = LedgerEntry(format, source_id)
        if self._entries.get(location) != entry and location not in (self._renamed or {}).values():
            self._put(location, entry)

    def add_present(self, locations: Iterable[Location]) -> None:
        """Remember imported sessions that are here and that the ledger lacks: after a crash, or if it was deleted."""
        for location in locations:
            entry = self._entries.get(location)
            receipt = load_receipt(self._core.disk, location) if entry is None or entry.is_deleted else None
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
        self._entries[location] = entry
        known = {"format": entry.format, "source_id": entry.source_id}
        self._lines.append(_line(location, **known, **({"deleted": True} if entry.is_deleted else {})))

    # -- what was renamed ------------------------------------------------------------------------------

    def renamed_to(self, location: Location) -> Location | None:
        """What a session that was imported to this place is called now; None if it was not renamed."""
        return self._find_renamed().get(location)

    def new_ids(self) -> dict[str, str]:
        """The ids of renamed sessions by the ids they were imported with. A child that left its tree is not there."""
        renamed = self._find_renamed()
        roots = {old.root: new.root for old, new in renamed.items() if old.child is None and new.child is None}
        children = {
            old.child: new.child
            for old, new in renamed.items()
            if old.child is not None and new.child is not None and new.root == roots.get(old.root, old.root)
        }
        return {old: new for old, new in (children | roots).items() if old != new}

    def _find_renamed(self) -> Mapping[Location, Location]:
        """Look at all receipts, once, and only if a session is missing that was not looked for before."""
        if self._renamed is None:
            self._renamed = {}
            missing = [place for place, entry in self._entries.items() if not entry.is_deleted and self._is_gone(place)]
            receipts = dict(self._iter_receipts()) if missing else {}
            for location in missing:
                entry = self._entries[location]
                found = receipts.get((location.child is None, *entry[:2]))
                if found is not None:
                    self._renamed[location] = found
                else:
                    self._put(location, entry._replace(is_deleted=True))
        return self._renamed

    def _is_gone(self, location: Location) -> bool:
        return self._core.disk.stat(location.path(layout.SESSION)) is None

    def _iter_receipts(self) -> Iterator[tuple[tuple[bool, str, str], Location]]:
        """The sessions with a receipt, by whether they are roots, their agent, and their id there."""
        disk = self._core.disk
        for root in disk.directories(layout.SESSIONS):
            if not layout.is_text(root):
                continue
            directory = Location(root).path(layout.CHILDREN)
            children = disk.directories(directory) if disk.stat(directory) is not None else []
            for location in (Location(root), *layout.children_among(root, children)):
                receipt = load_receipt(disk, location)
                if receipt is not None:
                    yield (location.child is None, receipt.format, receipt.source_id), location


def _line(location: Location, **members: Any) -> bytes:
    return orjson.dumps({"root": location.root, "child": location.child, **members}) + b"\n"
