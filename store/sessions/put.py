"""Put a document: commit the bytes as written, or reject them with a reason.

The mount writes documents this way. The path determines which session a document belongs to; all
other members are the writer's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commits import Commits, trash_copy_of_sidecar
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.write_request import OnConflict, PutResult, WriteRequest, stale_error
from store.disk.file import Stamp
from store.documents import json_text, secrets, sidecar
from store.documents.document import (
    Document,
    check_authority,
    fork_document,
    identity_problem,
    parse_to_index,
)
from store.errors import Conflict, InvalidContent, InvalidName, Problem
from store.index.catalog import CatalogRow, Version
from store.layout import Location
from store.model.timestamp import Timestamp
from store.path_kinds import PathInfo, PathKind
from store.sessions.merging import Merging


class _Committed(NamedTuple):
    """The current version: session.json as plain JSON (None: absent or invalid), its index row."""

    pair: DocumentPair
    main: dict[str, Any] | None
    row: CatalogRow | None  # None unless it was made from this very version
    updated_at: Timestamp | None  # of session.json


@dataclass(frozen=True)
class PutOperation:
    core: Core
    commits: Commits

    @cached_property
    def merging(self) -> Merging:
        return Merging(self.core)

    def put_document(
        self,
        location: Location,
        name: str,
        raw: bytes,
        *,
        base: Version | bytes | None = None,
        on_conflict: OnConflict = "reject",
        mtime_ns: int | None = None,
    ) -> bool:
        """Commit a document from bytes; False if it already has these bytes.

        `base` is the version, or for "merge" its text, that the writer started from.
        """
        if name not in layout.DOCUMENTS:
            raise InvalidName(f"{name!r} is not a document: expected {' or '.join(layout.DOCUMENTS)}")
        target = PathInfo(location.path(name), PathKind.DOCUMENT, location, name)
        base_text = base if isinstance(base, bytes) else None
        version = base if isinstance(base, Version) else None
        request = WriteRequest(
            target, raw, version, on_conflict, mtime_ns=mtime_ns, add_missing=True, base_text=base_text
        )
        return self.put(request, raw).is_changed

    @repeats
    def put(self, request: WriteRequest, raw: bytes) -> PutResult:
        """Commit `raw`, the content of the request, or what a merge makes of it.

        Raises Conflict if the writer started from another version than the current one and the two
        cannot be merged.
        """
        self.core.check_writable()
        location, path = request.target.location, request.target.path
        assert location is not None
        document = parse_to_index(raw, path, limit=self.core.limit_bytes)
        secrets.reject_api_keys(raw, document.data, path)
        with self.core.locked(location):
            result = self._put_locked(request, document)
            # With the lock still held: what another writer commits after this is later, and another file.
            return result._replace(at_ns=time.time_ns(), info=self.core.disk.stat(path))

    def _put_locked(self, request: WriteRequest, document: Document) -> PutResult:
        location, name = request.target.location, request.target.name
        assert location is not None
        pair = self.core.read(location)
        current = pair.main if name == layout.SESSION else pair.side
        if current is not None and current.data == document.raw:
            return PutResult(False)
        identified = self._with_identity(document, location, name, is_new=current is None)
        if identified.raw is not document.raw:  # forked
            request = replace(request, content=identified.raw)
        check_authority(identified, request.target.path)
        committed = self._committed(pair)
        if self._can_merge(request, committed):
            return self._put_merged(request, committed, identified)
        self._reject(request, committed, identified)
        if request.on_conflict != "overwrite" and self.core.history.is_on:
            self._check_sidecar(request, committed, identified, committed.pair.version.main)
        self._commit(request, committed, identified)
        return PutResult(True)

    def _commit(self, request: WriteRequest, committed: _Committed, document: Document) -> None:
        if request.target.name == layout.SESSION:
            self._put_main(request, committed, document)
        else:
            self._put_side(request, committed.pair, document)

    # -- other writers -----------------------------------------------------------------------------

    def _can_merge(self, request: WriteRequest, committed: _Committed) -> bool:
        """Whether there is a valid version to merge with. A damaged one is replaced, as by a repair."""
        pair = committed.pair
        if request.on_conflict != "merge" or committed.main is None or not self.merging.is_possible(request):
            return False
        return request.target.name == layout.SESSION or session_reader.parse_side(pair) is not None

    def _put_merged(self, request: WriteRequest, committed: _Committed, typed: Document) -> PutResult:
        """Commit the typed text, or the text that a merge makes of it."""
        pair, path = committed.pair, request.target.path
        current = pair.main if request.target.name == layout.SESSION else pair.side
        assert current is not None
        resolution = self.merging.resolve(request, typed, current, committed.updated_at)
        if resolution.raw is None:
            return PutResult(False, self.merging.keep_draft(request, typed.raw))
        if not resolution.is_merged:
            self._check_sidecar(request, committed, typed, resolution.base)
            self._commit(request, committed, typed)
            return PutResult(True, base=resolution.base)
        merged = parse_to_index(resolution.raw, path, limit=self.core.limit_bytes)
        secrets.reject_api_keys(merged.raw, merged.data, path)
        self._check_sidecar(request, committed, merged, resolution.base)
        self._commit(replace(request, content=merged.raw, mtime_ns=None), committed, merged)
        return PutResult(True, self.merging.keep_draft(request, typed.raw), base=resolution.base)

    def _check_sidecar(self, request: WriteRequest, committed: _Committed, new: Document, base: Stamp | None) -> None:
        """A change of session.json is applied to the sidecar, and must not undo what others changed there."""
        old, side = committed.main, committed.pair.side
        if request.target.name == layout.SESSION and old is not None and side is not None:
            self.merging.check_sidecar(request, old, new.data, side, base)

    def _reject(self, request: WriteRequest, committed: _Committed, document: Document) -> None:
        """Without merging: reject what is not based on the current version, or is older."""
        if request.on_conflict == "overwrite":
            return
        _reject_stale(request, committed.pair)
        try:
            _reject_older(document, committed)
        except Conflict:
            if not request.unlinked_first or not self.merging.is_restore(request, document):
                raise

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
        return parse_to_index(fork_document(document, location), path, limit=self.core.limit_bytes)

    def _committed(self, pair: DocumentPair) -> _Committed:
        """Parse the current version. One that is indexed was validated before."""
        if pair.main is None:
            return _Committed(pair, None, None, None)
        row = self.core.index.find(pair.location)
        if row is not None and row.version == pair.version:
            main = json_text.parse_known(pair.main.data)
            return _Committed(pair, main, row, Timestamp(main["updated_at"]))
        try:
            document = parse_to_index(pair.main.data, pair.location.path(layout.SESSION))
        except InvalidContent:
            return _Committed(pair, None, None, None)
        return _Committed(pair, document.data, None, document.record.updated_at)

    def _put_main(self, request: WriteRequest, committed: _Committed, main: Document) -> None:
        """Commit session.json, and carry what changed in it into the sidecar."""
        pair, old, row, _ = committed
        old_side = _readable_side(pair)
        is_stale = _is_stale_side(old_side, committed, main)
        raw_side = (
            _new_side(request, committed, main, old_side) if not is_stale else sidecar.sidecar_of(main.raw, main.data)
        )
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
        if pair.main is not None and _is_older(side.record.updated_at, self._committed(pair).updated_at):
            self.commits.commit_ignored_sidecar(request, side, pair.side)
        else:
            row = self.commits.fresh_row(pair.location)
            self.commits.commit_sidecar(pair.location, side, pair.side, row, request)


def _is_older(one: Timestamp, other: Timestamp | None) -> bool:
    return other is not None and one.ns < other.ns


def _readable_side(pair: DocumentPair) -> dict[str, Any] | None:
    """The sidecar as plain JSON; None if it is missing. An unreadable one stays, for `check` to report."""
    try:
        return json_text.parse(pair.side.data, layout.RUNTIME) if pair.side is not None else None
    except InvalidContent:
        return None


def _is_stale_side(side: dict[str, Any] | None, committed: _Committed, new: Document) -> bool:
    """Whether a program that does not write sidecars wrote the current session.json.

    Not if `new` is as old as the sidecar: then both are being restored.
    """
    if side is None:
        return False
    try:
        updated_at = Timestamp(side["updated_at"])
    except (KeyError, TypeError, ValueError):
        return False
    return _is_older(updated_at, committed.updated_at) and _is_older(updated_at, new.record.updated_at)


def _new_side(
    request: WriteRequest, committed: _Committed, main: Document, side: dict[str, Any] | None
) -> bytes | None:
    """The sidecar after this put; None leaves it unchanged."""
    pair, old, _, updated_at = committed
    if pair.side is None:
        adds_missing = request.add_missing or pair.main is not None
        return sidecar.sidecar_of(main.raw, main.data) if adds_missing else None
    # Going back in time is a restore: session.json and sidecar are then restored separately.
    if side is None or old is None or _is_older(main.record.updated_at, updated_at):
        return None
    try:
        raw = sidecar.apply_changes_to_sidecar(pair.side.data, old, main.data)
    except InvalidContent:
        return None
    return raw if raw != pair.side.data else None


def _reject_stale(request: WriteRequest, pair: DocumentPair) -> None:
    """Compare the written document only: a change of the other one is not a conflict."""
    is_main, base = request.target.name == layout.SESSION, request.base
    now = pair.version.main if is_main else pair.version.side
    if now is not None and request.is_outdated(now):
        raise stale_error(request.target.path)
    if base is not None and now != (base.main if is_main else base.side):
        raise stale_error(request.target.path, is_gone=now is None)


def _reject_older(document: Document, committed: _Committed) -> None:
    ours, theirs = document.record.updated_at, committed.updated_at
    if _is_older(ours, theirs):
        path = committed.pair.location.path(layout.SESSION)
        raise Conflict(f"updated_at is {ours}, but {path} has {theirs}: the newer version is kept")
