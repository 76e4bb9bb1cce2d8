"""Is the home well: health."""

from __future__ import annotations

from typing import Annotated

import apsw
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from store import Health, StoreError
from store.check.health import MIN_FREE_BYTES, Probe

MIB = 1 << 20


@app.command()
def health(
    home: Home,
    min_free: Annotated[int, typer.Option(help="Not well with less than so many MiB free.", min=0)] = MIN_FREE_BYTES
    // MIB,
    fast: Annotated[
        bool, typer.Option("--fast", help="Do not read all of the index; that takes seconds in a large home.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove that the home works, by doing: for people, and for monitoring.

    A trial is written, synced, read back and taken away; the index is written
    to and read through; what a crash left is finished; the room left is
    measured. Exit code 0 if all is well, 1 if anything is not, also if the
    home cannot be opened. Damage in sessions is the affair of `grovefs check`.

    Example: grovefs health --fast --json
    """
    try:
        with open_store(home) as store:
            found = store.health(deep=not fast, min_free_bytes=min_free * MIB)
    except (StoreError, OSError, apsw.Error) as error:
        found = Health("local", (Probe("open", False, str(error)),))
    if as_json:
        print_json(found.as_dict())
    else:
        for probe in found.probes:
            typer.echo(f"{'ok' if probe.ok else 'NOT OK':7}{probe.name:10}{probe.detail}")
    raise typer.Exit(0 if found.ok else 1)
