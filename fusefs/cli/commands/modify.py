"""Rename, copy, pin and clear sessions: mv, fork, pin, unpin, clear."""

from __future__ import annotations

from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, SessionName, SessionNames, app, confirm, open_store, print_json, resolve_all
from fusefs.cli.terminal import as_argument, echo
from store import NotFound, Session, Store


@app.command()
def mv(
    session: SessionName,
    home: Home,
    target: Annotated[str | None, typer.Argument(help="New id; ROOT/CHILD makes it a child session.")] = None,
    title: Annotated[str | None, typer.Option("--title", "-t", help="New title.")] = None,
    project: Annotated[str | None, typer.Option(help="Assign it to this project; '' to none.")] = None,
    as_json: Json = False,
) -> None:
    """Change the id, title or project of a session. References to the id are updated, also in children.

    Example: grovefs mv 3f2a fix-login --title "Fix the login"
    """
    if target is None and title is None and project is None:
        raise typer.BadParameter("pass a new id, --title or --project")
    with open_store(home) as store:
        place = store.resolve(session)
        if target is not None:
            place = store.rename(str(place), target)
        if title is not None:
            _set_title(store, str(place), title)
        if project is not None:
            store.move_to_project(str(place), project or None)
    print_json({"id": str(place)}) if as_json else echo(str(place))


@app.command()
def fork(
    session: SessionName,
    target: Annotated[str, typer.Argument(help="Id of the copy; ROOT/CHILD makes it a child session.")],
    home: Home,
    title: Annotated[str | None, typer.Option("--title", "-t", help="Title of the copy.")] = None,
    as_json: Json = False,
) -> None:
    """Copy a session with its children and attachments, to continue it under another id.

    Copied children get new ids, such as worker-2: Bamboo finds a session by its id alone.

    Example: grovefs fork fix-login second-try
    """
    with open_store(home) as store:
        made = store.fork(str(store.resolve(session)), target)
        if title is not None:
            _set_title(store, str(made[0]), title)
    print_json({"sessions": list(map(str, made))}) if as_json else echo("\n".join(map(str, made)))


def _set_title(store: Store, place: str, title: str) -> None:
    def change(session: Session) -> None:
        session.title = title

    if store.update(place, change) is None:
        raise NotFound(f"session {place} was deleted")


@app.command()
def pin(sessions: SessionNames, home: Home, as_json: Json = False) -> None:
    """Protect sessions from deletion.

    Example: grovefs pin fix-login
    """
    with open_store(home) as store:
        _set_pinned(store, sessions, pinned=True, as_json=as_json)


@app.command()
def unpin(sessions: SessionNames, home: Home, as_json: Json = False) -> None:
    """Allow the deletion of pinned sessions again.

    Example: grovefs ls --pinned | cut -f2 | grovefs unpin -
    """
    with open_store(home) as store:
        _set_pinned(store, sessions, pinned=False, as_json=as_json)


def _set_pinned(store: Store, names: list[str], *, pinned: bool, as_json: bool) -> None:
    def change(session: Session) -> None:
        session.pinned = pinned

    places = list(map(str, resolve_all(store, names)))
    for place in places:
        if store.update(place, change) is None:
            raise NotFound(f"session {place} was deleted")
    if as_json:
        print_json({"sessions": places, "pinned": pinned})
    else:
        for place in places:
            echo(f"{place} is {'pinned' if pinned else 'no longer pinned'}")


@app.command()
def clear(
    session: SessionName,
    home: Home,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Remove the messages and attachments of a session; only its first system message stays.

    They stay in the trash for seven days.

    Example: grovefs clear scratchpad --yes
    """
    with open_store(home) as store:
        place = str(store.resolve(session))
        entry = store.entry(place)
        if not yes and not confirm(
            f"Clear {place} ({entry.message_count if entry else 'unknown number of'} messages)?", "--yes"
        ):
            raise typer.Exit(1)
        if not store.clear(place):
            raise NotFound(f"session {place} was deleted")
    if as_json:
        print_json({"id": place, "cleared": True})
    else:
        echo(f"{place} is cleared; `grovefs undelete {as_argument(place)}` restores it within seven days")
