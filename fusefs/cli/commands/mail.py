"""Messages between sessions: mail send, list, drain, ack."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import orjson
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.terminal import echo
from store import Delivered, InboxMessage, Mailbox, NotFound, Store, layout

mail = typer.Typer(
    help="""Send messages to sessions and receive them.

    Every session has a mailbox. A message is in `mailbox/new/` until it is drained, then in `mailbox/cur/` until it is
    acknowledged. Delivery is therefore at least once, even if the receiver is killed: `drain --again` returns messages
    that were drained but not acknowledged. Unreadable messages are moved to `mailbox/corrupt/`. You may also copy or
    move a file into `new/`.

    SESSION is an id, a unique prefix of an id, a title, or the path of a project session: projects/KEY/sessions/ID.

    Example: grovefs mail send fix-login "please test it on Firefox too" --kind steer --from reviewer""",
    no_args_is_help=True,
)
app.add_typer(mail, name="mail")

Session = Annotated[
    str, typer.Argument(metavar="SESSION", help="Owner of the mailbox: id, unique prefix of an id, or title.")
]
# The body member that readers of these kinds expect a plain text in.
_TEXT_MEMBER = {"ask": "question", "reply": "answer", "steer": "text"}


@mail.command()
def send(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the message; - reads standard input.")],
    home: Home,
    kind: Annotated[str, typer.Option(help="Kind of message: task, ask, reply, steer, event, …")] = "task",
    sender: Annotated[str, typer.Option("--from", help="Session id of the sender.")] = "grovefs",
    role: Annotated[str | None, typer.Option(help="Role of the sender.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="Id of the message this one answers.")] = None,
    is_json: Annotated[bool, typer.Option("--body-json", help="TEXT is JSON and used as the body unchanged.")] = False,
    as_json: Json = False,
) -> None:
    """Send a message to a session and print its id."""
    content = sys.stdin.read() if text == "-" else text
    message = InboxMessage.new(sender, kind, _body(content, kind, is_json=is_json), role=role, correlation_id=reply_to)
    with open_store(home) as store:
        path = _box(store, session).deliver(message)
    print_json({"id": message.id, "path": path}) if as_json else echo(message.id)


def _box(store: Store, session: str) -> Mailbox:
    is_project = session.startswith(f"{layout.PROJECTS}/")
    return store.mail.at(session if is_project else str(store.resolve(session)))


def _body(content: str, kind: str, *, is_json: bool) -> Any:
    if not is_json:
        return {_TEXT_MEMBER[kind]: content} if kind in _TEXT_MEMBER else content
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"TEXT is not JSON: {error}") from None


@mail.command("list")
def list_mail(session: Session, home: Home, as_json: Json = False) -> None:
    """List the messages waiting in a mailbox without draining them."""
    with open_store(home) as store:
        _print(_box(store, session).pending(), as_json=as_json)


@mail.command()
def drain(
    session: Session,
    home: Home,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the printed messages, which deletes them.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Include messages drained before but not acknowledged.")
    ] = False,
    wait: Annotated[float, typer.Option("--wait", help="Wait up to N seconds for a message.")] = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Maximum number of new messages.")] = None,
    as_json: Json = False,
) -> None:
    """Drain a mailbox: print its messages, oldest first. Exits with 1 if there are none."""
    with open_store(home) as store:
        box = _box(store, session)
        found = box.recover() if again else []
        found += box.receive(wait, limit) if wait > 0 and not found else box.drain(limit)
        _print(found, as_json=as_json)
        sys.stdout.flush()  # before acknowledging: if the pipe is closed, the messages must stay
        for delivered in found if ack else []:
            box.ack_delivered(delivered)
    if not found:
        raise typer.Exit(1)


@mail.command("ack")
def acknowledge(
    session: Session,
    message: Annotated[str, typer.Argument(help="Id of the message.")],
    home: Home,
    as_json: Json = False,
) -> None:
    """Acknowledge a drained message, which deletes it."""
    with open_store(home) as store:
        if not _box(store, session).ack(message):
            raise NotFound(f"no message {message!r} is waiting to be acknowledged in the mailbox of {session}")
    if as_json:
        print_json({"id": session, "acknowledged": message})


def _print(found: list[Delivered], *, as_json: bool) -> None:
    if as_json:
        print_json([{"path": delivered.path, "message": delivered.message.model_dump()} for delivered in found])
        return
    print_table(("sent", "id", "kind", "from", "body"), [_row(delivered.message) for delivered in found])


def _row(message: InboxMessage) -> tuple[str, ...]:
    body = message.body if isinstance(message.body, str) else orjson.dumps(message.body).decode()
    first = body.splitlines()[0] if body else ""
    return message.created_at[:19], message.id, message.kind, message.sender.session_id, first
