"""Schema of index.db: the SQL text, its version and the upgrade from older versions.

Every table but `marks` is derived from the files (rule 1). An upgrade therefore drops and recreates
the tables, keeps the rows of `marks`, and the home re-indexes every session when it is opened.
"""

from __future__ import annotations

import apsw

from store.documents.transcript import RENDERER_VERSION

VERSION = 5
APPLICATION_ID = 0x47524F56  # "GROV"
# Rows of texts, pieces and search are numbered session key << SHIFT plus message index: 16 million
# messages a session.
SHIFT = 24

TOKENIZER = "unicode61 remove_diacritics 2"
# FTS5 buffers this much in memory before it writes a segment: a first index makes few large
# segments.
FTS_HASH_BYTES = 32 << 20

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,            -- epoch, clean, renderer, feed_floor, export_stamps, _digest, _cursor, _head,
                                     --   export_has_unknown (entries of sessions not indexed),
                                     --   pruned_ns (last automatic run), health (probe write),
                                     --   grep_next (document), grep_token (of the freshness server)
    value
) WITHOUT ROWID;

CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,         -- valid in this database only
    root TEXT NOT NULL,              -- location: root id
    child TEXT NOT NULL,             --   and child id; '' for a root
    id TEXT NOT NULL,                -- last component of the path; not unique: several roots may have the same child id
    parent TEXT,                     -- parent_session_id
    title TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    model TEXT NOT NULL,
    status TEXT,                     -- last_run_status
    project TEXT,                    -- runtime_metadata.project_id
    created_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    name TEXT NOT NULL,              -- file name in the views; not unique
    header_bytes INTEGER NOT NULL,   -- size of the transcript header
    text_bytes INTEGER NOT NULL DEFAULT 0, -- size of the transcript body: the sum of pieces.bytes
    entry TEXT NOT NULL,             -- entry in sessions.json, as exported
    extra TEXT,                      -- unknown members of that entry, written by other programs
    main_stamp TEXT NOT NULL,        -- stamp of the session.json this row was built from
    side_stamp TEXT,                 -- same for runtime.json; NULL if there is none
    append_at INTEGER,               -- offset in session.json after the last message
    updated_at_span INTEGER,         -- offset in session.json of the value of updated_at
    updated_at_text TEXT,            -- that value in session.json; the sidecar may have a newer one
    user TEXT,                       -- metadata.user_id: the owner
    persona TEXT,                    -- metadata.active_persona_id
    seed TEXT,                       -- metadata.active_seed_id
    host TEXT,                       -- metadata.host: the machine it was imported from; NULL for this one
    opening TEXT,                    -- title derived from the first user message; NULL without one
    asked INTEGER NOT NULL,          -- number of user messages
    answered INTEGER NOT NULL        -- number of final answers to them
) STRICT;
CREATE UNIQUE INDEX sessions_location ON sessions (root, child);
CREATE INDEX sessions_id ON sessions (id);
CREATE INDEX sessions_updated ON sessions (updated_ns DESC, key);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_pinned ON sessions (root) WHERE pinned;
CREATE INDEX sessions_project ON sessions (project);
CREATE INDEX sessions_status ON sessions (status);
CREATE INDEX sessions_model ON sessions (model);
CREATE INDEX sessions_name ON sessions (name);

