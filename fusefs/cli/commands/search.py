"""Find things: search."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table, progress_bar
from fusefs.cli.terminal import echo
from store import Hit, Timestamp
from store.search.query import parse_query


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
    pictures. Chinese, Japanese and Korean text is found by any two characters or more, emoji as words. Any text is a
    query; what was probably meant otherwise is said on standard error. One that begins with a minus stands behind --,
    as in grovefs search -- -deploy. The best come first, then the newest; of a word that is in more than 1,000
    messages the newest 1,000 are ranked.

    Filters: role:user model:gpt title:plan kind:root pinned:yes status:error project:ID before:2026-02
    after:2026-01-31; each can be negated, as in -role:tool.

    A line says session#message, role, and the text around the match. Exit code 1 if nothing was found. In a mount,
    search/<query>/ links to the sessions found and results.md has the places; a slash is written %2F, a percent sign
    %25; up to 1,000 sessions are linked.

    Example: grovefs search 'condition role:assistant -deploy'
    """
    parsed = parse_query(" ".join(query))
    for hint in parsed.hints:
        echo(f"grovefs: {hint}", err=True)
    with progress_bar("indexing") as progress, open_store(home, progress) as store:
        hits = store.search(parsed, limit=limit, by_session=sessions)
    if as_json:
        print_json([_record(hit) for hit in hits])
    else:
        heads = ("updated", "session", "title", "match") if sessions else ("where", "role", "match")
        print_table(heads, [_session_line(hit) if sessions else _line(hit) for hit in hits])
    if not hits:
        if sys.stdout.isatty():  # a program looks at the exit code
            echo("nothing was found", err=True)
        raise typer.Exit(1)


def _record(hit: Hit) -> dict[str, Any]:
    return {**hit._asdict(), "location": str(hit.location) if hit.location is not None else None}


def _place(hit: Hit) -> str:
    return str(hit.location) if hit.location is not None else hit.path


def _line(hit: Hit) -> list[str]:
    place = _place(hit) if hit.message_index is None else f"{_place(hit)}#{hit.message_index}"
    return [place, hit.role or {"state": "state"}.get(hit.kind, "title"), hit.snippet]


def _session_line(hit: Hit) -> list[str]:
    return [Timestamp.from_ns(hit.updated_ns)[:19], _place(hit), hit.title, hit.snippet]
