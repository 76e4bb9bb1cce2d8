"""What was deleted lately, and how to have it back: trash, undelete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, confirm, open_store, plural, print_json, print_table
from fusefs.cli.errors import print_error
from fusefs.cli.terminal import echo
from store import Store, StoreError, Timestamp
from store.disk.trash import FILE_DELETIONS, KEPT_DAYS
from store.sessions.deletions import DeletionGroup, find_deletion, group_deletions


@app.command()
def trash(
    home: Home,
    empty: Annotated[bool, typer.Option("--empty", help="Erase it all for good: that makes room on the disk.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --empty: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """List what was deleted in the last seven days, the newest first; what went in one go is one line.

    `grovefs undelete` has it back, by the name in the first column, the id of
    the session, a unique beginning of it, or its title. After seven days it
    is gone for good; until then it takes as much of the disk as before.

    Example: grovefs trash
    """
    with open_store(home) as store:
        if empty:
            _empty(store, yes=yes, as_json=as_json)
            return
        found = group_deletions(store.trash.deleted())
    if as_json:
        print_json([_as_dict(deletion, home) for deletion in found])
    elif found:
        heads = ("name", "deleted", "bytes", "session", "what", "title")
        print_table(heads, [_row(deletion, home) for deletion in found])
    else:
        echo(f"nothing was deleted in the last {KEPT_DAYS} days")


def _empty(store: Store, *, yes: bool, as_json: bool) -> None:
    count = len(group_deletions(store.trash.deleted()))
    if count and not yes and not confirm(f"Erase {plural(count, 'deletion')} for good?", "--yes"):
        raise typer.Exit(1)
    store.trash.empty()
    print_json({"erased": count}) if as_json else echo(f"erased: {plural(count, 'deletion')}")


@app.command()
def undelete(
    name: Annotated[
        str,
        typer.Argument(help="As `grovefs trash` lists it: name, session, its unique beginning, title, or path."),
    ],
    home: Home,
    as_json: Json = False,
) -> None:
    """Have a deletion back: a session with its children and files, a single file, pruned agent records.

    Of several deletions of one session the latest is taken, and with it what went in the same go: children, documents,
    attachments and logs that `rm -r` in a mount took away one after the other. A single file of them is had back by its
    path, as `grovefs trash --json` shows it. What has its place now goes to the trash in turn, if it is a file;
    for a session that exists again it is refused, and nothing is changed. Foreign files that `rm` took are not kept.

    Example: grovefs undelete second-try
    """
    with open_store(home) as store:
        chosen = find_deletion(group_deletions(store.trash.deleted()), name)
        restored, refused = _put_back(store, chosen)
    if as_json:
        print_json({"restored": restored, "refused": refused})
    elif restored:
        echo(f"restored: {', '.join(restored)}{_files(chosen) if not refused else ''}")
    for path, reason in refused.items():
        print_error(f"{path} stays in the trash: {reason}")
    if refused:
        raise typer.Exit(1)


def _put_back(store: Store, deletion: DeletionGroup) -> tuple[list[str], dict[str, str]]:
    """The session first, then what belongs into it; if that is refused, of the rest nothing is tried."""
    restored = [str(place) for place in store.trash.undelete(deletion.last.name)]
    refused: dict[str, str] = {}
    for slot in deletion.slots[1:]:
        try:
            restored += map(str, store.trash.undelete(slot.name))
        except StoreError as error:
            refused[slot.moves[0][0]] = str(error)
    return list(dict.fromkeys(restored)), refused


def _files(deletion: DeletionGroup) -> str:
    """What came back besides the conversations: who deleted a tree wants to know that its pictures are there."""
    files = [path for slot in deletion.slots if slot.what in FILE_DELETIONS for path, _ in slot.moves]
    return f" ({files[0] if len(files) == 1 else plural(len(files), 'file')})" if files else ""


def _moment(deletion: DeletionGroup) -> Timestamp:
    return Timestamp.from_ns(deletion.last.deleted_at_ns)


def _row(deletion: DeletionGroup, home: Path) -> tuple[str, ...]:
    last = deletion.last
    size = str(_size_bytes(deletion, home))
    return last.name, _moment(deletion)[:19], size, last.session_id, deletion.what, last.title


def _size_bytes(deletion: DeletionGroup, home: Path) -> int:
    kept = [home / path for slot in deletion.slots for _, path in slot.moves]
    return sum(file.lstat().st_size for path in kept for file in (path, *path.rglob("*")) if not file.is_dir())


def _as_dict(deletion: DeletionGroup, home: Path) -> dict[str, object]:
    last = deletion.last
    return {
        "name": last.name,
        "deleted_at": _moment(deletion),
        "session_id": last.session_id,
        "title": last.title,
        "what": deletion.what,
        "size_bytes": _size_bytes(deletion, home),
        "paths": deletion.paths,
    }
