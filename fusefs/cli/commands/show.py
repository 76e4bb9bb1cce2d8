"""Print a conversation or its tool calls: show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.terminal import clean, page
from fusefs.cli.version_names import VersionedName
from store import NotFound, SavedVersion, Session, Store, TrajectoryStep, layout
from store.search.transcripts import pick

if TYPE_CHECKING:
    from rich.console import Console

# Terminal styles of transcript lines by prefix.
_STYLES = {
    "# ": "bold underline",
    "## ": "bold",
    "> ": "dim italic",
    ">": "dim italic",
    "**→ ": "bold magenta",
}
_ROLES = {"user": "bold green", "assistant": "bold cyan", "tool": "bold yellow", "system": "bold blue"}
_HEADING = re.compile(r"## \[\d+\] (\w+)")
_FENCE = re.compile(r"`{3,}\Z")


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
    """Print a conversation as Markdown, styled on a terminal.

    Piped, or with --markdown, the output is the file that a mount has in transcripts/. With @V the conversation is
    printed as it was in that version; `grovefs log` lists them. With --steps each tool call is one line: number, start
    time, tool, status, duration, arguments and result.

    Example: grovefs show fix-login -m -1
    """
    with open_store(home) as store:
        found = _found(store, session, message, steps=steps, as_json=as_json)
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
        page(rendered_styles(found))


def _found(
    store: Store, session: str, message: int | None, *, steps: bool, as_json: bool
) -> Session | str | bytes | None:
    """The session or its transcript, now or in a past version; the text of another document. None: printed already."""
    session, message = _split_index(store, session, message)
    path, version = store.history.resolve(session)
    if version is not None:
        if steps:
            raise typer.BadParameter("--steps shows the log of tool calls, which has no versions; omit @V")
        return _then(store, store.history.get(path, version), message, as_json=as_json)
    place = str(store.resolve(session))
    if steps:
        _print_steps(store, place, message, as_json=as_json)
        return None
    found = store.load(place) if as_json else store.transcript(place, message)
    if found is None:
        raise NotFound(f"session {place} was deleted")
    return found


def _split_index(store: Store, session: str, message: int | None) -> tuple[str, int | None]:
    """Session and message of `fix-login#7`, as search prints it. A name with a # of its own comes first."""
    name, mark, index = session.rpartition("#")
    if not mark or not index.isdecimal() or message is not None:
        return session, message
    try:
        store.resolve(session)
    except NotFound:
        return name, int(index)
    return session, message


def _then(store: Store, version: SavedVersion, message: int | None, *, as_json: bool) -> Session | str | bytes:
    if not version.path.startswith(f"{layout.SESSIONS}/") or version.path.endswith(".json"):
        text = store.history.read(version).main
        if text is None:
            raise NotFound(f"{version.path} did not exist in version {version.number}")
        return text
    return store.history.load(version) if as_json else store.history.transcript(version, message)


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


def print_styled(text: str) -> None:
    """Print Markdown on a terminal in colours, with every line unchanged."""
    sys.stdout.write(rendered_styles(text))


def rendered_styles(text: str) -> str:
    """Markdown in colours for this terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as capture:
        _print_lines(console, text)
    return capture.get()


def _print_lines(console: Console, text: str) -> None:
    from rich.text import Text

    for line, style, is_code in styled_lines(text):
        console.print(Text(clean(line), style), soft_wrap=is_code)  # prose is wrapped at words, code is not


def styled_lines(text: str) -> Iterator[tuple[str, str, bool]]:
    """Each line, its style, and whether it is code."""
    fence = ""
    for line in text.removesuffix("\n").split("\n"):
        if fence:
            yield line, "dim" if line == fence else "", True
            fence = "" if line == fence else fence
        elif _FENCE.match(line):
            fence = line
            yield line, "dim", True
        else:
            yield line, _style(line), False


def _style(line: str) -> str:
    heading = _HEADING.match(line)
    if heading is not None:
        return _ROLES.get(heading[1], "bold")
    return next((style for start, style in _STYLES.items() if line.startswith(start)), "")
