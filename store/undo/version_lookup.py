"""Past versions by the names that people give: `fix-login@3`, `root/child@2h`, `state/plans/today.md@-1`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.commit.session_reader import DocumentPair, LoadedSession
from store.disk import trash
from store.documents.document import Document, parse_document
from store.documents.sidecar import overlay
from store.errors import InvalidContent, InvalidName, NotFound
from store.history.versions import SavedVersion, VersionTexts, is_session_dir, lineage_path, place_of
from store.index.database import now_ns
from store.search.resolve import NameResolver
from store.undo.difference import NOTHING, Difference, difference, iter_differences
from store.undo.versions_spec import VersionSpec, local_text, parse_version, split_version

# Changes that the difference of the documents does not tell.
_NAMED = frozenset({"moved", "forked", "restored", "cleared"})


@dataclass(frozen=True)
class VersionLookup:
    core: Core

    # -- names -----------------------------------------------------------------------------------------

    def split(self, text: str) -> tuple[str, str | None]:
        """The path that a text means, and V if it is ID@V. A session whose id is the whole text wins."""
        if self._is_id(text):
            return self.path_of(text), None
        name, version = split_version(text)
        try:
            return self.path_of(name), version
        except NotFound:
            self._check_version(text)
            raise

    def _check_version(self, text: str) -> None:
        """Raise InvalidName if a text is the name of a session, @, and something that is not a version."""
        name, _, version = text.rpartition("@")
        try:
            NameResolver(self.core).resolve(name)
        except (NotFound, InvalidName):
            return
        parse_version(version, now_ns())

    def _is_id(self, text: str) -> bool:
        try:
            return self.core.locate(text) is not None
        except InvalidName:
            return False

    def path_of(self, name: str) -> str:
        """The path whose versions a name means: a session by id, prefix or title, another file by its path."""
        if place_of(name) is not None or is_session_dir(name):
            return lineage_path(name)
        try:
            path = NameResolver(self.core).resolve(name).dir
        except NotFound as error:
            raise NotFound(self._absent(name, error)) from None
        self.core.refresh(_location(path))  # a change made outside the store becomes a version now
        return path

    def _absent(self, name: str, error: NotFound) -> str:
        deleted = [slot for slot in trash.list_slots(self.core.disk) if name in (slot.session_id, slot.title)]
        if deleted:
            return f"session {name} was deleted; `grovefs undelete {shlex.quote(name)}` restores it with its history"
        if name.startswith(f"{layout.STATE}/"):
            return f"{name} is not a state document: expected state/CATEGORY/NAME.md or .json"
        return str(error)

    def name_of(self, path: str) -> str:
        """The name of a path for people: that of the session, or the path itself."""
        if path.startswith(f"{layout.TRASH}/"):
            slot = trash.find_slot(self.core.disk, path.split("/")[2])
            return f"{slot.session_id} (deleted)" if slot is not None else path
        place = layout.locate_path(path)
        return str(place[0]) if place is not None and not place[1] else path

    # -- versions --------------------------------------------------------------------------------------

    def get(self, path: str, text: str) -> SavedVersion:
        """The version that V means. NotFound says which ones there are."""
        spec = parse_version(text, now_ns())
        found = self._find(path, spec)
        if found is None and self.core.agreement.fill_history(path):
            found = self._find(path, spec)
        if found is None:
            raise NotFound(f"{self.name_of(path)} has no version {text}: {self._kept(path)}")
        return found

    def _find(self, path: str, spec: VersionSpec) -> SavedVersion | None:
        history = self.core.history
        if spec.moment is not None:
            return history.made_until(path, spec.moment.end_ns)
        assert spec.number is not None
        if spec.number > 0:
            return history.find_shown(path, spec.number)
        newest = history.log(path, limit=1 - spec.number)
        return newest[-spec.number] if len(newest) > -spec.number else None

    def fetch_log(self, path: str, *, limit: int, before: int | None) -> list[SavedVersion]:
        """The newest versions, newest first; in a grove also those from before this host joined."""
        found = self.core.history.log(path, limit=limit, before=before)
        is_end = len(found) < limit or any(version.number == 1 for version in found[-1:])
        added = self.core.agreement.fill_history(path) if is_end else 0
        if not added:
            return found
        return self.core.history.log(path, limit=limit, before=before + added if before is not None else None)

    def get_newest(self, path: str) -> SavedVersion:
        newest = self.core.history.newest(path)
        if newest is None:
            raise NotFound(f"{self.name_of(path)}: {self._kept(path)}")
        return newest

    def _kept(self, path: str) -> str:
        history = self.core.history
        oldest, newest = history.oldest(path), history.newest(path)
        if oldest is None or newest is None:
            return "no version has been recorded; that begins with its next change"
        if oldest == newest:
            return f"only {newest.label} ({local_text(newest.made_at_ns)}) is kept"
        first, last = (f"{version.label} ({local_text(version.made_at_ns)})" for version in (oldest, newest))
        return f"{first} to {last} are kept"

    def before(self, version: SavedVersion) -> SavedVersion | None:
        """The version before one; None if it is the first, or the one before is no longer kept."""
        return self.core.history.find(version.path, version.number - 1)

    # -- content ---------------------------------------------------------------------------------------

    def read(self, version: SavedVersion | None) -> VersionTexts:
        return self.core.history.read(version) if version is not None else NOTHING

    def difference(self, old: SavedVersion | None, new: SavedVersion) -> Difference:
        return difference(self.read(old), self.read(new), is_session=is_session_dir(_known_as(new)))

    def summaries(self, versions: Sequence[SavedVersion]) -> list[str]:
        """What each of some consecutive versions, newest first, changed."""
        if not versions:
            return []
        oldest = self.before(versions[-1])
        read = self.core.history.read_run([*versions, *([oldest] if oldest is not None else [])])
        texts = [*read, NOTHING] if oldest is None else read
        found = iter_differences(reversed(texts), is_session=is_session_dir(_known_as(versions[0])))
        said = list(map(_summary, reversed(versions), found))[::-1]
        if oldest is None and versions[-1].number > 1:
            said[-1] = "the version before is not kept any more"
        return said

    def load(self, version: SavedVersion) -> LoadedSession:
        """The session of a version, as its agent would have loaded it then."""
        texts, name = self.core.history.read(version), f"{self.name_of(version.path)}@{version.label}"
        if texts.main is None:
            raise NotFound(f"{name} does not exist: the session was removed then")
        main, side = parse_document(texts.main, name), self._side(texts.side, name)
        # Not `session_reader.parse`: it ignores a sidecar with another id, which a renamed session had then.
        session = overlay(main.record, side.record if side is not None else None)
        return LoadedSession(DocumentPair(_location(version.path), None, None), main, side, session)

    def _side(self, text: bytes | None, name: str) -> Document | None:
        try:
            return parse_document(text, name) if text is not None else None
        except InvalidContent:  # not loaded then either
            return None


def _summary(version: SavedVersion, found: Difference) -> str:
    named = version.note or (version.what if version.what in _NAMED else "")
    if not named:
        return found.summary()
    if version.number > 1 and found.old.main is None and found.new.main is not None:
        return found.summary(created=named)
    return found.renamed() if named == "moved" else found.noted(named)


def _location(path: str) -> layout.Location:
    place = layout.locate_path(path)
    assert place is not None, path
    return place[0]


def _known_as(version: SavedVersion) -> str:
    """The path of a version, as if its session were not in the trash."""
    return version.path if not version.path.startswith(layout.PRIVATE) else f"{layout.SESSIONS}/deleted"
