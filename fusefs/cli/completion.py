"""What the shell offers on TAB: sessions by id or title, straight from the index; files where a file is meant.

Nobody waits for a key: the index is only read, no store is opened, and few lines are offered. Whatever goes wrong is no
offer, and never a message in the middle of someone's line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer

from fusefs.cli.default_home import default_home

MOST = 50  # offers: more is nothing to choose from
_LAST = chr(0x10FFFF)
_NOT_PLAIN = re.compile(r"([^\w@%+=:,./-])")
# A session without a title goes by the user's first words, as in lists.
_SHOWN = "iif(opening IS NOT NULL AND trim(title) IN ('', 'New Session'), opening, title)"
_BY_ID = f"SELECT id, {_SHOWN} FROM sessions WHERE id >= ?1 AND id < ?2 ORDER BY updated_ns DESC LIMIT ?3"
_CHILDREN = (
    f"SELECT root || '/' || child, {_SHOWN} FROM sessions WHERE root = ?4 AND child > '' "
    "AND root || '/' || child BETWEEN ?1 AND ?2 ORDER BY updated_ns DESC LIMIT ?3"
)
_BY_TITLE = f"SELECT {_SHOWN} AS shown FROM sessions WHERE shown >= ?1 AND shown < ?2 ORDER BY updated_ns DESC LIMIT ?3"


def sessions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids that begin so, each with its title; behind `root/` its children; if there are none, titles that begin so."""
    home = ctx.params.get("home") or default_home()
    try:
        values = (incomplete, incomplete + _LAST, MOST)
        root, slash, _ = incomplete.partition("/")
        found = _ask(Path(home), _CHILDREN, (*values, root)) if slash else _ask(Path(home), _BY_ID, values)
        if found or not incomplete:
            return [(name, " ".join(title.split())) for name, title in found]
        titles = dict.fromkeys(title for (title,) in _ask(Path(home), _BY_TITLE, values))
        return [(_typed(title, incomplete), "") for title in titles if title.isprintable()]
    except Exception:  # whatever it is, TAB is no place to tell of it
        return []


def files(incomplete: str) -> list[str]:
    """Nothing of ours, so that the shell offers files: it knows how to quote them."""
    return []


def _ask(home: Path, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    import apsw

    uri = f"file:{quote(str(home.expanduser().absolute() / '.grovefs/index.db'))}?mode=ro"
    db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


def _typed(title: str, incomplete: str) -> str:
    """As it is to stand in the line. bash takes it as it comes, the others quote; inside quotes nothing is to be."""
    is_bash = os.environ.get("_GROVEFS_COMPLETE") == "complete_bash"
    return _NOT_PLAIN.sub(r"\\\1", title) if is_bash and _NOT_PLAIN.search(incomplete) is None else title
