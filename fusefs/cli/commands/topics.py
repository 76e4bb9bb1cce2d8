"""Help topics: the Markdown pages in fusefs/cli/topics, shown by `grovefs help`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from fusefs.cli import FAMILIES, terminal
from fusefs.cli.app import Json, app, print_json, print_table

PAGES = Path(__file__).parent.parent / "topics"
MAX_COLUMNS = 100  # longer lines are hard to read


def topic_names(incomplete: str = "") -> list[str]:
    return sorted(page.stem for page in PAGES.glob(f"{incomplete}*.md"))


@app.command("help")
def show_help(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Omit it to list the topics.", autocompletion=topic_names)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a page of the documentation: layout, promises, search, recipes, limits and more.

    On a terminal the page is formatted and shown in $PAGER; piped, it is plain Markdown.

    Example: grovefs help recipes
    """
    if topic is None:
        topics = {name: _about(name) for name in topic_names()}
        print_json(topics) if as_json else print_table(("topic", "about"), topics.items())
    elif topic in topic_names():
        print_json({"topic": topic, "markdown": _read(topic)}) if as_json else _show(_read(topic))
    else:
        raise typer.BadParameter(_unknown(topic))


def _read(topic: str) -> str:
    return (PAGES / f"{topic}.md").read_text()


def _about(topic: str) -> str:
    """The first line of a page, without the #."""
    return _read(topic).partition("\n")[0].removeprefix("# ")


def _unknown(topic: str) -> str:
    if any(topic in commands for commands in FAMILIES.values()):
        return f"no topic {topic!r}; `grovefs {topic} --help` describes the command"
    return f"no topic {topic!r}; expected one of {', '.join(topic_names())}"


def _show(page: str) -> None:
    if not sys.stdout.isatty():
        typer.echo(page, nl=False)
        return
    terminal.page(_formatted(page))


def _formatted(page: str) -> str:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(width=min(MAX_COLUMNS, shutil.get_terminal_size().columns))
    with console.capture() as capture:
        console.print(Markdown(page))
    return capture.get()
