"""Import sessions of other agents and export sessions: import, export."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fusefs.cli.app import (
    NAMED,
    Home,
    Json,
    app,
    command_author,
    open_store,
    plural,
    print_json,
    progress_bar,
    resolve_all,
)
from fusefs.cli.completion import files
from fusefs.cli.terminal import echo
from store import Corrupt, NotFound, Store, StoreError, layout

if TYPE_CHECKING:
    from store import Location
    from store.transfer.formats.importer import ImportProblem
    from store.transfer.imports import ImportOutcome

INTERRUPTED = 130
# The names in store.transfer.formats.registry.
FormatName = Literal["claude-code", "codex", "chatgpt", "bamboo", "oxios", "a3s"]
SHOWN_PROBLEMS = 20


@app.command("import")
def import_sessions(
    source: Annotated[Path, typer.Argument(help="Directory or file, for example ~/.claude.", autocompletion=files)],
    home: Home,
    format: Annotated[
        FormatName | None, typer.Option(help="Format of SOURCE; default: detected.", case_sensitive=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be imported; change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Import the sessions of other agents.

    Supported are Claude Code (~/.claude), Codex (~/.codex), an unpacked ChatGPT export, a Bamboo or GroveFS
    home, an oxios workspace and an A3S store, or a part of one of them. SOURCE is not changed and symbolic
    links in it are not followed. Ids that are not valid here (../x) are replaced by their digest.

    Importing again is safe: unchanged sessions are skipped, and sessions that grew in SOURCE grow here. Sessions
    that were edited here, or that lost messages in SOURCE, are kept and reported; .import.json next to a session
    records what was imported. Each session is imported completely or not at all. After Ctrl-C or a crash the next
    run imports the rest.

    All data is kept. Sub-agents and the branches of a ChatGPT conversation become child sessions. Images, files and
    long tool results become attachments. Other fields of a record go to the metadata of its message, records that
    are not messages to the attachment records.jsonl, and other documents of an oxios workspace to state documents.
    Unreadable records are reported with file and line. Only API keys are left out, which is reported.

    Exits with 1 if there were problems or sessions were kept.

    Example: grovefs import ~/.claude
    """
    tally = _Tally()
    with progress_bar("importing") as progress:
        try:
            _run(source, home, tally, format=format, dry_run=dry_run, progress=progress)
        except KeyboardInterrupt:
            tally.interrupted = True
        except (StoreError, OSError):
            tally.interrupted = True  # for example by a full disk; sessions saved before stay saved
            if tally.counts:
                tally.print(as_json=as_json, dry_run=dry_run)
            raise
    tally.print(as_json=as_json, dry_run=dry_run)
    if tally.interrupted:
        raise typer.Exit(INTERRUPTED)
    if tally.problems or tally.kept:
        raise typer.Exit(1)


def _run(
    source: Path,
    home: Path,
    tally: _Tally,
    *,
    format: str | None,
    dry_run: bool,
    progress: Callable[[int, int], None],
) -> None:
    """Import into the home, creating it if needed. A dry run creates none."""
    with TemporaryDirectory() as scratch:
        is_missing = not (home / layout.SESSIONS).is_dir()
        target = scratch if dry_run and is_missing else home
        with Store.open(target, background=False, author=command_author()) as store:
            found = store.imports.run(str(source), format=format, dry_run=dry_run, progress=progress, report=tally.add)
            tally.format = found.format


