"""Delete sessions: rm, cleanup. Deleted sessions are restored by `undelete`, see commands/trash.py."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fusefs.cli.app import (
    Home,
    Json,
    SessionNames,
    app,
    confirm,
    open_store,
    plural,
    print_json,
    progress_bar,
    resolve_all,
)
from fusefs.cli.terminal import as_argument, echo
from store import Location, Protected, Store
from store.sessions.cleanup import CleanupMode


@app.command("rm")
def remove(
    sessions: SessionNames,
    home: Home,
    force: Annotated[bool, typer.Option("--force", "-f", help="Delete pinned sessions too.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before deleting a session that is not named by its full id.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete sessions and their descendants. They stay in the trash for seven days.

    A session named by a prefix or title is deleted only after a confirmation or with --yes: run again, the same name
    might match another session. Sessions that are pinned, or have a pinned descendant, are not deleted; the others are,
    and the exit code is 1.

    Example: grovefs rm second-try
    """
    with open_store(home) as store:
        to_delete = resolve_all(store, sessions)
        guessed = [str(location) for location, name in to_delete.items() if name not in (str(location), location.id)]
        if guessed and not yes and not confirm(f"Delete {', '.join(guessed)}?", f"--yes, or the full id: {guessed[0]}"):
            raise typer.Exit(1)
        results = [_delete(store, location, force=force) for location in to_delete]
    if as_json:
        print_json(results)
    for result in results:
        if result["refused"] is not None:
            echo(f"grovefs: {result['refused']}", err=True)
        elif not as_json:
            with_others = f" and {plural(result['count'] - 1, 'descendant')}" if result["count"] > 1 else ""
            back = f"`grovefs undelete {as_argument(result['id'])}` restores it within seven days"
            echo(f"deleted {result['id']}{with_others}; {back}")
    if any(result["refused"] is not None for result in results):
        raise typer.Exit(1)


def _delete(store: Store, location: Location, *, force: bool) -> dict[str, Any]:
    before = len(store.entries(root=location.root, limit=-1))
    refused, is_deleted = None, False
    try:
        is_deleted = store.delete(str(location), force=force)
    except Protected as error:
        refused = f"{error}; use `grovefs unpin` or `grovefs rm --force {as_argument(str(location))}`"
    if refused is None and not is_deleted:
        refused = f"{location} was not deleted: it has no files in this home"
    trash = next((d.name for d in store.trash.deleted() if d.session_id == str(location)), None) if is_deleted else None
    count = max(1, before - len(store.entries(root=location.root, limit=-1))) if is_deleted else 0
    return {"id": str(location), "deleted": is_deleted, "count": count, "trash": trash, "refused": refused}


@app.command()
def cleanup(
    mode: Annotated[
        CleanupMode,
        typer.Argument(help="empty: sessions without content; children: all child sessions; all: every session."),
    ],
    home: Home,
    pinned: Annotated[bool, typer.Option("--pinned", help="Delete pinned sessions too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="List what would be deleted; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete all sessions of a kind, after listing them and asking. They stay in the trash for seven days.

    Example: grovefs cleanup empty --dry-run
    """
    with open_store(home) as store:
        plan = store.prune.plan_cleanup(mode, keep_pinned=not pinned)
        to_delete, deleted = [str(location) for location in plan.to_delete], None
        if not as_json:
            for place in to_delete:
                echo(place)
        if to_delete and not dry_run and (yes or confirm(f"Delete {plural(len(to_delete), 'session')}?")):
            with progress_bar("cleaning up") as progress:
                deleted = store.prune.apply(plan, progress=progress).deleted_count
    if as_json:
        print_json({"to_delete": to_delete, "deleted": deleted})
    elif deleted is None:
        echo(f"would delete {plural(len(to_delete), 'session')}")
    else:
        echo(f"deleted {plural(deleted, 'session')}; `grovefs trash` lists what can be restored")
