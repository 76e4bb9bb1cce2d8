"""Checks of mail, records, state documents and projects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from store import layout
from store.check import repairs
from store.check.context import CheckContext, is_pending
from store.check.finding import Finding, display_path
from store.commit.core import Core
from store.commit.reindex import iter_on_disk
from store.disk.file import DirEntry
from store.documents import json_text
from store.errors import Corrupt, InvalidContent
from store.layout import MAIL_CORRUPT, Location
from store.path_kinds import classify_path, is_message_name
from store.workspace.mail_message import parse_message
from store.workspace.mailbox import Mailbox
from store.workspace.project_records import ProjectSession
from store.workspace.projects import Projects
from store.workspace.state import JSON

_LEFTOVER = "temporary file left by a crash"


def check_records(context: CheckContext) -> Iterator[Finding]:
    """Artifacts, traces and verification reports that cannot be loaded."""
    for location in iter_on_disk(context.core.disk):
        for path, reason in context.services.records.check(location):
            yield Finding("unparsable", path, reason)


def check_trajectories(context: CheckContext) -> Iterator[Finding]:
    """Lines of trajectory.jsonl that readers skip: a torn one, or one of another program."""
    for location in iter_on_disk(context.core.disk):
        path = location.path(layout.TRAJECTORY)
        try:
            lines = list(context.services.trajectory.unreadable(location))
        except Corrupt:  # not a file: `check_names` reports it
            continue
        except PermissionError as error:
            yield Finding("unparsable", path, f"cannot be read: {error.strerror}")
            continue
        if lines:
            number, reason = lines[0]
            more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
            yield Finding("log-line", path, f"line {number}: {reason}{more}; readers skip it")


# -- mail ----------------------------------------------------------------------------------------------------


def check_mail(context: CheckContext) -> Iterator[Finding]:
    """The mailbox of every session."""
    for location in iter_on_disk(context.core.disk):
        yield from check_mailbox(context.core, context.services.mail.at(location))


def check_mailbox(core: Core, box: Mailbox) -> Iterator[Finding]:
    for entry in _entries(core, box.dir):
        path = f"{box.dir}/{entry.name}"
        if entry.name not in layout.MAIL_DIRS:
            yield Finding("foreign-file", display_path(path), "not part of a mailbox; ignored")
        elif not entry.is_dir:
            yield Finding("not-plain", path, "expected a directory; links are not followed")
        else:
            yield from _check_messages(core, box, path)


def _check_messages(core: Core, box: Mailbox, directory: str) -> Iterator[Finding]:
    for entry in _entries(core, directory):
        path = f"{directory}/{entry.name}"
        if directory.endswith(f"/{MAIL_CORRUPT}"):
            yield Finding("set-aside", display_path(path), "not a valid message; correct it and move it to new/")
        elif layout.is_leftover(entry.name):
            yield Finding("temporary", path, _LEFTOVER, partial(_discard, box, path))
        elif not is_message_name(entry.name):
            yield Finding("foreign-file", display_path(path), "not a message; ignored")
        else:
            problem = _message_problem(core, path)
            if problem is not None:
                text = f"{problem}; it belongs in {MAIL_CORRUPT}/"
                yield Finding("message", display_path(path), text, partial(box.quarantine, path))


def _message_problem(core: Core, path: str) -> str | None:
    try:
        file = core.disk.read(path, core.limit_bytes)
        if file is not None:  # else it was received in the meantime
            parse_message(file.data, path, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        return str(error.problem)
    except PermissionError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _discard(box: Mailbox, path: str) -> None:
    with box.locked():
        box.discard([path])


# -- state ---------------------------------------------------------------------------------------------------


def check_state(context: CheckContext) -> Iterator[Finding]:
    """Every state document, and its row in the full-text index."""
    core, state = context.core, context.services.state
    on_disk = list(state.paths())
    for path in on_disk:
        if path.endswith(JSON):
            yield from _check_json(core, path)
        location = _location_of(path)
        if not is_pending(core, location) and not state.is_indexed(path):
            repair = partial(repairs.reindex, core, location)
            yield Finding("search-rows", display_path(path), "the search rows differ from the file", repair)
    for path in set(state.indexed()) - set(on_disk):
        location = _location_of(path)
        if not is_pending(core, location):
            repair = partial(repairs.reindex, core, location)
            yield Finding("search-rows", display_path(path), "indexed, but the file does not exist", repair)


def _location_of(path: str) -> Location:
    location = classify_path(path).location
    assert location is not None
    return location


def _check_json(core: Core, path: str) -> Iterator[Finding]:
    try:
        file = core.disk.read(path, core.limit_bytes)
        if file is not None:
            json_text.parse_value(file.data, path, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        yield Finding("unparsable", display_path(path), str(error.problem))
    except PermissionError as error:
        yield Finding("unparsable", display_path(path), f"cannot be read: {error.strerror}")


# -- projects ------------------------------------------------------------------------------------------------


def check_projects(context: CheckContext) -> Iterator[Finding]:
    """Payloads that cannot be read, mail of project sessions, and index.json and children.json."""
    core, projects = context.core, context.services.projects
    try:
        keys = projects.all_keys()
    except Corrupt:  # projects/ is not a directory: `check_unexpected_files` reports it
        return
    for key in keys:
        if core.journal.pending(layout.project_location(key).root):
            continue  # `check_unfinished` reports an interrupted commit
        for member in projects.members(key):
            yield from check_payload(core, member)
            yield from check_mailbox(core, context.services.mail.at(member.location))
        yield from check_project_index(core, projects, key)


def check_payload(core: Core, member: ProjectSession) -> Iterator[Finding]:
    for entry in core.disk.entries(member.location.dir):
        if layout.is_leftover(entry.name):
            path = member.location.path(entry.name)
            yield Finding("temporary", path, _LEFTOVER, partial(core.disk.remove, path))
    try:
        file = core.disk.read(member.payload, core.limit_bytes)
        if file is not None:
            json_text.parse(file.data, member.payload, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        yield Finding("unparsable", member.payload, str(error.problem))
    except PermissionError as error:
        yield Finding("unparsable", member.payload, f"cannot be read: {error.strerror}")


def check_project_index(core: Core, projects: Projects, key: str) -> Iterator[Finding]:
    """index.json and children.json must match the payloads. The lock is needed: a commit writes the payload first."""
    location = layout.project_location(key)
    with core.locks.session(location):
        stale = projects.stale_files(key)
    for path in stale:
        yield Finding("derived", path, "differs from the payloads", partial(repairs.reindex, core, location))


def _entries(core: Core, directory: str) -> list[DirEntry]:
    """The entries of a directory; none if it is something else, which another check reports."""
    try:
        return core.disk.entries(directory)
    except (Corrupt, PermissionError):
        return []
