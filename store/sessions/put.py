"""put_document: a document as someone typed it, committed byte for byte or refused with the reason.

This is what the mount calls. Who the document is for is said by its path; what it says is its own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.documents import document as documents
from store.documents import json_text, secrets, sidecar
from store.documents.document import Document, parse_document
from store.errors import Conflict, InvalidContent, InvalidName, Problem
from store.index.catalog import Version
from store.layout import Location

OnConflict = Literal["reject", "overwrite"]


@dataclass(frozen=True)
class PutOperation:
    core: Core
    commits: Commits

    def put_document(
        self,
        location: Location,
        name: str,
        raw: bytes,
        *,
        base: Version | None = None,
        on_conflict: OnConflict = "reject",
        deleted_before: bool = False,
        alone: bool = False,
        mtime_ns: int | None = None,
        mode: int | None = None,
    ) -> bool:
        """Commit the bytes as they are; False if they are already there.

        `base` is the version the writer started from; if the document is another by now, that is a Conflict.
        So is an older `updated_at`, unless the writer deleted the document before: who does that means it.
        `alone` makes nothing beside a new session.json: a tool that copies a directory, in whatever order,
        makes the rest itself, and takes it ill if that is there already.
        """
        self.core.check_writable()
        if name not in layout.DOCUMENTS:
            raise InvalidName(f"{name!r} is no document: {' and '.join(layout.DOCUMENTS)} are")
        path = location.path(name)
        document = parse_document(raw, path, limit=self.core.limit_bytes)
        secrets.reject_api_keys(raw, document.data, path)
        with self.core.locked(location):
            snapshot = self.core.read(location)
            current = snapshot.main if name == layout.SESSION else snapshot.side
            if current is not None and current.data == raw:
                return False
            document = self._with_identity(document, location, name, is_new=current is None)
            documents.check_authority(document, path)
            if on_conflict == "reject":
                _reject_stale(document, snapshot, name, base)
            is_compared = on_conflict == "reject" and not deleted_before
            committed = _readable_main(snapshot) if is_compared or name == layout.SESSION else None
            if is_compared:
                _reject_older(document, committed, location)
            if name == layout.SESSION:
                self._put_main(snapshot, document, committed, mtime_ns, mode, alone=alone and current is None)
            else:
                self.commits.commit_sidecar(location, document, snapshot.side, mtime_ns=mtime_ns, mode=mode)
        return True

    def _with_identity(self, document: Document, location: Location, name: str, *, is_new: bool) -> Document:
        """The document, if it belongs here; a fork of it, if it may come to belong here."""
        path = location.path(name)
        if name == layout.RUNTIME and document.data["messages"]:
            line, column = json_text.locate(document.raw, ("messages",))
            raise InvalidContent(path, Problem("the sidecar holds no messages", line, column, "messages"))
        if is_new and self.core.disk.stat(location.dir) is None:
            layout.check_new(location)
        flaw = documents.identity_problem(document, location)
        if flaw is None:
            return document
        if not is_new:
            raise InvalidContent(path, flaw)
        return parse_document(documents.fork(document, location), path, limit=self.core.limit_bytes)

    def _put_main(
        self,
        snapshot: DocumentPair,
        main: Document,
        old: Document | None,
        mtime_ns: int | None,
        mode: int | None,
        *,
        alone: bool,
    ) -> None:
        path = snapshot.location.path(layout.RUNTIME)
        old_side, new_side = session_reader.parse_side(snapshot), None
        if snapshot.side is None and alone:
            pass
        elif snapshot.side is None:
            new_side = parse_document(sidecar.sidecar_of(main.raw, main.data), path)
        elif old_side is not None and old is not None and main.record.updated_at.ns >= old.record.updated_at.ns:
            # Without a readable predecessor, or going back in time, this is a restore: each file speaks for itself.
            carried = sidecar.apply_changes_to_sidecar(old_side.raw, old.data, main.data)
            new_side = parse_document(carried, path) if carried != old_side.raw else None
        side = new_side or old_side
        record = sidecar.overlay(main.record, side.record if side else None)
        self.commits.commit_session(
            snapshot,
            main,
            record,
            new_side.raw if new_side else None,
            "saved",
            alone=alone,
            mtime_ns=mtime_ns,
            mode=mode,
        )


def _readable_main(snapshot: DocumentPair) -> Document | None:
    if snapshot.main is None:
        return None
    with suppress(InvalidContent):
        return parse_document(snapshot.main.data, snapshot.location.path(layout.SESSION))
    return None


def _reject_stale(document: Document, snapshot: DocumentPair, name: str, base: Version | None) -> None:
    """The writer's document must be the one that is there: what happened to the other one is no matter."""
    if base is None:
        return
    was, now = (base.main, snapshot.version.main) if name == layout.SESSION else (base.side, snapshot.version.side)
    if was != now:
        path = snapshot.location.path(name)
        raise Conflict(f"{path} was committed anew since this copy was opened; the newer version stands")


def _reject_older(document: Document, committed: Document | None, location: Location) -> None:
    if committed is None:
        return
    ours, theirs = document.record.updated_at, committed.record.updated_at
    if ours.ns < theirs.ns:
        path = location.path(layout.SESSION)
        raise Conflict(f"updated_at is {ours}, but {path} says {theirs}: the newer version stands")
