"""Put a document: commit the bytes as written, or reject them with a reason.

The mount writes documents this way. The path determines which session a document belongs to; all
other members are the writer's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit import session_reader
from store.commit.commits import Commits, trash_copy_of_sidecar
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.write_request import OnConflict, WriteRequest, stale_error
from store.documents import json_text, secrets, sidecar
from store.documents.document import (
    Document,
    check_authority,
    fork_document,
    identity_problem,
    parse_document,
)
from store.errors import Conflict, InvalidContent, InvalidName, Problem
from store.index.catalog import CatalogRow, Version
from store.layout import Location
from store.model.timestamp import Timestamp
from store.path_kinds import PathInfo, PathKind


class _Committed(NamedTuple):
    """The current version: session.json as plain JSON (None: absent or invalid), its index row."""

    pair: DocumentPair
    main: dict[str, Any] | None
    row: CatalogRow | None  # None unless it was made from this very version


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
        mtime_ns: int | None = None,
    ) -> bool:
        """Commit a document from bytes; False if it already has these bytes."""
        if name not in layout.DOCUMENTS:
            raise InvalidName(f"{name!r} is not a document: expected {' or '.join(layout.DOCUMENTS)}")
        target = PathInfo(location.path(name), PathKind.DOCUMENT, location, name)
        return self.put(WriteRequest(target, raw, base, on_conflict, mtime_ns=mtime_ns, add_missing=True), raw)

    def put(self, request: WriteRequest, raw: bytes) -> bool:
        """Commit `raw`, the content of the request; False if the document already has these bytes.

        Raises Conflict if the document is not the request's base any more. An older `updated_at`
        is a conflict too, unless the writer unlinked the document first.
        """
        self.core.check_writable()
        location, name, path = request.target.location, request.target.name, request.target.path
        assert location is not None
        document = parse_document(raw, path, limit=self.core.limit_bytes)
        secrets.reject_api_keys(raw, document.data, path)
        with self.core.locked(location):
            pair = self.core.read(location)
            current = pair.main if name == layout.SESSION else pair.side
            if current is not None and current.data == raw:
                return False
            document = self._with_identity(document, location, name, is_new=current is None)
            if document.raw is not raw:  # forked
                request = replace(request, content=document.raw)
            check_authority(document, path)
            if request.on_conflict != "overwrite":
                _reject_stale(request, pair)
            committed = self._committed(pair)
            if request.on_conflict != "overwrite" and not request.unlinked_first:
                _reject_older(document, committed.main, location)
            if name == layout.SESSION:
                self._put_main(request, committed, document)
            else:
                self._put_side(request, pair, document)
        return True

    def _with_identity(self, document: Document, location: Location, name: str, *, is_new: bool) -> Document:
        """The document, if it belongs here.

        A new one that belongs elsewhere is forked: it gets this identity.
        """
        path = location.path(name)
        if name == layout.RUNTIME and document.data["messages"]:
            line, column = json_text.locate(document.raw, ("messages",))
            raise InvalidContent(path, Problem("the sidecar must not have messages", line, column, "messages"))
        if is_new and self.core.disk.stat(location.dir) is None:
            layout.check_new(location)
        problem = identity_problem(document, location)
        if problem is None:
            return document
        if not is_new:
            raise InvalidContent(path, problem)
        return parse_document(fork_document(document, location), path, limit=self.core.limit_bytes)

    def _committed(self, pair: DocumentPair) -> _Committed:
        """Parse the current version. One that is indexed was validated before."""
        if pair.main is None:
            return _Committed(pair, None, None)
        row = self.core.index.find(pair.location)
        if row is not None and row.version == pair.version:
            return _Committed(pair, json_text.parse(pair.main.data, layout.SESSION), row)
        try:
            return _Committed(pair, parse_document(pair.main.data, pair.location.path(layout.SESSION)).data, None)
        except InvalidContent:
            return _Committed(pair, None, None)

    def _put_main(self, request: WriteRequest, committed: _Committed, main: Document) -> None:
        """Commit session.json, and carry what changed in it into the sidecar."""
        pair, old, row = committed
        is_stale = _is_stale_side(committed, main)
        raw_side = sidecar.sidecar_of(main.raw, main.data) if is_stale else _new_side(request, committed, main)
        side = session_reader.parse_side(pair, raw_side)
        # Byte for byte: the search rows keep a digest of each message, which depends on the order of its keys.
        has_same_messages = old is not None and orjson.dumps(old["messages"]) == orjson.dumps(main.data["messages"])
        self.commits.commit_session(
            pair,
            main,
            sidecar.overlay(main.record, side.record if side else None),
            raw_side if side is not None else None,
            "saved",
            row=row if has_same_messages else None,
            request=request,
            kept=trash_copy_of_sidecar(pair) if is_stale else (),
        )

    def _put_side(self, request: WriteRequest, pair: DocumentPair, side: Document) -> None:
        """Commit the sidecar.

        The index gets its members, unless it is older than session.json and so is not read.
        """
        if pair.main is not None and _is_older(side.data, self._committed(pair).main):
            self.commits.commit_ignored_sidecar(request, side, pair.side)
        else:
            self.commits.commit_sidecar(pair.location, side, pair.side, request)


def _is_older(side: Any, main: dict[str, Any] | None) -> bool:
    return main is not None and Timestamp(side["updated_at"]).ns < Timestamp(main["updated_at"]).ns


def _is_stale_side(committed: _Committed, new: Document) -> bool:
    """Whether a program that does not write sidecars wrote the current session.json.

    Not if `new` is as old as the sidecar: then both are being restored.
    """
    pair = committed.pair
    if pair.side is None:
        return False
    try:
        side = json_text.parse(pair.side.data, layout.RUNTIME)
        return _is_older(side, committed.main) and _is_older(side, new.data)
    except (InvalidContent, KeyError, TypeError, ValueError):
        return False  # an unreadable sidecar stays, for `check` to report


def _new_side(request: WriteRequest, committed: _Committed, main: Document) -> bytes | None:
    """The sidecar after this put; None leaves it unchanged."""
    pair, old, _ = committed
    if pair.side is None:
        adds_missing = request.add_missing or pair.main is not None
        return sidecar.sidecar_of(main.raw, main.data) if adds_missing else None
    # Going back in time is a restore: session.json and sidecar are then restored separately.
    if old is None or main.record.updated_at.ns < Timestamp(old["updated_at"]).ns:
        return None
    try:
        json_text.parse(pair.side.data, layout.RUNTIME)
        raw = sidecar.apply_changes_to_sidecar(pair.side.data, old, main.data)
    except InvalidContent:
        return None  # an unreadable sidecar stays, for `check` to report
    return raw if raw != pair.side.data else None


def _reject_stale(request: WriteRequest, pair: DocumentPair) -> None:
    """Compare the written document only: a change of the other one is not a conflict."""
    base = request.base
    if base is None:
        return
    is_main = request.target.name == layout.SESSION
    was, now = (base.main, pair.version.main) if is_main else (base.side, pair.version.side)
    if was != now:
        raise stale_error(request.target.path)


def _reject_older(document: Document, committed: dict[str, Any] | None, location: Location) -> None:
    if committed is None:
        return
    ours, theirs = document.record.updated_at, Timestamp(committed["updated_at"])
    if ours.ns < theirs.ns:
        path = location.path(layout.SESSION)
        raise Conflict(f"updated_at is {ours}, but {path} has {theirs}: the newer version is kept")
