"""Maintenance of a home: check, health, rebuild."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated

import apsw
import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json, progress_bar
from fusefs.cli.errors import error_text
from fusefs.cli.terminal import echo
from store import Health, Report, StoreError, layout
from store.check.health import MIN_FREE_BYTES, Probe

COULD_NOT_RUN = 8
MIB = 1 << 20


@app.command()
def check(
    home: Home,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair derived files and the index; conversations are not changed.")
    ] = False,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Also list the places of likely keys and tokens, without printing them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check all files and the index for damage.

    Exit codes are those of fsck(8): 0 clean, 1 all damage repaired, 4 damage left, 8 could not run. With --secrets,
    likely secrets exit with 4 too: only you can decide whether one is real, revoke it, and remove it from the
    conversation.

    Example: grovefs check --repair
    """
    try:
        with progress_bar("checking") as progress, open_store(home) as store:
            report = store.check(repair=repair, secrets=secrets, progress=progress)
    except (StoreError, OSError, apsw.Error) as error:
        echo(f"grovefs: {error_text(error)}", err=True)
        raise typer.Exit(COULD_NOT_RUN) from None
    if as_json:
        findings = [
            {"kind": f.kind, "path": f.path, "text": f.text, "damage": f.is_damage, "repaired": f.repaired}
            for f in report.findings
        ]
        print_json({"sessions": report.sessions, "clean": report.is_clean, "findings": findings})
    else:
        for finding in report.findings:
            echo(str(finding))
        echo(f"{plural(report.sessions, 'session')}: {'; '.join(_totals(report)) or 'clean'}")
        for remedy in _remedies(report, was_repaired=repair):
            echo(f"grovefs: {remedy}", err=True)
    raise typer.Exit(report.exit_code)


def _totals(report: Report) -> Iterator[str]:
    """The number of problems and of likely secrets, which are not damage; nothing if there are none."""
    secrets = [finding.path for finding in report.findings if finding.kind in ("secret", "secret-in-history")]
    left = sum(finding.is_damage for finding in report.findings) - len(secrets)
    repaired = sum(finding.repaired for finding in report.findings)
    if left or repaired:
        yield f"{plural(left + repaired, 'problem')} found, {repaired} repaired"
    if secrets:
        yield f"{plural(len(secrets), 'likely secret')} found in {_places(secrets)}"


def _places(paths: list[str]) -> str:
    """`2 sessions and 1 other file`: the sessions with these files, and the files outside sessions."""
    located = {path: layout.locate_path(path) for path in paths}
    sessions = {found[0] for found in located.values() if found is not None}
    others = sum(found is None for found in located.values())
    counts = [plural(len(sessions), "session")] if sessions else []
    return " and ".join([*counts, *([plural(others, "other file")] if others else [])])


def _remedies(report: Report, *, was_repaired: bool) -> Iterator[str]:
    """Hints about remaining damage."""
    left = [finding for finding in report.findings if finding.is_damage]
    if not was_repaired and any(finding.repair is not None for finding in left):
        yield "`grovefs check --repair` repairs derived files and the index"
    for finding in left:
        found = layout.locate_path(finding.path) if finding.kind == "unparsable" else None
        if found is not None and found[1] == layout.SESSION:
            name = shlex.quote(str(found[0]))
            yield f"`grovefs revert {name}@-1` brings the version before back; `grovefs edit {name}` opens the file"
            yield f"`grovefs restore BACKUP {name}` restores the session from a backup"
            return  # one example is enough


@app.command()
def rebuild(home: Home, as_json: Json = False) -> None:
    """Rebuild the index of sessions, full text and grep trigrams from the files.

    The old index stays in use until the new one is complete. Conversations are not changed.

    Example: grovefs rebuild
    """
    with progress_bar("rebuilding") as progress, open_store(home, progress) as store:
        count = store.maintenance.rebuild(progress)
    print_json({"sessions": count}) if as_json else echo(f"{plural(count, 'session')} indexed")


@app.command()
def health(
    home: Home,
    min_free: Annotated[int, typer.Option(help="Fail with less than N MiB of free space.", min=0)] = MIN_FREE_BYTES
    // MIB,
    fast: Annotated[
        bool, typer.Option("--fast", help="Skip the full read of the index, which takes seconds in a large home.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Test that the home works; for people and for monitoring.

    Writes, syncs, reads back and deletes a test file; writes to the index and reads it; completes commits
    interrupted by a crash; measures free space. Exits with 0 if all tests pass, and with 1 if one fails or the home
    cannot be opened. Damage in sessions is found by `grovefs check`.

    Example: grovefs health --fast --json
    """
    try:
        with open_store(home) as store:
            found = store.health(deep=not fast, min_free_bytes=min_free * MIB)
    except (StoreError, OSError, apsw.Error) as error:
        found = Health("local", (Probe("open", False, error_text(error)),))
    if as_json:
        print_json(found.as_dict())
    else:
        for probe in found.probes:
            echo(f"{'ok' if probe.ok else 'NOT OK':7}{probe.name:10}{probe.detail}")
    raise typer.Exit(0 if found.ok else 1)
