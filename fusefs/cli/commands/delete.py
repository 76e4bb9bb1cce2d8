"""Take sessions away: rm, cleanup. What went is had back by `undelete`, see fusefs/cli/trash.py."""

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
from fusefs.cli.terminal import echo
from store import Location, Protected, Store
from store.sessions.cleanup import CleanupMode


@app.command("rm")
def remove(
    sessions: SessionNames,
    home: Home,
    force: Annotated[bool, typer.Option("--force", "-f", help="Pinned ones too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask where a name is not the whole id.")] = False,
    as_json: Json = False,
) -> None:
    """Delete sessions, each with all that descends from it. They are in the trash for seven days.

    One that is named by a beginning of its id, or by its title, goes only after a question, or with --yes: said twice,
    such a name might mean another session. If one is refused, because it or a descendant is pinned, the others go all
    the same, and the exit code is 1.

    Example: grovefs rm second-try
    """
    with open_store(home) as store:
        doomed = resolve_all(store, sessions)
        guessed = [str(location) for location, name in doomed.items() if name not in (str(location), location.id)]
        if (
            guessed
            and not yes
            and not confirm(f"Delete {', '.join(guessed)}?", f"--yes, or the whole id: {guessed[0]}")
        ):
            raise typer.Exit(1)
        results = [_removed(store, location, force=force) for location in doomed]
    if as_json:
        print_json(results)
    for result in results:
        if result["refused"] is not None:
            echo(f"grovefs: {result['refused']}", err=True)
        elif not as_json:
            with_others = f" and {plural(result['count'] - 1, 'descendant')}" if result["count"] > 1 else ""
            back = f"`grovefs undelete {result['session']}` brings it back within seven days"
            echo(f"deleted {result['session']}{with_others}; {back}")
    if any(result["refused"] is not None for result in results):
        raise typer.Exit(1)


def _removed(store: Store, location: Location, *, force: bool) -> dict[str, Any]:
    before = len(store.entries(root=location.root, limit=-1))
    refused, is_gone = None, False
    try:
        is_gone = store.delete(str(location), force=force)
    except Protected as error:
        refused = f"{error}: `grovefs unpin`, or `grovefs rm --force {location}`"
    trash = next((d.name for d in store.trash.deleted() if d.session_id == str(location)), None) if is_gone else None
    count = max(1, before - len(store.entries(root=location.root, limit=-1))) if is_gone else 0
    return {"session": str(location), "deleted": is_gone, "count": count, "trash": trash, "refused": refused}


@app.command()
def cleanup(
    mode: Annotated[
        CleanupMode, typer.Argument(help="empty: those that hold nothing; children: every child; all: everything.")
    ],
    home: Home,
    pinned: Annotated[bool, typer.Option("--pinned", help="Pinned ones too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete sessions of a kind: first it is said which, then you are asked. They are in the trash for seven days.

    Example: grovefs cleanup empty --dry-run
    """
    with open_store(home) as store:
        plan = store.prune.plan_cleanup(mode, keep_pinned=not pinned)
        doomed, deleted = [str(location) for location in plan.to_delete], None
        if not as_json:
            for place in doomed:
                echo(place)
        if doomed and not dry_run and (yes or confirm(f"Delete {plural(len(doomed), 'session')}?")):
            with progress_bar("cleaning up") as progress:
                deleted = store.prune.apply(plan, progress=progress).deleted_count
    if as_json:
        print_json({"doomed": doomed, "deleted": deleted})
    elif deleted is None:
        echo(f"{plural(len(doomed), 'session')} would go")
    else:
        echo(f"{plural(deleted, 'session')} deleted; `grovefs trash` lists what can be had back")
