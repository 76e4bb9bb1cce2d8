"""What all commands share: the application itself, the home they work on, and how they speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from fusefs.cli import completion
from store import Location, NotFound, Store, layout

app = typer.Typer(
    name="grovefs",
    help="Keep AI-agent sessions: look into them, search them, check them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def default_home() -> Path:
    """$GROVEFS_HOME, else $BAMBOO_DATA_DIR, else ~/.grovefs."""
    named = os.environ.get("GROVEFS_HOME") or os.environ.get("BAMBOO_DATA_DIR")
    return Path(named) if named else Path.home() / ".grovefs"


Home = Annotated[
    Path,
    typer.Option(
        "--home",
        "-H",
        default_factory=default_home,
        autocompletion=completion.files,
        help="The directory that holds the sessions.",
        show_default="$GROVEFS_HOME, $BAMBOO_DATA_DIR or ~/.grovefs",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NAMED = "Id, root/child, a unique beginning of it, or the title."
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help=NAMED, autocompletion=completion.sessions)]
SessionNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SESSION...",
        help=f"{NAMED} - reads them from standard input, one a line.",
        autocompletion=completion.sessions,
    ),
]


@app.callback(invoke_without_command=True)
def start(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"grovefs {version('grovefs')}")
        raise typer.Exit


def open_store(home: Path, progress: Callable[[int, int], None] | None = None) -> Store:
    """A store for one command: nothing goes on in the background. A home is not made by looking for it."""
    if not (home / layout.SESSIONS).is_dir():
        raise NotFound(f"there is no home at {home}; say which with --home or $GROVEFS_HOME")
    return Store.open(home, background=False, progress=progress)


def located(store: Store, names: Iterable[str]) -> list[Location]:
    """All sessions that are named, before anything is done to the first of them; each once."""
    lines = (line for name in names for line in (sys.stdin.read().splitlines() if name == "-" else [name]))
    return list(dict.fromkeys(store.resolve(line) for line in lines if line.strip()))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns and colours for people; where it is piped, one line a row with tabs between."""
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*map(Text, row))  # as text: brackets in a title are no style
    Console().print(table)


def agrees(question: str, instead: str = "--yes, or --dry-run to look first") -> bool:
    """Ask on a terminal. Where nobody can be asked it is a wrong usage, and what to say instead is said."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"nobody is here to ask; say {instead}")
    return typer.confirm(question)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_json(value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal that knows how far it is, from the first progress on; nothing where no one looks."""
    with ExitStack() as shown:
        yield _Bar(label, shown) if sys.stderr.isatty() else lambda done, total: None


class _Bar:
    """Drawn when there is something to draw: most commands find all in order, and rich takes time to import."""

    def __init__(self, label: str, shown: ExitStack) -> None:
        self._label = label
        self._shown = shown
        self._update: Callable[..., None] | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._update is None:
            self._update = self._draw()
        self._update(completed=done, total=total)

    def _draw(self) -> Callable[..., None]:
        from rich.console import Console
        from rich.progress import Progress

        bar = self._shown.enter_context(Progress(console=Console(stderr=True), transient=True))
        return partial(bar.update, bar.add_task(self._label, total=None))
