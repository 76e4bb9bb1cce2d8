"""Full-text search: search."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table, progress_bar, short_names
from fusefs.cli.terminal import echo
from fusefs.views.html.names import path_of
from store import Hit, Timestamp
from store.search.query import parse_query


@app.command()
def search(
    query: Annotated[list[str], typer.Argument(help="Search query; quote it for the shell.")],
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of results.")] = 20,
    sessions: Annotated[bool, typer.Option("--sessions", help="Print one line per session: its best match.")] = False,
    dates: Annotated[bool, typer.Option("--dates", help="Print when each message was said.")] = False,
    since: Annotated[str, typer.Option("--since", hidden=True)] = "",
    as_json: Json = False,
) -> None:
    """Search messages, titles, summaries and state documents, best match first.

    Query syntax: words match in any order (login blank); "a phrase" matches exactly; prefix* needs two letters or
    more; a OR b; -word excludes; (groups) nest. Text, reasoning, tool calls, tool results and text in images are
    searched. Chinese, Japanese and Korean text is found by any two consecutive characters, and emoji as words.
    Every text is a valid query; hints about likely mistakes go to standard error. A query that begins with a minus
    needs -- before it: grovefs search -- -deploy. Equal matches are ordered newest first. For a word in more than
    1,000 messages the newest 1,000 are ranked.

    Filters: role:user model:gpt title:plan kind:root pinned:yes status:error project:ID tool:bash
    before:2026-02 after:2026-01-31 after:yesterday after:7d (also 30m, 12h, 2w). Dates are those of the messages, in
    UTC. Each can be negated: -role:tool.

    Each line has session#message, role, and the text around the match. Exits with 1 if nothing is found. In a
    mount, search/QUERY/ links to up to 1,000 matching sessions, and results.md in it lists the matches; write a slash
    as %2F and a percent sign as %25.

    Example: grovefs search 'condition role:assistant -deploy'
    """
    if since:
        raise typer.BadParameter(f"there is no --since; write after:{since} in the query")
    text = " ".join(query)
    parsed = parse_query(text)
    if re.search(r"(?:^|\s)-?since:\S", text):
        echo("grovefs: since: is not a filter and is searched as text; after:7d is one", err=True)
    for hint in parsed.hints:
        echo(f"grovefs: {hint}", err=True)
    with progress_bar("indexing") as progress, open_store(home, progress) as store:
        hits = store.search(parsed, limit=limit, by_session=sessions)
        short = short_names(store, map(_place, hits))
        near = store.near_spellings(parsed) if not hits else []
    if as_json:
        print_json([_record(hit) for hit in hits])
    else:
        headings = (
            ("updated", "session", "title", "match")
            if sessions
            else ("where", *(["said"] if dates else []), "role", "match")
        )
        rows = [_session_line(hit) if sessions else _line(hit, dates=dates) for hit in hits]
        print_table(headings, rows, short=short, cut=["title", "match"] if sessions else [])
    if not hits:
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        echo(f"grovefs: nothing found{advice}", err=True)
        raise typer.Exit(1)


def _record(hit: Hit) -> dict[str, Any]:
    """A hit with the names that all JSON uses: `id` of a session (ROOT or ROOT/CHILD), times as RFC 3339."""
    members = {k: v for k, v in hit._asdict().items() if k not in ("location", "created_ns", "updated_ns")}
    name = str(hit.location) if hit.location is not None else None
    created_at = Timestamp.clamped(hit.created_ns) if hit.created_ns is not None else None
    times = {"created_at": created_at, "updated_at": Timestamp.clamped(hit.updated_ns)}
    return {"id": name, **members, **times, "page": _page(hit)}


def _page(hit: Hit) -> str | None:
    """The page of a message in a mount; None for a state document."""
    if hit.location is None:
        return None
    anchor = f"#m{hit.message_index}" if hit.message_index is not None else ""
    return f"html/{path_of(hit.location)}{anchor}"


def _place(hit: Hit) -> str:
    return str(hit.location) if hit.location is not None else hit.path


def _line(hit: Hit, *, dates: bool) -> list[str]:
    place = _place(hit) if hit.message_index is None else f"{_place(hit)}#{hit.message_index}"
    said_ns = hit.created_ns if hit.created_ns is not None else hit.updated_ns
    said = [Timestamp.clamped(said_ns)[:16].replace("T", " ")] if dates else []
    return [place, *said, hit.role or {"state": "state"}.get(hit.kind, "title"), hit.snippet]


def _session_line(hit: Hit) -> list[str]:
    return [Timestamp.clamped(hit.updated_ns)[:19], _place(hit), hit.title, hit.snippet]
