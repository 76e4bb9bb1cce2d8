"""Merging in `put`: what is stored of a text whose writer may have started from an older version.

The caller holds the session's lock. `resolve` finds the base (base_of_save), merges, or refuses
with a Conflict that says what is newer. Nothing is written here but drafts: what was typed, where
a merge stored something else. An editor goes on with its own text, so its next save is compared
with the draft.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw

from store.commit.core import Core
from store.commit.write_request import WriteRequest
from store.disk.file import File
from store.documents import json_text
from store.documents.document import Document
from store.documents.json_splice import same
from store.documents.merge import UPDATED_AT, merge_documents
from store.errors import Conflict, StoreError
from store.model.timestamp import Timestamp
from store.sessions.base_of_save import Candidate, Decision, decide
from store.sessions.save_candidates import CandidateSearch, text_of

log = logging.getLogger("grovefs.store")

DRAFT_NOT_KEPT = -1  # in place of a draft's key: it matches no draft, so the next save is not guessed


class Resolution(NamedTuple):
    """What to store: the typed text, a merged one, or nothing."""

    raw: bytes | None
    is_merged: bool = False


@dataclass(frozen=True)
class Merging:
    core: Core

    def is_possible(self, request: WriteRequest) -> bool:
        """Whether bases can be found. If not, a stale save is refused."""
        return request.base_text is not None or self.core.history.is_working

    def resolve(self, request: WriteRequest, typed: Document, current: File) -> Resolution:
        """Decide what is stored. Raises Conflict, or MergeConflict with the values of both sides."""
        try:
            decision = decide(CandidateSearch(self.core.history, request, typed, current).evidence())
            return self._applied(decision, request, typed, current)
        except Conflict:
            raise
        except (StoreError, OSError) as error:  # of the history
            raise _stale(request, f"and older versions cannot be read: {error}") from error

    def _applied(self, decision: Decision, request: WriteRequest, typed: Document, current: File) -> Resolution:
        if decision.action == "nothing":
            return Resolution(None)
        if decision.action == "take":
            return Resolution(typed.raw)
        if decision.action == "merge":
            return self._merged(decision.bases, request, typed, current)
        if decision.action == "restore":
            self._require_durable(request)
            return Resolution(typed.raw)
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
        location = request.target.location
        assert location is not None
        if not self.core.history.make_durable(location.dir):
            raise _stale(request, "and the history, which has to keep that version first, does not work")

    def _merged(self, bases: Sequence[Candidate], request: WriteRequest, typed: Document, current: File) -> Resolution:
        path = request.target.path
        theirs = json_text.parse(current.data, path)
        merges = [merge_documents(base.data, typed.data, theirs, path) for base in bases]
        if any(not same(_timeless(merge.data), _timeless(merges[0].data)) for merge in merges):
            raise _stale(request, "and it is not clear which of several versions this one was edited from")
        merge = merges[0]
        if same(_timeless(merge.data), _timeless(theirs)):  # perhaps nothing is left to do
            unchanged = merge_documents(bases[0].data, typed.data, theirs, path, updated_at=_time(theirs))
            if unchanged.render(typed.raw, current.data) == current.data:
                return Resolution(None)
        return Resolution(merge.render(typed.raw, current.data), is_merged=True)

    def keep_draft(self, request: WriteRequest, typed: bytes) -> int | None:
        """Keep what was typed after a merged save; returns its key. None if the caller is not a mount."""
        writer, location = request.writer, request.target.location
        if writer is None or location is None:
            return None
        try:
            return self.core.history.add_draft(
                location.dir, request.target.name, typed, writer.process, writer.author.uid, ""
            )
        except (StoreError, OSError, apsw.Error) as error:  # the save itself has succeeded
            log.warning("%s: the typed text was not kept: %s", request.target.path, error)
            return DRAFT_NOT_KEPT


def _timeless(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != UPDATED_AT}


def _time(document: dict[str, Any]) -> Timestamp:
    return Timestamp(document[UPDATED_AT])


# -- refusals --------------------------------------------------------------------------------------


def _refusal(request: WriteRequest, decision: Decision) -> Conflict:
    location = request.target.location
    if decision.number is None:
        return _stale(request, f"and this text cannot be merged with it: {decision.reason}")
    return Conflict(
        f"{request.target.path}: this is version {decision.number}, byte for byte, and others have saved since; "
        f"the newer version is kept. `grovefs revert {location}@{decision.number}` brings this one back"
    )


def _stale(request: WriteRequest, more: str) -> Conflict:
    return Conflict(f"{request.target.path} was changed by another writer, {more}; the newer version is kept")
