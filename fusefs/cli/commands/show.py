"""Read a conversation: show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated

import orjson
import typer

from fusefs.cli.app import Home, Json, SessionName, app, open_store, print_json, print_table
from fusefs.cli.terminal import clean
from store import NotFound, Session, Store, TrajectoryStep
from store.search.transcripts import pick

# How a line of a transcript looks on a terminal, by how it begins.
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
    session: SessionName,
    home: Home,
    message: Annotated[
        int | None,
        typer.Option("--message", "-m", help="Only this one: 0 is the first, as search counts, -1 the last."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Plain Markdown, on a terminal too.")] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="What the agent did instead of what was said: trajectory.jsonl as a table.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a conversation, to read. Piped, or with --markdown, it is the text that the mount has in transcripts/.

    With --steps it is a line for each call of a tool: its number, when, which, how it ended, how long it took, what it
    was given and what came of it.

    Example: grovefs show fix-login -m -1
    """
    with open_store(home) as store:
        place = str(store.resolve(session))
        if steps:
            _print_steps(store, place, message, as_json=as_json)
            return
        found = store.load(place) if as_json else store.transcript(place, message)
    if found is None:
        raise NotFound(f"session {place} is gone")
    if isinstance(found, Session):
        print_json(found.model_dump() if message is None else pick(found.messages, message).model_dump())
    elif markdown or not sys.stdout.isatty():
        sys.stdout.buffer.write(found.encode())
    else:
        print_styled(found)


def _print_steps(store: Store, place: str, message: int | None, *, as_json: bool) -> None:
    if message is not None:
        raise typer.BadParameter("--steps are those of the whole session; --message is for what was said")
    steps = store.trajectory.read(place) or []
    if as_json:
        print_json([step.model_dump() for step in steps])
    else:
        heads = ("step", "began", "tool", "status", "took", "given", "came of it")
        print_table(heads, [_step_row(number, step) for number, step in enumerate(steps)])


def _step_row(number: int, step: TrajectoryStep) -> tuple[str, ...]:
    status, took = "error" if step.is_error else "ok", f"{step.duration_ms} ms"
    given = orjson.dumps(step.tool_args).decode()
    return str(number), step.timestamp[:19], step.tool_name, status, took, given, " ".join(step.output_summary.split())


def print_styled(text: str) -> None:
    """Markdown on a terminal, in colours, every line as it is."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line, style, is_code in styled_lines(text):
        console.print(Text(clean(line), style), soft_wrap=is_code)  # code keeps its lines, prose is wrapped at words


def styled_lines(text: str) -> Iterator[tuple[str, str, bool]]:
    """Every line as it is, how it shall look, and whether it is code."""
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
