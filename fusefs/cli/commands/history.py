"""The history as a whole: history size, thin, purge."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from typing import Annotated

import typer

from fusefs.cli import completion
from fusefs.cli.app import Home, Json, app, confirm, open_store, plural, print_json, progress_bar
from fusefs.cli.mount_status import advice, history_problem, iter_mounts_of, set_aside_line
from fusefs.cli.terminal import echo
from store import HistoryState
from store.home.history_upkeep import PurgeReport
from store.undo.versions_spec import local_text

history = typer.Typer(help="Show how much of the past is kept, and remove parts of it.", no_args_is_help=True)
app.add_typer(history, name="history")


@history.command()
def size(home: Home, as_json: Json = False) -> None:
    """Show the size of the history, the number of versions, and since when they are kept.

    Exits with 1 if versions are not being kept now, by the home or by one of its mounts; the reason is shown.

    Example: grovefs history size
    """
    with open_store(home) as store:
        state = store.history.state(probe=True)
        mounts = {os.fsdecode(place): history_problem(status) for place, status in iter_mounts_of(store.home)}
    without = {place: problem for place, problem in mounts.items() if problem}
    if as_json:
        print_json({**state.as_json(), "mounts_without_versions": without})
    else:
        _show_state(state, without)
    if without or not state.is_working:
        raise typer.Exit(1)


def _show_state(state: HistoryState, without: dict[str, str]) -> None:
    since = f", the oldest of {local_text(state.oldest_ns)}" if state.oldest_ns is not None else ""
    echo(f"{plural(state.versions, 'version')} in {state.bytes / 1e6:.1f} MB{since}")
    if not state.is_working:
        echo(f"versions are not being kept: {state.problem}; {advice(state.problem)}")
    for place, problem in without.items():
        echo(f"versions are not being kept by the mount {place}: {problem}; {advice(problem)}")
    for name in state.set_aside:
        echo(set_aside_line(name))


@history.command()
def thin(home: Home, as_json: Json = False) -> None:
    """Remove versions that are too old, as the mount does once an hour.

    All versions are kept for thirty days, then the last one of each hour, and after ninety days the last one of each
    day. Always kept: the newest twenty of a session, changes by people (mount, command line), and snapshots.

    Example: grovefs history thin
    """
    with open_store(home) as store, progress_bar("thinning") as progress:
        count = store.history.thin(progress=progress)
    print_json({"removed": count}) if as_json else echo(f"{plural(count, 'version')} removed")


@history.command()
def purge(
    home: Home,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION...]",
            help="Sessions, or paths such as state/notes/plan.md; default: everything.",
            autocompletion=completion.sessions,
        ),
    ] = None,
    matching: Annotated[
        str | None, typer.Option("--matching", metavar="REGEX", help="Only texts that match this regular expression.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove past texts permanently: old versions, drafts, rejected texts, and the trash.

    With --matching, only texts that match are removed: for a password that was redacted. Without it, everything but
    the present version of the named sessions is removed. Present files are never changed, and backups keep what they
    have. Exits with 1 if something could not be removed.

    Example: grovefs history purge --matching 'sk-ant-[a-z0-9-]+'
    """
    if not names and matching is None:
        raise typer.BadParameter("name sessions, or pass --matching REGEX")
    if matching is not None:
        try:
            re.compile(matching.encode())
        except re.error as error:
            raise typer.BadParameter(f"--matching: {error}") from None
    with open_store(home) as store:
        paths = [store.history.resolve(name)[0] for name in names or []]
        whose = ", ".join(map(store.history.name_of, paths)) or "all sessions"
        what = "all past texts" if matching is None else "past texts that match"
        if not yes and not confirm(f"Remove {what} of {whose} permanently, also from the trash?", "--yes"):
            raise typer.Exit(1)
        report = store.history.purge(*paths, matching=matching)
    print_json(asdict(report)) if as_json else _show(report)
    if not report.is_complete:
        raise typer.Exit(1)


def _show(report: PurgeReport) -> None:
    counts = [
        plural(report.versions, "version"),
        plural(report.drafts, "draft"),
        plural(report.rejected, "rejected text"),
        plural(report.trash_slots, "deletion"),
    ]
    echo(f"removed: {', '.join(counts)} in the trash")
    for path in report.present:
        echo(f"{path}: the present file matches; change it, then purge again", err=True)
    for path in report.skipped:
        echo(f"{path}: in use, nothing was removed; purge again", err=True)
    if not report.is_log_erased:
        echo("another process is reading a database, which may still hold the texts; purge again", err=True)
