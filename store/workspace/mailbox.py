"""Messages between sessions: deliver, claim, acknowledge; each at least once, whatever crashes.

A message is delivered by a rename into `new/`, claimed by one into `cur/`, and acknowledged by its removal
from there: at every moment it lies whole in one place. Who restarts asks `recover` for what was claimed and
not acknowledged; who must not do a thing twice keeps an AdmittedSet. What cannot be read goes to `corrupt/`.
Many may deliver and drain at once: a mailbox has a lock of its own, so that a session being written does not
keep its mail out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from store import layout
from store.commit.commits import Commits
from store.commit.core import UNREADABLE, Core
from store.commit.journal import Commit
from store.commit.write_request import WriteRequest
from store.disk.file import File, NewFile
from store.disk.inotify_wait import wait_for_change
from store.errors import Corrupt, InvalidContent, InvalidName, NotFound
from store.layout import MAIL_CORRUPT, MAIL_CUR, MAIL_NEW, Location
from store.path_kinds import PathInfo, PathKind, classify_path, is_message_name
from store.workspace.mail_message import InboxMessage, parse_message
from store.workspace.project_records import ProjectSession

log = logging.getLogger("grovefs.store")

LONGEST_WAIT_S = 2.0  # then look again: a watch can be lost, and a session that goes takes the directory along untold
_ATTEMPTS = 5  # at claiming what someone takes away by hand meanwhile


class Delivered(NamedTuple):
    """A message, and the file that it is to be acknowledged by."""

    message: InboxMessage
    path: str


@dataclass(frozen=True)
class Mailboxes:
    """The mailboxes of all sessions, of either tree."""

    core: Core
    commits: Commits

    def at(self, target: Location | ProjectSession | str) -> Mailbox:
        """The mailbox of a session: its id, `root/child`, or `projects/<key>/sessions/<parent>[/children/<child>]`.

        NotFound if there is no such session. In a project a mailbox may come before its session does.
        """
        if isinstance(target, Location | ProjectSession):
            place_in = target.owner if isinstance(target, Location) else target.location
            return Mailbox(self.core, self.commits, place_in)
        if target.startswith(f"{layout.PROJECTS}/"):
            place = classify_path(target.rstrip("/"))
            if place.kind is not PathKind.PROJECT_SESSION or place.location is None:
                raise InvalidName(f"{target!r} names no session of a project: projects/<key>/sessions/<id> would")
            return Mailbox(self.core, self.commits, place.location)
        location = self.core.locate(target)
        if location is None:
            raise NotFound(f"there is no session {target!r}, so it has no mailbox")
        return Mailbox(self.core, self.commits, location)

    # -- what the mount asks for ---------------------------------------------------------------------------

    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Deliver a message as someone wrote it, under the name they gave it; False if it is there already."""
        place = request.target
        assert place.location is not None
        parse_message(raw, place.path, limit=self.core.limit_bytes)
        box = Mailbox(self.core, self.commits, place.location)
        part = place.location.part(layout.MAILBOX)
        with box.locked():
            return self.commits.put_file(part, request, raw, "mail")

    def tell(self, owner: Location) -> None:
        """A message came or went by other ways."""
        with self.core.db.write() as db:
            self.core.feed.add(db, [owner], "mail")
        self.core.on_commit()

    def remove(self, place: PathInfo) -> None:
        """Take a message away: in cur/ that is to acknowledge it."""
        assert place.location is not None
        box = Mailbox(self.core, self.commits, place.location)
        with box.locked():
            if self.core.disk.stat(place.path) is None:
                raise NotFound(f"{place.path} does not exist")
            box.discard([place.path])


