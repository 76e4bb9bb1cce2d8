"""Full-text search: search."""

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
    query: Annotated[list[str], typer.Argument(help="Search query; quote it for the shell.")],
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of results.")] = 20,
    sessions: Annotated[bool, typer.Option("--sessions", help="Print one line per session: its best match.")] = False,
    as_json: Json = False,
) -> None:
    """Search messages, titles, summaries and state documents, best match first.

    Query syntax: words match in any order (login blank); "a phrase" matches exactly; prefix* needs two letters or
    more; a OR b; -word excludes; (groups) nest. Text, reasoning, tool calls, tool results and text in images are
    searched. Chinese, Japanese and Korean text is found by any two consecutive characters, and emoji as words.
    Every text is a valid query; hints about likely mistakes go to standard error. A query that begins with a minus
    needs -- before it: grovefs search -- -deploy. Equal matches are ordered newest first. For a word in more than
    1,000 messages the newest 1,000 are ranked.

    Filters: role:user model:gpt title:plan kind:root pinned:yes status:error project:ID before:2026-02
    after:2026-01-31. Each can be negated: -role:tool.

    Each line has session#message, role, and the text around the match. Exits with 1 if nothing is found. In a mount,
    search/QUERY/ links to up to 1,000 matching sessions, and results.md in it lists the matches; write a slash as %2F
    and a percent sign as %25.

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
        headings = ("updated", "session", "title", "match") if sessions else ("where", "role", "match")
        print_table(headings, [_session_line(hit) if sessions else _line(hit) for hit in hits])
    if not hits:
        if sys.stdout.isatty():  # programs check the exit code
            echo("nothing found", err=True)
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
