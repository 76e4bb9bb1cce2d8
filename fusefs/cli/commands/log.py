"""List the versions of a session: log."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated, Any

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from fusefs.cli.errors import print_error
from fusefs.cli.terminal import echo
from fusefs.cli.version_names import VersionedName
from store import Author, SavedVersion, Timestamp
from store.undo.versions_spec import local_text

_COUNTED = 10_000  # older versions; more are not counted


@app.command("log")
def print_log(
    session: VersionedName,
    home: Home,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of versions.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """List the versions of a session, newest first: number, time, author, and what changed.

    An author is the way a change came (mount, api, cli, outside, revert) and the program with its process id, in a
    grove also the host. `~6 messages` are changed ones, `+2 messages` new ones. With @V the list begins at that
    version. State documents and project payloads are named by their path.

    `grovefs diff`, `show`, `revert` and the directory history/ of a mount use the numbers.

    Example: grovefs log fix-login -n 5
    """
    with open_store(home) as store:
        path, version = store.history.resolve(session)
        before = store.history.get(path, version).number + 1 if version is not None else None
        versions = store.history.log(path, limit=limit, before=before, fetch=True)
        changes = store.history.summaries(versions)
        left = len(store.history.log(path, limit=_COUNTED, before=versions[-1].number)) if versions else 0
        hosts = [store.history.host_of(version) for version in versions]
    if as_json:
        listed = zip(versions, changes, hosts, strict=True)
        print_json([version_as_dict(v, change) | ({"host": host} if host else {}) for v, change, host in listed])
    else:
        rows = [_row(*columns) for columns in zip(versions, changes, hosts, strict=True)]
        print_table(("version", "when", "by", "change"), rows)
        if left:
            number = f"{_COUNTED:,} or more" if left == _COUNTED else str(left)
            echo(f"{number} older {'version' if left == 1 else 'versions'}; pass --limit N for more.", err=True)
    if not versions:
        print_error(f"{session}: no version has been recorded; that begins with its next change")
        raise typer.Exit(1)


def _row(version: SavedVersion, change: str, host: str) -> tuple[str, ...]:
    author = version.author
    if host and not author.program.endswith(f"@{host}"):  # of another host's version it is part of the name
        author = replace(author, program=f"{author.program}@{host}")
    return version.label, local_text(version.made_at_ns), author_text(author), change


def author_text(author: Author) -> str:
    """The author for people; with the user if that is not the one who asks."""
    is_own = author.via == "outside" or author.uid == os.getuid()
    return str(author) if is_own else f"{author} of user {author.uid}"


def version_as_dict(version: SavedVersion, change: str | None = None) -> dict[str, Any]:
    author = version.author
    shown = {
        "version": version.shown_number,
        "at": Timestamp.from_ns(version.made_at_ns),
        "author": {"via": author.via, "program": author.program, "pid": author.pid, "uid": author.uid},
        "what": version.what,
        "note": version.note,
        "size_bytes": version.main_bytes,
        "runtime_bytes": version.side_bytes,
    }
    return shown if change is None else {**shown, "change": change}
