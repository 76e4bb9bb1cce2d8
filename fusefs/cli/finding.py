"""Find things: search."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, progress_bar
from store import Hit, Timestamp
from store.words import printable


@app.command()
def search(
    query: Annotated[list[str], typer.Argument(help="What to look for; quote it as one word for your shell.")],
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    sessions: Annotated[bool, typer.Option("--sessions", help="One line for each session: its best match.")] = False,
    as_json: Json = False,
) -> None:
    """Find messages, titles, summaries and state documents, the best first.

    All words must occur, in any order: login blank. A "phrase" in that order; a prefix* of two letters or more;
    this OR that; -not; (groups). Text, reasoning, tool calls and their results are searched, and text in
    pictures. Chinese, Japanese and Korean text is found by any two characters or more.

    Filters: role:user model:gpt title:plan kind:root pinned:yes status:error project:ID before:2026-02
    after:2026-01-31; each can be negated, as in -role:tool.

    A line says session#message, role, and the text around the match. Exit code 1 if nothing was found.
    """
    with progress_bar("indexing") as progress, open_store(home, progress) as store:
        hits = store.search(" ".join(query), limit=limit, by_session=sessions)
    if as_json:
        print_json([_record(hit) for hit in hits])
    else:
        for hit in hits:
            typer.echo("\t".join(_session_line(hit) if sessions else _line(hit)))
    if not hits:
        raise typer.Exit(1)


def _record(hit: Hit) -> dict[str, Any]:
    return {**hit._asdict(), "location": str(hit.location) if hit.location is not None else None}


def _place(hit: Hit) -> str:
    return str(hit.location) if hit.location is not None else hit.path


def _line(hit: Hit) -> list[str]:
    place = _place(hit) if hit.message_index is None else f"{_place(hit)}#{hit.message_index}"
    return [place, hit.role or {"state": "state"}.get(hit.kind, "title"), hit.snippet]


def _session_line(hit: Hit) -> list[str]:
    return [Timestamp.from_ns(hit.updated_ns)[:19], _place(hit), _on_one_line(hit.title), hit.snippet]


def _on_one_line(text: str) -> str:
    return " ".join(printable(text).split())
