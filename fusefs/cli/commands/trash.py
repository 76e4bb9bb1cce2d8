"""List, restore and erase deletions: trash, undelete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, confirm, open_store, plural, print_json, print_table
from fusefs.cli.errors import print_error
from fusefs.cli.terminal import echo
from store import AlreadyExists, Store, StoreError, Timestamp
from store.disk.trash import FILE_DELETIONS, KEPT_DAYS, TrashSlot
from store.sessions.deletions import DeletionGroup, find_deletion, group_deletions


@app.command()
def trash(
    home: Home,
    empty: Annotated[
        bool, typer.Option("--empty", help="Erase everything in the trash permanently, to free disk space.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --empty: do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """List deletions of the last seven days, newest first. Files deleted together are one line.

    `grovefs undelete` restores one by the name in the first column, the id of the session, a unique prefix of the
    id, or the title. After seven days a deletion is erased; until then it uses as much disk space as before.

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
        headings = ("name", "deleted", "bytes", "session", "event", "title")
        print_table(headings, [_row(deletion, home) for deletion in found])
    else:
        echo(f"no deletions in the last {KEPT_DAYS} days")


def _empty(store: Store, *, yes: bool, as_json: bool) -> None:
    count = len(group_deletions(store.trash.deleted()))
    if count and not yes and not confirm(f"Erase {plural(count, 'deletion')} permanently?", "--yes"):
        raise typer.Exit(1)
    store.trash.empty()
    print_json({"erased": count}) if as_json else echo(f"erased {plural(count, 'deletion')}")


@app.command()
def undelete(
    name: Annotated[
        str,
        typer.Argument(help="Name, session id or unique prefix, or title as listed by `grovefs trash`; or a path."),
    ],
    home: Home,
    as_json: Json = False,
) -> None:
    """Restore a deleted session with its children and files, a single file, or pruned agent records.

    If a session was deleted several times, the latest deletion is restored, with everything deleted together with it:
    children, documents, attachments and logs that `rm -r` in a mount deleted one by one. To restore a single file, pass
    its path as shown by `grovefs trash --json`. A file at that path is moved to the trash. If the session exists again,
    nothing is changed and the command fails. `grovefs help limits` lists the files that `rm` in a mount does not keep.

    Example: grovefs undelete second-try
    """
    with open_store(home) as store:
        chosen = find_deletion(group_deletions(store.trash.deleted()), name)
        restored, files, refused = _restore(store, chosen)
    if as_json:
        print_json({"restored": restored, "refused": refused})
    elif restored:
        echo(f"restored: {', '.join(restored)}{_files(chosen, files) if not refused else ''}")
    for path, reason in refused.items():
        print_error(f"{path} was not restored and stays in the trash: {reason}")
    if refused:
        raise typer.Exit(1)


def _restore(store: Store, deletion: DeletionGroup) -> tuple[list[str], list[str], dict[str, str]]:
    """Restore the session first, then its files. If the session cannot be restored, its files are not tried.

    Returns the sessions, the attachments and logs, and the reasons for what was refused. A file or child that came
    back with a newer slot is not replaced: the older one stays in the trash.
    """
    restored = [str(place) for place in store.trash.undelete(deletion.last.name)]
    files = _single_files(deletion.last)
    refused: dict[str, str] = {}
    older: set[str] = set()  # sessions that are there already: files deleted earlier are not theirs
    for slot in deletion.slots[1:]:
        if slot.session_id in older:
            continue
        try:
            restored += map(str, store.trash.undelete(slot.name, displace=not deletion.is_session))
            files += _single_files(slot)
        except AlreadyExists as error:
            if not deletion.is_session:
                refused[slot.moves[0][0]] = str(error)
            elif slot.is_session:
                older.add(slot.session_id)
        except StoreError as error:
            refused[slot.moves[0][0]] = str(error)
    return list(dict.fromkeys(restored)), files, refused


def _single_files(slot: TrashSlot) -> list[str]:
    return [path for path, _ in slot.moves] if slot.what in FILE_DELETIONS else []


def _files(deletion: DeletionGroup, files: list[str]) -> str:
    """The restored attachments and logs, for the summary: with their session, or by name if only one was restored."""
    if not files:
        return ""
    count = plural(len(files), "file")
    return f", with {count}" if deletion.is_session else f" ({files[0] if len(files) == 1 else count})"


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
        "id": last.session_id,
        "title": last.title,
        "what": deletion.what,
        "size_bytes": _size_bytes(deletion, home),
        "paths": deletion.paths,
    }
