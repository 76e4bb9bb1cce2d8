"""Maintenance of a home: check, health, rebuild."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated

import apsw
import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, progress_bar
from fusefs.cli.terminal import echo
from store import Health, Report, StoreError, layout
from store.check.health import MIN_FREE_BYTES, Probe

COULD_NOT_RUN = 8
MIB = 1 << 20


@app.command()
def check(
    home: Home,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what is derived; conversations are not touched.")
    ] = False,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Also list likely keys and tokens, by place; they are not printed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Look for damage of every kind.

    Exit codes are those of fsck(8): 0 nothing wrong, 1 all mended, 4 damage left, 8 could not run. A likely key counts
    as damage left: only you can tell whether it is one, revoke it, and take it out of the conversation.

    Example: grovefs check --repair
    """
    try:
        with progress_bar("checking") as progress, open_store(home) as store:
            report = store.check(repair=repair, secrets=secrets, progress=progress)
    except (StoreError, OSError, apsw.Error) as error:
        echo(f"grovefs: {error}", err=True)
        raise typer.Exit(COULD_NOT_RUN) from None
    if as_json:
        findings = [
            {"kind": f.kind, "path": f.path, "text": f.text, "damage": f.is_damage, "mended": f.repaired}
            for f in report.findings
        ]
        print_json({"sessions": report.sessions, "clean": report.is_clean, "findings": findings})
    else:
        for finding in report.findings:
            echo(str(finding))
        left = sum(f.is_damage for f in report.findings)
        mended = sum(f.repaired for f in report.findings)
        state = "clean" if report.is_clean and not mended else f"{left} damaged, {mended} mended"
        echo(f"{report.sessions} sessions: {state}")
        for remedy in _remedies(report, was_repaired=repair):
            echo(f"grovefs: {remedy}", err=True)
    raise typer.Exit(report.exit_code)


def _remedies(report: Report, *, was_repaired: bool) -> Iterator[str]:
    """What to do about the damage that is left, where it can be said."""
    left = [finding for finding in report.findings if finding.is_damage]
    if not was_repaired and any(finding.repair is not None for finding in left):
        yield "`grovefs check --repair` mends what is derived"
    for finding in left:
        found = layout.locate_path(finding.path) if finding.kind == "unparsable" else None
        if found is not None and found[1] == layout.SESSION:
            name = shlex.quote(str(found[0]))
            yield f"`grovefs edit {name}` opens what cannot be read; `grovefs restore BACKUP {name}` has it as it was"
            return  # one example is enough


@app.command()
def rebuild(home: Home, as_json: Json = False) -> None:
    """Make the index anew from the files alone: that of sessions, of words, and of trigrams for grep.

    Nothing is missing meanwhile, and conversations are not touched.

    Example: grovefs rebuild
    """
    with progress_bar("rebuilding") as progress, open_store(home, progress) as store:
        count = store.maintenance.rebuild(progress)
    print_json({"sessions": count}) if as_json else echo(f"{count} sessions indexed")


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
            echo(f"{'ok' if probe.ok else 'NOT OK':7}{probe.name:10}{probe.detail}")
    raise typer.Exit(0 if found.ok else 1)
