"""Reading of versions: by number, by time, by what their documents say.

Every function takes a reader connection. A text is made from the last whole text at or before its
version, and the steps since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import apsw

from store.errors import Corrupt, Problem
from store.history import steps
from store.history.authors import Author
from store.history.steps import REMOVED, WHOLE, Step
from store.history.versions import SavedVersion, VersionTexts

PAGE_ROWS = 1_000

_COLUMNS = (
    "v.lineage, v.key, v.number, v.at_ns, o.via, o.program, v.pid, o.uid, v.what, l.dir, v.main_bytes, v.side_bytes, "
    "v.main_digest, v.main_said_ns, v.main_mark, v.note, v.agreed, v.made_ns"
)
_FROM = "FROM versions v JOIN lineages l ON l.key = v.lineage LEFT JOIN origins o ON o.key = v.origin"
_VERSIONS = f"SELECT {_COLUMNS} {_FROM}"
_LINEAGE = "v.lineage = (SELECT key FROM lineages WHERE dir = ?)"


def find_versions(db: apsw.Connection, where: str, bindings: Sequence[Any]) -> list[SavedVersion]:
    """The versions that a condition selects; it may end with ORDER BY and LIMIT."""
    return [_version(row) for row in db.execute(f"{_VERSIONS} WHERE {where}", bindings)]


def of_path(db: apsw.Connection, path: str, where: str, bindings: Sequence[Any]) -> list[SavedVersion]:
    """The same, of one lineage."""
    return find_versions(db, f"{_LINEAGE} AND {where}", (os.fsencode(path), *bindings))


def _version(row: Sequence[Any]) -> SavedVersion:
    lineage, key, number, at_ns, via, program, pid, uid, what, path, *texts, note, agreed, made_ns = row
    main_bytes, side_bytes, digest, said_ns, mark = texts
    author = Author(via or "outside", program or "", pid, uid or 0)
    return SavedVersion(
        lineage,
        key,
        number,
        at_ns,
        author,
        what,
        os.fsdecode(path),
        main_bytes,
        side_bytes,
        digest or b"",
        said_ns,
        mark or 0,
        note,
        agreed,
        made_ns,
    )


def iter_between(
    db: apsw.Connection, since_ns: int, until_ns: int, paths: Iterable[str] | None
) -> Iterator[SavedVersion]:
    """Versions made in a span of time, on whichever host, ends included, in the order of recording."""
    lineages = "SELECT key FROM lineages WHERE at_ns >= ?"
    bindings: list[Any] = [since_ns]
    if paths is not None:
        names = [os.fsencode(path) for path in paths]
        lineages += f" AND dir IN ({', '.join('?' * len(names))})"
        bindings += names
    span = f"SELECT key FROM versions WHERE lineage IN ({lineages}) AND coalesce(made_ns, at_ns) BETWEEN ? AND ?"
    keys = [key for (key,) in db.execute(span, (*bindings, since_ns, until_ns))]
    keys.sort()
    for start in range(0, len(keys), PAGE_ROWS):
        page = keys[start : start + PAGE_ROWS]
        yield from find_versions(db, f"v.key IN ({', '.join('?' * len(page))}) ORDER BY v.key", page)


def iter_paths_at(db: apsw.Connection, at_ns: int) -> Iterator[tuple[str, SavedVersion]]:
    """Every lineage that had a version at a moment: the path it had then, and that version."""
    # SQLite takes the other columns of a max() query from the row of the maximum.
    named = "SELECT lineage, dir, max(from_ns) FROM names WHERE from_ns <= ? GROUP BY lineage"
    names = {lineage: os.fsdecode(path) for lineage, path, _ in db.execute(named, (at_ns,))}
    newest = "SELECT lineage, max(number) FROM versions WHERE at_ns <= ? GROUP BY lineage"
    for version in find_versions(db, f"(v.lineage, v.number) IN ({newest})", (at_ns,)):
        if version.lineage in names:
            yield names[version.lineage], version


def current_number(db: apsw.Connection, version: SavedVersion) -> int:
    """The number that a version has now: older ones may have been added to its lineage since it was looked up."""
    number = db.execute("SELECT number FROM versions WHERE key = ?", (version.key,)).get
    return version.number if number is None else int(number)


def read_texts(db: apsw.Connection, version: SavedVersion) -> VersionTexts:
    version = replace(version, number=current_number(db, version))
    main = read_text(db, version.lineage, version.number, "main") if version.main_bytes is not None else None
    side = read_text(db, version.lineage, version.number, "side") if version.side_bytes is not None else None
    return VersionTexts(main, side)


def read_run(db: apsw.Connection, versions: Sequence[SavedVersion]) -> list[VersionTexts]:
    """The texts of several versions of one lineage, in the order given; each step is decoded once."""
    if not versions:
        return []
    added = current_number(db, versions[0]) - versions[0].number
    versions = [replace(version, number=version.number + added) for version in versions]
    ordered = sorted(versions, key=lambda version: version.number)
    mains, sides = (_texts_of(db, ordered, role) for role in ("main", "side"))
    return [VersionTexts(mains[version.number], sides[version.number]) for version in versions]


def _texts_of(db: apsw.Connection, versions: Sequence[SavedVersion], role: str) -> dict[int, bytes | None]:
    """The texts of one document, by number of the version; `versions` are in order."""
    lineage, first, last = versions[0].lineage, versions[0].number, versions[-1].number
    text = read_text(db, lineage, first, role)
    made = bytearray(text or b"")
    query = f"SELECT number, {role}_kind, {role}_data FROM versions WHERE lineage = ? AND number BETWEEN ? AND ?"
    rows = {number: (kind, data) for number, kind, data in db.execute(query, (lineage, first + 1, last))}
    texts: dict[int, bytes | None] = {}
    wanted = {version.number for version in versions}
    for number in range(first, last + 1):
        kind, data = rows.get(number, (None, None))
        if kind == REMOVED:
            text = None
        elif kind is not None:
            if kind == WHOLE:
                made.clear()
            steps.apply(made, Step(kind, data))
            text = bytes(made)
        if number in wanted:
            texts[number] = text
    return texts


def read_text(db: apsw.Connection, lineage: int, number: int, role: str) -> bytes | None:
    """One text of a version; None if the file did not exist. Raises Corrupt if it cannot be rebuilt."""
    run: list[Step] = []
    query = (
        f"SELECT {role}_kind, {role}_data FROM versions "
        f"WHERE lineage = ? AND number <= ? AND {role}_kind IS NOT NULL ORDER BY number DESC"
    )
    for kind, data in db.execute(query, (lineage, number)):
        run.append(Step(kind, data))
        if kind in (REMOVED, WHOLE):
            break
    if not run or run[0].kind == REMOVED:
        return None
    text = bytearray()
    try:
        if run[-1].kind != WHOLE:
            raise ValueError("the whole text that its steps begin with is missing")
        for step in reversed(run):
            steps.apply(text, step)
    except (ValueError, steps.Error) as error:
        raise Corrupt(_name(db, lineage, number), Problem(f"does not decode: {error}")) from error
    return bytes(text)


def _name(db: apsw.Connection, lineage: int, number: int) -> str:
    path = db.execute("SELECT dir FROM lineages WHERE key = ?", (lineage,)).get
    return f"{os.fsdecode(path) if path else lineage}@{number}"
