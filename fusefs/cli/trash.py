"""What was deleted lately, and how to have it back: trash, undelete."""

from __future__ import annotations

from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json
from store import Ambiguous, NotFound, Timestamp
from store.trash import KEPT_DAYS, Deleted


@app.command()
def trash(home: Home, as_json: Json = False) -> None:
    """List what was deleted in the last seven days, the newest first.

    `grovefs undelete` has it back, by the name in the first column or by
    the id of the session. After seven days it is gone for good.
    """
    with open_store(home) as store:
        found = store.deleted()
    if as_json:
        print_json([_as_dict(slot) for slot in found])
        return
    for slot in found:
        typer.echo("\t".join((slot.name, _moment(slot)[:19], slot.session_id, slot.what)))
    if not found:
        typer.echo(f"nothing was deleted in the last {KEPT_DAYS} days")


@app.command()
def undelete(
    name: Annotated[str, typer.Argument(help="A name that `grovefs trash` lists, or the id of a session.")],
    home: Home,
    as_json: Json = False,
) -> None:
    """Have a deletion back: a session with its children, a document, pruned agent records.

    Of several deletions of one session the latest is taken. Refused if
    something else lies in its place by now; nothing is changed then.
    """
    with open_store(home) as store:
        slot = _find_slot(store.deleted(), name)
        restored = [str(location) for location in store.undelete(slot.name)]
    print_json({"restored": restored}) if as_json else typer.echo(f"restored: {', '.join(restored)}")


def _find_slot(slots: list[Deleted], name: str) -> Deleted:
    """By its name, the id of the session, or a unique beginning of that; the newest comes first in `slots`."""
    exact = [slot for slot in slots if name in (slot.name, slot.session_id)]
    found = exact or [slot for slot in slots if name and slot.session_id.startswith(name)]
    if not found:
        raise NotFound(f"there is no {name!r} in the trash; `grovefs trash` lists what is")
    if len({slot.session_id for slot in found}) > 1:
        raise Ambiguous(name, {slot.session_id for slot in found})
    return found[0]


def _moment(slot: Deleted) -> Timestamp:
    return Timestamp.from_ns(slot.deleted_at_ns)


def _as_dict(slot: Deleted) -> dict[str, object]:
    paths = [original for original, _ in slot.moves]
    return {
        "name": slot.name,
        "deleted_at": _moment(slot),
        "session_id": slot.session_id,
        "what": slot.what,
        "paths": paths,
    }
