"""The segment files in .grovefs/trigrams/: writing, merging and removing them.

A segment becomes valid in the transaction that names it in grep_segments. A crash before that leaves an
orphaned file, which is removed later. Only the holder of the merge lock calls this module.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyroaring import BitMap

from store.disk.disk import Disk
from store.disk.file import NewFile
from store.index.database import Database
from store.search.grep import known_files
from store.search.grep.regex_trigrams import ANY
from store.search.grep.segments import Segment, candidates, merged, render

FOLDER = os.fsdecode(known_files.SEGMENTS).rstrip("/")
MIN_MERGED = 4  # segments at a time
MAX_SEGMENTS = 16
OBSOLETE_DOCUMENTS = 8_192  # merge everything if there are this many more documents than twice the live ones
ORPHANED_S = 60.0  # a younger unnamed segment may still be in the making, or in use by a reader

Row = tuple[int, BitMap]
Pace = Callable[[Iterable[Row]], Iterator[Row]]  # passes rows on, with pauses; may raise to abort


@dataclass(frozen=True)
class SegmentFiles:
    disk: Disk
    db: Database

    def write(self, rows: Iterable[Row]) -> tuple[str, int]:
        """Write a new segment. Returns its name and size."""
        name = uuid.uuid4().hex
        target = f"{FOLDER}/{name}"
        temp = self.disk.write_temps([NewFile(target, render(rows), mode=0o600)])[0]
        self.disk.move(temp, target)
        return name, (self.disk.home / target).stat().st_size

    def compact(self, pace: Pace) -> None:
        """Merge segments of similar size: their number grows with the logarithm of the indexed bytes.

        Raises Damaged if one of them cannot be read.
        """
        found = self.db.reader.execute("SELECT name, documents, bytes FROM grep_segments ORDER BY bytes")
        rows = [(str(name), int(documents), int(size)) for name, documents, size in found]
        live = BitMap(document for (document,) in self.db.reader.execute("SELECT document FROM grep_files"))
        chosen = _worth_merging([size for _, _, size in rows])
        if sum(documents for _, documents, _ in rows) > 2 * len(live) + OBSOLETE_DOCUMENTS:
            chosen = len(rows)  # most documents are obsolete
        if chosen:
            self._replace([name for name, _, _ in rows[:chosen]], live, pace)

    def _replace(self, names: list[str], live: BitMap, pace: Pace) -> None:
        segments: list[Segment] = []
        try:
            segments = [Segment(str(self.disk.home / FOLDER / name)) for name in names]
            count = len(candidates(ANY, segments) & live)
            name, size = self.write(pace(merged(segments, live)))
        finally:
            for segment in segments:
                segment.close()
        with self.db.write() as db:
            present = {row[0] for row in db.execute("SELECT name FROM grep_segments")}
            if present >= set(names):
                db.executemany("DELETE FROM grep_segments WHERE name = ?", [(old,) for old in names])
                db.execute("INSERT INTO grep_segments VALUES (?, ?, ?)", (name, count, size))

    def remove_orphans(self) -> None:
        named = {name for (name,) in self.db.reader.execute("SELECT name FROM grep_segments")}
        for entry in self.disk.entries(FOLDER):
            info = self.disk.stat(f"{FOLDER}/{entry.name}")
            if entry.name == "lock" or entry.name in named or info is None:
                continue
            if time.time() - info.st_mtime > ORPHANED_S:
                self.disk.remove_tree(f"{FOLDER}/{entry.name}")


def _worth_merging(sizes: list[int]) -> int:
    """How many of the smallest segments to merge: each is at most twice as large as all smaller ones together."""
    chosen = total = 0
    for size in sizes:
        if chosen and size > 2 * total:
            break
        chosen += 1
        total += size
    if len(sizes) > MAX_SEGMENTS:
        return max(chosen, MIN_MERGED)
    return chosen if chosen >= MIN_MERGED else 0
