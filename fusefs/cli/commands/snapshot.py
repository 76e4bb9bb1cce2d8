"""Name the present moment: snapshot."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table, progress_bar
from fusefs.cli.terminal import echo
from store import InvalidName, Snapshot, Timestamp
from store.undo.versions_spec import local_text, parse_moment


@app.command()
def snapshot(
    home: Home,
    name: Annotated[str | None, typer.Argument(help="Omit it to list the snapshots.")] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the name; its versions may then be thinned out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give the present moment a name, or list such names, newest first.

    A mount shows all sessions as they were then in snapshots/NAME, which rsync can copy while agents write. A
    snapshot copies only sessions that have no version yet; the history keeps its versions until it is deleted.

    Example: grovefs snapshot before-cleanup && rsync -a mnt/snapshots/before-cleanup/ /backup/
    """
    if name is not None and not delete and _is_time(name):
        raise typer.BadParameter(f"{name!r} reads as a time; choose another name for the snapshot")
    if name is None and delete:
        raise typer.BadParameter("--delete needs the name of a snapshot")
    with open_store(home) as store:
        if name is None:
            found = store.history.snapshots()
        elif delete:
            store.history.delete_snapshot(name)
            found = []
        else:
            with progress_bar("recording sessions without a version") as progress:
                found = [store.history.snapshot(name, progress=progress)]
    if as_json:
        print_json([_as_dict(each) for each in found] if name is None else _outcome(name, found))
    elif name is None:
        print_table(("name", "when"), [(each.name, local_text(each.at_ns)) for each in found])
    elif delete:
        echo(f"deleted the snapshot {name}")
    else:
        echo(f"{name}: {local_text(found[0].at_ns)}; snapshots/{name} in a mount")


def _is_time(name: str) -> bool:
    try:
        parse_moment(name, time.time_ns())
    except InvalidName:
        return False
    return True


def _as_dict(found: Snapshot) -> dict[str, str]:
    return {"name": found.name, "at": Timestamp.from_ns(found.at_ns)}


def _outcome(name: str, found: list[Snapshot]) -> dict[str, object]:
    return _as_dict(found[0]) if found else {"name": name, "deleted": True}  # type: ignore[return-value]
