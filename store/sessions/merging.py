"""Merging in `put`: what is stored of a text whose writer may have started from an older version.

The caller holds the session's lock. `resolve` finds the base (base_of_save), merges, or refuses
with a Conflict that says what is newer. Nothing is written here but drafts: what was typed, where
a merge stored something else. An editor keeps its own text, so its next save is compared
with the draft.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apsw

from store import layout
from store.commit.core import Core
from store.commit.write_request import WriteRequest, stale_error
from store.disk.file import RACY_NS, File, Stamp
from store.documents import json_text
from store.documents.document import Document
from store.documents.json_splice import same
from store.documents.merge import UPDATED_AT, Merge, MergeConflict, SidecarConflict, merge_documents, merge_objects
from store.documents.sidecar import AUTHORITY, apply_changes_to_sidecar
from store.errors import Conflict, InvalidContent, StoreError
from store.history.texts import said_ns_of
from store.history.versions import SavedVersion, lineage_path
from store.model.timestamp import Timestamp
from store.path_kinds import PathKind
from store.sessions.base_of_save import Candidate, Decision, decide
from store.sessions.save_candidates import CandidateSearch, had_only, text_of

log = logging.getLogger("grovefs.store")

DRAFT_NOT_KEPT = -1  # in place of a draft's key: it matches no draft, so the next save is not guessed


class Resolution(NamedTuple):
    """What to store: the typed text, a merged one, or nothing."""

    raw: bytes | None
    is_merged: bool = False
    base: Stamp | None = None  # of the version that the typed text was edited from, if that was found


@dataclass(frozen=True)
class Merging:
    core: Core

    def is_possible(self, request: WriteRequest) -> bool:
        """Whether bases can be found. If not, a stale save is refused.

        A history that cannot be written, because it is locked or the disk is full, can still be read.
        """
        return request.base_text is not None or self.core.history.is_on

    def resolve(
        self, request: WriteRequest, typed: Document, current: File, main_updated_at: Timestamp | None
    ) -> Resolution:
        """Decide what is stored of a document. Raises Conflict, or MergeConflict with the values of both sides.

        `main_updated_at` is that of the session.json on disk.
        """
        said_ns = typed.record.updated_at.ns
        is_main = request.target.name == layout.SESSION
        if is_main and main_updated_at is not None and main_updated_at.ns == said_ns and had_only(request, current):
            return Resolution(typed.raw, base=current.stamp)
        with _refusing(request):
            past = self.core.agreement.past_texts
            search = CandidateSearch(self.core.history, request, typed.raw, said_ns, current, past)
            decision = decide(search.evidence())
            if decision.action == "merge":
                resolution = _merged(decision.bases, request, typed, current)
            else:
                resolution = self._applied(decision, request, typed.raw)
            return resolution._replace(base=_base_of(decision, current))

    def resolve_object(self, request: WriteRequest, raw: bytes, current: File) -> Resolution:
        """The same for any other JSON object. Without evidence the request's own base is checked."""
        with _refusing(request):
            known = CandidateSearch(self.core.history, request, raw, None, current).evidence()
            if not (known.pinned or known.opened or known.relatives or known.is_incomplete):
                if request.base is not None and request.base.main != current.stamp:
                    raise stale_error(request.target.path)
                return Resolution(raw)
            decision = decide(known)
            if decision.action == "merge":
                resolution = _merged_object(decision.bases, request, raw, current)
            else:
                resolution = self._applied(decision, request, raw)
            return resolution._replace(base=_base_of(decision, current))

    def check_sidecar(
        self, request: WriteRequest, old: dict[str, Any], new: dict[str, Any], side: File, edited: Stamp | None
    ) -> None:
        """Raise SidecarConflict if a change of session.json would undo one made in runtime.json alone meanwhile.

        What changes between `old` and `new` is applied to the sidecar. Its writer has not seen what others changed
        there since it opened `edited`, the version of session.json that it started from, if that is known.
        """
        if AUTHORITY in old or AUTHORITY in new:
            return
        with _refusing(request):
            raw = (
                request.base_sidecar
                or self._sidecar_at_open(request, side, edited)
                or self._sidecar_of_base(request, side)
            )
            if raw is None or raw == side.data:
                return
            try:
                base, theirs = (json_text.parse(text, layout.RUNTIME) for text in (raw, side.data))
                ours = json_text.parse(apply_changes_to_sidecar(raw, old, new), layout.RUNTIME)
            except InvalidContent:
                return  # an unreadable sidecar stays, for `check` to report
            name = f"{request.target.path}: also in {layout.RUNTIME}"
            try:
                merge_documents(base, ours, theirs, name)
            except MergeConflict as error:
                raise SidecarConflict(name, error.clashes) from None

    def _sidecar_at_open(self, request: WriteRequest, side: File, edited: Stamp | None) -> bytes | None:
        """runtime.json as it was when the writer opened session.json; None if unchanged or not known."""
        opened_ns = request.writer.text_ns(edited) if request.writer is not None else 0
        # A rename onto it, or another host, may have given it an older mtime. File times are some milliseconds behind.
        if not opened_ns or max(side.stamp.mtime_ns, side.stamp.ctime_ns) + RACY_NS < opened_ns:
            return None
        history, path = self.core.history, request.target.path
        # If a program saves again and again, its own last save was the last change of the sidecar.
        if history.is_unchanged_since(path, layout.RUNTIME, side.stamp, opened_ns):
            return None
        then = history.at(path, opened_ns)
        return history.read_document(then, is_side=True) if then is not None else None

    def _sidecar_of_base(self, request: WriteRequest, side: File) -> bytes | None:
        """runtime.json next to the version of session.json that a caller of the API names; None if not known."""
        if request.writer is not None:
            return None
        history, path, base = self.core.history, request.target.path, request.base
        then: SavedVersion | None = None
        if base is not None and base.side is not None and base.side != side.stamp:
            then = history.with_stamp(path, layout.RUNTIME, base.side)
        elif base is None and request.base_text is not None:  # the first version with this text
            versions = history.with_updated_at(path, layout.SESSION, said_ns_of(request.base_text) or 0)
            then = next((v for v in versions if history.read_document(v) == request.base_text), None)
        return history.read_document(then, is_side=True) if then is not None else None

    def _applied(self, decision: Decision, request: WriteRequest, typed: bytes) -> Resolution:
        if decision.action == "nothing":
            return Resolution(None)
        if decision.action == "take":
            return Resolution(typed)
        if decision.action == "restore":
            self._require_durable(request)
            return Resolution(typed)
        raise _refusal(request, decision)

    def is_restore(self, request: WriteRequest, typed: Document) -> bool:
        """Whether the text is exactly an old version, and the history has what it replaces."""
        location, name = request.target.location, request.target.name
        assert location is not None
        history = self.core.history
        try:
            found = history.with_updated_at(location.dir, name, typed.record.updated_at.ns)
            is_old = any(text_of(history, version, name) == typed.raw for version in found)
        except (StoreError, OSError) as error:
            log.warning("%s: older versions cannot be read: %s", request.target.path, error)
            return False
        return is_old and history.make_durable(location.dir)

    def _require_durable(self, request: WriteRequest) -> None:
        """What a restore replaces must be in the history first: the restored version does not have it."""
        if not self.core.history.make_durable(lineage_path(request.target.path)):
            raise _stale(request, "and the history, which has to keep that version first, does not work")

    def keep_draft(self, request: WriteRequest, typed: bytes) -> int | None:
        """Keep what was typed after a merged save; returns its key. None if the caller is not a mount."""
        target, writer = request.target, request.writer
        if writer is None:
            return None
        try:
            return self.core.history.add_draft(
                lineage_path(target.path), target.name, typed, writer.process, writer.author.uid, ""
            )
        except (StoreError, OSError, apsw.Error) as error:  # the save itself has succeeded
            log.warning("%s: the typed text was not kept: %s", request.target.path, error)
            return DRAFT_NOT_KEPT


