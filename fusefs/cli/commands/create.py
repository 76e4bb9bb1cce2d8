"""Create sessions and add to them: new, append, attach."""

from __future__ import annotations

import mimetypes
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from fusefs.cli.app import NAMED, Home, Json, SessionName, app, command_author, open_store, print_json
from fusefs.cli.terminal import as_argument, echo
from store import AlreadyExists, InvalidName, Location, Message, NotFound, Session, Store, layout
from store.errors import StoreError
from store.layout import check_new, parse_location

Role = Literal["user", "assistant", "system"]
_MESSAGE_OF = {"user": Message.user, "assistant": Message.assistant, "system": Message.system}


@app.command()
def new(
    home: Home,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Session id; default: a random UUID.")] = None,
    title: Annotated[str | None, typer.Option("--title", "-t", help="Title.")] = None,
    model: Annotated[str, typer.Option(help="Model name.")] = "",
    user: Annotated[str | None, typer.Option(help="Owner.")] = None,
    project: Annotated[str | None, typer.Option(help="Project to assign it to.")] = None,
    system: Annotated[str | None, typer.Option(help="System message at the start.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="First user message; - reads standard input.")
    ] = None,
    parent: Annotated[str | None, typer.Option("--child-of", help=f"Create a child of this session. {NAMED}")] = None,
    document: Annotated[
        Path | None, typer.Option("--from", help="Copy this session.json under the new id; - reads standard input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a session and print its id. Creates the home if there is none.

    Example: grovefs new fix-login --title "Fix the login" -m "The page is blank."
    """
    texts = [("system", system), ("user", _text(message) if message is not None else None)]
    if document is not None and (title, model, user, project, system, message, parent) != (None, "", *[None] * 5):
        raise typer.BadParameter("--from cannot be combined with options that set the content of the session")
    id = str(uuid.uuid4()) if id is None else id
    with _open_or_create(home) as store:
        if document is not None:
            location = _put(store, id, _read(document))
        else:
            session = _new_session(store, id, parent, model)
            session.title = title if title is not None else session.title
            session.user_id, session.project_id = user, project
            for role, text in texts:
                if text is not None:
                    session.add_message(_MESSAGE_OF[role](text))
            location = _place(session)
            _check_free(store, location)
            store.save(session)
    print_json({"id": str(location)}) if as_json else echo(str(location))


def _open_or_create(home: Path) -> Store:
    """Open or create the home, but never turn a directory with other content into one."""
    place = home.expanduser()
    if place.is_dir() and any(place.iterdir()) and not (place / layout.SESSIONS).is_dir():
        raise InvalidName(f"{home} is not empty and is not a home; pass --home or set $GROVEFS_HOME")
    return Store.open(place, background=False, author=command_author())


def _new_session(store: Store, id: str, parent: str | None, model: str) -> Session:
    if parent is None:
        return Session.new(id, model)
    above = store.load_runtime(str(store.resolve(parent)))
    if above is None:
        raise NotFound(f"session {parent} was deleted")
    return Session.new_child_of(id, above, model, "")


def _place(session: Session) -> Location:
    location = Location(session.root_session_id, session.id if session.kind == "child" else None)
    check_new(location)
    return location


def _put(store: Store, name: str, raw: bytes) -> Location:
    location = parse_location(name) or Location(name)
    check_new(location)
    _check_free(store, location)
    store.put_document(location, layout.SESSION, raw)
    return location


def _check_free(store: Store, location: Location) -> None:
    if store.exists(str(location)):
        raise AlreadyExists(
            f"session {location} already exists; `grovefs append {as_argument(str(location))} …` adds to it"
        )


@app.command()
def append(
    session: SessionName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the message; - reads standard input.")],
    home: Home,
    role: Annotated[Role, typer.Option("--role", "-r", help="Role of the message.")] = "user",
    is_json: Annotated[
        bool, typer.Option("--messages-json", help="TEXT is JSON: a complete message, or an array of messages.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Append a message to a session.

    Example: git log -1 | grovefs append fix-login -
    """
    content = _text(text)
    if not content.strip():
        raise typer.BadParameter("TEXT is empty")
    added = _parsed(content) if is_json else [_MESSAGE_OF[role](content)]
    with open_store(home) as store:
        location = str(store.resolve(session))
        store.append(location, added)
        entry = store.entry(location)
    count = entry.message_count if entry else 0
    if as_json:
        print_json({"id": location, "appended": len(added), "messages": count})
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
    file: Annotated[Path, typer.Argument(help="File to attach; - reads standard input.")],
    home: Home,
    mime: Annotated[str | None, typer.Option(help="MIME type; default: guessed from the file name.")] = None,
    as_json: Json = False,
) -> None:
    """Attach a file to a session and print the URL to use in messages.

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
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; no session was changed") from error
