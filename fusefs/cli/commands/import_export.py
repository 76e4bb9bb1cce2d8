"""Import sessions of other agents and export sessions: import, export."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
from store import Corrupt, NotFound, Store, StoreError, Timestamp, layout

if TYPE_CHECKING:
    from store import Location
    from store.transfer.exports import ExportedFile
    from store.transfer.formats.importer import ImportProblem
    from store.transfer.import_places import FoundSource
    from store.transfer.imports import ImportOutcome

INTERRUPTED = 130
# The names in store.transfer.formats.registry.
AgentName = Literal[
    "claude-code",
    "codex",
    "gemini-cli",
    "opencode",
    "copilot-cli",
    "qwen-code",
    "cline",
    "cursor",
    "aider",
    "chatgpt",
    "claude-ai",
    "bamboo",
    "oxios",
    "a3s",
]
GC_THRESHOLD = 100_000
SHOWN_PROBLEMS = 20
SHOWN_UNKNOWN = 5
STATES = ("new", "updated", "unchanged", "kept")


@app.command("import")
def import_sessions(
    home: Home,
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="Directories, files, or ssh://HOST[/DIR]; default: where the known agents keep theirs.",
            autocompletion=files,
        ),
    ] = None,
    agent: Annotated[
        AgentName | None, typer.Option("--agent", "--format", help="Only this agent's.", case_sensitive=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only sessions changed since this time, for example 2026-01-31 or 7d.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Take the source's version of sessions changed here.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep importing what the agents write, until Ctrl-C.")
    ] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,  # end with the mount
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be imported; change nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before importing from the default places.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import the sessions of other agents.

    Without SOURCE the sessions of all known agents are listed, and imported after a confirmation: Claude Code, Codex,
    Gemini CLI, OpenCode, Copilot CLI, Qwen Code, Cline, Cursor. A SOURCE can be an agent's directory, a part of it, or
    any directory with such data below, hidden directories included; also exports of ChatGPT and Claude.ai, Aider
    histories, Bamboo and GroveFS homes. `grovefs help import` has the details. SOURCE is not changed and symbolic
    links in it are not followed. Ids that are not valid here (../x) are replaced by their digest.

    Importing again is safe and reads only what has changed. Sessions that grew in SOURCE grow here, also those that
    were pinned, retitled or edited here; a message changed on both sides is kept as it is here and reported. Each
    session is imported completely or not at all. After Ctrl-C or a crash the next run imports the rest.

    ssh://HOST takes the sessions of all agents in your home directory on another machine, ssh://HOST/DIR those in a
    directory there. What has changed is copied with rsync and ssh first. Its sessions have HOST in their ids: `ls
    --host HOST` and `search host:HOST` find them.

    --follow watches the sources and brings a new line into its session within two seconds. `grovefs mount --follow`
    does the same while a home is mounted.

    Exits with 1 if there were problems or sessions were kept.

    Example: grovefs import ~/.claude
    """
    tally = _Tally()
    # An import creates many objects and no cycles: collecting as often as usual takes a fifth of its time.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    if follow:
        if dry_run or overwrite or since:
            raise typer.BadParameter("--follow cannot be combined with --dry-run, --overwrite or --since")
        if any(path.startswith("ssh://") for path in source or ()):
            raise typer.BadParameter("--follow cannot watch another machine; repeat the import, for example hourly")
        _follow(home, source or [], agent, tally, ask=not (yes or as_json), with_parent=with_parent)
        return
    newest = parse_since(since) if since else None
    chosen = _choose(source or [], agent, tally, ask=not (yes or dry_run or as_json))
    with progress_bar("importing") as progress:
        try:
            with _open(home, dry_run=dry_run) as store:
                for found in chosen:
                    tally.begin(found.format)
                    store.imports.run(
                        found.path,
                        format=found.format,
                        dry_run=dry_run,
                        overwrite=overwrite,
                        since=newest,
                        host=found.host,
                        progress=progress,
                        report=tally.add,
                    )
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


def _follow(home: Path, sources: list[str], agent: str | None, tally: _Tally, *, ask: bool, with_parent: bool) -> None:
    """Import, and keep importing until a signal arrives or the process that started it ends."""
    from store.transfer.import_follow import ImportFollower

    stop, parent = threading.Event(), os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def report(item: ImportOutcome | ImportProblem) -> None:
        state = getattr(item, "state", None)
        if state is None:
            echo(f"problem: {item}", err=True)
        elif state != "unchanged":
            echo(f"{state}: {item.location}" + (f": {item.reason}" if item.reason else ""))  # type: ignore[union-attr]

    found = _choose(sources, agent, tally, ask=ask)
    with _open(home, dry_run=False) as store:
        follower = ImportFollower(
            store.imports, found, report, stop, lambda: echo(f"following {plural(len(found), 'source')}", err=True)
        )
        if with_parent:
            threading.Thread(target=_stop_with_parent, args=(parent, stop), daemon=True).start()
        follower.run()


def _stop_with_parent(parent: int, stop: threading.Event) -> None:
    while os.getppid() == parent and not stop.wait(1):
        pass
    stop.set()


@contextmanager
def _open(home: Path, *, dry_run: bool) -> Iterator[Store]:
    """Open the home, creating it if needed. A dry run creates none."""
    with TemporaryDirectory() as scratch:
        is_missing = not (home / layout.SESSIONS).is_dir()
        with Store.open(scratch if dry_run and is_missing else home, background=False) as store:
            yield store


