"""Change what a session is called and how it is kept: mv, fork, pin, unpin, clear."""

from __future__ import annotations

from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, SessionName, SessionNames, app, confirm, open_store, print_json, resolve_all
from fusefs.cli.terminal import echo
from store import NotFound, Session, Store


@app.command()
def mv(
    session: SessionName,
    home: Home,
    target: Annotated[str | None, typer.Argument(help="Its new id; root/child makes it a child.")] = None,
    title: Annotated[str | None, typer.Option("--title", "-t", help="Give it this title.")] = None,
    project: Annotated[str | None, typer.Option(help="File it under this project; '' under none.")] = None,
    as_json: Json = False,
) -> None:
    """Give a session another id, title or project. All that refers to its id follows, children too.

    Example: grovefs mv 3f2a fix-login --title "Fix the login"
    """
    if target is None and title is None and project is None:
        raise typer.BadParameter("say what it shall be called: an id, --title, or --project")
    with open_store(home) as store:
        place = store.resolve(session)
        if target is not None:
            place = store.rename(str(place), target)
        if title is not None:
            _set_title(store, str(place), title)
        if project is not None:
            store.move_to_project(str(place), project or None)
    print_json({"session": str(place)}) if as_json else echo(str(place))


@app.command()
def fork(
    session: SessionName,
    target: Annotated[str, typer.Argument(help="The id of the copy; root/child makes it a child.")],
    home: Home,
    title: Annotated[str | None, typer.Option("--title", "-t", help="Give the copy this title.")] = None,
    as_json: Json = False,
) -> None:
    """Copy a session, with its children and attachments, to go on from there under another id.

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
        raise NotFound(f"session {place} is gone")


@app.command()
def pin(sessions: SessionNames, home: Home, as_json: Json = False) -> None:
    """Protect sessions from being deleted.

    Example: grovefs pin fix-login
    """
    with open_store(home) as store:
        _set_pinned(store, sessions, pinned=True, as_json=as_json)


@app.command()
def unpin(sessions: SessionNames, home: Home, as_json: Json = False) -> None:
    """Allow sessions to be deleted again.

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
            raise NotFound(f"session {place} is gone")
    if as_json:
        print_json({"sessions": places, "pinned": pinned})
    else:
        for place in places:
            echo(f"{place} is {'pinned' if pinned else 'no longer pinned'}")


@app.command()
def clear(
    session: SessionName,
    home: Home,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Take all messages out of a session but its first system message, and its attachments.

    What goes is in the trash for seven days.

    Example: grovefs clear scratchpad --yes
    """
    with open_store(home) as store:
        place = str(store.resolve(session))
        entry = store.entry(place)
        if not yes and not confirm(f"Clear {place} ({entry.message_count if entry else 'unread'} messages)?", "--yes"):
            raise typer.Exit(1)
        if not store.clear(place):
            raise NotFound(f"session {place} is gone")
    if as_json:
        print_json({"session": place, "cleared": True})
    else:
        echo(f"{place} is cleared; `grovefs undelete {place}` brings it back within seven days")
