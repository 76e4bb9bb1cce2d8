"""Checks of projects: payloads that cannot be read, indices that are out of step. Same law as `check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from store import layout
from store.check.finding import Finding
from store.check.workspace import check_mailbox
from store.commit.core import Core
from store.documents import json_text
from store.errors import Corrupt, InvalidContent
from store.layout import Location
from store.workspace.mailbox import Mailboxes
from store.workspace.project_records import ProjectSession
from store.workspace.projects import Projects


def check_projects(core: Core, projects: Projects, mail: Mailboxes) -> Iterator[Finding]:
    try:
        keys = projects.all_keys()
    except Corrupt:  # something else bears the name; `check_plants` tells of it
        return
    for key in keys:
        if core.journal.pending(layout.project_location(key).root):
            continue  # another check tells of what was interrupted
        for member in projects.members(key):
            yield from check_payload(core, member)
            yield from check_mailbox(core, mail.at(member.location))
        yield from check_indices(core, projects, key)


def check_payload(core: Core, member: ProjectSession) -> Iterator[Finding]:
    for entry in core.disk.entries(member.location.dir):
        if layout.is_leftover(entry.name):
            path = member.location.path(entry.name)
            mend = partial(core.disk.remove, path)
            yield Finding("temporary", path, "a temporary that a crash left behind", mend)
    try:
        file = core.disk.read(member.payload, core.limit_bytes)
        if file is not None:
            json_text.parse(file.data, member.payload, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        yield Finding("unparsable", member.payload, str(error.problem))
    except PermissionError as error:
        yield Finding("unparsable", member.payload, f"it cannot be read: {error.strerror}")


def check_indices(core: Core, projects: Projects, key: str) -> Iterator[Finding]:
    """Looked at alone with the project: a writer's index follows its payload by a moment."""
    location = layout.project_location(key)
    with core.locks.session(location):
        stale = projects.stale_files(key)
    for path in stale:
        yield Finding("derived", path, "it says something else than the payloads", _follow(core, location))


def _follow(core: Core, location: Location) -> Callable[[], None]:
    def mend() -> None:
        with core.locked(location):
            core.reread(location)

    return mend
