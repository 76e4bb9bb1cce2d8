"""Checks of what lies beside the conversations: mail, records, state documents. Same law as `check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from store import layout
from store.check.finding import Finding
from store.commit.core import Core
from store.commit.journal import WHOLE_TREE
from store.disk.file import DirEntry
from store.documents import json_text
from store.errors import Corrupt, InvalidContent
from store.layout import MAIL_CORRUPT
from store.path_kinds import classify_path, is_message_name
from store.sessions.records import Records
from store.workspace.mail_message import parse_message
from store.workspace.mailbox import Mailbox, Mailboxes
from store.workspace.state import JSON, State


def check_mail(core: Core, mail: Mailboxes) -> Iterator[Finding]:
    """Every mailbox of every session."""
    for location in core.iter_on_disk():
        yield from check_mailbox(core, mail.at(location))


def check_records(core: Core, records: Records) -> Iterator[Finding]:
    """Artifacts, traces and reports of every session that nobody could load."""
    for location in core.iter_on_disk():
        for path, reason in records.check(location):
            yield Finding("unparsable", path, reason)


def check_mailbox(core: Core, box: Mailbox) -> Iterator[Finding]:
    for entry in _entries(core, box.dir):
        path = f"{box.dir}/{entry.name}"
        if entry.name not in layout.MAIL_DIRS:
            yield Finding("foreign-file", _shown(path), "not part of a mailbox; left alone")
        elif not entry.is_dir:
            yield Finding("not-plain", path, "a directory is expected; links are not followed")
        else:
            yield from _check_messages(core, box, path)


def _check_messages(core: Core, box: Mailbox, directory: str) -> Iterator[Finding]:
    for entry in _entries(core, directory):
        path = f"{directory}/{entry.name}"
        if directory.endswith(f"/{MAIL_CORRUPT}"):
            yield Finding("set-aside", _shown(path), "it could not be read as a message; mend it and move it to new/")
        elif layout.is_leftover(entry.name):
            yield Finding("temporary", path, "a temporary that a crash left behind", _discard(box, path))
        elif not is_message_name(entry.name):
            yield Finding("foreign-file", _shown(path), "no message; left alone")
        else:
            reason = _fault(core, path)
            if reason is not None:
                yield Finding(
                    "message", _shown(path), f"{reason}; it belongs in {MAIL_CORRUPT}/", _set_aside(box, path)
                )


# -- state ---------------------------------------------------------------------------------------------------


def check_state(core: Core, state: State) -> Iterator[Finding]:
    """Every state document, and what search knows of it."""
    on_disk = list(state.paths())
    for path in on_disk:
        if path.endswith(JSON):
            yield from _check_json(core, path)
        if not _is_pending(core, path) and not state.is_indexed(path):
            yield Finding("search-rows", _shown(path), "search says something else than the file", _follow(core, path))
    for path in set(state.indexed()) - set(on_disk):
        if not _is_pending(core, path):
            yield Finding("search-rows", _shown(path), "search knows it, but it is gone", _follow(core, path))


def _check_json(core: Core, path: str) -> Iterator[Finding]:
    try:
        file = core.disk.read(path, core.limit_bytes)
        if file is not None:
            json_text.parse_value(file.data, path, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        yield Finding("unparsable", _shown(path), str(error.problem))
    except PermissionError as error:
        yield Finding("unparsable", _shown(path), f"it cannot be read: {error.strerror}")


def _is_pending(core: Core, path: str) -> bool:
    """Whether a commit is under way there: another check tells of one that was interrupted."""
    location = classify_path(path).location
    assert location is not None
    pending = core.journal.pending(location.root)
    return (location.child or "") in pending or WHOLE_TREE in pending


def _follow(core: Core, path: str) -> Callable[[], None]:
    def mend() -> None:
        location = classify_path(path).location
        assert location is not None
        with core.locked(location):
            core.reread(location)

    return mend


def _fault(core: Core, path: str) -> str | None:
    try:
        file = core.disk.read(path, core.limit_bytes)
        if file is not None:  # else it was taken meanwhile
            parse_message(file.data, path, limit=core.limit_bytes)
    except (InvalidContent, Corrupt) as error:
        return str(error.problem)
    except PermissionError as error:
        return f"it cannot be read: {error.strerror}"
    return None


def _entries(core: Core, directory: str) -> list[DirEntry]:
    """None where something else bears the name: another check tells of that."""
    try:
        return core.disk.entries(directory)
    except (Corrupt, PermissionError):
        return []


def _set_aside(box: Mailbox, path: str) -> Callable[[], None]:
    return lambda: box.set_aside(path)


def _discard(box: Mailbox, path: str) -> Callable[[], None]:
    def mend() -> None:
        with box.locked():
            box.discard([path])

    return mend


def _shown(path: str) -> str:
    """A path for people: a name that is no UTF-8 has its odd bytes replaced."""
    return path.encode(errors="replace").decode()
