"""Checks of the trigram index: an entry missing from it would make `grovefs grep` miss a match."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial

from store.check.context import CheckContext
from store.check.finding import Finding
from store.search.grep import file_stamps
from store.search.grep.maintenance import TrigramIndex
from store.search.grep.regex_trigrams import ANY
from store.search.grep.segment_files import FOLDER
from store.search.grep.segments import Damaged, Postings, Segment, candidates

SAMPLE = 200  # files read again; reading all would take as long as building the index


def check_trigrams(context: CheckContext) -> Iterator[Finding]:
    """Read every segment, compare a sample of the indexed files, and look for files that are not indexed."""
    index = context.services.trigrams
    segments: list[Segment] = []
    try:
        names = [name for (name,) in index.db.reader.execute("SELECT name FROM grep_segments")]
        for name in names:
            path = f"{FOLDER}/{name}"
            try:
                segments.append(Segment(str(index.disk.home / path)))
                for _ in segments[-1].rows():
                    pass
            except Damaged as error:
                if _is_current(index, name):  # else it was merged into another segment meanwhile
                    yield Finding("trigrams", path, str(error), index.forget_all)
                return
        yield from _check_files(index, segments)
    finally:
        for segment in segments:
            segment.close()
    yield from _check_folders(index)


def _is_current(index: TrigramIndex, name: str) -> bool:
    return index.db.reader.execute("SELECT 1 FROM grep_segments WHERE name = ?", (name,)).fetchone() is not None


def _check_files(index: TrigramIndex, segments: list[Segment]) -> Iterator[Finding]:
    found = index.db.reader.execute("SELECT document, path, stamp FROM grep_files")
    rows = [(document, path, stamp) for document, path, stamp in found]
    indexed = candidates(ANY, segments)
    for document, path, _ in [row for row in rows if row[0] not in indexed][:SAMPLE]:
        if _is_known(index, document, path):
            yield _finding(index, path, "grep would not find this file")
    sample = [row for row in random.sample(rows, min(SAMPLE, len(rows))) if row[0] in indexed]
    for document, path in _incomplete(index, sample, segments):
        if _is_known(index, document, path):
            yield _finding(index, path, "grep would miss matches in this file")


def _incomplete(
    index: TrigramIndex, sample: list[tuple[int, bytes, bytes]], segments: list[Segment]
) -> list[tuple[int, bytes]]:
    """Read files again and return those with a trigram that no segment has for them."""
    postings = Postings()
    paths: dict[int, bytes] = {}
    for document, path, stamp in sorted(sample):
        try:
            read = index.read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if read is not None and read[1] == stamp:
            postings.add(document, read[0])
            paths[document] = path
    missing: set[int] = set()
    for trigram, documents in postings.rows():
        for segment in segments:
            documents -= segment.find(trigram) or type(documents)()
        missing.update(documents)
    return [(document, paths[document]) for document in sorted(missing)]


def _finding(index: TrigramIndex, path: bytes, text: str) -> Finding:
    return Finding("trigrams", os.fsdecode(path), text, partial(index.list_changed, [path]))


def _is_known(index: TrigramIndex, document: int, path: bytes) -> bool:
    """Whether the file is still indexed under this number: a merge may have changed it meanwhile."""
    found = index.db.reader.execute(
        "SELECT 1 FROM grep_files WHERE document = ?1 AND path = ?2 AND path NOT IN (SELECT path FROM grep_changed)",
        (document, path),
    )
    return found.fetchone() is not None


def _check_folders(index: TrigramIndex) -> Iterator[Finding]:
    """Find files that are not indexed in directories that have not changed since they were scanned."""
    found = index.db.reader.execute("SELECT path, stamp FROM grep_folders")
    for folder, stamp in [(folder, stamp) for folder, stamp in found]:
        listed = index.scan_dir(folder)
        if listed is None or listed[0] != stamp or stamp == file_stamps.NEVER:
            continue
        for path in listed[1]:
            if not index.is_listed(path):
                yield _finding(index, path, "grep would not search this file")