CREATE TABLE damaged (               -- unreadable sessions; a sweep does not retry unchanged ones
    root TEXT NOT NULL,
    child TEXT NOT NULL,
    main_stamp TEXT NOT NULL,
    side_stamp TEXT,
    reason TEXT NOT NULL,
    PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;

CREATE TABLE texts (                 -- one row per row of the full-text table `search`
    row INTEGER PRIMARY KEY,         -- sessions.key << 24, plus 0 for title and summary, or index + 1 for a message;
                                     --   -state_documents.key for a state document
    number INTEGER NOT NULL,         -- rowid in `search`; increases in the order of writing
    role TEXT NOT NULL,              -- '' if not a message
    message_id TEXT,
    created_ns INTEGER,
    tools TEXT,                      -- names of the tools that the message calls or answers, between spaces
    digest INTEGER NOT NULL          -- of the message's JSON, keys sorted; if equal, the row is up to date
) STRICT;
CREATE UNIQUE INDEX texts_number ON texts (number);
CREATE TABLE pieces (                -- sizes of the parts of a transcript
    row INTEGER PRIMARY KEY,         -- as in texts; 0 is the summary
    bytes INTEGER NOT NULL           -- size without the targets of attachment links
) STRICT;
CREATE TABLE links (                 -- attachment links in transcripts; targets are resolved on disk
    row INTEGER NOT NULL,            -- as in texts
    url TEXT NOT NULL,               -- bamboo-attachment://…
    times INTEGER NOT NULL,          -- occurrences in that part
    PRIMARY KEY (row, url)
) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5(text, content='', contentless_delete=1, tokenize="{tokenizer}");

CREATE TABLE state_documents (       -- state documents in the full-text table
    key INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,       -- relative to the home: state/<category>/<name>.md
    title TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE grep_files (            -- files below sessions/ whose trigrams are in a segment
    document INTEGER PRIMARY KEY,    -- number in the segment; never reused
    path BLOB NOT NULL UNIQUE,       -- relative to the home, bytes as on disk
    stamp BLOB NOT NULL              -- of the version read, packed by store/search/grep/file_stamps.py
) STRICT;
CREATE TABLE grep_changed (          -- files newer than any segment: every query reads them
    path BLOB PRIMARY KEY,
    at_ns INTEGER NOT NULL           -- last known change
) STRICT, WITHOUT ROWID;
CREATE TABLE grep_folders (          -- directories whose files are all in the two tables above
    path BLOB PRIMARY KEY,
    stamp BLOB NOT NULL              -- of the directory at that time
) STRICT, WITHOUT ROWID;
CREATE TABLE grep_segments (         -- valid files in .grovefs/trigrams/; any other file there is garbage
    name TEXT PRIMARY KEY,
    documents INTEGER NOT NULL,      -- including deleted ones
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE changes (               -- the change feed
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    root TEXT NOT NULL,
    child TEXT NOT NULL,
    what TEXT NOT NULL,              -- saved, runtime, appended, deleted, attachment, log, …
    at_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE marks (                 -- journal entries: commits in progress, completed by recovery
    root TEXT NOT NULL,
    child TEXT NOT NULL,             -- '*' for the whole tree
    moves TEXT NOT NULL,             -- JSON: [[from, to], …], in order
    touched TEXT NOT NULL,           -- JSON: [[root, child], …], sessions to re-index
    PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;
"""


def create(db: apsw.Connection) -> None:
    """Create all tables in an empty database."""
    db.execute(SCHEMA.replace("{tokenizer}", TOKENIZER))
    db.execute(f"PRAGMA user_version = {VERSION}; PRAGMA application_id = {APPLICATION_ID}")
    db.execute("INSERT INTO meta VALUES ('renderer', ?)", (RENDERER_VERSION,))
    # No automatic merges: one inside a commit stalls it by tens of milliseconds.
    # Database.merge_search does them when idle.
    settings = f"('automerge', 0), ('crisismerge', 64), ('hashsize', {FTS_HASH_BYTES})"
    db.execute(f"INSERT INTO search(search, rank) VALUES {settings}")


def needs_upgrade(db: apsw.Connection, version: int) -> bool:
    """Whether the tables are older than this code.

    Transcript sizes of another renderer version are wrong.
    """
    if version != VERSION:
        return version < VERSION
    return bool(db.execute("SELECT value FROM meta WHERE key = 'renderer'").get != RENDERER_VERSION)


def upgrade(db: apsw.Connection) -> None:
    """Recreate all tables, empty except for `marks`.

    Opening the home then re-indexes every session.
    """
    marks = db.execute("SELECT root, child, moves, touched FROM marks").fetchall()
    # Virtual tables first: dropping one drops its shadow tables, which cannot be dropped directly.
    for kind in ("CREATE VIRTUAL TABLE", "CREATE TABLE"):
        tables = "SELECT name FROM sqlite_schema WHERE sql LIKE ? AND name NOT LIKE 'sqlite%'"
        for (name,) in db.execute(tables, (f"{kind}%",)).fetchall():
            db.execute(f'DROP TABLE "{name}"')
    create(db)
    db.executemany("INSERT INTO marks (root, child, moves, touched) VALUES (?, ?, ?, ?)", marks)
