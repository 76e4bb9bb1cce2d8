"""Mounts on this machine and the state of the home: status."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json
from fusefs.cli.errors import error_text
from fusefs.cli.mount_status import advice, history_problem, read_status, set_aside_line
from fusefs.cli.terminal import echo
from fusefs.daemon.fuse_connection import MOUNTINFO, State, iter_mounted, state_of
from store import StoreError
from store.sessions.deletions import group_deletions
from store.undo.versions_spec import local_text


class Mount(NamedTuple):
    mountpoint: Path
    read_only: bool
    state: State
    home: str = ""  # "" if the daemon does not answer
    history_problem: str = ""  # why it keeps no versions; "" if it does
    refuses_writes: str | None = None  # why it takes another program for a Bamboo server, if it does


@app.command()
def status(home: Home, as_json: Json = False) -> None:
    """Show the GroveFS mounts on this machine and the state of the home.

    A dead mount has lost its daemon; `grovefs umount DIR` removes it. A home or mount that keeps no versions, or that
    refuses writes because a Bamboo server seems to use it, says why. Exits with 1 if a mount is dead or does not
    respond, or if the home cannot be opened, is damaged, or has pending commits.

    Example: grovefs status --json
    """
    mounts = list(iter_mounts(MOUNTINFO.read_bytes()))
    state = _home(home)
    if as_json:
        shown = [{**mount._asdict(), "mountpoint": os.fsdecode(mount.mountpoint)} for mount in mounts]
        print_json({"mounts": shown, "home": state})
    else:
        for line in [*map(_line, mounts), *_lines(state)]:
            echo(line)
    if any(mount.state != "mounted" for mount in mounts) or any(
        state.get(k) for k in ("error", "damaged", "unfinished")
    ):
        raise typer.Exit(1)


def iter_mounts(mountinfo: bytes) -> Iterator[Mount]:
    """The GroveFS mounts in the text of /proc/self/mountinfo, with their state."""
    for place, _, read_only in iter_mounted(mountinfo):
        state = state_of(place)
        status = read_status(place) if state == "mounted" else {}
        yield Mount(
            place, read_only, state, str(status.get("home", "")), history_problem(status), status.get("refuses_writes")
        )


def _line(mount: Mount) -> str:
    if mount.state == "dead":
        return (
            f"DEAD     {mount.mountpoint}: the daemon has exited; `grovefs umount {mount.mountpoint}` removes the mount"
        )
    if mount.state == "silent":
        return f"SILENT   {mount.mountpoint}: the daemon does not respond; see .grovefs/mount.log in its home"
    read_only = " (read-only)" if mount.read_only else ""
    home = f" of {mount.home}" if mount.home else ""
    return f"mounted  {mount.mountpoint}{home}{read_only}{_refusal(mount)}{_without_versions(mount)}"


def _refusal(mount: Mount) -> str:
    reason = mount.refuses_writes
    return f": writes are REFUSED: a Bamboo server is using its home ({reason})" if reason else ""


def _without_versions(mount: Mount) -> str:
    problem = mount.history_problem
    return f": versions are NOT KEPT: {problem}; {advice(problem)}" if problem else ""


def _home(home: Path) -> dict[str, Any]:
    try:
        with open_store(home) as store:
            return {**store.maintenance.status(probe=True), "in_trash": len(group_deletions(store.trash.deleted()))}
    except (StoreError, OSError, apsw.Error) as error:
        return {"home": str(home), "error": error_text(error)}


def _lines(state: dict[str, Any]) -> Iterator[str]:
    yield f"home     {state['home']}"
    if "error" in state:
        yield f"         {state['error']}"
        return
    yield f"         {plural(state['sessions'], 'session')}, {plural(state['in_trash'], 'deletion')} in the trash"
    for line in _history_lines(state["history"]):
        yield f"         history: {line}"
    for place, reason in state["damaged"].items():
        yield f"DAMAGED  {place}: {reason}"
    for place, reason in state["unfinished"].items():
        yield f"PENDING  {place}: {reason}; will be completed when the home is next opened"
    if state["refuses_writes"]:
        yield f"         read-only: a Bamboo server is using this home ({state['refuses_writes']})"
    if state["grove_refuses_writes"]:
        yield f"         read-only: {state['grove_refuses_writes']}"


def _history_lines(history: dict[str, Any]) -> Iterator[str]:
    oldest = f", the oldest of {local_text(history['oldest'].ns)[:10]}" if history["oldest"] else ""
    yield f"{plural(history['versions'], 'version')}{oldest}, {history['bytes'] / 1e6:.1f} MB"
    if not history["is_working"]:
        yield f"versions are NOT KEPT: {history['problem']}; {advice(history['problem'])}"
    if history["missed"]:
        yield f"the last version of {plural(history['missed'], 'file')} is not recorded yet; a mount does it when idle"
    yield from map(set_aside_line, history["set_aside"])
