"""Merge a source that changed into a session that was changed here. Pure.

The base is the version last imported, of which the receipt has digests. What only the source changed is taken. What was
changed here stays, also where the source changed it too: those messages are named in the result. Messages are never
removed, and a message deleted here does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from store.model.timestamp import Timestamp
from store.transfer.import_receipts import MAPS, NOT_COMPARED, Receipt, digest_value

Data = dict[str, Any]


class MergedImport(NamedTuple):
    data: Data
    clashes: list[str]  # ids of messages that both sides changed
    lost: int  # messages here that the source no longer has


def merge_import(base: Receipt, here: Data, source: Data, moved: Iterable[str] = ()) -> MergedImport:
    """The session here with the changes of the source. `moved` are messages now in another session of the tree."""
    clashes: list[str] = []
    messages = _merge_messages(base, here["messages"], source["messages"], set(moved), clashes)
    merged = merge_members(base, here, source)
    merged["messages"] = messages
    merged["updated_at"] = max((here["updated_at"], source["updated_at"]), key=lambda at: Timestamp(at).ns)
    known = {message.get("id") for message in source["messages"]} | set(moved)
    lost = sum(message.get("id") in base.messages and message["id"] not in known for message in here["messages"])
    return MergedImport(merged, clashes, lost)


def merge_members(base: Receipt, here: Data, source: Data) -> Data:
    """The members here, with those taken from the source that were not changed here."""
    merged = dict(here)
    for key, value in source.items():
        if key in MAPS and isinstance(value, dict) and isinstance(here.get(key), dict):
            inner = {
                name: part for name, part in value.items() if _takes_source(base, f"{key}.{name}", here[key], name)
            }
            merged[key] = {**here[key], **inner}
        elif key not in NOT_COMPARED and _takes_source(base, key, here, key):
            merged[key] = value
    return merged


def _takes_source(base: Receipt, path: str, here: Data, key: str) -> bool:
    """Whether a member is as it was imported. One that was removed here stays removed."""
    if key not in here:
        return path not in base.members
    return digest_value(here[key]) == base.members.get(path)


def _merge_messages(
    base: Receipt, here: list[Data], source: list[Data], moved: set[str], clashes: list[str]
) -> list[Data]:
    """The messages here, with changed ones taken from the source, and its new ones after those they follow."""
    theirs = {message["id"]: message for message in source if message.get("id")}
    merged: list[Data] = []
    for message in here:
        id = message.get("id")
        if id in base.messages and id in moved and id not in theirs:
            continue
        merged.append(_merge_message(base, message, theirs.get(id or ""), clashes))
    known = {message.get("id") for message in here} | base.messages.keys()
    return _with_added(merged, source, known)


def _merge_message(base: Receipt, here: Data, source: Data | None, clashes: list[str]) -> Data:
    if source is None or source == here:
        return here
    was = base.messages.get(here["id"])
    if digest_value(here) == was:
        return source
    if digest_value(source) != was:
        clashes.append(here["id"])
    return here


def _with_added(merged: list[Data], source: list[Data], known: set[Any]) -> list[Data]:
    """Insert the messages that only the source has. Those after its last known message go to the end."""
    places = {message.get("id"): place for place, message in enumerate(merged)}
    after: dict[int, list[Data]] = {}
    at = -1
    waiting: list[Data] = []
    for message in source:
        if message.get("id") in known:
            after.setdefault(at, []).extend(waiting)
            at, waiting = places.get(message["id"], at), []
        else:
            waiting.append(message)
    result = list(after.get(-1, ()))
    for place, message in enumerate(merged):
        result += [message, *after.get(place, ())]
    return [*result, *waiting]
