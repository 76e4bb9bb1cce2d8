"""Compare two versions of a session: diff."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from fusefs.cli.commands.log import author_text, version_as_dict
from fusefs.cli.terminal import clean, echo
from fusefs.cli.version_names import VersionedName
from store import Difference, NotFound, SavedVersion, Store
from store.undo.versions_spec import local_text

if TYPE_CHECKING:
    from rich.text import Text

# Terminal styles; without colours the words are marked as [-old-]{+new+}.
_STYLES = {"added": "green", "removed": "red", "gap": "dim", "same": ""}
_RAW_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@app.command("diff")
def print_diff(
    session: VersionedName,
    home: Home,
    other: Annotated[str | None, typer.Argument(metavar="@V", help="Compare with this version.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Unified diff of the files instead of words.")] = False,
    as_json: Json = False,
) -> None:
    """Show what differs between two versions, message by message and member by member.

    SESSION alone shows the last change; SESSION@V everything since that version; SESSION@V @W what lies between the
    two. A line is `~ [3] user: …` for a changed message, + for a new one, - for a removed one, or `title: …` for
    another member. Without colours, words are marked [-removed-] and {+added+}. `updated_at` is shown only by --raw.

    Exits with 1 if nothing differs.

    Example: grovefs diff fix-login@-3 @-1
    """
    with open_store(home) as store:
        old, new = _versions(store, session, other)
        found = store.history.diff(old, new)
        name = store.history.name_of(new.path)
    if as_json:
        ends = {"old": version_as_dict(old) if old else None, "new": version_as_dict(new)}
        print_json({"id": name, **ends, **found.as_json()})
    elif raw:
        old_name = f"{name}@{old.label}" if old else "/dev/null"
        _print_raw(found.raw(old_name, f"{name}@{new.label}"))
    else:
        echo(_heading(name, old, new))
        _print_words(found)
        if found.is_empty:
            echo("no difference")
    if found.is_empty:
        raise typer.Exit(1)


def _versions(store: Store, session: str, other: str | None) -> tuple[SavedVersion | None, SavedVersion]:
    path, version = store.history.resolve(session)
    if other is not None:
        old = store.history.get(path, version) if version is not None else store.history.get_newest(path)
        return old, store.history.get(path, other.removeprefix("@"))
    newest = store.history.get_newest(path)
    if version is not None:
        return store.history.get(path, version), newest
    before = store.history.before(newest)
    if before is None and newest.number > 1:
        raise NotFound(f"{session}: version {newest.number - 1}, the one before, is not kept any more")
    return before, newest


def _heading(name: str, old: SavedVersion | None, new: SavedVersion) -> str:
    by = f"{local_text(new.made_at_ns)} by {author_text(new.author)}"
    return f"{name}: {f'version {old.label}' if old else 'nothing'} to version {new.label} ({by})"


def _print_words(found: Difference) -> None:
    if not is_coloured():
        for line in found.lines():
            echo(str(line))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in found.lines():
        text = _styled((_STYLES[piece.kind], piece.text or "…") for piece in line.pieces)
        console.print(text, style=_STYLES.get(line.event, ""), soft_wrap=True)


def _print_raw(lines: Iterable[str]) -> None:
    if not is_coloured():
        for line in lines:
            echo(line)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        is_name = line.startswith(("---", "+++"))
        console.print(_styled([("bold" if is_name else _RAW_STYLES.get(line[:1], ""), line)]), soft_wrap=True)


def _styled(parts: Iterable[tuple[str, str]]) -> Text:
    from rich.text import Text

    text = Text()
    for style, part in parts:
        text.append(clean(part.replace("\n", "↵")), style)
    return text


def is_coloured() -> bool:
    """Whether standard output shows colours. The marks of words are then left out."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
