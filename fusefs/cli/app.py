"""Shared by all commands: the application, common options, opening the home, tables, JSON and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusefs.cli import completion
from fusefs.cli.default_home import default_home
from fusefs.cli.terminal import clean, clean_cell, echo
from store import layout
from store.disk import reserve
from store.errors import InvalidName, NotFound
from store.history.authors import Author, this_process

if TYPE_CHECKING:
    from store import Location, Store

app = typer.Typer(
    name="grovefs",
    help="""Store, search, edit and mount AI-agent sessions.

    Name a session by its id, a unique prefix of the id, or its title; ROOT/CHILD names a child session exactly.
    A lone - reads standard input. No command needs a mount. `grovefs COMMAND --help` explains a command and shows an
    example.

    To start: grovefs new, grovefs import ~/.claude, or grovefs mount DIR.""",
    epilog="Exit codes: 0 success; 1 rejected, or nothing found; 2 usage error; 130 interrupted. check uses the codes "
    "of fsck(8): 0 clean, 1 all damage repaired, 4 damage left, 8 could not run. Errors are printed on standard "
    "error.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # plain help: importing rich takes longer than printing the help
    pretty_exceptions_enable=False,
)

# Part of the help text, because typer puts the text of `show_default` in parentheses.
_HOME_DEFAULT = "Default: $GROVEFS_HOME, $BAMBOO_DATA_DIR or ~/.grovefs."
Home = Annotated[
    Path,
    typer.Option(
        "--home",
        "-H",
        default_factory=default_home,
        autocompletion=completion.files,
        help=f"Directory that holds the sessions. {_HOME_DEFAULT}",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)]
NAMED = "Id, unique prefix of an id, title, or ROOT/CHILD."
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help=NAMED, autocompletion=completion.sessions)]
SessionNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SESSION...",
        help=f"{NAMED} - reads names from standard input, one per line.",
        autocompletion=completion.sessions,
    ),
]


_command_name: ContextVar[str | None] = ContextVar("command name", default=None)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    home: Annotated[
        Path | None,
        typer.Option(
            "--home",
            "-H",
            help=f"Directory that holds the sessions. May also follow COMMAND. {_HOME_DEFAULT}",
        ),
    ] = None,
) -> None:
    _command_name.set(context.invoked_subcommand)
    if home is not None:
        os.environ["GROVEFS_HOME"] = str(home)  # the default of every command
    if show_version:
        from importlib.metadata import version

        echo(f"grovefs {version('grovefs')}")
        raise typer.Exit


def open_store(home: Path, progress: Callable[[int, int], None] | None = None) -> Store:
    """Open the home for one command, without background threads. Never creates a home."""
    if not (home / layout.SESSIONS).is_dir():
        raise NotFound(f"there is no home at {home}; pass --home or set $GROVEFS_HOME")
    if (home / layout.PRIVATE / "status.json").exists():  # only a mount has it
        from fusefs.cli.mount_status import read_status

        shown = read_status(home).get("home", "unknown")
        raise InvalidName(f"{home} is a mount, not a home; its home is {shown}")
    from store import Store

    reserve.renew(home)
    return Store.open(home, background=False, progress=progress, author=command_author())


def command_author() -> Author:
    """The author of the changes that this command makes: `cli: rename (4711)` in the history."""
    return this_process("cli", _command_name.get())


def resolve_all(store: Store, names: Iterable[str]) -> dict[Location, str]:
    """Resolve all names before any session is changed. Returns each session once, with the name given for it."""
    lines = (line for name in names for line in (sys.stdin.read().splitlines() if name == "-" else [name]))
    return {store.resolve(line): line.strip() for line in lines if line.strip()}


UNWRAPPED_COLUMNS = 40  # cells up to this width are not wrapped
# Terminal styles of the values in the column "status".
_STATUS_STYLES = {"completed": "green", "running": "yellow", "suspended": "magenta", "error": "bold red"}


def short_names(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Short forms of the names for a table on a terminal; none if there is no terminal or nothing to shorten."""
    from fusefs.cli.short_names import has_uuid, shorten

    long = [name for name in names if has_uuid(name)]
    return shorten(long, store.ids()) if long and sys.stdout.isatty() else {}


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    short: Mapping[str, str] | None = None,
    cut: Sequence[str] = (),
) -> None:
    """Print columns with headings on a terminal; tab-separated lines without headings when piped.

    If the terminal is too narrow, names are replaced by their `short` form, then the columns named in `cut` are cut
    off, so that a row is one line.
    """
    lines = [list(map(clean_cell, row)) for row in rows]
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(line) + "\n" for line in lines))
        sys.stdout.flush()
    elif lines:  # no headings above nothing
        _print_columns(headings, lines, short or {}, cut)


def _print_columns(
    headings: Sequence[str], lines: list[list[str]], short: Mapping[str, str], cut: Sequence[str]
) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if _width(headings, lines) > console.width:
        lines = [[_short_cell(cell, short) for cell in line] for line in lines]
    to_cut = [headings.index(heading) for heading in cut]
    while to_cut:  # each gets an equal share of the room that is left
        room = console.width - _width(headings, lines, without=to_cut)
        share, place = room // len(to_cut), to_cut.pop(0)
        for line in lines:
            line[place] = _cut_off(line[place], share)
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):  # ids and times must be easy to copy: only the last column may wrap
        longest = max(cell_len(line[place]) for line in lines)
        is_wrapped = longest > UNWRAPPED_COLUMNS or place == len(headings) - 1
        # On a narrow terminal long names fold: one that is cut off cannot be copied.
        table.add_column(heading, min_width=None if is_wrapped else longest, overflow="fold")
    for line in lines:  # as Text: brackets in a title are not rich markup
        table.add_row(*(Text(cell, _style(heading, cell)) for heading, cell in zip(headings, line, strict=True)))
    console.print(table)


def _width(headings: Sequence[str], lines: Sequence[Sequence[str]], without: Sequence[int] = ()) -> int:
    """The columns of the terminal that a table takes; of columns in `without` only the space before them."""
    from rich.cells import cell_len

    columns = [column for place, column in enumerate(zip(headings, *lines, strict=True)) if place not in without]
    return sum(max(map(cell_len, column)) for column in columns) + 2 * (len(headings) - 1)


def _short_cell(cell: str, short: Mapping[str, str]) -> str:
    """A name, also one with the number of a message after it."""
    name, mark, number = cell.partition("#")
    return f"{short[name]}{mark}{number}" if name in short else cell


def _cut_off(cell: str, room: int) -> str:
    from rich.text import Text

    text = Text(cell)
    text.truncate(max(room, 8), overflow="ellipsis")
    return text.plain


def _style(heading: str, cell: str) -> str:
    return _STATUS_STYLES.get(cell, "") if heading == "status" else ""


def confirm(question: str, instead: str = "--yes, or --dry-run to preview") -> bool:
    """Ask on a terminal. Without one, fail with a usage error that names the option to pass instead."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"not a terminal: pass {instead}")
    return typer.confirm(clean(question))


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_json(value: Any) -> None:
    import orjson

    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # the name of a file is not UTF-8: json escapes its bytes as lone surrogates
        import json

        text = json.dumps(value, indent=2)
    echo(text)  # whatever `clean` replaces is inside a JSON string, where its escape means the same character


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal from the first report on; do nothing if standard error is not a terminal."""
    with ExitStack() as shown:
        is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"  # a dumb terminal cannot erase the bar
        yield _Bar(label, shown) if is_shown else lambda done, total: None


class _Bar:
    """Draws the bar on the first report: most commands never report, and importing rich takes time."""

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
