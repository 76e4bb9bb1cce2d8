"""Append messages to a session: the hot path of a running agent.

The fast path splices the new messages into the text of session.json at offsets stored in the index,
without parsing the old messages. Where that is not safe, the session is loaded, extended and saved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pydantic

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import LoadState, with_load_state
from store.disk.disk import ChangedMeanwhile
from store.disk.file import File, NewFile
from store.documents import append_offsets, json_text, sidecar
from store.documents.append_offsets import AppendOffsets
from store.documents.document import type_problem
from store.documents.json_splice import splice
from store.documents.merge import MergeConflict
from store.errors import InvalidContent, NotFound
from store.history.steps import CONTEXT_BYTES
from store.history.versions import KnownChange, Splice
from store.index.catalog import CatalogRow
from store.layout import Location
from store.model.message import Message, truncate_tool_output
from store.model.session import Session
from store.model.timestamp import Timestamp, clip_ns
from store.sessions.refresh import RefreshOperation
from store.sessions.save import SaveOperations
from store.sessions.session_checks import locate, rendered

log = logging.getLogger("grovefs.store")

SHARED_BYTES = 1 << 20  # a shorter text is written again as a whole
BLOCK_BYTES = 4096


@dataclass(frozen=True)
class AppendedMessage:
    """Where a message was appended: its index in the conversation, and its id."""

    index: int
    id: str | None  # None if the caller gave none


class _AfterAppend(NamedTuple):
    """The session after an append."""

    updated_at: Timestamp
    message_count: int


@dataclass(frozen=True)
class AppendOperation:
    core: Core
    commits: Commits
    saver: SaveOperations

    def append(self, target: Session | str, messages: Iterable[Message | dict[str, Any]]) -> list[AppendedMessage]:
        """Add messages at the end, and return their indexes and ids.

        Never conflicts. A Session is up to date afterwards: it has what others stored, too.
        """
        if isinstance(messages, str | bytes | Mapping | Message):  # iterable too, but never a list of messages
            raise TypeError(f"append: expected a list of messages, got a single {type(messages).__name__}")
        self.core.check_writable()
        location = locate(self.core, target)
        added = [_checked_message(message) for message in messages]
        return self._append(target, location, added) if added else []

    @repeats
    def _append(self, target: Session | str, location: Location, added: list[dict[str, Any]]) -> list[AppendedMessage]:
        with self.core.locked(location):
            was_current = isinstance(target, Session) and self._is_current(target, location)
            done = self._append_fast(location, added) or self._append_by_rewrite(location, added)
            if was_current and isinstance(target, Session):
                self._extend(target, location, added, done.updated_at)
            elif isinstance(target, Session) and target._origin is not None:
                self._catch_up(target)
        first = done.message_count - len(added)
        return [AppendedMessage(first + place, message.get("id")) for place, message in enumerate(added)]

    def _catch_up(self, session: Session) -> None:
        """Show the caller's Session what others did.

        One whose unsaved changes clash with that stays as it is; saving it reports the conflict.
        """
        try:
            RefreshOperation(self.core).refresh(session)
        except (MergeConflict, InvalidContent) as error:
            log.info("a Session was not refreshed after an append: %s", error)

    def _is_current(self, session: Session, location: Location) -> bool:
        origin: LoadState | None = session._origin
        return origin is not None and not origin.partial and origin.version == self.core.version(location)

    def _extend(
        self, session: Session, location: Location, added: list[dict[str, Any]], appended_at: Timestamp
    ) -> None:
        """Update the caller's Session to the version just committed."""
        session.messages += [Message.model_validate(message) for message in added]
        session.updated_at = appended_at
        origin: LoadState = session._origin
        changed = {"messages": origin.dump["messages"] + added, "updated_at": appended_at}
        dump, main = {**origin.dump, **changed}, {**origin.main, **changed}
        session._origin = LoadState(self.core.version(location), dump, main, has_side=True)

    def _append_fast(self, location: Location, added: Sequence[dict[str, Any]]) -> _AfterAppend | None:
        """Splice the messages in without parsing the old ones; None where that is not safe."""
        row = self.commits.fresh_row(location)
        if row is None or row.append_offsets is None:
            return None
        main = self._read_main(location, row, row.append_offsets)
        side = self.core.disk.read(location.path(layout.RUNTIME), self.core.limit_bytes)
        if main is None or side is None:
            return None
        offsets = row.append_offsets.moved(-main.start)
        if self._has_authority(location, main) or not append_offsets.still_valid(main.data, offsets):
            return None
        try:
            old_side = json_text.parse(side.data, layout.RUNTIME)
            main_time, side_time = Timestamp(offsets.updated_at_text), Timestamp(old_side["updated_at"])
        except (InvalidContent, KeyError, ValueError, TypeError):
            return None
        if side_time.ns < main_time.ns:  # stale: a new `updated_at` would make its other members win
            return None
        now = Timestamp.after(side_time)
        appended = append_offsets.splice_messages(main.data, offsets, added, now)
        size = main.start + sum(map(len, appended.parts))
        json_text.check_size(size, location.path(layout.SESSION), self.core.limit_bytes)
        new_side = splice(side.data, {"updated_at": old_side["updated_at"]}, {"updated_at": now})
        count = row.entry.message_count + len(added)
        changed = {"message_count": count, "updated_at": now, "last_activity_at": now}
        entry = row.entry.model_copy(update=changed)
        files = [
            NewFile(location.path(layout.RUNTIME), [new_side], side),
            NewFile(location.path(layout.SESSION), appended.parts, main, kept_bytes=main.start),
        ]
        update = self.core.index.plan_append(row, entry, appended.offsets.moved(main.start), added)
        splices = tuple(Splice(main.start + start, end - start, text) for start, end, text in appended.cuts)
        known = {
            location.path(layout.SESSION): KnownChange(clip_ns(now.ns), splices),
            location.path(layout.RUNTIME): KnownChange(clip_ns(now.ns)),
        }
        try:
            self.commits.run(Commit(location, files, known=known), update, "appended")
        except ChangedMeanwhile:
            return None
        return _AfterAppend(now, count)

    def _read_main(self, location: Location, row: CatalogRow, offsets: AppendOffsets) -> File | None:
        """Read session.json; only the end of a long one where the new file can share the blocks of the old.

        A file that shares blocks is not in the page cache: reading all of it would cost more than
        writing it. The other hosts of a grove are sent a step from the whole text.
        """
        disk, path = self.core.disk, location.path(layout.SESSION)
        first = (offsets.append_at - CONTEXT_BYTES) // BLOCK_BYTES * BLOCK_BYTES
        is_at_end = offsets.updated_at > offsets.append_at  # else the beginning changes too
        if first < SHARED_BYTES or not is_at_end or self.core.agreement.is_joined or not disk.can_share_blocks:
            return disk.read(path, self.core.limit_bytes)
        main = disk.read(path, self.core.limit_bytes, start=first)
        return main if main is not None and main.stamp == row.version.main else None

    def _has_authority(self, location: Location, main: File) -> bool:
        """Whether session.json begins with the member that forbids changes to it."""
        head = main.data[:64] if not main.start else self.core.disk.read_head(location.path(layout.SESSION), 64)
        return sidecar.AUTHORITY.encode() in head

    def _append_by_rewrite(self, location: Location, added: Sequence[dict[str, Any]]) -> _AfterAppend:
        loaded = self.core.load(location)
        if loaded is None:
            raise NotFound(f"there is no session {location}")
        session = with_load_state(loaded)
        for message in added:
            session.add_message(Message.model_validate(message))
        self.saver.save(session)
        return _AfterAppend(session.updated_at, len(session.messages))


def _checked_message(message: Message | dict[str, Any]) -> dict[str, Any]:
    """Validate a message and return the members to be written. Long tool output is truncated."""
    try:
        record = Message.model_validate(message.model_dump(warnings=False) if isinstance(message, Message) else message)
    except pydantic.ValidationError as error:
        raise InvalidContent("message", type_problem(error)) from None
    if record.role == "tool":
        record.content = truncate_tool_output(record.content)
    raw = rendered(lambda: json_text.render_compact(record.model_dump()), "message")
    return json_text.parse(raw, "message")
