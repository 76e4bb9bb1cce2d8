"""Back up to another disk and restore from it: backup, restore."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusefs.cli.app import NAMED, Home, Json, app, command_author, open_store, plural, print_json, progress_bar
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from store import Store, layout

if TYPE_CHECKING:
    from store.transfer.backup.backup import BackupSummary
    from store.transfer.backup.restore import RestoreOutcome, RestoreSummary
    from store.transfer.backup.tree import Damage

INTERRUPTED = 130
SHOWN = 20  # maximum number of damaged files and problems printed; --json prints all


@app.command()
def backup(
    dest: Annotated[
        Path,
        typer.Argument(
            metavar="DEST", help="A new or empty directory, or an existing backup of this home.", autocompletion=files
        ),
    ],
    home: Home,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the whole copy back and copy damaged files again.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare DEST with its manifest; copy nothing. Needs no home.")
    ] = False,
    keep_deleted: Annotated[
        bool, typer.Option("--keep-deleted", help="Keep sessions in DEST that were deleted from the home.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Proceed even if DEST belongs to another home, or this home has lost all its sessions."
        ),
    ] = False,
    without_history: Annotated[
        bool, typer.Option("--without-history", help="Copy no old versions, and remove those in DEST.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy all sessions, projects and state documents to another disk.

    DEST is a plain directory tree with the layout of the home, readable by any tool, plus grovefs-backup.json, which
    lists every file with its size, time and SHA-256. Later runs copy only changes. They also remove sessions that were
    deleted from the home, even by mistake, and print how many; with --keep-deleted such sessions stay in DEST and
    `grovefs restore DEST SESSION` restores them.

    Agents may keep writing: each session is copied as of one moment. After an interruption DEST can be restored from,
    and the next run continues.

    Old versions are copied too, as .grovefs-backup/history.db. Not backed up: the trash, rejected documents, and the
    index, which is rebuilt from the files.

    Exits with 1 if something could not be copied, or --check found damage.

    Example: grovefs backup --verify /media/usb/grove
    """
    if check:
        _check(dest, as_json=as_json)
        return
    with open_store(home) as store, progress_bar("backing up") as progress:
        try:
            summary = store.backup(
                dest,
                verify=verify,
                keep_deleted=keep_deleted,
                force=force,
                history=not without_history,
                progress=progress,
            )
        except KeyboardInterrupt:
            echo("interrupted; copied files are kept, and the next run continues from there", err=True)
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
        echo(f"copied again: {damage.path}: {damage.reason}", err=True)
    for path in summary.left_out[:SHOWN]:
        echo(f"left out: {path}: not a regular file or symbolic link", err=True)
    for problem in summary.problems[:SHOWN]:
        echo(f"problem: {problem.path}: {problem.reason}", err=True)
    echo(
        f"{summary.dest}: {plural(summary.sessions, 'session')}, {summary.copied_sessions} copied; "
        f"{plural(summary.copied_files, 'file')} copied ({_size(summary.copied_bytes)}), "
        f"{summary.unchanged_files} unchanged, {summary.gone_files} removed"
    )
    if summary.gone_sessions:
        deleted = plural(summary.gone_sessions, "session")
        echo(f"{deleted} deleted here and removed from the backup; --keep-deleted keeps them")


def _as_dict(summary: BackupSummary) -> dict[str, Any]:
    problems = [{"path": _text(problem.path), "reason": _text(problem.reason)} for problem in summary.problems]
    return {
        **vars(summary),
        "repaired": _damages(summary.repaired),
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
    """A file name as valid Unicode, for JSON."""
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
        Path,
        typer.Argument(
            metavar="SRC", help="A backup, or a copy of a home or mount made by rsync.", autocompletion=files
        ),
    ],
    home: Home,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION]...", help=f"Sessions to restore, as named in the backup; default: all. {NAMED}"
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace sessions that are newer here; the replaced versions go to the trash."
        ),
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="If parts of the backup are damaged, restore the rest.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="List what would be restored; change nothing.")
    ] = False,
    without_history: Annotated[
        bool, typer.Option("--without-history", help="Restore the present files only, without their versions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore sessions from a backup.

    Every file is verified by its SHA-256 before anything changes. A session is restored completely, with its children,
    and is searchable at once. Sessions that are newer here are kept unless --overwrite is given; replaced versions stay
    in the trash for seven days (`grovefs trash`). Restoring again is safe.

    A tree without a manifest, copied by rsync from a home or a mount, can be restored too, but not verified.

    Exits with 1 if sessions were kept or skipped, or the backup is damaged.

    Example: grovefs restore /media/usb/grove fix-login
    """
    outcomes: list[RestoreOutcome] = []
    summary = _restore(source, home, names or [], outcomes, overwrite, skip_damaged, dry_run, without_history, as_json)
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
    without_history: bool,
    as_json: bool,
) -> RestoreSummary:
    """Restore into the home, creating it if needed. A dry run creates none."""
    from store.transfer.backup.restore import DamagedBackup

    is_missing = not (home / layout.SESSIONS).is_dir()
    with (
        TemporaryDirectory() as scratch,
        Store.open(scratch if dry_run and is_missing else home, background=False, author=command_author()) as store,
        progress_bar("restoring") as progress,
    ):
        try:
            return store.restore(
                source,
                *names,
                overwrite=overwrite,
                skip_damaged=skip_damaged,
                dry_run=dry_run,
                history=not without_history,
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
            echo(f"interrupted; {done} restored completely so far", err=True)
            raise typer.Exit(INTERRUPTED) from None


_STATE_TEXTS = {"restored": "restored", "same": "same", "kept": "kept (newer here)", "skipped": "skipped"}


def _print_outcomes(summary: RestoreSummary, outcomes: list[RestoreOutcome], *, dry_run: bool, every: bool) -> None:
    for outcome in outcomes:
        if outcome.state != "same" or every:
            echo("\t".join((_STATE_TEXTS[outcome.state], _text(outcome.name), *([outcome.reason or ""]))).rstrip())
    _print_damages(summary.damages)
    counts = ", ".join(f"{summary.counts[state]} {state}" for state in ("restored", "same", "kept", "skipped"))
    unchecked = "" if summary.has_manifest else "; not verified: the backup has no manifest"
    hint = "; pass --overwrite to replace kept sessions" if summary.counts["kept"] else ""
    echo(f"{'dry run: ' if dry_run else ''}{counts}{unchecked}{hint}")


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
