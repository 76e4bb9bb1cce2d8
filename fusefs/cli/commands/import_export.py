"""Coming and going: import, export."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fusefs.cli.app import NAMED, Home, Json, app, open_store, print_json, progress_bar, resolve_all
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
    source: Annotated[Path, typer.Argument(help="A directory or a file, for example ~/.claude", autocompletion=files)],
    home: Home,
    format: Annotated[
        FormatName | None, typer.Option(help="What it is, if that is not to be recognised.", case_sensitive=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Take in the sessions of other agents.

    Recognised are Claude Code (~/.claude), Codex (~/.codex), an unpacked ChatGPT export, a Bamboo home, an oxios
    workspace and an A3S store, or a part of one of them. Nothing in SOURCE is changed, no link in it is followed, and
    ids that cannot be ours (../x) are replaced by their digest.

    May be repeated: what is here already is left alone, what has grown in SOURCE grows here, and what was edited here
    is kept and reported, and so is what SOURCE has lost (.import.json beside a session remembers what it was). A
    session is taken in whole or not at all; after Ctrl-C or a crash the next run completes the rest.

    Nothing is lost: sub-agents become children, so does every branch of a ChatGPT conversation; images, long tool
    results and files become attachments; what else a record holds is in its message's metadata, and records that are
    no message are in the attachment records.jsonl, line by line; other documents of an oxios workspace become state
    documents. What cannot be read is reported by file and line. Only API keys are left out, and that is reported.

    Exit code 1 if there were problems, or something was kept.

    Example: grovefs import ~/.claude
    """
    tally = _Tally()
    with progress_bar("importing") as progress:
        try:
            _run(source, home, tally, format=format, dry_run=dry_run, progress=progress)
        except KeyboardInterrupt:
            tally.interrupted = True
        except (StoreError, OSError):
            tally.interrupted = True  # by a full disk, say: what was saved before is saved
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
    """Into a home that is made if need be; a dry run makes none."""
    with TemporaryDirectory() as nowhere:
        is_missing = not (home / layout.SESSIONS).is_dir()
        with Store.open(nowhere if dry_run and is_missing else home, background=False) as store:
            found = store.imports.run(str(source), format=format, dry_run=dry_run, progress=progress, report=tally.add)
            tally.format = found.format


class _Tally:
    """What has happened so far: also known if it ends early."""

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
        lead = "would be " if dry_run else "interrupted; so far: " if self.interrupted else ""
        return f"{format}{lead}{counts}; {len(self.problems)} problem{'' if len(self.problems) == 1 else 's'}"

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
        typer.Argument(metavar="[SESSION]... DEST", help=f"Sessions, roots with all below them; and where to. {NAMED}"),
    ],
    home: Home,
    everything: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    format: Annotated[
        Literal["bamboo", "json", "markdown"],
        typer.Option(help="bamboo: a home that Bamboo and GroveFS open; json; markdown: to read."),
    ] = "json",
    as_json: Json = False,
) -> None:
    """Write sessions as files that need no GroveFS.

    `grovefs export fix-login out` writes out/fix-login.json, its children as out/fix-login/CHILD.json, and its
    attachments below out/fix-login/attachments. With DEST - they go to standard output, as JSON one session a line.

    --format bamboo makes DEST a Bamboo home, or adds to one: everything is copied byte for byte. It may be repeated,
    and what was changed in DEST since is kept and reported.

    Example: grovefs export fix-login --format markdown out
    """
    *ids, dest = names
    if bool(ids) == everything:
        raise typer.BadParameter("say which sessions, or --all; and where to, as the last argument")
    if format == "bamboo" and dest == "-":
        raise typer.BadParameter("a home is a directory; it cannot go to standard output")
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
    with progress_bar("exporting") as progress, Store.open(dest, background=False) as other:

        def report(item: ImportOutcome | ImportProblem) -> None:
            tally.add(item)
            progress(sum(tally.counts.values()), len(selected))

        store.exports.copy(selected, other.imports, report)
    return tally


def _print(store: Store, selected: list[Location], format: Literal["json", "markdown"]) -> bool:
    """All that can be read; False if one could not."""
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
    """The files of an export."""

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
        echo(f"{len(self.files)} session{'' if len(self.files) == 1 else 's'} written to {self.dest}")
