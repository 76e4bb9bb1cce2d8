"""Messages between sessions: mail send, list, drain, ack."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import orjson
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from store import Delivered, InboxMessage, NotFound

mail = typer.Typer(
    help="""Send messages to sessions, and take them in.

    Every session has a mailbox. A message waits in `mailbox/new/` until it is drained, then in `mailbox/cur/` until
    it is acknowledged: what was drained and never acknowledged is there for `drain --again`. SESSION is an id,
    root/child, or the path of a project's session: projects/<key>/sessions/<id>.""",
    no_args_is_help=True,
)
app.add_typer(mail, name="mail")

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Whose mailbox.")]
# What a plain text is to these kinds, as their readers expect it.
_TEXT_MEMBER = {"ask": "question", "reply": "answer", "steer": "text"}


@mail.command()
def send(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from standard input.")],
    home: Home,
    kind: Annotated[str, typer.Option(help="task, ask, reply, steer, event …")] = "task",
    sender: Annotated[str, typer.Option("--from", help="The session it comes from.")] = "grovefs",
    role: Annotated[str | None, typer.Option(help="The sender's role.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="The id of the message this one answers.")] = None,
    is_json: Annotated[bool, typer.Option("--body-json", help="TEXT is JSON, and the body as it is.")] = False,
    as_json: Json = False,
) -> None:
    """Put a message into a session's mailbox."""
    content = sys.stdin.read() if text == "-" else text
    message = InboxMessage.new(sender, kind, _body(content, kind, is_json=is_json), role=role, correlation_id=reply_to)
    with open_store(home) as store:
        path = store.mail.at(session).deliver(message)
    print_json({"id": message.id, "path": path}) if as_json else typer.echo(message.id)


def _body(content: str, kind: str, *, is_json: bool) -> Any:
    if not is_json:
        return {_TEXT_MEMBER[kind]: content} if kind in _TEXT_MEMBER else content
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"TEXT is not JSON: {error}") from None


@mail.command("list")
def list_mail(session: Session, home: Home, as_json: Json = False) -> None:
    """Show what waits in a mailbox, without taking it."""
    with open_store(home) as store:
        _print(store.mail.at(session).pending(), as_json=as_json)


@mail.command()
def drain(
    session: Session,
    home: Home,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge what was printed: it is gone then.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was drained before and not acknowledged.")] = False,
    wait: Annotated[float, typer.Option("--wait", help="Wait up to so many seconds for something.")] = 0.0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="At most so many new ones.")] = None,
    as_json: Json = False,
) -> None:
    """Take in what waits in a mailbox, the oldest first. Exit code 1 if there is nothing."""
    with open_store(home) as store:
        box = store.mail.at(session)
        found = box.recover() if again else []
        found += box.receive(wait, limit) if wait > 0 and not found else box.drain(limit)
        _print(found, as_json=as_json)
        sys.stdout.flush()  # before they are gone: if nobody reads any more, they stay
        for delivered in found if ack else []:
            box.ack_delivered(delivered)
    if not found:
        raise typer.Exit(1)


@mail.command("ack")
def acknowledge(session: Session, message: Annotated[str, typer.Argument(help="Its id.")], home: Home) -> None:
    """A drained message is done with: take it away."""
    with open_store(home) as store:
        if not store.mail.at(session).ack(message):
            raise NotFound(f"no message {message!r} is waiting to be acknowledged in the mailbox of {session}")


def _print(found: list[Delivered], *, as_json: bool) -> None:
    if as_json:
        print_json([{"path": delivered.path, "message": delivered.message.model_dump()} for delivered in found])
        return
    for message in (delivered.message for delivered in found):
        body = message.body if isinstance(message.body, str) else orjson.dumps(message.body).decode()
        first = body.splitlines()[0] if body else ""
        typer.echo(f"{message.created_at[:19]}\t{message.id}\t{message.kind}\t{message.sender.session_id}\t{first}")
