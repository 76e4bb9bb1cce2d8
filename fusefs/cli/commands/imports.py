"""Import sessions of other agents: import."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fusefs.cli.app import (
    Home,
    Json,
    app,
    plural,
    progress_bar,
)
from fusefs.cli.completion import files
from fusefs.cli.import_tally import ImportTally
from fusefs.cli.terminal import echo
from store import NotFound, Store, StoreError, Timestamp, layout

if TYPE_CHECKING:
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
        bool, typer.Option("--overwrite", help="Take the source's version of sessions changed or deleted here.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Also import sessions again that were deleted here.")
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
    session is imported completely or not at all. After Ctrl-C or a crash the next run imports the rest. A session that
    was deleted here is not imported again, unless --deleted is given; a renamed one grows under its new name.

    ssh://HOST takes the sessions of all agents in your home directory on another machine, ssh://HOST/DIR those in a
    directory there. What has changed is copied with rsync and ssh first. Its sessions have HOST in their ids: `ls
    --host HOST` and `search host:HOST` find them.

    --follow watches the sources and brings a new line into its session within two seconds. `grovefs mount --follow`
    does the same while a home is mounted.

    Exits with 1 if there were problems or sessions were kept.

    Example: grovefs import ~/.claude
    """
    tally = ImportTally()
    # An import creates many objects and no cycles: collecting as often as usual takes a fifth of its time.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    if follow:
        if dry_run or overwrite or deleted or since:
            raise typer.BadParameter("--follow cannot be combined with --dry-run, --overwrite, --deleted or --since")
        if any(path.startswith("ssh://") for path in source or ()):
            raise typer.BadParameter("--follow cannot watch another machine; repeat the import, for example hourly")
        _follow(home, source or [], agent, tally, ask=not (yes or as_json), with_parent=with_parent)
        return
    newest = parse_since(since) if since else None
    chosen = _choose(home, source or [], agent, tally, ask=not (yes or dry_run or as_json))
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
                        deleted=deleted,
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


def _follow(
    home: Path, sources: list[str], agent: str | None, tally: ImportTally, *, ask: bool, with_parent: bool
) -> None:
    """Import, and keep importing until a signal arrives or the process that started it ends."""
    from store.transfer.import_follow import ImportFollower

    stop, parent = threading.Event(), os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def report(item: ImportOutcome | ImportProblem) -> None:
        state = getattr(item, "state", None)
        if state is None:
            echo(f"problem: {item}", err=True)
        elif state not in ("unchanged", "deleted"):
            line = f"{state}: {item.location}" + (f": {item.reason}" if item.reason else "")  # type: ignore[union-attr]
            echo(line, err=state == "kept")  # a mount logs errors only

    found = _choose(home, sources, agent, tally, ask=ask)
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


def _choose(home: Path, sources: list[str], agent: str | None, tally: ImportTally, *, ask: bool) -> list[FoundSource]:
    """The sources to import. Those found in the default places are shown first; a refusal ends the command."""
    from store.transfer.imports import Imports

    if sources:
        discoveries = [Imports.find(source, agent=agent, home=home) for source in sources]
        tally.unknown = {path: count for found in discoveries for path, count in found.unknown.items()}
        return [source for discovery in discoveries for source in discovery.found]
    found = Imports.find(agent=agent).found
    if not found:
        raise NotFound("no sessions of known agents found in their usual places; pass the directory to import from")
    for source in found:
        echo(
            f"{source.format:12} {plural(source.files, 'file')}, {_size(source.size_bytes)} in {source.path}",
            err=True,
        )
    if ask and not sys.stdin.isatty():
        raise typer.BadParameter("not a terminal: pass --yes, or the directories to import")
    if ask and not typer.confirm("Import them?", default=True, err=True):
        echo("nothing was imported", err=True)
        raise typer.Exit(1)
    return found


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"


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
