"""To another disk and back: backup, restore."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusefs.cli.app import NAMED, Home, Json, app, open_store, plural, print_json, progress_bar
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from store import Store, layout

if TYPE_CHECKING:
    from store.transfer.backup.backup import BackupSummary
    from store.transfer.backup.restore import RestoreOutcome, RestoreSummary
    from store.transfer.backup.tree import Damage

INTERRUPTED = 130
SHOWN = 20  # damages and problems; --json has them all


@app.command()
def backup(
    dest: Annotated[
        Path,
        typer.Argument(metavar="DEST", help="A new or empty directory, or this home's backup.", autocompletion=files),
    ],
    home: Home,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all of the copy back; what is damaged there is copied anew.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Copy nothing: only compare DEST with its manifest. Needs no home.")
    ] = False,
    keep_deleted: Annotated[
        bool, typer.Option("--keep-deleted", help="Leave sessions in DEST that are gone from the home.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also if DEST belongs to another home, or all sessions here are gone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy all sessions, projects and state documents to another disk.

    DEST becomes a plain tree with the layout of the home, which any tool can
    read and copy from, and grovefs-backup.json, which lists every file with
    its size, time and SHA-256. A second run copies what has changed and
    removes what is gone: a backup follows deletions, also those that were
    a mistake, and says how many sessions went. With --keep-deleted they stay
    there, and `grovefs restore DEST SESSION` has them back. Each session is copied as it was at one moment,
    while agents go on writing. If it is interrupted, DEST can be restored
    and the next run goes on from there.

    Not backed up: the trash, refused documents, and the index, which is made
    anew from the files.

    Exit code 1 if something could not be copied, or --check found damage.

    Example: grovefs backup --verify /media/usb/grove
    """
    if check:
        _check(dest, as_json=as_json)
        return
    with open_store(home) as store, progress_bar("backing up") as progress:
        try:
            summary = store.backup(dest, verify=verify, keep_deleted=keep_deleted, force=force, progress=progress)
        except KeyboardInterrupt:
            echo("interrupted; what was copied stays, and the next run goes on from there", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(_as_dict(summary))
    else:
        _print(summary)
    if summary.problems:
        raise typer.Exit(1)


def _check(dest: Path, *, as_json: bool) -> None:
    from store.transfer.backup.backup import check

    with progress_bar("checking") as progress:
        damages = check(dest, progress)
    if as_json:
        print_json({"dest": str(dest), "damaged": _damages(damages)})
    else:
        _print_damages(damages)
        echo(f"{dest}: {plural(len(damages), 'file')} damaged")
    if damages:
        raise typer.Exit(1)


def _print(summary: BackupSummary) -> None:
    for damage in summary.repaired[:SHOWN]:
        echo(f"copied anew: {damage.path}: {damage.reason}", err=True)
    for path in summary.left_out[:SHOWN]:
        echo(f"left out: {path}: neither a file nor a link", err=True)
    for problem in summary.problems[:SHOWN]:
        echo(f"problem: {problem.path}: {problem.reason}", err=True)
    echo(
        f"{summary.dest}: {plural(summary.sessions, 'session')}, {summary.copied_sessions} of them copied now; "
        f"{plural(summary.copied_files, 'file')} copied ({_size(summary.copied_bytes)}), "
        f"{summary.unchanged_files} unchanged, {summary.gone_files} removed"
    )
    if summary.gone_sessions:
        echo(
            f"{plural(summary.gone_sessions, 'session')} removed there too, as deleted here; --keep-deleted keeps such"
        )


def _as_dict(summary: BackupSummary) -> dict[str, Any]:
    problems = [{"path": _text(problem.path), "reason": _text(problem.reason)} for problem in summary.problems]
    return {
        **vars(summary),
        "mended": _damages(summary.repaired),
        "problems": problems,
        "left_out": list(map(_text, summary.left_out)),
    }


def _damages(damages: list[Damage]) -> list[dict[str, str]]:
    return [{"path": _text(damage.path), "reason": _text(damage.reason)} for damage in damages]


def _print_damages(damages: list[Damage]) -> None:
    for damage in damages[:SHOWN]:
        echo(f"damaged: {damage.path}: {damage.reason}", err=True)
    if len(damages) > SHOWN:
        echo(f"… and {len(damages) - SHOWN} more; --json lists them all", err=True)


def _text(name: str) -> str:
    """A name that is not Unicode, as it can be printed."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# -- restore ---------------------------------------------------------------------------------------------------


@app.command()
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="A backup, or a tree that rsync made.", autocompletion=files)
    ],
    home: Home,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help=f"As in the backup: {NAMED} All, if none is named."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also what was changed here since; that goes to the trash.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Restore what is whole, if parts of the backup are damaged.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Bring sessions back from a backup.

    Every file is checked by its hash before anything is changed. A session
    comes back whole, with those below it, and index and search follow. One
    that is newer here is kept, unless you say --overwrite; what is replaced
    can be had back for seven days: `grovefs undelete`. May be repeated.

    A tree without a manifest, made by rsync from a home or a mount, is
    restored too; then nothing is there to check it against.

    Exit code 1 if something was kept or skipped, or the backup is damaged.

    Example: grovefs restore /media/usb/grove fix-login
    """
    outcomes: list[RestoreOutcome] = []
    summary = _restore(source, home, names or [], outcomes, overwrite, skip_damaged, dry_run, as_json)
    if as_json:
        _print_json(summary, outcomes, dry_run=dry_run)
    else:
        _print_outcomes(summary, outcomes, dry_run=dry_run, every=bool(names))
    if summary.counts["kept"] or summary.counts["skipped"]:
        raise typer.Exit(1)


def _restore(
    source: Path,
    home: Path,
    names: list[str],
    outcomes: list[RestoreOutcome],
    overwrite: bool,
    skip_damaged: bool,
    dry_run: bool,
    as_json: bool,
) -> RestoreSummary:
    """Into a home that is made if need be; a dry run makes none."""
    from store.transfer.backup.restore import DamagedBackup

    is_missing = not (home / layout.SESSIONS).is_dir()
    with (
        TemporaryDirectory() as nowhere,
        Store.open(nowhere if dry_run and is_missing else home, background=False) as store,
        progress_bar("restoring") as progress,
    ):
        try:
            return store.restore(
                source,
                *names,
                overwrite=overwrite,
                skip_damaged=skip_damaged,
                dry_run=dry_run,
                progress=progress,
                report=outcomes.append,
            )
        except DamagedBackup as error:
            if as_json:
                print_json({"source": str(source), "damaged": _damages(error.damages)})
            else:
                _print_damages(error.damages)
            raise
        except KeyboardInterrupt:
            done = plural(sum(outcome.state == "restored" for outcome in outcomes), "session")
            echo(f"interrupted; {done} restored so far, each of them whole", err=True)
            raise typer.Exit(INTERRUPTED) from None


_SAID = {"restored": "restored", "same": "same", "kept": "newer here: kept", "skipped": "skipped"}


def _print_outcomes(summary: RestoreSummary, outcomes: list[RestoreOutcome], *, dry_run: bool, every: bool) -> None:
    for outcome in outcomes:
        if outcome.state != "same" or every:
            echo("\t".join((_SAID[outcome.state], _text(outcome.name), *([outcome.reason or ""]))).rstrip())
    _print_damages(summary.damages)
    counts = ", ".join(f"{summary.counts[state]} {state}" for state in ("restored", "same", "kept", "skipped"))
    unchecked = "" if summary.has_manifest else "; there is no manifest, so nothing was checked"
    hint = "; --overwrite replaces what was kept" if summary.counts["kept"] else ""
    echo(f"{'would be ' if dry_run else ''}{counts}{unchecked}{hint}")


def _print_json(summary: RestoreSummary, outcomes: list[RestoreOutcome], *, dry_run: bool) -> None:
    print_json(
        {
            "source": summary.source,
            "manifest": summary.has_manifest,
            "dry_run": dry_run,
            "counts": {state: summary.counts[state] for state in ("restored", "same", "kept", "skipped")},
            "items": [{"name": _text(o.name), "state": o.state, "reason": o.reason} for o in outcomes],
            "damaged": _damages(summary.damages),
        }
    )
