"""Bring a version back: revert."""

from __future__ import annotations

from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from fusefs.cli.terminal import as_argument, echo
from fusefs.cli.version_names import RequiredVersion
from store.undo.versions_spec import local_text


@app.command()
def revert(
    session: RequiredVersion,
    home: Home,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say whether something would change.")] = False,
    as_json: Json = False,
) -> None:
    """Bring a version of a session back, as a new version: session.json and runtime.json as they were then.

    The session keeps its present id and place in the tree, and `updated_at` is new. Messages added since are gone from
    the session, but not from the history: `grovefs revert SESSION@-1` takes a revert back. Logs stay as they are, and
    so do attachments, but one that a message shows and that `clear` moved to the trash comes back. To take back one
    change and keep later ones, see `grovefs undo --merge`. `grovefs diff SESSION@V` shows what a revert takes back.

    Example: grovefs revert fix-login@3
    """
    with open_store(home) as store:
        path, version = store.history.resolve(session)
        if version is None:
            raise typer.BadParameter(
                f"which version? `grovefs log {as_argument(session)}` lists them; -1 is the one before"
            )
        found = store.history.get(path, version)
        is_changed = store.history.would_revert(found) if dry_run else store.history.revert(found)
        newest, name = store.history.get_newest(path), store.history.name_of(found.path)
    past = f"version {found.label} ({local_text(found.made_at_ns)})"
    if as_json:
        print_json(
            {"id": name, "reverted_to": found.shown_number, "changed": is_changed, "version": newest.shown_number},
        )
    elif not is_changed:
        echo(f"{name} has the content of version {found.label} already; nothing was changed")
    elif dry_run:
        difference = f"grovefs diff {as_argument(f'{name}@{found.label}')}"
        echo(f"{name} would be as in {past}; `{difference}` shows what has changed since")
    else:
        echo(f"{name} is as in {past}; this is version {newest.label}")
