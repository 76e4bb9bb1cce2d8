"""Revert: commit a past version again, as a new version.

Both documents of a session are committed together, with the attachments they show that are in the trash. The session
keeps its present identity, see `renewal`. Nothing is lost: the version that is replaced stays in the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.commit.write_request import WriteRequest
from store.documents import sidecar
from store.documents.document import parse_document
from store.errors import InvalidContent, NotFound
from store.history.authors import acting_as, current_author
from store.history.versions import SavedVersion, VersionTexts, is_session_dir
from store.layout import Location
from store.namespace.namespace import Namespace
from store.path_kinds import classify_path
from store.undo.attachments_of_past import from_trash
from store.undo.renewal import PresentSession, RenewedSession, is_same_but_for_time, renew_session


@dataclass(frozen=True)
class RevertOperation:
    core: Core
    commits: Commits
    names: Namespace

    @repeats
    def revert(self, version: SavedVersion) -> bool:
        """Commit a past version; False if the present one has the same content."""
        self.core.check_writable()
        with self.locked(version.path), self.as_revert():
            return self.restore(version.path, self.core.history.read(version), f"as in {version.label}")

    def would_revert(self, version: SavedVersion) -> bool:
        """Whether `revert` would commit something. It raises NotFound where `revert` does."""
        then = self.core.history.read(version)
        _require_document(version.path, then)
        self.core.refresh(location_of(version.path))
        return not self.is_restored(version.path, then)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """The lock of a lineage; first a change made outside the store is noted in the history."""
        location = location_of(path)
        self.core.refresh(location)
        with self.core.locked(location):
            yield

    @contextmanager
    def as_revert(self) -> Iterator[None]:
        """Attribute commits to this program by way of a revert: an undo can then be undone by that."""
        with acting_as(replace(current_author(self.core.history.author), via="revert")):
            yield

    def restore(self, path: str, then: VersionTexts, note: str) -> bool:
        """Commit texts of the past; False if nothing differs. The caller holds the lock."""
        _require_document(path, then)
        if not is_session_dir(path):
            return self.names.commit(WriteRequest(classify_path(path), then.main, on_conflict="overwrite")).is_changed
        pair, renewed = self._renewed(path, then)
        if is_present(renewed, pair):
            return False
        record = sidecar.overlay(renewed.main.record, renewed.side.record)
        side = renewed.side.raw
        attached = [*from_trash(self.core.disk, pair.location, record)]
        self.commits.commit_session(
            pair, renewed.main, record, side, "saved", kept=attached, label="reverted", note=note
        )
        for name in layout.DOCUMENTS:
            self.names.rejects.clear(path, name)
        return True

    def is_restored(self, path: str, then: VersionTexts) -> bool:
        """Whether a document has the content of the past already."""
        if not is_session_dir(path):
            file = self.core.disk.read(path)
            return (file.data if file is not None else None) == then.main
        if then.main is None:
            return False
        pair, renewed = self._renewed(path, then)
        return is_present(renewed, pair)

    def _renewed(self, path: str, then: VersionTexts) -> tuple[DocumentPair, RenewedSession]:
        pair = self.read(location_of(path))
        return pair, renew_session(then, present_session(pair), self.core.limit_bytes)

    def read(self, location: Location) -> DocumentPair:
        pair = self.core.read(location)
        if pair.main is None:
            raise NotFound(f"session {location} was deleted or renamed; nothing was changed")
        return pair


def _require_document(path: str, then: VersionTexts) -> None:
    if then.main is None:
        raise NotFound(f"{path} did not exist in that version; delete it instead")


def location_of(path: str) -> Location:
    """What to lock for a lineage."""
    location = classify_path(path).location
    if location is None:
        raise NotFound(f"{path} is not in this home; nothing was changed")
    return location


def present_session(pair: DocumentPair) -> PresentSession:
    """The documents now; a damaged one counts as absent, and is repaired by a past version."""
    assert pair.main is not None
    side = session_reader.parse_side(pair)
    try:
        main = parse_document(pair.main.data, pair.location.path(layout.SESSION)).data
    except InvalidContent:
        main = None
    return PresentSession(pair.location, main, side.data if side else None)


def is_present(renewed: RenewedSession, pair: DocumentPair) -> bool:
    """Whether both documents have this content already, apart from `updated_at`."""
    main, side = (file.data if file else None for file in (pair.main, pair.side))
    return is_same_but_for_time(renewed.main, main) and is_same_but_for_time(renewed.side, side)