@dataclass(frozen=True)
class Mailbox:
    core: Core
    commits: Commits
    owner: Location

    @property
    def dir(self) -> str:
        return f"{self.owner.dir}/{layout.MAILBOX}"

    # -- sending -------------------------------------------------------------------------------------------

    def deliver(self, message: InboxMessage) -> str:
        """Put a message into new/, whole; returns its path. The same message again takes its own place."""
        self.core.check_writable()
        path = f"{self.dir}/{MAIL_NEW}/{message.file_name}"
        raw = message.render()
        parse_message(raw, path, limit=self.core.limit_bytes)  # what its reader will do
        with self.locked():
            self._require_owner()
            self.commit([NewFile(path, [raw], self.core.disk.read(path))])
        return path

    # -- receiving -----------------------------------------------------------------------------------------

    def pending(self) -> list[Delivered]:
        """What waits in new/, the oldest first; nothing is claimed."""
        return [found for found in map(self._look, self._paths(MAIL_NEW)) if found is not None]

    def drain(self, limit: int | None = None) -> list[Delivered]:
        """Claim what waits in new/, the oldest first: no one else gets it. Acknowledge each when it is done."""
        self.core.check_writable()
        for attempt in range(_ATTEMPTS):
            try:
                with self.locked():
                    return self._claim_or_quarantine(self._paths(MAIL_NEW)[:limit], claim=True)
            except FileNotFoundError:  # taken away by hand, straight on the disk
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("not reached")

    def recover(self) -> list[Delivered]:
        """What was claimed and never acknowledged: ask for it before the first drain after a restart."""
        self.core.check_writable()
        with self.locked():
            return self._claim_or_quarantine(self._paths(MAIL_CUR), claim=False)

    def receive(self, timeout_s: float | None = None, limit: int | None = None) -> list[Delivered]:
        """As `drain`, but wait for something to come; empty only when the time is up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self.wait(left):
                return []
            claimed = self.drain(limit)
            if claimed:  # else another consumer was faster, or it was unreadable
                return claimed

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until something waits in new/; False when the time is up, NotFound when the session is gone."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
            if not self.is_empty():
                return True
            if left <= 0:
                return False
            with self.locked():  # or a deletion might come in between, and a directory be left behind
                self._require_owner()
                self.core.disk.make_dirs(f"{self.dir}/{MAIL_NEW}")
            directory = self.core.home / self.dir / MAIL_NEW
            wait_for_change(directory, min(left, LONGEST_WAIT_S), unless=lambda: not self.is_empty())

    def ack(self, message_id: str) -> bool:
        """A claimed message is done with; False if there is none of that id."""
        self.core.check_writable()
        with self.locked():
            found = [path for path in self._paths(MAIL_CUR) if path.endswith(f"-{message_id}.json")]
            found += [path for path in self._paths(MAIL_CUR) if path not in found and self._is_of(path, message_id)]
            self.discard(found[:1])
        return bool(found)

    def ack_delivered(self, delivered: Delivered) -> bool:
        """As `ack`, by its file; that it is gone already is fine."""
        self.core.check_writable()
        claimed = f"{self.dir}/{MAIL_CUR}/{delivered.path.rpartition('/')[2]}"
        with self.locked():
            is_there = self.core.disk.stat(claimed) is not None
            self.discard([claimed] if is_there else [])
        return is_there

    def is_empty(self) -> bool:
        """Whether nothing waits in new/."""
        return not self._paths(MAIL_NEW)

    def is_fully_empty(self) -> bool:
        """Whether nothing waits, and nothing is claimed."""
        return self.is_empty() and not self._paths(MAIL_CUR)

    # -- the moves it is all made of -----------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self.core.locked(self.owner.part(layout.MAILBOX)):
            yield

    def commit(self, files: Sequence[NewFile] = (), moves: Sequence[tuple[str, str]] = ()) -> None:
        targets = [file.path for file in files] + [target for _, target in moves]
        dirs = list(dict.fromkeys(path.rpartition("/")[0] for path in targets))
        self.commits.run(Commit(self.owner.part(layout.MAILBOX), files, moves, dirs), lambda db: None, "mail")

    def discard(self, paths: Sequence[str]) -> None:
        self.commits.discard(self.owner.part(layout.MAILBOX), paths, "mail")

    def _claim_or_quarantine(self, paths: Sequence[str], *, claim: bool) -> list[Delivered]:
        """The readable ones of these, claimed; the others are set aside, in the same commit."""
        good: list[Delivered] = []
        moves: list[tuple[str, str]] = []
        taken: set[str] = set()
        for path in paths:
            name = path.rpartition("/")[2]
            try:
                message = self._parsed(path)
            except (InvalidContent, Corrupt, OSError) as error:
                if isinstance(error, OSError) and error.errno not in UNREADABLE:
                    raise
                log.warning("set aside in %s/: %s", MAIL_CORRUPT, error)
                moves.append((path, self._unused_name(name, taken)))
                continue
            if message is None:
                continue
            good.append(Delivered(message, f"{self.dir}/{MAIL_CUR}/{name}"))
            if claim:
                moves.append((path, good[-1].path))
        if moves:
            self.commit(moves=moves)
        return good

    def set_aside(self, path: str) -> None:
        """Move what cannot be read to corrupt/; what can, or is gone by now, stays."""
        with self.locked():
            self._claim_or_quarantine([path], claim=False)

    def _unused_name(self, name: str, taken: set[str]) -> str:
        """A name in corrupt/ that nothing bears: whatever was set aside before stays."""
        base = f"{self.dir}/{MAIL_CORRUPT}/{name}"
        path, number = base, 1
        while path in taken or self.core.disk.stat(path) is not None:
            number += 1
            path = f"{base}.{number}"
        taken.add(path)
        return path

    def _parsed(self, path: str) -> InboxMessage | None:
        file: File | None = self.core.disk.read(path, self.core.limit_bytes)
        return parse_message(file.data, path, limit=self.core.limit_bytes) if file else None

    def _look(self, path: str) -> Delivered | None:
        try:
            message = self._parsed(path)
        except (InvalidContent, Corrupt, PermissionError):  # whoever drains sets it aside
            return None
        return Delivered(message, path) if message else None

    def _is_of(self, path: str, message_id: str) -> bool:
        """Whether a file that bears a name of its own, given by hand, holds this message."""
        found = self._look(path)
        return found is not None and found.message.id == message_id

    def _paths(self, box: str) -> list[str]:
        """The messages in one of the directories, in the order they were sent."""
        try:
            entries = self.core.disk.entries(f"{self.dir}/{box}")
        except Corrupt:  # something else bears the name; `check` tells of it
            return []
        return [f"{self.dir}/{box}/{entry.name}" for entry in entries if is_message_name(entry.name)]

    def _require_owner(self) -> None:
        if self.owner.is_session and self.core.disk.stat(self.owner.path(layout.SESSION)) is None:
            raise NotFound(f"session {self.owner} is gone, and its mailbox with it")
