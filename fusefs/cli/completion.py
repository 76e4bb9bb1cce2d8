"""Shell completion: sessions by id or title, read straight from the index; files where a file is expected.

It must be fast: the index is opened read-only, no store is opened, and few candidates are offered. Any failure offers
nothing, because a message would appear in the middle of the command line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer

from fusefs.cli.default_home import default_home

MAX_CANDIDATES = 50  # a longer list is of no use
_LAST = chr(0x10FFFF)
_NOT_PLAIN = re.compile(r"([^\w@%+=:,./-])")
# A session without a title is shown by the user's first words, as in lists.
_SHOWN = "iif(opening IS NOT NULL AND trim(title) IN ('', 'New Session'), opening, title)"
_BY_ID = f"SELECT id, {_SHOWN} FROM sessions WHERE id >= ?1 AND id < ?2 ORDER BY updated_ns DESC LIMIT ?3"
_CHILDREN = (
    f"SELECT root || '/' || child, {_SHOWN} FROM sessions WHERE root = ?4 AND child > '' "
    "AND root || '/' || child BETWEEN ?1 AND ?2 ORDER BY updated_ns DESC LIMIT ?3"
)
_BY_TITLE = f"SELECT {_SHOWN} AS shown FROM sessions WHERE shown >= ?1 AND shown < ?2 ORDER BY updated_ns DESC LIMIT ?3"


def sessions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids with this prefix and their titles; after `root/`, its children; if no id matches, titles with this prefix."""
    home = ctx.params.get("home") or default_home()
    try:
        values = (incomplete, incomplete + _LAST, MAX_CANDIDATES)
        root, slash, _ = incomplete.partition("/")
        found = _query(Path(home), _CHILDREN, (*values, root)) if slash else _query(Path(home), _BY_ID, values)
        if found or not incomplete:
            return [(name, " ".join(title.split())) for name, title in found]
        titles = dict.fromkeys(title for (title,) in _query(Path(home), _BY_TITLE, values))
        return [(_quoted(title, incomplete), "") for title in titles if title.isprintable()]
    except Exception:  # an error message would garble the command line
        return []


def files(incomplete: str) -> list[str]:
    """No candidates: the shell then completes file names, and knows how to quote them."""
    return []


def _query(home: Path, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    import apsw

    uri = f"file:{quote(str(home.expanduser().absolute() / '.grovefs/index.db'))}?mode=ro"
    db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


def _quoted(title: str, incomplete: str) -> str:
    """A title as it is inserted: bash needs it escaped unless inside quotes; the other shells quote it themselves."""
    is_bash = os.environ.get("_GROVEFS_COMPLETE") == "complete_bash"
    return _NOT_PLAIN.sub(r"\\\1", title) if is_bash and _NOT_PLAIN.search(incomplete) is None else title
