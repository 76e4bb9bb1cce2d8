"""Continue an imported session in the agent it came from: resume."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from shutil import which
from typing import Annotated, NamedTuple

import typer

from fusefs.cli.app import Home, Json, SessionName, app, open_store, plural, print_json
from fusefs.cli.terminal import echo
from store import InvalidName, NotFound, Store

# The command line that continues a session, by agent.
COMMANDS = {
    "claude-code": ("claude", "--resume"),
    "codex": ("codex", "resume"),
    "copilot-cli": ("copilot", "--resume"),
    "cursor": ("cursor-agent", "--resume"),
    "gemini-cli": ("gemini", "--resume"),
    "opencode": ("opencode", "--session"),
    "qwen-code": ("qwen", "--resume"),
}
# Where the others continue a session.
ADVICE = {
    "aider": "run `aider --restore-chat-history` in its directory",
    "chatgpt": "open it at chatgpt.com",
    "claude-ai": "open it at claude.ai",
    "cline": "open the task in the editor",
    "bamboo": "open it in Bamboo",
    "oxios": "open it in oxios",
    "a3s": "open it in A3S Code",
}
EXPORTED = ("claude-code", "codex")  # agents that `grovefs export` writes changes back to


class ResumedSession(NamedTuple):
    """A session of another agent, and how that agent continues it."""

    name: str
    agent: str
    command: list[str]
    directory: str  # its workspace; "": not known
    changed: int  # messages that are different here
    exported_to: str  # the directory that an export writes them to; "": there is no such export


@app.command()
def resume(
    session: SessionName,
    home: Home,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")] = False,
    json: Json = False,
) -> None:
    """Continue an imported session in the agent it came from, in its workspace.

    The agent continues its own copy. If messages were changed here, this is said first, with the command that writes
    them back: grovefs export --format claude-code, or codex. On a terminal it then asks whether to go on.

    --json prints the command and its directory instead of running it. Known are Claude Code, Codex, Copilot CLI,
    Cursor's agent, Gemini CLI, OpenCode and Qwen Code.

    Example: grovefs resume fix-login
    """
    with open_store(home) as store:
        found = _find(store, session)
    if json:
        shown = {"id": found.name, "agent": found.agent, "directory": found.directory or None}
        return print_json({**shown, "command": found.command, "changed_messages": found.changed})
    if found.changed:
        echo(f"grovefs: {_warning(found)}", err=True)
    if dry_run:
        place = f"cd {shlex.quote(found.directory)} && " if found.directory else ""
        echo(f"{place}{shlex.join(found.command)}")
        return
    if found.changed and sys.stdin.isatty() and not typer.confirm("Continue without these changes?", err=True):
        raise typer.Exit(1)
    _run(found)


def _find(store: Store, session: str) -> ResumedSession:
    place = str(store.resolve(session))
    found, origin, path = store.load(place), store.imports.origin(place), store.imports.source_path(place) or ""
    if found is None:
        raise NotFound(f"session {place} was deleted")
    if origin is None:
        raise InvalidName(f"session {place} was not imported; only its own agent can continue it")
    agent, id = origin
    if found.metadata.get("host"):
        raise InvalidName(f"session {place} was imported from {found.metadata['host']}; resume it on that machine")
    if found.kind == "child":
        raise InvalidName(f"a sub-agent cannot be resumed; `grovefs resume {shlex.quote(found.root_session_id)}` can")
    if agent == "cursor" and path.endswith(".md"):
        raise InvalidName(f"session {place} is an exported chat; open it in Cursor to continue it")
    if agent not in COMMANDS:
        raise InvalidName(f"{agent} has no command that continues a session; {ADVICE[agent]}")
    command = [*COMMANDS[agent], id]
    changed = store.imports.count_changed(place)
    return ResumedSession(place, agent, command, found.workspace_path or "", changed, _exported_to(agent, path))


def _exported_to(agent: str, path: str) -> str:
    """The DEST of an export that writes to the file a session was imported from."""
    if agent not in EXPORTED:
        return ""
    return path.partition("/sessions/")[0] if agent == "codex" else path.rpartition("/")[0]


def _warning(found: ResumedSession) -> str:
    """That the agent does not know the changes, and what to do."""
    changed = f"{plural(found.changed, 'message')} changed here, which {found.agent} will not see"
    if not found.exported_to:
        return f"{changed}; there is no export for {found.agent}"
    export = ["grovefs", "export", "--format", found.agent, found.name, found.exported_to]
    return f"{changed}; `{shlex.join(export)}` writes the changes back"


def _run(found: ResumedSession) -> None:
    """Replace this process by the agent."""
    if which(found.command[0]) is None:
        raise NotFound(f"{found.command[0]} is not installed, or not in PATH")
    if not found.directory:
        echo("grovefs: the workspace is not known; starting in the current directory", err=True)
    elif not Path(found.directory).is_dir():
        raise NotFound(f"the workspace {found.directory} does not exist here")
    os.chdir(found.directory or ".")
    os.execvp(found.command[0], found.command)
