"""Look at sessions: ls, show."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from store import NotFound, Summary


@app.command("ls")
def list_sessions(
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 50,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned ones.")] = False,
    status: Annotated[str | None, typer.Option(help="Only those whose last run ended so.")] = None,
    title: Annotated[str | None, typer.Option(help="Only those with this in their title.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    as_json: Json = False,
) -> None:
    """List sessions, the newest first. One without a title is shown by the first words of its user."""
    where: dict[str, Any] = {"pinned": True if pinned else None, "status": status, "title": title, "user": user}
    with open_store(home) as store:
        if as_json:
            print_json([entry.model_dump() for entry in store.entries(limit=limit, **where)])
            return
        summaries = store.summaries(limit=limit, **where)
    _print_table(summaries)


def _print_table(summaries: list[Summary]) -> None:
    rows = [(s.updated_at[:19], s.id, str(s.message_count), s.status or "", s.title) for s in summaries]
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("updated", "id", "messages", "status", "title", box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


@app.command()
def show(session: Annotated[str, typer.Argument(help="Id, or root/child.")], home: Home, as_json: Json = False) -> None:
    """Print a conversation."""
    with open_store(home) as store:
        found = store.load(session)
    if found is None:
        raise NotFound(f"there is no session {session!r}; `grovefs ls` lists them")
    if as_json:
        print_json(found.model_dump())
        return
    typer.echo(f"{found.title}  ({found.model or 'no model'}, {len(found.messages)} messages)")
    for message in found.messages:
        typer.echo(f"\n[{message.role}] {(message.created_at or '')[:19]}")
        typer.echo(message.content)
        for call in message.tool_calls or []:
            typer.echo(f"→ {call.function.name}({call.function.arguments})")
