"""Does the index of trigrams say too little? Then `grovefs grep` would miss something. Same law as `check`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

from store.check.finding import Finding
from store.search.grep import file_stamps
from store.search.grep.maintenance import FOLDER, TrigramIndex
from store.search.grep.regex_trigrams import ANY
from store.search.grep.segments import Damaged, Postings, Segment, candidates

SAMPLE = 200  # files that are read again; all of them would take as long as making the index


def check_trigrams(upkeep: TrigramIndex) -> Iterator[Finding]:
    """Every segment is read whole; of the files that are known some are read again; none may be out of sight."""
    segments: list[Segment] = []
    try:
        names = [name for (name,) in upkeep.db.reader.execute("SELECT name FROM grep_segments")]
        for name in names:
            path = f"{FOLDER}/{name}"
            try:
                segments.append(Segment(str(upkeep.disk.home / path)))
                for _ in segments[-1].rows():
                    pass
            except Damaged as error:
                if _is_named(upkeep, name):  # else it was merged into another meanwhile
                    yield Finding("trigrams", path, str(error), upkeep.forget_all)
                return
        yield from _check_files(upkeep, segments)
    finally:
        for segment in segments:
            segment.close()
    yield from _check_folders(upkeep)


def _is_named(upkeep: TrigramIndex, name: str) -> bool:
    return upkeep.db.reader.execute("SELECT 1 FROM grep_segments WHERE name = ?", (name,)).fetchone() is not None


def _check_files(upkeep: TrigramIndex, segments: list[Segment]) -> Iterator[Finding]:
    found = upkeep.db.reader.execute("SELECT document, path, stamp FROM grep_files")
    rows = [(document, path, stamp) for document, path, stamp in found]
    there = candidates(ANY, segments)
    for document, path, _ in [row for row in rows if row[0] not in there][:SAMPLE]:
        if _is_known(upkeep, document, path):
            yield Finding("trigrams", os.fsdecode(path), "grep would not find it", _listing(upkeep, path))
    sample = random.sample(rows, min(SAMPLE, len(rows)))
    postings = Postings()
    paths: dict[int, bytes] = {}
    for document, path, stamp in sorted(sample):
        try:
            read = upkeep.read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if read is not None and read[1] == stamp and document in there:
            postings.add(document, read[0])
            paths[document] = path
    missing: set[int] = set()
    for trigram, documents in postings.rows():
        for segment in segments:
            documents -= segment.find(trigram) or type(documents)()
        missing.update(documents)
    for document in sorted(missing):
        if _is_known(upkeep, document, paths[document]):
            text = "grep would not find all that is in it"
            yield Finding("trigrams", os.fsdecode(paths[document]), text, _listing(upkeep, paths[document]))


def _is_known(upkeep: TrigramIndex, document: int, path: bytes) -> bool:
    """Looked at again: a merge may have come in between."""
    found = upkeep.db.reader.execute(
        "SELECT 1 FROM grep_files WHERE document = ?1 AND path = ?2 AND path NOT IN (SELECT path FROM grep_changed)",
        (document, path),
    )
    return found.fetchone() is not None


def _check_folders(upkeep: TrigramIndex) -> Iterator[Finding]:
    """A directory that is as it was when all in it was known, and holds a file that is not."""
    found = upkeep.db.reader.execute("SELECT path, stamp FROM grep_folders")
    for folder, stamp in [(folder, stamp) for folder, stamp in found]:
        listed = upkeep.scan_dir(folder)
        if listed is None or listed[0] != stamp or stamp == file_stamps.NEVER:
            continue
        for path in listed[1]:
            if not upkeep.is_listed(path):
                yield Finding("trigrams", os.fsdecode(path), "grep would not look at it", _listing(upkeep, path))


def _listing(upkeep: TrigramIndex, path: bytes) -> Callable[[], None]:
    return lambda: upkeep.list_changed([path])
