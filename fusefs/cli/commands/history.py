"""The history as a whole: history size."""

from __future__ import annotations

import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json
from fusefs.cli.terminal import echo
from store import Timestamp
from store.undo.versions_spec import local_text

history = typer.Typer(help="Show how much of the past is kept.", no_args_is_help=True)
app.add_typer(history, name="history")


@history.command()
def size(home: Home, as_json: Json = False) -> None:
    """Show the size of the history, the number of versions, and since when they are kept.

    Exits with 1 if versions are not being kept now; the reason is shown.

    Example: grovefs history size
    """
    with open_store(home) as store:
        state = store.history.state()
    if as_json:
        oldest = Timestamp.from_ns(state.oldest_ns) if state.oldest_ns is not None else None
        print_json({**state._asdict(), "oldest_ns": state.oldest_ns, "oldest": oldest})
    else:
        since = f", the oldest of {local_text(state.oldest_ns)}" if state.oldest_ns is not None else ""
        echo(f"{plural(state.versions, 'version')} in {state.bytes / 1e6:.1f} MB{since}")
        if not state.is_working:
            echo(f"versions are not being kept: {state.problem}")
    if not state.is_working:
        raise typer.Exit(1)
