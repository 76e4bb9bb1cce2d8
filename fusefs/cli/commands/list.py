"""List sessions: ls."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.terminal import echo
from store import SessionSummary, Store
from store.search.filters import STATUSES


@app.command("ls")
def list_sessions(
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many; -1: all.")] = 50,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned ones.")] = False,
    status: Annotated[str | None, typer.Option(help="Only those whose last run ended so: completed, error, …")] = None,
    title: Annotated[str | None, typer.Option(help="Only those with this in their title.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    as_json: Json = False,
) -> None:
    """List sessions, the newest first. One without a title is shown by the first words of its user.

    Example: grovefs ls --status error --limit 10
    """
    where: dict[str, Any] = {"pinned": True if pinned else None, "status": status, "title": title, "user": user}
    with open_store(home) as store:
        _refuse_unknown_status(store, status)
        if as_json:
            print_json([entry.model_dump() for entry in store.entries(limit=limit, **where)])
            return
        summaries = store.summaries.page(limit=limit, **where)
    _print_table(summaries)
    if len(summaries) == limit and sys.stdout.isatty():
        echo(f"These are the newest {limit}; --limit says how many.", err=True)


def _refuse_unknown_status(store: Store, status: str | None) -> None:
    """It is free text, but one that no session has and no agent writes is mistyped: nothing listed would say so."""
    known = dict.fromkeys([*store.browser.values("status"), *STATUSES])
    if status is not None and status not in known:
        raise typer.BadParameter(f"no run ends with {status!r}; there are {', '.join(known)}", param_hint="--status")


def _print_table(summaries: list[SessionSummary]) -> None:
    rows = [(s.updated_at[:19], str(s.location), str(s.message_count), s.status or "", s.title) for s in summaries]
    print_table(("updated", "id", "messages", "status", "title"), rows)
