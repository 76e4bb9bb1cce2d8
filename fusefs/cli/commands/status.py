"""What is mounted here, and how the home stands: status."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import typer

from fusefs.cli.app import Home, Json, app, open_store, plural, print_json
from fusefs.cli.terminal import echo
from fusefs.daemon.fuse_connection import MOUNTINFO, State, iter_mounted, state_of
from store import StoreError
from store.sessions.deletions import group_deletions


class Mount(NamedTuple):
    mountpoint: Path
    read_only: bool
    state: State


@app.command()
def status(home: Home, as_json: Json = False) -> None:
    """List the mounts of GroveFS on this machine, dead ones too, and say how the home stands.

    A dead one has lost its daemon: `grovefs umount DIR` clears it away. Exit code 1 if one is dead or does not answer,
    or if the home cannot be opened, or has damage or unfinished commits.

    Example: grovefs status --json
    """
    mounts = list(iter_mounts(MOUNTINFO.read_bytes()))
    stands = _home(home)
    if as_json:
        shown = [{**mount._asdict(), "mountpoint": os.fsdecode(mount.mountpoint)} for mount in mounts]
        print_json({"mounts": shown, "home": stands})
    else:
        for line in [*map(_line, mounts), *_lines(stands)]:
            echo(line)
    if any(mount.state != "mounted" for mount in mounts) or any(
        stands.get(k) for k in ("error", "damaged", "unfinished")
    ):
        raise typer.Exit(1)


def iter_mounts(mountinfo: bytes) -> Iterator[Mount]:
    """Those of ours in the text of a mountinfo, and how each answers."""
    for place, _, read_only in iter_mounted(mountinfo):
        yield Mount(place, read_only, state_of(place))


def _line(mount: Mount) -> str:
    if mount.state == "dead":
        return f"DEAD     {mount.mountpoint}: its daemon is gone; `grovefs umount {mount.mountpoint}` clears it away"
    if mount.state == "silent":
        return f"SILENT   {mount.mountpoint}: its daemon does not answer; .grovefs/mount.log in its home may say why"
    return f"mounted  {mount.mountpoint}{' (read-only)' if mount.read_only else ''}"


def _home(home: Path) -> dict[str, Any]:
    try:
        with open_store(home) as store:
            return {**store.maintenance.status(), "in_trash": len(group_deletions(store.trash.deleted()))}
    except (StoreError, OSError, apsw.Error) as error:
        return {"home": str(home), "error": str(error)}


def _lines(stands: dict[str, Any]) -> Iterator[str]:
    yield f"home     {stands['home']}"
    if "error" in stands:
        yield f"         {stands['error']}"
        return
    yield f"         {plural(stands['sessions'], 'session')}, {plural(stands['in_trash'], 'deletion')} in the trash"
    for place, reason in stands["damaged"].items():
        yield f"DAMAGED  {place}: {reason}"
    for place, reason in stands["unfinished"].items():
        yield f"WAITS    {place}: {reason}; the next opening finishes it"
    if stands["bamboo"]:
        yield f"         a Bamboo server is at work here, so nothing is written: {stands['bamboo']}"
