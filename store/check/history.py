"""Checks of the history: every version decodes, the newest is the file, and no old version holds a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from store import layout
from store.check import repairs
from store.check.context import CheckContext, is_pending
from store.check.finding import Finding, display_path
from store.commit.core import Core
from store.documents import secrets
from store.errors import Busy
from store.history import purge, steps, thinning
from store.history.database import HistoryUnusable
from store.history.thinning import Undecodable
from store.history.versions import owner_of

_AROUND_BYTES = 512  # searched before and after a change: a secret may begin before what was inserted
_READ = (HistoryUnusable, OSError)


def check_history(context: CheckContext) -> Iterator[Finding]:
    """Versions that cannot be read, and files that are not their newest version."""
    core = context.core
    yield from _set_aside(core)
    if not core.history.is_on:
        return
    try:
        found = _lineages(core)
    except _READ as error:
        yield Finding("history", layout.HISTORY_DB, f"cannot be read: {error}")
        return
    for key, path in found:
        location = owner_of(path)
        try:
            with core.locks.session(location) if location is not None else nullcontext():
                if location is None or not is_pending(core, location):
                    yield from _check_lineage(core, key, path)
        except (Busy, PermissionError):  # a session that cannot be read is a finding of its own
            continue


def _set_aside(core: Core) -> Iterator[Finding]:
    """Damaged databases, which the store renamed and began a new one."""
    for path in purge.set_aside_files(core.history.database):
        if purge.is_database(path):
            why = "a damaged history, set aside with the versions from before; delete it when you do not need them"
            yield Finding("set-aside", f"{layout.PRIVATE}/{path.name}", why)


def _lineages(core: Core) -> list[tuple[int, str]]:
    rows: list[Any] = core.history.query("SELECT key, dir FROM lineages ORDER BY dir")
    return [(key, os.fsdecode(path)) for key, path in rows]


def _check_lineage(core: Core, key: int, path: str) -> Iterator[Finding]:
    db = core.history.database.reader
    damaged: dict[int, str] = {}
    for role in thinning.ROLES:
        for number, text, _ in thinning.iter_texts(db, key, role):
            if isinstance(text, Undecodable):
                damaged.setdefault(number, text.why)
    shown = display_path(path)
    if damaged:
        why = f"{_numbers(sorted(damaged))} cannot be read: {next(iter(damaged.values()))}"
        yield Finding("history", shown, why, partial(repairs.drop_unreadable_versions, core, key, path))
    elif _is_noticed(core, path) and core.history.is_behind(path):
        why = "the newest version in the history is not the file"
        yield Finding("history-behind", shown, why, partial(core.history.observe, path))


def _is_noticed(core: Core, path: str) -> bool:
    """Whether the index knows the files as they are. Otherwise indexing them, another repair, records them."""
    found = layout.locate_path(path)
    return found is None or bool(found[1]) or core.is_current(found[0])


def check_history_secrets(context: CheckContext) -> Iterator[Finding]:
    """One finding for each lineage and kind of secret; the present version is checked as a file."""
    core = context.core
    try:
        found = _lineages(core)
    except _READ:  # check_history reports it
        return
    for key, path in found:
        places: dict[str, set[int]] = {}
        for role in thinning.ROLES:
            for number, kind in _iter_secrets(core, key, role):
                places.setdefault(kind, set()).add(number)
        newest = core.history.newest(path) if core.disk.stat(path) is not None else None
        for kind, numbers in places.items():
            past = sorted(numbers - {newest.number if newest is not None else 0})
            if past:
                advice = "remove it from the file, then `grovefs history purge --matching REGEX`"
                yield Finding("secret-in-history", display_path(path), f"{_numbers(past)}: looks like {kind}; {advice}")


def _iter_secrets(core: Core, key: int, role: str) -> Iterator[tuple[int, str]]:
    """Version and kind of every secret. Only what a version changed is searched; a secret stays until it is gone."""
    present: dict[bytes, str] = {}
    before = b""
    for number, text, is_changed in thinning.iter_texts(core.history.database.reader, key, role):
        if is_changed:
            now = bytes(text) if isinstance(text, bytearray) else b""
            present = {secret: kind for secret, kind in present.items() if secret in now}
            present |= {secret.encode(): kind for kind, secret in secrets.iter_secrets(_changed_part(before, now))}
            before = now
        for kind in set(present.values()):
            yield number, kind


def _changed_part(before: bytes, now: bytes) -> str:
    """What differs from the text before, and a little around it."""
    head, tail = steps.common_ends(before, now)
    return now[max(0, head - _AROUND_BYTES) : len(now) - max(0, tail - _AROUND_BYTES)].decode(errors="replace")


def _numbers(numbers: list[int]) -> str:
    """`versions 3 to 7 and 2 others`."""
    if len(numbers) == 1:
        return f"version {numbers[0]}"
    end = next((i for i, number in enumerate(numbers) if number != numbers[0] + i), len(numbers))
    rest = len(numbers) - end
    run = f"versions {numbers[0]} to {numbers[end - 1]}" if end > 1 else f"version {numbers[0]}"
    return f"{run} and {rest} more" if rest else run
