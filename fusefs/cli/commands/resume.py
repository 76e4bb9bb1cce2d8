"""Continue an imported session in the agent it came from: resume."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, SessionName, app, open_store, print_json
from fusefs.cli.terminal import echo
from store import InvalidName, NotFound

# The command line that continues a session, by agent.
COMMANDS = {
    "claude-code": ("claude", "--resume"),
    "codex": ("codex", "resume"),
    "copilot-cli": ("copilot", "--resume"),
    "opencode": ("opencode", "--session"),
    "qwen-code": ("qwen", "--resume"),
}


@app.command()
def resume(
    session: SessionName,
    home: Home,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead of running it.")] = False,
    json: Json = False,
) -> None:
    """Continue an imported session in the agent it came from, in its workspace.

    The agent continues its own copy. To continue with changes made here, write them back first: grovefs export
    --format claude-code, or codex. --json prints the command and its directory instead of running it. Known are
    Claude Code, Codex, Copilot CLI, OpenCode and Qwen Code.

    Example: grovefs resume fix-login
    """
    with open_store(home) as store:
        place = str(store.resolve(session))
        found = store.load(place)
        origin = store.imports.origin(place)
    if found is None:
        raise NotFound(f"session {place} was deleted")
    if origin is None:
        raise InvalidName(f"session {place} was not imported; only its own agent can continue it")
    agent, id = origin
    if found.metadata.get("host"):
        raise InvalidName(f"session {place} was imported from {found.metadata['host']}; resume it on that machine")
    if agent not in COMMANDS or found.kind == "child":
        what = "a sub-agent" if found.kind == "child" else f"a session of {agent}"
        raise InvalidName(f"{what} cannot be resumed from the command line")
    command = [*COMMANDS[agent], id]
    workspace = found.workspace_path or "."
    if json:
        return print_json({"id": place, "agent": agent, "directory": workspace, "command": command})
    if dry_run:
        echo(f"cd {shlex.quote(workspace)} && {shlex.join(command)}")
        return
    if which(command[0]) is None:
        raise NotFound(f"{command[0]} is not installed, or not in PATH")
    if not Path(workspace).is_dir():
        raise NotFound(f"the workspace {workspace} does not exist here")
    os.chdir(workspace)
    os.execvp(command[0], command)
