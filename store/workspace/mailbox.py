"""Mailboxes: messages between sessions, delivered at least once.

A message is delivered by a rename into `new/`, claimed by a rename into `cur/`, and acknowledged by
deleting it there, so a crash leaves it complete in one of the two. After a restart, `recover`
returns the messages that were claimed but not acknowledged. A consumer that must not process a
message twice keeps a SeenIds. Unreadable messages are moved to `corrupt/`. Several processes may
deliver and drain at once. A mailbox has a separate lock: writing a session does not block its mail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import UNREADABLE
from store.commit.write_request import WriteRequest
from store.disk.file import File, NewFile
from store.disk.inotify_wait import wait_for_change
from store.errors import Corrupt, InvalidContent, InvalidName, NotFound
from store.layout import MAIL_CORRUPT, MAIL_CUR, MAIL_NEW, Location
from store.path_kinds import PathInfo, PathKind, classify_path, is_message_name
from store.workspace.mail_message import InboxMessage, parse_message
from store.workspace.project_records import ProjectSession

log = logging.getLogger("grovefs.store")

# Check at least this often: inotify may drop events, and deleting the session sends none for new/.
MAX_WAIT_S = 2.0
_ATTEMPTS = 5  # at claiming messages that are being deleted directly on disk


class Delivered(NamedTuple):
    """A message and the path of its file, which identifies it for `ack_delivered`."""

    message: InboxMessage
    path: str


@dataclass(frozen=True)
class Mailboxes:
    """The mailboxes of all sessions, including those of projects."""

    core: Core
    commits: Commits

    def at(self, target: Location | ProjectSession | str) -> Mailbox:
        """The mailbox of a session.

        `target` may be an id, `root/child`, or `projects/<key>/sessions/<parent>[/children/<child>]`.
        Raises NotFound if there is no such session. In a project, a mailbox may exist before its session.
        """
        if isinstance(target, Location | ProjectSession):
            owner = target.owner if isinstance(target, Location) else target.location
            return Mailbox(self.core, self.commits, owner)
        if target.startswith(f"{layout.PROJECTS}/"):
            place = classify_path(target.rstrip("/"))
            if place.kind is not PathKind.PROJECT_SESSION or place.location is None:
                raise InvalidName(f"{target!r} is not a session of a project: expected projects/<key>/sessions/<id>")
            return Mailbox(self.core, self.commits, place.location)
        location = self.core.locate(target)
        if location is None:
            raise NotFound(f"there is no session {target!r}")
        return Mailbox(self.core, self.commits, location)

    # -- used by the mount -------------------------------------------------------------------------

    @repeats
    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Deliver a message byte for byte under the given file name.

        Returns False if nothing changes.
        """
        place = request.target
        assert place.location is not None
        parse_message(raw, place.path, limit=self.core.limit_bytes)
        box = Mailbox(self.core, self.commits, place.location)
        part = place.location.part(layout.MAILBOX)
        with box.locked():
            box.require_owner()
            return self.commits.put_file(part, request, raw, "mail")

    def announce(self, owner: Location) -> None:
        """Add a change to the feed after a message was renamed without `put` or `remove`."""
        with self.core.db.write() as db:
            self.core.feed.add(db, [owner], "mail")
        self.core.on_commit()

    @repeats
    def remove(self, place: PathInfo) -> None:
        """Delete a message. In cur/ this acknowledges it."""
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

    # -- sending -----------------------------------------------------------------------------------

    @repeats
    def deliver(self, message: InboxMessage) -> str:
        """Deliver a message to new/ and return its path. Delivering it again replaces the file."""
        self.core.check_writable()
        message.check_sendable()
        path = f"{self.dir}/{MAIL_NEW}/{message.file_name}"
        raw = message.render()
        parse_message(raw, path, limit=self.core.limit_bytes)  # as its reader does
        with self.locked():
            self.require_owner()
            self.commit([NewFile(path, [raw], self.core.disk.read(path))])
        return path

    # -- receiving ---------------------------------------------------------------------------------

    def pending(self) -> list[Delivered]:
        """Messages in new/, oldest first. Claims nothing."""
        return [found for found in map(self._peek, self._paths(MAIL_NEW)) if found is not None]

    @repeats
    def drain(self, limit: int | None = None) -> list[Delivered]:
        """Claim the messages in new/, oldest first.

        The caller acknowledges each after processing it.
        """
        self.core.check_writable()
        self._pull()
        for attempt in range(_ATTEMPTS):
            try:
                with self.locked():
                    return self._drain(limit)
            except FileNotFoundError:  # deleted directly on disk
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("not reached")

    def _drain(self, limit: int | None) -> list[Delivered]:
        """First what an earlier drain has claimed without learning of it, then what is in new/."""
        earlier = [path for path in self._unsure_claims() if self.core.disk.stat(path) is not None]
        given = self._claim_or_quarantine(earlier[:limit], claim=False)
        left = None if limit is None else limit - len(given)
        given += self._claim_or_quarantine(self._paths(MAIL_NEW)[:left], claim=True)
        self._forget_unsure(given)
        return given

    def _pull(self) -> None:
        """In a grove: learn what other hosts delivered and claimed."""
        if self.owner.is_session:
            self.core.agreement.refresh(self.owner.part(layout.MAILBOX))

    def _unsure_claims(self) -> Sequence[str]:
        return self.core.agreement.unsure_claims(self.owner.part(layout.MAILBOX)) if self.owner.is_session else ()

    def _forget_unsure(self, given: Sequence[Delivered]) -> None:
        if given and self.owner.is_session:
            self.core.agreement.forget_unsure(self.owner.part(layout.MAILBOX), [found.path for found in given])

    @repeats
    def recover(self) -> list[Delivered]:
        """Messages claimed but not acknowledged; in a grove, those that this host claimed.

        Call this after a restart, before the first drain.
        """
        self.core.check_writable()
        self._pull()
        with self.locked():
            mine = [p for p in self._paths(MAIL_CUR) if not self.core.agreement.is_claimed_elsewhere(p)]
            given = self._claim_or_quarantine(mine, claim=False)
            self._forget_unsure(given)
            return given

    def receive(self, timeout_s: float | None = None, limit: int | None = None) -> list[Delivered]:
        """Wait for messages and claim them. Returns an empty list only on timeout."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self.wait(left):
                return []
            claimed = self.drain(limit)
            if claimed:  # otherwise another consumer claimed it first, or it was unreadable
                return claimed

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until new/ has a message.

        Returns False on timeout; raises NotFound if the session is deleted.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = MAX_WAIT_S if deadline is None else deadline - time.monotonic()
            if not self.is_empty():
                return True
            if left <= 0:
                return False
            with self.locked():  # otherwise a deletion in between would leave an empty directory
                self.require_owner()
                self.core.disk.make_dirs(f"{self.dir}/{MAIL_NEW}")
            directory = self.core.home / self.dir / MAIL_NEW
            wait_for_change(directory, min(left, MAX_WAIT_S), unless=lambda: not self.is_empty())

    @repeats
    def ack(self, message_id: str) -> bool:
        """Acknowledge a claimed message. Returns False if there is none with this id."""
        self.core.check_writable()
        with self.locked():
            found = [path for path in self._paths(MAIL_CUR) if path.endswith(f"-{message_id}.json")]
            found += [path for path in self._paths(MAIL_CUR) if path not in found and self._has_id(path, message_id)]
            self.discard(found[:1])
        return bool(found)

    @repeats
    def ack_delivered(self, delivered: Delivered) -> bool:
        """Acknowledge a claimed message by its file. Returns False if that was done before."""
        self.core.check_writable()
        claimed = f"{self.dir}/{MAIL_CUR}/{delivered.path.rpartition('/')[2]}"
        with self.locked():
            is_there = self.core.disk.stat(claimed) is not None
            self.discard([claimed] if is_there else [])
        return is_there

    def is_empty(self) -> bool:
        """Whether new/ has no messages."""
        return not self._paths(MAIL_NEW)

    def is_fully_empty(self) -> bool:
        """Whether neither new/ nor cur/ has messages."""
        return self.is_empty() and not self._paths(MAIL_CUR)

    # -- commits -----------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self.core.locked(self.owner.part(layout.MAILBOX)):
            yield

    def commit(self, files: Sequence[NewFile] = (), moves: Sequence[tuple[str, str]] = ()) -> None:
        targets = [file.path for file in files] + [target for _, target in moves]
        dirs = list(dict.fromkeys(path.rpartition("/")[0] for path in targets))
        self.commits.run(Commit(self.owner.part(layout.MAILBOX), files, moves, dirs), None, "mail")

    def discard(self, paths: Sequence[str]) -> None:
        self.commits.discard(self.owner.part(layout.MAILBOX), paths, "mail")

    def _claim_or_quarantine(self, paths: Sequence[str], *, claim: bool) -> list[Delivered]:
        """Return the readable messages, and move the others to corrupt/.

        One commit does this and claims them.
        """
        good: list[Delivered] = []
        moves: list[tuple[str, str]] = []
        taken: set[str] = set()
        for path in paths:
            name = path.rpartition("/")[2]
            try:
                message = self._parse(path)
            except (InvalidContent, Corrupt, OSError) as error:
                if isinstance(error, OSError) and error.errno not in UNREADABLE:
                    raise
                log.warning("moved to %s/: %s", MAIL_CORRUPT, error)
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

    def quarantine(self, path: str) -> None:
        """Move a message to corrupt/ if it exists and cannot be read."""
        with self.locked():
            self._claim_or_quarantine([path], claim=False)

    def _unused_name(self, name: str, taken: set[str]) -> str:
        """A free name in corrupt/: earlier files there are not replaced."""
        base = f"{self.dir}/{MAIL_CORRUPT}/{name}"
        path, number = base, 1
        while path in taken or self.core.disk.stat(path) is not None:
            number += 1
            path = f"{base}.{number}"
        taken.add(path)
        return path

    def _parse(self, path: str) -> InboxMessage | None:
        file: File | None = self.core.disk.read(path, self.core.limit_bytes)
        return parse_message(file.data, path, limit=self.core.limit_bytes) if file else None

    def _peek(self, path: str) -> Delivered | None:
        try:
            message = self._parse(path)
        except (InvalidContent, Corrupt, PermissionError):  # `drain` moves it to corrupt/
            return None
        return Delivered(message, path) if message else None

    def _has_id(self, path: str, message_id: str) -> bool:
        """Whether a file with a name chosen by a user contains the message with this id."""
        found = self._peek(path)
        return found is not None and found.message.id == message_id

    def _paths(self, box: str) -> list[str]:
        """Paths of the messages in one of the directories, in the order of creation."""
        try:
            entries = self.core.disk.entries(f"{self.dir}/{box}")
        except Corrupt:  # not a directory; `check` reports it
            return []
        return [f"{self.dir}/{box}/{entry.name}" for entry in entries if is_message_name(entry.name)]

    def require_owner(self) -> None:
        if self.owner.is_session and self.core.disk.stat(self.owner.path(layout.SESSION)) is None:
            raise NotFound(f"session {self.owner} was deleted, and its mailbox with it")
