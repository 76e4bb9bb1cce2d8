"""Make sessions and add to them: new, append, attach."""

from __future__ import annotations

import mimetypes
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from fusefs.cli.app import NAMED, Home, Json, SessionName, app, open_store, print_json
from fusefs.cli.terminal import echo
from store import AlreadyExists, InvalidName, Location, Message, NotFound, Session, Store, layout
from store.layout import check_new, parse_location

Role = Literal["user", "assistant", "system"]
_MAKE = {"user": Message.user, "assistant": Message.assistant, "system": Message.system}


@app.command()
def new(
    home: Home,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its id; by default one is made up.")] = None,
    title: Annotated[str | None, typer.Option("--title", "-t", help="Its title.")] = None,
    model: Annotated[str, typer.Option(help="The model it is held with.")] = "",
    user: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    project: Annotated[str | None, typer.Option(help="The project to file it under.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message it begins with.")] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", help="What the user says; - reads it.")] = None,
    parent: Annotated[str | None, typer.Option("--child-of", help=f"Make it a child of this session. {NAMED}")] = None,
    document: Annotated[
        Path | None, typer.Option("--from", help="A session.json to begin with, of whatever id; - reads it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a session, and print its id. A home that is not there yet is made too.

    Example: grovefs new fix-login --title "Fix the login" -m "The page is blank."
    """
    said = [("system", system), ("user", _text(message) if message is not None else None)]
    if document is not None and (title, model, user, project, system, message, parent) != (None, "", *[None] * 5):
        raise typer.BadParameter("--from brings all that a session says; the other options are for one made here")
    with _open_or_make(home) as store:
        if document is not None:
            location = _put(store, id or str(uuid.uuid4()), _read(document))
        else:
            session = _drafted(store, id or str(uuid.uuid4()), parent, model)
            session.title = title if title is not None else session.title
            session.user_id, session.project_id = user, project
            for role, text in said:
                if text is not None:
                    session.add_message(_MAKE[role](text))
            location = _place(session)
            _refuse_taken(store, location)
            store.save(session)
    print_json({"session": str(location)}) if as_json else echo(str(location))


def _open_or_make(home: Path) -> Store:
    """A directory in which there is something else does not become a home by mistake."""
    place = home.expanduser()
    if place.is_dir() and any(place.iterdir()) and not (place / layout.SESSIONS).is_dir():
        raise InvalidName(f"{home} holds something, and is no home; say which with --home or $GROVEFS_HOME")
    return Store.open(place, background=False)


def _drafted(store: Store, id: str, parent: str | None, model: str) -> Session:
    if parent is None:
        return Session.new(id, model)
    above = store.load_runtime(str(store.resolve(parent)))
    if above is None:
        raise NotFound(f"session {parent} is gone")
    return Session.new_child_of(id, above, model, "")


def _place(session: Session) -> Location:
    location = Location(session.root_session_id, session.id if session.kind == "child" else None)
    check_new(location)
    return location


def _put(store: Store, name: str, raw: bytes) -> Location:
    location = parse_location(name) or Location(name)
    check_new(location)
    _refuse_taken(store, location)
    store.put_document(location, layout.SESSION, raw)
    return location


def _refuse_taken(store: Store, location: Location) -> None:
    if store.exists(str(location)):
        raise AlreadyExists(f"there is a session {location} already; `grovefs append {location} …` adds to it")


@app.command()
def append(
    session: SessionName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is said; - reads it from standard input.")],
    home: Home,
    role: Annotated[Role, typer.Option("--role", "-r", help="Who says it.")] = "user",
    is_json: Annotated[
        bool, typer.Option("--messages-json", help="TEXT is JSON: a message with all its members, or an array of them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add a message at the end of a session.

    Example: git log -1 | grovefs append fix-login -
    """
    content = _text(text)
    if not content.strip():
        raise typer.BadParameter("there is nothing to append")
    added = _parsed(content) if is_json else [_MAKE[role](content)]
    with open_store(home) as store:
        location = str(store.resolve(session))
        store.append(location, added)
        entry = store.entry(location)
    count = entry.message_count if entry else 0
    if as_json:
        print_json({"session": location, "appended": len(added), "messages": count})
    else:
        echo(f"{location}#{count - 1}")


def _parsed(content: str) -> list[Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"TEXT is not JSON: {error}") from None
    return value if isinstance(value, list) else [value]


@app.command()
def attach(
    session: SessionName,
    file: Annotated[Path, typer.Argument(help="The file; - reads standard input.")],
    home: Home,
    mime: Annotated[str | None, typer.Option(help="Its type; by default what its name says.")] = None,
    as_json: Json = False,
) -> None:
    """Store a file with a session, and print the reference by which messages speak of it.

    Example: grovefs append fix-login "see $(grovefs attach fix-login screen.png)"
    """
    kind = mime or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    data = _read(file)
    with open_store(home) as store:
        attached = store.attach(str(store.resolve(session)), data, kind)
    print_json(attached._asdict()) if as_json else echo(attached.url)


def _text(argument: str) -> str:
    return sys.stdin.read() if argument == "-" else argument


def _read(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
