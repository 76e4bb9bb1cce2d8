"""Schema of history.db: its tables, and the migrations that made them.

history.db is data, not derived: an upgrade keeps every row. `user_version` counts the migrations that
have been applied. A migration is never changed once it has been released; a new one is added.
"""

from __future__ import annotations

import apsw

APPLICATION_ID = 0x47525648  # "GRVH"

_FIRST = """
CREATE TABLE lineages (              -- the history of one path, and its newest version
    key INTEGER PRIMARY KEY,
    dir BLOB NOT NULL UNIQUE,        -- path as on disk: a session's directory, or another kept file
    last INTEGER NOT NULL,           -- number of the newest version; numbers are never reused
    at_ns INTEGER NOT NULL,          -- time of the newest version
    main_mark INTEGER,               -- 64 bits of the stamp of the file that the newest version was stored as
    main_bytes INTEGER,              -- size of its text; NULL: the file does not exist
    main_digest BLOB,                -- of its text; NULL: not known
    main_said_ns INTEGER,            -- its updated_at
    main_whole_bytes INTEGER NOT NULL DEFAULT 0,  -- size of the last whole text, compressed
    main_step_bytes INTEGER NOT NULL DEFAULT 0,   -- of all steps since
    main_steps INTEGER NOT NULL DEFAULT 0,        -- number of steps since
    side_mark INTEGER,
    side_bytes INTEGER,
    side_digest BLOB,
    side_said_ns INTEGER,
    side_whole_bytes INTEGER NOT NULL DEFAULT 0,
    side_step_bytes INTEGER NOT NULL DEFAULT 0,
    side_steps INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE versions (
    key INTEGER PRIMARY KEY,         -- order of recording over all lineages
    lineage INTEGER NOT NULL,
    number INTEGER NOT NULL,         -- from 1
    at_ns INTEGER NOT NULL,          -- grows with the number
    what TEXT NOT NULL,              -- saved, appended, moved, found, …
    origin INTEGER NOT NULL,         -- key in origins
    pid INTEGER NOT NULL,
    note TEXT NOT NULL,
    main_kind INTEGER,               -- of the step, see store/history/steps.py; NULL: as in the version before
    main_bytes INTEGER,              -- size of the text; NULL: the file does not exist
    main_digest BLOB,                -- of the text; NULL: not known
    main_said_ns INTEGER,
    main_mark INTEGER,
    main_data BLOB,                  -- of the step
    side_kind INTEGER,
    side_bytes INTEGER,
    side_digest BLOB,
    side_said_ns INTEGER,
    side_mark INTEGER,
    side_data BLOB
) STRICT;
-- With the time, the version at a moment is found without reading rows. An index on at_ns alone would
-- cost every commit another page.
CREATE UNIQUE INDEX versions_number ON versions (lineage, number, at_ns);
CREATE INDEX versions_said ON versions (lineage, main_said_ns) WHERE main_kind IS NOT NULL;

CREATE TABLE origins (               -- authors, without the process
    key INTEGER PRIMARY KEY,
    via TEXT NOT NULL,
    program TEXT NOT NULL,
    uid INTEGER NOT NULL,
    UNIQUE (via, program, uid)
) STRICT;

CREATE TABLE names (                 -- the path of a lineage from a moment on
    lineage INTEGER NOT NULL,
    from_ns INTEGER NOT NULL,
    dir BLOB NOT NULL,
    PRIMARY KEY (lineage, from_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE drafts (                -- texts as typed, where a merge stored something else
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    lineage INTEGER NOT NULL,
    name TEXT NOT NULL,              -- session.json or runtime.json
    said_ns INTEGER,                 -- updated_at of the text
    uid INTEGER NOT NULL,
    process INTEGER,                 -- thread group id; NULL: unknown
    process_start INTEGER,
    mount TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    data BLOB NOT NULL               -- a whole text, compressed
) STRICT;
CREATE INDEX drafts_lineage ON drafts (lineage, name);

CREATE TABLE snapshots (
    name TEXT PRIMARY KEY,
    at_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

_SECOND = """
ALTER TABLE versions ADD COLUMN agreed INTEGER;  -- number in the grove; negative: only here; NULL: there is no grove
ALTER TABLE versions ADD COLUMN made_ns INTEGER; -- when its host made it, by the clock of the database
"""

_THIRD = """
CREATE TABLE former_marks (          -- stamps that the file of a version had before its mode or times were changed
    lineage INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (lineage, mark)
) STRICT, WITHOUT ROWID;
"""

MIGRATIONS = (_FIRST, _SECOND, _THIRD)
VERSION = len(MIGRATIONS)
TABLES = ("lineages", "versions", "origins", "names", "drafts", "snapshots", "former_marks")


def migrate(db: apsw.Connection) -> int:
    """Bring the tables up to date, inside a transaction. Returns the version that was found."""
    found = int(db.execute("PRAGMA user_version").get)
    for sql in MIGRATIONS[found:]:
        db.execute(sql)
    if found < VERSION:
        db.execute(f"PRAGMA user_version = {VERSION}; PRAGMA application_id = {APPLICATION_ID}")
    return found
