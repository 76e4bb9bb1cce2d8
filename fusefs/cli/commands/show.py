"""Print a conversation or its tool calls: show."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import orjson
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.message_names import split_message
from fusefs.cli.terminal import clean, page
from fusefs.cli.transcript_terminal import render_transcript
from fusefs.cli.version_names import VersionedName
from store import NotFound, SavedVersion, Session, Store, StoreError, TrajectoryStep, layout
from store.search.transcripts import pick


@app.command()
def show(
    session: VersionedName,
    home: Home,
    message: Annotated[
        int | None,
        typer.Option("--message", "-m", help="Only message N: 0 is the first, as in search results, -1 the last."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print plain Markdown on a terminal too.")] = False,
    steps: Annotated[
        bool,
        typer.Option("--steps", help="Print the tool calls (trajectory.jsonl) as a table instead of the conversation."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a conversation; on a terminal with Markdown rendered and times in the local time zone.

    Piped, or with --markdown, the output is the file that a mount has in transcripts/. SESSION#7 prints message 7, as
    search prints its number, and SESSION@V#7 that message in a version. With @V the conversation is
    printed as it was in that version; `grovefs log` lists them. With --steps each tool call is one line: number, start
    time, tool, status, duration, arguments and result.

    Example: grovefs show fix-login#7
    """
    is_rendered = sys.stdout.isatty() and not markdown
    with open_store(home) as store:
        session, message = _named_message(store, session, message)
        found = _found(store, session, message, steps=steps, as_json=as_json, marked=is_rendered)
    if found is None:
        return
    if isinstance(found, bytes):
        sys.stdout.buffer.write(found)
    elif isinstance(found, Session):
        print_json(found.model_dump() if message is None else pick(found.messages, message).model_dump())
    elif not sys.stdout.isatty():
        sys.stdout.buffer.write(found.encode())
    elif markdown:
        page(f"{clean(found)}")
    else:
        page(render_transcript(found))


def _named_message(store: Store, session: str, message: int | None) -> tuple[str, int | None]:
    """Split SESSION#N, unless that is the name of a session."""
    name, number = split_message(session)
    if number is None:
        return session, message
    with suppress(StoreError):
        store.history.resolve(session)
        return session, message
    if message is not None:
        raise typer.BadParameter("#N and --message cannot be combined")
    return name, number


def _found(
    store: Store, session: str, message: int | None, *, steps: bool, as_json: bool, marked: bool
) -> Session | str | bytes | None:
    """The session or its transcript, now or in a past version; the text of another document. None: printed already."""
    path, version = store.history.resolve(session)
    if version is not None:
        if steps:
            raise typer.BadParameter("--steps shows the log of tool calls, which has no versions; omit @V")
        return _then(store, store.history.get(path, version), message, as_json=as_json, marked=marked)
    place = str(store.resolve(session))
    if steps:
        _print_steps(store, place, message, as_json=as_json)
        return None
    found = store.load(place) if as_json else store.transcript(place, message, marked=marked)
    if found is None:
        raise NotFound(f"session {place} was deleted")
    return found


def _then(
    store: Store, version: SavedVersion, message: int | None, *, as_json: bool, marked: bool
) -> Session | str | bytes:
    if not version.path.startswith(f"{layout.SESSIONS}/") or version.path.endswith(".json"):
        text = store.history.read(version).main
        if text is None:
            raise NotFound(f"{version.path} did not exist in version {version.label}")
        return text
    return store.history.load(version) if as_json else store.history.transcript(version, message, marked=marked)


def _print_steps(store: Store, place: str, message: int | None, *, as_json: bool) -> None:
    if message is not None:
        raise typer.BadParameter("--steps and --message cannot be combined")
    steps = store.trajectory.read(place) or []
    if as_json:
        print_json([step.model_dump() for step in steps])
    else:
        headings = ("step", "started", "tool", "status", "duration", "arguments", "result")
        print_table(headings, [_step_row(number, step) for number, step in enumerate(steps)])


def _step_row(number: int, step: TrajectoryStep) -> tuple[str, ...]:
    status, duration = "error" if step.is_error else "ok", f"{step.duration_ms} ms"
    arguments = orjson.dumps(step.tool_args).decode()
    return (
        str(number),
        step.timestamp[:19],
        step.tool_name,
        status,
        duration,
        arguments,
        " ".join(step.output_summary.split()),
    )
