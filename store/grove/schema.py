"""Tables of a grove in PostgreSQL, and their creation.

Portable SQL: no functions, no triggers, no advisory locks. Everything is in the schema `grove`.
Locks are taken in the order trees, units, shards. `log` is gap-free per shard: the shard's row stays
locked until the commit is durable, so a visible seq means that all before it are visible.
"""

from __future__ import annotations

from typing import Any

FORMAT = 1
SHARDS = 64  # fixed when the grove is created

TABLES = f"""
CREATE SCHEMA grove;

CREATE TABLE grove.grove (               -- one row
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch uuid NOT NULL,                 -- identity of this history; a host of another epoch writes nothing
    format int NOT NULL,
    oldest_format int NOT NULL,          -- hosts with an older format only read
    shards int NOT NULL,
    frozen text                          -- NULL, or why nobody may write: history was lost
);

CREATE TABLE grove.hosts (
    host uuid PRIMARY KEY,
    name text NOT NULL,
    machine text NOT NULL,               -- machine-id, and inode of .grovefs: a copied home has others
    home_inode bigint NOT NULL,
    format int NOT NULL,
    cursor bigint[] NOT NULL,            -- by shard: what it has applied
    seen timestamptz NOT NULL DEFAULT now(),
    retired boolean NOT NULL DEFAULT false
);

CREATE TABLE grove.shards (
    shard int PRIMARY KEY,
    seq bigint NOT NULL
) WITH (fillfactor = 20);                -- room for HOT updates

CREATE TABLE grove.trees (
    shard int NOT NULL,
    root text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,          -- counts units created and deleted below the root
    gone boolean NOT NULL,
    PRIMARY KEY (shard, root)
) WITH (fillfactor = 70);

CREATE TABLE grove.units (
    shard int NOT NULL,
    unit text COLLATE "C" NOT NULL,      -- directory, relative to the home
    root text COLLATE "C" NOT NULL,
    version bigint NOT NULL,             -- 1, 2, 3 …, across deletion too
    token uuid NOT NULL,                 -- of the attempt that made this version
    previous uuid,                       -- token of the version before
    base bigint NOT NULL,                -- newest version that needs no older row
    gone boolean NOT NULL,
    digests jsonb NOT NULL,              -- sha256 of every file of this version, by path
    at timestamptz NOT NULL,
    PRIMARY KEY (shard, unit)
) WITH (fillfactor = 70);
CREATE INDEX units_root ON grove.units (root);

CREATE TABLE grove.log (
    shard int NOT NULL,
    seq bigint NOT NULL,
    unit text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    token uuid NOT NULL,
    previous uuid,
    host uuid NOT NULL,
    what text NOT NULL,
    via text NOT NULL,                   -- of the author: mount, api, cli, …
    program text NOT NULL,
    said_ns bigint,                      -- updated_at of the document, to find the base of a stale save
    generation bigint,                   -- of the tree, if the row created or deleted a unit
    at timestamptz NOT NULL,
    ops bytea NOT NULL,
    PRIMARY KEY (shard, seq),
    UNIQUE (shard, unit, version)        -- a second fence against two versions of one number
);
ALTER TABLE grove.log ALTER COLUMN ops SET STORAGE EXTERNAL;  -- compressed by the hosts

CREATE TABLE grove.chunks (
    sha256 bytea PRIMARY KEY,            -- of the plain bytes
    data bytea NOT NULL,                 -- at most 1 MiB plain; the first byte says whether it is compressed
    seen date NOT NULL DEFAULT current_date
);
ALTER TABLE grove.chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE grove.refs (                -- which versions need a chunk
    unit text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (unit, version, sha256)
);
CREATE INDEX refs_sha256 ON grove.refs (sha256);

INSERT INTO grove.shards SELECT number, 0 FROM generate_series(0, {SHARDS} - 1) AS number;
"""

# Settings that would let the server lose what it acknowledged.
UNSAFE_SETTINGS = {
    "fsync": {"off"},
    "full_page_writes": {"off"},
    "synchronous_commit": {"off", "local"},
}


def create_tables(connection: Any, epoch: str) -> None:
    """Create an empty grove, in the transaction of the caller. Fails if the schema exists."""
    connection.execute(TABLES)
    connection.execute(
        "INSERT INTO grove.grove (epoch, format, oldest_format, shards) VALUES (%s, %s, %s, %s)",
        (epoch, FORMAT, FORMAT, SHARDS),
    )


def unsafe_settings(connection: Any) -> list[str]:
    """The settings of the server, as `name=value`, that make an acknowledged commit unsafe."""
    rows = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(UNSAFE_SETTINGS),))
    return [f"{name}={value}" for name, value in rows if value in UNSAFE_SETTINGS[name]]