# -- merging ---------------------------------------------------------------------------------------


def _merged(bases: Sequence[Candidate], request: WriteRequest, typed: Document, current: File) -> Resolution:
    """The merge of a document with each base, which must agree."""
    path = request.target.path
    theirs = json_text.parse(current.data, path)
    merge = _agreed(request, [partial(merge_documents, base.data, typed.data, theirs, path) for base in bases])
    if same(_timeless(merge.data), _timeless(theirs)):  # perhaps nothing is left to do
        updated_at = Timestamp(theirs[UPDATED_AT])
        unchanged = merge_documents(bases[0].data, typed.data, theirs, path, updated_at=updated_at)
        if unchanged.render(typed.raw, current.data) == current.data:
            return Resolution(None)
    return Resolution(merge.render(typed.raw, current.data), is_merged=True)


def _merged_object(bases: Sequence[Candidate], request: WriteRequest, raw: bytes, current: File) -> Resolution:
    path = request.target.path
    ours, theirs, *values = (
        json_text.parse_value(text, path) for text in (raw, current.data, *(b.text for b in bases))
    )
    if not all(isinstance(value, dict) for value in (ours, theirs, *values)):
        raise _stale(request, "and only JSON objects can be merged")
    merge = _agreed(request, [partial(merge_objects, base, ours, theirs, path) for base in values])
    merged = merge.render(raw, current.data)
    return Resolution(None) if merged == current.data else Resolution(merged, is_merged=True)


def _agreed(request: WriteRequest, attempts: Sequence[Callable[[], Merge]]) -> Merge:
    """The merge with any of several possible bases. Raises Conflict if it matters which one it is."""
    try:
        merges = [attempt() for attempt in attempts]
    except MergeConflict as error:
        if len(attempts) == 1:
            raise
        raise _not_clear(request) from error
    if any(not same(_timeless(merge.data), _timeless(merges[0].data)) for merge in merges):
        raise _not_clear(request)
    return merges[0]


def _timeless(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != UPDATED_AT}


# -- refusals --------------------------------------------------------------------------------------


def _base_of(decision: Decision, current: File) -> Stamp | None:
    if decision.bases:
        return decision.bases[0].stamp
    return current.stamp if decision.action == "take" else None


@contextmanager
def _refusing(request: WriteRequest) -> Iterator[None]:
    """Refuse the save if the history cannot be read."""
    try:
        yield
    except (Conflict, InvalidContent):
        raise
    except (StoreError, OSError) as error:
        raise _stale(request, f"and older versions cannot be read: {error}") from error


def _refusal(request: WriteRequest, decision: Decision) -> Conflict:
    location = request.target.location
    if decision.number is None or request.target.kind is not PathKind.DOCUMENT:
        return _stale(request, f"and this text cannot be merged with it: {decision.reason}")
    return Conflict(
        f"{request.target.path}: this is version {decision.number}, byte for byte, and others have saved since; "
        f"the newer version is kept. `grovefs revert {location}@{decision.number}` brings this one back"
    )


def _not_clear(request: WriteRequest) -> Conflict:
    path, name = request.target.path, request.target.name
    return Conflict(
        f"{path}: it is not clear whether this text was made before the present version, or sets something back; the "
        f"present version is kept. To set something back, write the text next to it and rename it "
        f"(`jq … {name} > new && mv new {name}`), or use `grovefs edit`"
    )


def _stale(request: WriteRequest, more: str) -> Conflict:
    return Conflict(f"{request.target.path} was changed by another writer, {more}; the newer version is kept")
