"""What was deleted lately, and how to have it back: trash, undelete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from fusefs.cli.app import Home, Json, app, open_store, print_json, print_table
from store import Ambiguous, NotFound, Timestamp
from store.trash import KEPT_DAYS, Deleted

PAUSE_NS = 10 * 10**9  # between two deletions of one `rm -r`, on a slow machine


@app.command()
def trash(home: Home, as_json: Json = False) -> None:
    """List what was deleted in the last seven days, the newest first.

    `grovefs undelete` has it back, by the name in the first column or by
    the id of the session. After seven days it is gone for good.

    Example: grovefs trash
    """
    with open_store(home) as store:
        found = store.deleted()
    if as_json:
        print_json([_as_dict(slot) for slot in found])
        return
    if found:
        rows = [(slot.name, _moment(slot)[:19], slot.session_id, slot.what) for slot in found]
        print_table(("name", "deleted", "session", "what"), rows)
    else:
        typer.echo(f"nothing was deleted in the last {KEPT_DAYS} days")


@app.command()
def undelete(
    name: Annotated[str, typer.Argument(help="A name that `grovefs trash` lists, or the id of a session.")],
    home: Home,
    as_json: Json = False,
) -> None:
    """Have a deletion back: a session with its children, a document, pruned agent records.

    Of several deletions of one session the latest is taken, and with it what went in the same go: the children and
    sidecars that `rm -r` in a mount took away one after the other. Refused if something else lies in its place by now;
    nothing is changed then.

    Example: grovefs undelete second-try
    """
    with open_store(home) as store:
        slots = store.deleted()
        found = _find_slot(slots, name)
        together = [found, *_in_the_same_go(slots, found)] if name != found.name else [found]
        places = [location for slot in together for location in store.undelete(slot.name)]
    restored = list(dict.fromkeys(map(str, places)))
    print_json({"restored": restored}) if as_json else typer.echo(f"restored: {', '.join(restored)}")


def _in_the_same_go(slots: list[Deleted], last: Deleted) -> Iterator[Deleted]:
    """What was deleted of the same session and below it just before, with no pause between: the newest first."""
    if last.what != "deleted":
        return
    below, before_ns = f"{last.session_id}/", last.deleted_at_ns
    for slot in slots[slots.index(last) + 1 :]:
        if slot.what in ("deleted", "document deleted") and f"{slot.session_id}/".startswith(below):
            if before_ns - slot.deleted_at_ns > PAUSE_NS:
                return
            before_ns = slot.deleted_at_ns
            yield slot


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