def _choose(sources: list[str], agent: str | None, tally: _Tally, *, ask: bool) -> list[FoundSource]:
    """The sources to import. Those found in the default places are shown first; a refusal ends the command."""
    from store.transfer.imports import Imports

    if sources:
        discoveries = [Imports.find(source, agent=agent) for source in sources]
        tally.unknown = {path: count for found in discoveries for path, count in found.unknown.items()}
        return [source for discovery in discoveries for source in discovery.found]
    found = Imports.find(agent=agent).found
    if not found:
        raise NotFound("no sessions of known agents found in their usual places; pass the directory to import from")
    for source in found:
        echo(
            f"{source.format:12} {plural(source.files, 'file')}, {source.size_bytes / 1e6:.1f} MB in {source.path}",
            err=True,
        )
    if ask and not sys.stdin.isatty():
        raise typer.BadParameter("not a terminal: pass --yes, or the directories to import")
    if ask:
        typer.confirm("Import them?", default=True, abort=True, err=True)
    return found


def parse_since(text: str) -> Timestamp:
    """A time: a date, a date and time, or an age such as 12h, 7d or 2w."""
    units = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
    number, unit = text[:-1], text[-1:]
    if number.isdigit() and unit in units:
        return Timestamp.from_ns(time.time_ns() - int(number) * units[unit] * 10**9)
    for candidate in (f"{text}T00:00:00Z", text, f"{text}Z"):
        try:
            return Timestamp(candidate)
        except ValueError:
            continue
    raise typer.BadParameter(f"{text!r} is not a time: expected 2026-01-31, 2026-01-31T10:00:00Z, 12h, 7d or 2w")


class _Tally:
    """Outcomes so far, also available after an interruption."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_agent: dict[str, Counter[str]] = {}
        self.problems: list[ImportProblem] = []
        self.kept: list[ImportOutcome] = []
        self.noted: list[ImportOutcome] = []  # updated, with something to report
        self.sessions: list[dict[str, Any]] = []
        self.unknown: dict[str, int] = {}
        self.interrupted = False
        self._agent = ""

    def begin(self, agent: str) -> None:
        """Count what follows for this agent."""
        self._agent = agent
        self.by_agent.setdefault(agent, Counter())

    def add(self, item: ImportOutcome | ImportProblem) -> None:
        from store.transfer.formats.importer import ImportProblem

        if isinstance(item, ImportProblem):
            self.problems.append(item)
            self.by_agent.setdefault(self._agent, Counter())["problem"] += 1
            return
        self.counts[item.state] += 1
        self.by_agent.setdefault(self._agent, Counter())[item.state] += 1
        if item.state == "kept":
            self.kept.append(item)
        elif item.reason:
            self.noted.append(item)
        if item.state != "unchanged":
            self.sessions.append({"id": str(item.location), "state": item.state, "path": item.path})

    def print(self, *, as_json: bool, dry_run: bool) -> None:
        if as_json:
            self._print_json(dry_run=dry_run)
            return
        lines = [f"problem: {problem}" for problem in self.problems]
        lines += [f"kept: {outcome.location}: {outcome.reason}" for outcome in self.kept]
        lines += [f"merged: {outcome.location}: {outcome.reason}" for outcome in self.noted]
        for line in lines[:SHOWN_PROBLEMS]:
            echo(line, err=True)
        if len(lines) > SHOWN_PROBLEMS:
            echo(f"… and {len(lines) - SHOWN_PROBLEMS} more; --json lists them all", err=True)
        self._print_unknown()
        lead = "dry run: " if dry_run else "interrupted; so far: " if self.interrupted else ""
        for agent, counts in self.by_agent.items():
            echo(f"{agent + ': ' if agent else ''}{lead}{_line(counts)}")
        if len(self.by_agent) != 1:
            echo(f"total: {lead}{_line(self.counts + Counter(problem=len(self.problems)))}")

    def _print_unknown(self) -> None:
        for path, count in [*self.unknown.items()][:SHOWN_UNKNOWN]:
            echo(f"not imported: {path}: {plural(count, 'log')} of an unknown kind", err=True)
        if len(self.unknown) > SHOWN_UNKNOWN:
            echo(f"… and {len(self.unknown) - SHOWN_UNKNOWN} more directories with such logs", err=True)

    def _print_json(self, *, dry_run: bool) -> None:
        print_json(
            {
                "format": ", ".join(self.by_agent) or None,
                "dry_run": dry_run,
                "interrupted": self.interrupted,
                "counts": {state: self.counts[state] for state in STATES},
                "agents": {agent: dict(counts) for agent, counts in self.by_agent.items()},
                "sessions": self.sessions,
                "kept": [{"location": str(o.location), "reason": o.reason, "path": o.path} for o in self.kept],
                "merged": [{"location": str(o.location), "reason": o.reason, "path": o.path} for o in self.noted],
                "unknown": self.unknown,
                "problems": [problem._asdict() for problem in self.problems],
            }
        )


def _line(counts: Counter[str]) -> str:
    found = ", ".join(f"{counts[state]} {state}" for state in STATES)
    return f"{found}; {plural(counts['problem'], 'problem')}"


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
    imported with. Copied to ~/.claude/projects/PROJECT, a conversation repaired here can be resumed there.

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
    if with_history and (format != "html" or redact):
        raise typer.BadParameter("--with-history needs --format html, and cannot be combined with --redact")
    with open_store(home) as store:
        selected = store.exports.select(None if everything else map(str, resolve_all(store, ids)))
        if format == "bamboo":
            tally: _Tally | _ExportLine = _copy(store, selected, Path(dest))
        elif format == "a3s" or format == "claude-code" or format == "codex" or format == "oxios":
            written = store.exports.write_for_agent(format, selected, Path(dest).expanduser())
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


def _copy(store: Store, selected: list[Location], dest: Path) -> _Tally:
    tally = _Tally()
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
