"""State documents: `state/<category>/<name>.md` and `.json`, indexed for search.

A category may be nested (`memory/facts`); a name is a single path component. Markdown is any text,
JSON any JSON value. Deleted documents go to the trash. Each category has a lock; moving a directory
locks all categories.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import apsw

from store import layout
from store.commit.agreement import repeats
from store.commit.commit import Commit, IndexRefresh
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import UNREADABLE
from store.commit.to_trash import to_trash
from store.commit.write_request import PutResult, WriteRequest, require_directory
from store.disk.file import DirEntry, File
from store.documents import json_text
from store.errors import Corrupt, InvalidContent, InvalidName, NotFound, Problem
from store.index import fulltext
from store.layout import STATE, Location
from store.path_kinds import PathInfo, PathKind, classify_path, is_category_name, is_state_name
from store.sessions.merging import Merging

log = logging.getLogger("grovefs.store")

JSON, MARKDOWN = ".json", ".md"
_DOCUMENTS = (PathKind.STATE_JSON, PathKind.STATE_TEXT)
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class State:
    core: Core
    commits: Commits

    # -- JSON --------------------------------------------------------------------------------------

    def save_json(self, category: str, name: str, value: Any) -> None:
        """Save any JSON value, indented by two spaces, without a final newline."""
        path = document_path(category, name, JSON)
        self._save(path, json_text.render_strict(value, path))

    def load_json(self, category: str, name: str) -> Any:
        """The value, or None if there is no document. Raises Corrupt with line and column."""
        path = document_path(category, name, JSON)
        self.core.on_use(layout.state_location(category))
        file = self._read(path)
        if file is None:
            return None
        try:
            return json_text.parse_value(file.data, path, limit=self.core.limit_bytes)
        except InvalidContent as error:
            raise Corrupt(path, error.problem) from None

    @repeats
    def update_json(self, category: str, name: str, change: Callable[[Any], Any]) -> Any:
        """Read, change and write under the lock.

        `change` gets the value or None, and returns the new value.
        """
        with self._locked(category):
            value = change(self.load_json(category, name))
            self.save_json(category, name, value)
        return value

    # -- Markdown ----------------------------------------------------------------------------------

    def save_markdown(self, category: str, name: str, text: str) -> None:
        path = document_path(category, name, MARKDOWN)
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidContent(path, Problem(f"the text cannot be encoded as UTF-8: {error.reason}")) from None
        self._save(path, raw)

    def load_markdown(self, category: str, name: str) -> str | None:
        """The text, or None if there is no document. Raises Corrupt if it is not UTF-8."""
        path = document_path(category, name, MARKDOWN)
        self.core.on_use(layout.state_location(category))
        file = self._read(path)
        if file is None:
            return None
        try:
            return file.data.decode()
        except UnicodeDecodeError as error:
            raise Corrupt(path, Problem("invalid UTF-8", *json_text.position(file.data, error.start))) from None

    # -- both --------------------------------------------------------------------------------------

    def names(self, category: str) -> list[str]:
        """Names of the documents directly in a category.

        A name with both JSON and Markdown is listed twice.
        """
        return sorted(filter(None, map(_title, self._documents_in(category_path(category)))))

    def categories(self) -> list[str]:
        """All categories that contain a document."""
        found = {path.rpartition("/")[0].partition("/")[2] for path in self.paths()}
        return sorted(found)

    def paths(self, directory: str = STATE) -> Iterator[str]:
        """Paths of all documents in a directory and below, in order."""
        yield from self._documents_in(directory)
        for entry in self._entries(directory):
            if entry.is_dir and is_category_name(entry.name):
                yield from self.paths(f"{directory}/{entry.name}")

    def _documents_in(self, directory: str) -> Iterator[str]:
        """Paths of the documents directly in a directory."""
        for entry in self._entries(directory):
            path = f"{directory}/{entry.name}"
            if entry.is_file and classify_path(path).kind in (PathKind.STATE_JSON, PathKind.STATE_TEXT):
                yield path

    @repeats
    def delete(self, category: str, name: str) -> bool:
        """Delete the JSON document of a name, or the Markdown one if there is none.

        Returns False if neither exists.
        """
        self.core.check_writable()
        paths = [document_path(category, name, ending) for ending in (JSON, MARKDOWN)]
        with self._locked(category):
            found = [path for path in paths if self.core.disk.stat(path) is not None]
            if found:
                self._to_trash(found[0])
        return bool(found)

    # -- used by the mount -------------------------------------------------------------------------

    @repeats
    def put(self, request: WriteRequest, raw: bytes) -> PutResult:
        """Write a document byte for byte, or what a merge makes of it; JSON is validated."""
        place = request.target
        assert place.location is not None
        json_text.check_size(len(raw), place.path, self.core.limit_bytes)
        if place.kind is PathKind.STATE_JSON:
            json_text.parse_value(raw, place.path, limit=self.core.limit_bytes)
        with self.core.locked(place.location):
            if request.appended is not None:  # a new version of the text as it is now, with more at its end
                present = self._read(place.path)
                if present is None:
                    require_directory(self.core.disk, place.path)
                raw = (present.data if present else b"") + raw
                json_text.check_size(len(raw), place.path, self.core.limit_bytes)
                request = replace(request, content=raw, base=None, appended=None)
            can_merge = request.on_conflict == "merge" and Merging(self.core).is_possible(request)
            current = self._read(place.path) if can_merge and place.kind is PathKind.STATE_JSON else None
            if current is not None and current.data != raw:
                result = self._put_merged(request, raw, current)
            else:
                result = PutResult(self._put_file(request, raw))
            if place.kind is PathKind.STATE_TEXT:
                return result  # its mode and time may be set after this, see Namespace.commit
            return result._replace(info=self.core.disk.stat(place.path))

    def _put_merged(self, request: WriteRequest, raw: bytes, present: File) -> PutResult:
        """Commit the typed text, or the text that a merge makes of it."""
        merging = Merging(self.core)
        resolution = merging.resolve_object(request, raw, present)
        if resolution.raw is None:
            return PutResult(False, merging.keep_draft(request, raw))
        checked = replace(request, base=None, writer=None)
        if not resolution.is_merged:
            return PutResult(self._put_file(checked, raw), base=resolution.base)
        self._put_file(replace(checked, content=resolution.raw, mtime_ns=None), resolution.raw)
        return PutResult(True, merging.keep_draft(request, raw), base=resolution.base)

    def _put_file(self, request: WriteRequest, raw: bytes) -> bool:
        location, path = request.target.location, request.target.path
        assert location is not None
        return self.commits.put_file(location, request, raw, "state", index=IndexRefresh(documents=[path]))

    def create(self, place: PathInfo, mode: int) -> None:
        """Create an empty text, for open(2) with O_CREAT. Raises FileExistsError."""
        assert place.location is not None
        with (
            self.core.locked(place.location),
            self.core.disk.creating(place.path, mode),
            self.core.db.write() as db,
        ):
            self._reindex(db, place.path)
            self.core.feed.add(db, [place.location], "state")
        self.core.on_commit()

    @repeats
    def remove(self, place: PathInfo, *, keep: bool = True) -> None:
        """Delete a document. `keep`: move it to the trash instead of erasing it."""
        assert place.location is not None
        with self.core.locked(place.location):
            if self.core.disk.stat(place.path) is None:
                raise NotFound(f"{place.path} does not exist")
            if keep:
                return self._to_trash(place.path)
            self.commits.discard(place.location, [place.path], "state", IndexRefresh(documents=[place.path]))

    def move(self, source: PathInfo, target: PathInfo) -> None:
        """Rename a document to a foreign path, or a directory into, out of or within `state/`."""
        touched = [_lock_of(place) for place in (source, target) if place.path.startswith(f"{STATE}/")]
        with self.core.locked_tree(f"/{STATE}"):
            # Recovery takes an existing target for a completed move.
            self.core.disk.remove_dirs([target.path])
            commit = Commit(Location(f"/{STATE}"), moves=[(source.path, target.path)], touched=touched, whole_tree=True)
            self.commits.run(commit, IndexRefresh(documents=[source.path, target.path]), "state")

    # -- index -------------------------------------------------------------------------------------

    def sync_index(self, location: Location) -> bool:
        """Update the search rows of a category and those below. Returns True if any was stale."""
        paths = {*self.paths(location.dir), *(path for path, _ in self._indexed(location.dir))}
        directories = sorted({path.rpartition("/")[0] for path in paths})
        # Not `any`, which would stop at the first stale one.
        return sum(map(self._sync_directory, directories)) > 0

    def _sync_directory(self, directory: str) -> bool:
        # Not `core.locked`: that recovers interrupted commits, and recovery calls this method.
        with self.core.locks.session(layout.state_location(directory.partition("/")[2])):
            known = {path: at_ns for path, at_ns in self._indexed(directory) if path.rpartition("/")[0] == directory}
            on_disk = {p: info.st_mtime_ns for p in self._documents_in(directory) if (info := self.core.disk.stat(p))}
            differing = [path for path in {**known, **on_disk} if known.get(path) != on_disk.get(path)]
            self.core.observe_known(differing)
            with self.core.db.write() as db:
                for path in differing:
                    self._reindex(db, path)
        return bool(differing)

    def rebuild(self) -> None:
        """Rebuild all search rows from the files."""
        with self.core.locked_tree(f"/{STATE}"), self.core.db.write() as db:
            for path in {*self.paths(), *(known for known, _ in self._indexed(STATE))}:
                fulltext.remove_document(db, path)
                self._reindex(db, path)
            self.core.feed.add(db, [Location(f"/{STATE}")], "reread")
        self.core.on_commit()

    def is_indexed(self, path: str) -> bool:
        """Whether the search rows of a document match its file."""
        text = self._text(path)
        return text is not None and fulltext.document_matches(self.core.db.reader, path, _title(path), text)

    def indexed(self) -> list[str]:
        return [path for path, _ in self._indexed(STATE)]

    def _indexed(self, directory: str) -> Iterator[tuple[str, int]]:
        rows = self.core.db.reader.execute("SELECT path, updated_ns FROM state_documents")
        return ((path, at_ns) for path, at_ns in rows if path.startswith(f"{directory}/"))

    def reindex(self, db: apsw.Connection, paths: Sequence[str]) -> None:
        """Reindex all documents at or below these paths, including those no longer there."""
        for top in paths:
            if classify_path(top).kind in _DOCUMENTS:
                self._reindex(db, top)
            else:
                on_disk = self.paths(top) if top.startswith(f"{STATE}/") else []
                for path in {*on_disk, *(path for path, _ in self._indexed(top))}:
                    self._reindex(db, path)

    def _reindex(self, db: apsw.Connection, path: str) -> None:
        text = self._text(path) if classify_path(path).kind in _DOCUMENTS else None
        info = self.core.disk.stat(path)
        if text is None or info is None:
            fulltext.remove_document(db, path)
        else:
            fulltext.put_document(db, path, _title(path), text, info.st_mtime_ns)

    def _text(self, path: str) -> str | None:
        """The text of a document; None if it is missing or unreadable, which `check` reports."""
        try:
            file = self._read(path)
        except Corrupt:
            return None
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            log.warning("not indexed: %s", error)
            return None
        return file.data.decode(errors="replace") if file else None

    # -- reading and commits -----------------------------------------------------------------------

    def _locked(self, category: str) -> AbstractContextManager[None]:
        category_path(category)
        return self.core.locked(layout.state_location(category))

    def _save(self, path: str, raw: bytes) -> None:
        self.core.check_writable()
        self.put(WriteRequest(classify_path(path), raw), raw)

    def _read(self, path: str) -> File | None:
        return self.core.disk.read(path, self.core.limit_bytes)

    def _entries(self, directory: str) -> list[DirEntry]:
        try:
            return self.core.disk.entries(directory)
        except Corrupt:  # a file or a symlink
            return []

    def _to_trash(self, path: str) -> None:
        location = classify_path(path).location
        assert location is not None
        part = to_trash(location, "document deleted", moved=[path], numbered=True)
        commit = Commit(location, part.files, part.moves, part.dirs)
        self.commits.run(commit, IndexRefresh(documents=[path]), "state")


def category_path(category: str) -> str:
    """The directory of a category. Raises InvalidName if the category is not valid."""
    parts = category.split("/")
    is_long = any(len(part.encode(errors="replace")) > layout.MAX_NAME_BYTES for part in parts)
    if is_long or not all(map(is_category_name, parts)) or _UNUSABLE.search(category):
        raise InvalidName(
            f"{category[:80]!r} is not a valid category: expected names separated by '/', without '..' or '\\'"
        )
    return f"{STATE}/{category}"


def document_path(category: str, name: str, ending: str) -> str:
    """The path of a document. Raises InvalidName if its category or name is not valid."""
    directory = category_path(category)
    if not is_state_name(name) or _UNUSABLE.search(name):
        raise InvalidName(
            f"{name!r} is not a valid document name: it contains '/', '\\', '..' or NUL, or is not Unicode"
        )
    if len(f"{name}{ending}".encode()) > layout.MAX_NAME_BYTES:
        raise InvalidName(f"{name[:40]!r}… is not a valid document name: it is too long")
    return f"{directory}/{name}{ending}"


def _title(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _lock_of(place: PathInfo) -> Location:
    return place.location or Location(f"/{STATE}")
