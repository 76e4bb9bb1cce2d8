"""The agreement statement: compare and set all units of a commit, and add their rows to the log.

One round trip. Every condition is part of the statement: the grove has the epoch this home knows and
is not frozen, the shard has the rows this home knows, every chunk is there, every unit has the version
and the token this home knows, and a tree whose units are deleted is as this home knows it. A new mailbox
needs the newest version of its session: mail to a session that was deleted meanwhile must not get into
another one that is created later under the same id.
If one condition fails, nothing is changed: with several units, or with a tree, a division by zero makes
the server roll back.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from store.commit.commit import AgreedVersion
from store.grove.prepared import PreparedStatement
from store.grove.proposing import Proposal
from store.grove.units import escape_path, location_of
from store.grove.wire import encode_ops

STALE_STATE = "22012"  # division by zero

STATEMENT = """
WITH given AS (
    SELECT *, %(digests)s::jsonb -> (nth - 1)::int AS digests FROM unnest(
        %(units)s::text[], %(was)s::bigint[], %(previous)s::uuid[], %(gone)s::bool[], %(whole)s::bool[],
        %(ops)b::bytea[], %(said_ns)s::bigint[]
    ) WITH ORDINALITY AS g (unit, was, previous, gone, whole, ops, said_ns, nth)
), open AS (
    SELECT 1 FROM grove.grove WHERE epoch = %(epoch)b AND frozen IS NULL
    AND (SELECT seq FROM grove.shards WHERE shard = %(shard)s) >= %(known_seq)s
    AND (SELECT count(*) FROM grove.chunks WHERE sha256 = ANY(%(chunks)s::bytea[])) = cardinality(%(chunks)s::bytea[])
), tree AS (
    INSERT INTO grove.trees AS t (shard, root, generation, gone)
    SELECT %(shard)s, %(root)s, 1, %(tree)s = 'deleted' FROM open WHERE %(tree)s <> 'kept'
    ON CONFLICT (shard, root) DO UPDATE SET generation = t.generation + 1, gone = excluded.gone
    WHERE CASE %(tree)s WHEN 'deleted' THEN t.generation = %(generation)s
        WHEN 'below' THEN NOT t.gone AND coalesce(t.generation = %(generation)s, true) ELSE true END
    RETURNING t.generation
), changed AS (
    INSERT INTO grove.units AS u (shard, unit, root, version, token, previous, base, gone, digests, at)
    SELECT %(shard)s, g.unit, %(root)s, g.was + 1, %(token)b, g.previous, CASE WHEN g.whole THEN g.was + 1 ELSE 0 END,
        g.gone, g.digests, now()
    FROM given g, open
    WHERE (g.was = 0 OR EXISTS (SELECT FROM grove.units x WHERE x.shard = %(shard)s AND x.unit = g.unit))
    AND (%(tree)s = 'kept' OR EXISTS (SELECT FROM tree))
    ORDER BY g.unit
    ON CONFLICT (shard, unit) DO UPDATE SET version = excluded.version, token = excluded.token,
        previous = excluded.previous, gone = excluded.gone, at = excluded.at,
        base = CASE WHEN excluded.base > 0 THEN excluded.base ELSE u.base END,
        digests = CASE WHEN excluded.base > 0 THEN excluded.digests
            ELSE jsonb_strip_nulls(u.digests || excluded.digests) END
    WHERE u.version = excluded.version - 1 AND u.token = excluded.previous
    RETURNING u.unit
), counted AS (
    SELECT (SELECT count(*) FROM changed) AS n, cardinality(%(units)s::text[]) AS wanted
), ends AS (
    UPDATE grove.shards SET seq = seq + wanted FROM counted
    WHERE shard = %(shard)s AND n = wanted RETURNING seq
), added AS (
    INSERT INTO grove.log
        (shard, seq, unit, version, token, previous, host, what, via, program, said_ns, generation, at, ops)
    SELECT %(shard)s, ends.seq - wanted + g.nth, g.unit, g.was + 1, %(token)b, g.previous, %(host)b, %(what)s,
        %(via)s, %(program)s, g.said_ns, (SELECT generation FROM tree), now(), g.ops
    FROM given g, ends, counted
    RETURNING seq, unit, version
), refs AS (
    INSERT INTO grove.refs (unit, version, sha256)
    SELECT DISTINCT r.unit, r.version, r.sha256
    FROM unnest(%(ref_units)s::text[], %(ref_versions)s::bigint[], %(ref_digests)s::bytea[])
        AS r (unit, version, sha256), ends
)
SELECT max(seq), 1 / (
    CASE WHEN (%(tree)s <> 'kept' OR wanted > 1) AND (SELECT count(*) FROM added) <> wanted THEN 0 ELSE 1 END
) FROM counted LEFT JOIN added ON true GROUP BY wanted
"""

# For a new mailbox, as a statement of its own: the server would plan that of an append each time, if it had this too.
# FOR SHARE waits for a deletion in progress, and looks at the row again.
_OWNER = """), owner AS (
    SELECT u.unit FROM grove.units u
    JOIN unnest(%(owners)s::text[], %(owner_versions)s::bigint[], %(owner_tokens)s::uuid[]) AS o (unit, version, token)
        ON o.unit = u.unit AND o.version = u.version AND o.token = u.token
    WHERE u.shard = %(shard)s AND EXISTS (SELECT FROM tree) ORDER BY u.unit FOR SHARE OF u
), changed AS ("""
_WITH_TREE = "OR EXISTS (SELECT FROM tree))"
STATEMENT_WITH_OWNER = STATEMENT.replace("), changed AS (", _OWNER).replace(
    _WITH_TREE, f"{_WITH_TREE} AND (SELECT count(*) FROM owner) = cardinality(%(owners)s::text[])"
)


_TYPES = {
    **dict.fromkeys(("units", "ref_units", "owners"), "text[]"),
    **dict.fromkeys(("was", "said_ns", "ref_versions", "owner_versions"), "bigint[]"),
    **dict.fromkeys(("previous", "owner_tokens"), "uuid[]"),
    **dict.fromkeys(("gone", "whole"), "bool[]"),
    **dict.fromkeys(("ops", "chunks", "ref_digests"), "bytea[]"),
    **dict.fromkeys(("epoch", "token", "host"), "uuid"),
    **dict.fromkeys(("root", "tree", "what", "via", "program"), "text"),
    **dict.fromkeys(("known_seq", "generation"), "bigint"),
    "shard": "int",
    "digests": "jsonb",
}
_PREPARED = PreparedStatement("agree", STATEMENT, _TYPES)
_PREPARED_WITH_OWNER = PreparedStatement("agree_with_owner", STATEMENT_WITH_OWNER, _TYPES)


def prepared_for(values: dict[str, Any]) -> PreparedStatement:
    return _PREPARED_WITH_OWNER if values["owners"] else _PREPARED


def statement_for(values: dict[str, Any]) -> str:
    return STATEMENT_WITH_OWNER if values["owners"] else STATEMENT


def tree_change(proposals: Sequence[Proposal]) -> str:
    """What a commit does to its tree: kept, created, below or deleted."""
    if not location_of(proposals[0].unit).owner.is_session:
        return "kept"
    for proposal in proposals:
        if proposal.is_root and (proposal.is_gone or proposal.is_new):
            return "deleted" if proposal.is_gone else "created"
    return "below" if any(proposal.is_gone or proposal.is_new for proposal in proposals) else "kept"


def parameters(proposals: Sequence[Proposal], token: str, shard: int, tree: str) -> dict[str, Any]:
    """The part of the statement's parameters that the proposals determine."""
    refs = [(p.unit, _was(p) + 1, digest) for p in proposals for digest in p.chunks]
    chunks = sorted({digest for _, _, digest in refs})
    owners = [p.session for p in proposals if p.session is not None]
    return {
        "units": [p.unit for p in proposals],
        "was": [_was(p) for p in proposals],
        "previous": [p.known.token if p.known else None for p in proposals],
        "gone": [p.is_gone for p in proposals],
        "whole": [p.is_gone or p.is_new for p in proposals],
        "digests": json.dumps([_digests(p) for p in proposals], separators=(",", ":")),
        "ops": [encode_ops(p.operations) for p in proposals],
        "said_ns": [p.said_ns for p in proposals],
        "ref_units": [unit for unit, _, _ in refs],
        "ref_versions": [version for _, version, _ in refs],
        "ref_digests": [digest for _, _, digest in refs],
        "chunks": chunks,
        "shard": shard,
        "root": location_of(proposals[0].unit).root,
        "token": token,
        "tree": tree,
        "owners": [owner.unit for owner in owners],
        "owner_versions": [owner.known.version for owner in owners],
        "owner_tokens": [owner.known.token for owner in owners],
        "atomic": tree != "kept" or len(proposals) > 1,  # for the caller: the statement works it out itself
    }


def compact(values: dict[str, Any]) -> dict[str, Any]:
    """The parameters as they are sent: ids take 16 bytes and not 36. `ops` is sent as bytes too, not as hex digits."""
    return values | {name: uuid.UUID(values[name]) for name in ("token", "host", "epoch")}


def agreed_versions(proposals: Sequence[Proposal], token: str, shard: int, last_seq: int) -> list[AgreedVersion]:
    first = last_seq - len(proposals) + 1
    return [
        AgreedVersion(
            p.unit, _was(p) + 1, token, shard, first + nth, p.digests, p.is_gone, p.is_gone or p.is_new, p.claims
        )
        for nth, p in enumerate(proposals)
    ]


def _was(proposal: Proposal) -> int:
    return proposal.known.version if proposal.known else 0


def _digests(proposal: Proposal) -> dict[str, str | None]:
    return {escape_path(path): digest for path, digest in proposal.digests.items()}
