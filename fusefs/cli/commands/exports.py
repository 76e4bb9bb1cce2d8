"""Export sessions as files, web pages, or for other agents: export."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
from fusefs.cli.import_tally import ImportTally
from fusefs.cli.terminal import echo
from store import Corrupt, NotFound, Store

if TYPE_CHECKING:
    from store import Location
    from store.transfer.exports import ExportedFile
    from store.transfer.formats.importer import ImportProblem
    from store.transfer.imports import ImportOutcome


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
        Literal["a3s", "bamboo", "claude-code", "codex", "html", "json", "markdown", "oxios"],
        typer.Option(
            help="json; markdown or html, for reading; bamboo: a home that Bamboo and GroveFS can open; claude-code: "
            "files that `claude --resume` reads; codex: those of `codex resume`; a3s, oxios: a session store of A3S "
            "Code, a workspace of oxios."
        ),
    ] = "json",
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace what `grovefs check --secrets` finds by the kind of the secret.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="claude-code, codex, a3s, oxios: replace files with changes that were not imported, and keep them as "
            "FILE.before-export.",
        ),
    ] = False,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="html: add pages of the newest 50 versions of each session.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export sessions as plain files.

    `grovefs export fix-login out` writes out/fix-login.json, its children as out/fix-login/CHILD.json, and its
    attachments to out/fix-login/attachments. If DEST is -, sessions are printed, as JSON one per line.

    --format bamboo creates a Bamboo home at DEST, or adds to one, and copies every file byte for byte. Exporting
    again is safe: changes made in DEST are kept, and what has changed here is merged into them.

    --format claude-code writes DEST/ID.jsonl, and sub-agents below DEST/ID/subagents, with the ids and links they were
    imported with. With ~/.claude/projects/PROJECT as DEST, a conversation repaired here can be resumed there. A file
    in DEST that its agent has changed since the last import is not replaced: import it first.

    --format codex writes DEST/sessions/YYYY/MM/DD/rollout-*.jsonl; with ~/.codex as DEST, `grovefs resume` continues
    the conversation as it is here.

    --format a3s and --format oxios write the files of these agents to DEST: a session imported from there and not
    changed since is the same to the byte, and one changed here has the changes.

    --format html writes a static site to the directory DEST: index.html, a page per session, their images, and with
    all sessions stats.html. Without sessions it exports all of them. --with-history adds the log of each session and
    what each version changed.

    Example: grovefs export fix-login --format markdown out
    """
    *ids, dest = names
    everything = everything or (format == "html" and not ids)
    if bool(ids) == everything:
        raise typer.BadParameter("pass the sessions or --all, and the destination as the last argument")
    if format not in ("json", "markdown") and dest == "-":
        raise typer.BadParameter(f"--format {format} needs a directory, not standard output")
    if format in ("a3s", "bamboo", "claude-code", "codex", "oxios") and redact:
        raise typer.BadParameter(f"--format {format} keeps all content and cannot be combined with --redact")
    if overwrite and format not in ("a3s", "claude-code", "codex", "oxios"):
        raise typer.BadParameter("--overwrite needs --format a3s, claude-code, codex or oxios")
    if with_history and (format != "html" or redact):
        raise typer.BadParameter("--with-history needs --format html, and cannot be combined with --redact")
    with open_store(home) as store:
        selected = store.exports.select(None if everything else map(str, resolve_all(store, ids)))
        if format == "bamboo":
            tally: ImportTally | _ExportLine = _copy(store, selected, Path(dest))
        elif format == "a3s" or format == "claude-code" or format == "codex" or format == "oxios":
            written = store.exports.write_for_agent(format, selected, Path(dest).expanduser(), overwrite=overwrite)
            tally = _collect(written, len(selected), Path(dest))
        elif format == "html":
            tally = _write_pages(
                store, selected, Path(dest), is_all=everything, with_history=with_history, redact=redact
            )
        elif dest == "-":
            if not _print(store, selected, format, redact=redact):
                raise typer.Exit(1)
            return
        else:
            tally = _write(store, selected, format, Path(dest), redact=redact)
    tally.print(as_json=as_json, dry_run=False)
    if tally.problems or tally.kept:
        raise typer.Exit(1)


def _copy(store: Store, selected: list[Location], dest: Path) -> ImportTally:
    tally = ImportTally()
    with progress_bar("exporting") as progress, Store.open(dest, background=False, author=command_author()) as other:

        def report(item: ImportOutcome | ImportProblem) -> None:
            tally.add(item)
            progress(sum(tally.counts.values()), len(selected))

        store.exports.copy(selected, other.imports, report)
    return tally


def _print(store: Store, selected: list[Location], format: Literal["json", "markdown"], *, redact: bool) -> bool:
    """Print all sessions that can be read; False if one could not."""
    fine = True
    for location in selected:
        render = store.exports.render_line if format == "json" else store.exports.render_markdown
        try:
            sys.stdout.buffer.write(render(location, redact=redact))
        except (Corrupt, NotFound) as error:
            echo(f"problem: {error}; not exported", err=True)
            fine = False
    return fine


def _write(
    store: Store, selected: list[Location], format: Literal["json", "markdown"], dest: Path, *, redact: bool
) -> _ExportLine:
    found = store.exports.write(selected, format, dest.expanduser(), redact=redact)
    return _collect(found, len(selected), dest)


def _collect(found: Iterator[ExportedFile | ImportProblem], total: int, dest: Path) -> _ExportLine:
    from store.transfer.formats.importer import ImportProblem

    written = _ExportLine(dest)
    with progress_bar("exporting") as progress:
        for item in found:
            if isinstance(item, ImportProblem):
                written.problems.append(item)
            else:
                written.files.append(item.path)
            progress(len(written.files), total)
    return written


def _write_pages(
    store: Store, selected: list[Location], dest: Path, *, is_all: bool, with_history: bool, redact: bool
) -> _ExportLine:
    from fusefs.views.html.site import write_site

    written = _ExportLine(dest)
    wanted = {"with_stats": is_all and not redact, "with_history": with_history, "redact": redact}
    with progress_bar("exporting") as progress:
        for item in write_site(store, selected, dest.expanduser(), **wanted):
            if isinstance(item, Path):
                written.files.append(item)
            else:
                written.problems.append(item)
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
