"""List sessions: ls."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table, short_names
from fusefs.cli.terminal import echo
from store import Location, Timestamp
from store.index.catalog import Order
from store.search.filters import STATUSES, find_time

if TYPE_CHECKING:
    from store import IndexEntry, SessionSummary, Store

RUNNING_NS = 3600 * 10**9  # a session without a change for longer is not at work


@app.command("ls")
def list_sessions(
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of sessions; -1 for all.")] = 50,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned sessions.")] = False,
    status: Annotated[
        str | None, typer.Option(help="Only sessions whose last run has this status: completed, error, …")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="Only sessions at work: status running, changed in the last hour.")
    ] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only sessions that wait for an answer of yours.")] = False,
    title: Annotated[str | None, typer.Option(help="Only sessions with this text in the title.")] = None,
    user: Annotated[str | None, typer.Option(help="Only sessions of this user.")] = None,
    model: Annotated[str | None, typer.Option(help="Only sessions of this model.")] = None,
    project: Annotated[str | None, typer.Option(help="Only sessions of this project.")] = None,
    host: Annotated[str | None, typer.Option(help="Only sessions imported from this machine.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only sessions updated since: 2026-11-16, yesterday, 7d, 12h.")
    ] = None,
    sort: Annotated[Order, typer.Option(help="Order: newest, last created, by title, or most messages first.")] = (
        "updated"
    ),
    as_json: Json = False,
) -> None:
    """List sessions, newest first. Untitled sessions show the first words of the user instead.

    Example: grovefs ls --status error --limit 10
    """
    if running and status is not None:
        raise typer.BadParameter("--running and --status cannot be combined")
    where: dict[str, Any] = {"pinned": True if pinned else None, "status": status, "title": title, "user": user}
    where |= {"model": model, "project": project, "host": host, "updated_since": _moment(since)}
    order: dict[str, Any] = {"order": sort, "descending": sort != "title"}
    if running:  # an agent that was killed leaves its last status behind
        where |= {"status": "running", "updated_since": Timestamp.from_ns(time.time_ns() - RUNNING_NS)}
    if waiting:
        where["waiting"] = True
    with open_store(home) as store:
        _check_status(store, status)
        if as_json:
            entries = store.entries(limit=limit, **order, **where)
            print_json([{**entry.model_dump(), "id": str(_location(entry))} for entry in entries])
            return
        summaries = store.summaries.page(limit=limit, **order, **where)
        short = short_names(store, [str(summary.location) for summary in summaries])
    _print_table(summaries, short)
    if len(summaries) == limit and sys.stdout.isatty():
        echo(f"Only the first {limit} are shown; pass --limit N for more.", err=True)


def _moment(since: str | None) -> Timestamp | None:
    at_ns = find_time(since) if since is not None else None
    if since is not None and at_ns is None:
        raise typer.BadParameter(f"expected a date such as 2026-11-16, yesterday or 7d, got {since!r}")
    return Timestamp.clamped(at_ns) if at_ns is not None else None


def _location(entry: IndexEntry) -> Location:
    return Location(entry.root_session_id, entry.id if entry.kind == "child" else None)


def _check_status(store: Store, status: str | None) -> None:
    """Reject a status that no session has and no agent writes: it is a typo, which an empty list would not show."""
    if status is None or status in STATUSES:
        return
    known = dict.fromkeys([*store.browser.values("status"), *STATUSES])
    if status not in known:
        raise typer.BadParameter(f"unknown status {status!r}; known: {', '.join(known)}", param_hint="--status")


def _print_table(summaries: list[SessionSummary], short: dict[str, str]) -> None:
    rows = [(s.updated_at[:19], str(s.location), str(s.message_count), s.status or "", s.title) for s in summaries]
    print_table(("updated", "id", "messages", "status", "title"), rows, short=short, cut=["title"])