class _Tally:
    """Outcomes so far, also available after an interruption."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[ImportProblem] = []
        self.kept: list[ImportOutcome] = []
        self.sessions: list[dict[str, Any]] = []
        self.interrupted = False
        self.format: str | None = None

    def add(self, item: ImportOutcome | ImportProblem) -> None:
        from store.transfer.formats.importer import ImportProblem

        if isinstance(item, ImportProblem):
            self.problems.append(item)
            return
        self.counts[item.state] += 1
        if item.state == "kept":
            self.kept.append(item)
        if item.state != "unchanged":
            self.sessions.append({"location": str(item.location), "state": item.state, "path": item.path})

    def print(self, *, as_json: bool, dry_run: bool) -> None:
        if as_json:
            self._print_json(dry_run=dry_run)
            return
        for problem in self.problems[:SHOWN_PROBLEMS]:
            echo(f"problem: {problem}", err=True)
        for outcome in self.kept[:SHOWN_PROBLEMS]:
            echo(f"kept: {outcome.location}: {outcome.reason}", err=True)
        hidden = max(0, len(self.problems) - SHOWN_PROBLEMS) + max(0, len(self.kept) - SHOWN_PROBLEMS)
        if hidden:
            echo(f"… and {hidden} more; --json lists them all", err=True)
        echo(self._line(dry_run=dry_run))

    def _line(self, *, dry_run: bool) -> str:
        counts = ", ".join(f"{self.counts[state]} {state}" for state in ("new", "updated", "unchanged", "kept"))
        format = f"{self.format}: " if self.format else ""
        lead = "dry run: " if dry_run else "interrupted; so far: " if self.interrupted else ""
        return f"{format}{lead}{counts}; {plural(len(self.problems), 'problem')}"

    def _print_json(self, *, dry_run: bool) -> None:
        print_json(
            {
                "format": self.format,
                "dry_run": dry_run,
                "interrupted": self.interrupted,
                "counts": {state: self.counts[state] for state in ("new", "updated", "unchanged", "kept")},
                "sessions": self.sessions,
                "kept": [{"location": str(o.location), "reason": o.reason, "path": o.path} for o in self.kept],
                "problems": [problem._asdict() for problem in self.problems],
            }
        )


# -- export ------------------------------------------------------------------------------------------------


@app.command("export")
def export_sessions(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[SESSION]... DEST",
            help=f"Sessions to export, roots with all their children, then the destination. {NAMED}",
        ),
    ],
    home: Home,
    everything: Annotated[bool, typer.Option("--all", help="Export all sessions.")] = False,
    format: Annotated[
        Literal["bamboo", "json", "markdown"],
        typer.Option(help="json; markdown, for reading; bamboo: a home that Bamboo and GroveFS can open."),
    ] = "json",
    as_json: Json = False,
) -> None:
    """Export sessions as plain files.

    `grovefs export fix-login out` writes out/fix-login.json, its children as out/fix-login/CHILD.json, and its
    attachments to out/fix-login/attachments. If DEST is -, sessions are printed, as JSON one per line.

    --format bamboo creates a Bamboo home at DEST, or adds to one, and copies every file byte for byte. Exporting
    again is safe: sessions that were changed in DEST are kept and reported.

    Example: grovefs export fix-login --format markdown out
    """
    *ids, dest = names
    if bool(ids) == everything:
        raise typer.BadParameter("pass the sessions or --all, and the destination as the last argument")
    if format == "bamboo" and dest == "-":
        raise typer.BadParameter("--format bamboo needs a directory, not standard output")
    with open_store(home) as store:
        selected = store.exports.select(None if everything else map(str, resolve_all(store, ids)))
        if format == "bamboo":
            tally: _Tally | _ExportLine = _copy(store, selected, Path(dest))
        elif dest == "-":
            if not _print(store, selected, format):
                raise typer.Exit(1)
            return
        else:
            tally = _write(store, selected, format, Path(dest))
    tally.print(as_json=as_json, dry_run=False)
    if tally.problems or tally.kept:
        raise typer.Exit(1)


def _copy(store: Store, selected: list[Location], dest: Path) -> _Tally:
    tally = _Tally()
    with progress_bar("exporting") as progress, Store.open(dest, background=False, author=command_author()) as other:

        def report(item: ImportOutcome | ImportProblem) -> None:
            tally.add(item)
            progress(sum(tally.counts.values()), len(selected))

        store.exports.copy(selected, other.imports, report)
    return tally


def _print(store: Store, selected: list[Location], format: Literal["json", "markdown"]) -> bool:
    """Print all sessions that can be read; False if one could not."""
    fine = True
    for location in selected:
        render = store.exports.render_line if format == "json" else store.exports.render_markdown
        try:
            sys.stdout.buffer.write(render(location))
        except (Corrupt, NotFound) as error:
            echo(f"problem: {error}; not exported", err=True)
            fine = False
    return fine


def _write(store: Store, selected: list[Location], format: Literal["json", "markdown"], dest: Path) -> _ExportLine:
    from store.transfer.formats.importer import ImportProblem

    written = _ExportLine(dest)
    with progress_bar("exporting") as progress:
        for item in store.exports.write(selected, format, dest.expanduser()):
            if isinstance(item, ImportProblem):
                written.problems.append(item)
            else:
                written.files.append(item.path)
            progress(len(written.files), len(selected))
    return written


class _ExportLine:
    """The files written by an export."""

    kept = ()

    def __init__(self, dest: Path) -> None:
        self.dest = dest
        self.files: list[Path] = []
        self.problems: list[ImportProblem] = []

    def print(self, *, as_json: bool, dry_run: bool) -> None:
        if as_json:
            print_json({"files": list(map(str, self.files)), "problems": [p._asdict() for p in self.problems]})
            return
        for problem in self.problems:
            echo(f"problem: {problem}", err=True)
        echo(f"{plural(len(self.files), 'session')} written to {self.dest}")
