"""sessions.json: an export of the index in Bamboo's format.

A save never reads it; the housekeeping thread replaces it as a whole shortly after the last
change. If another program wrote it, its version, its unknown members (at the top or in an entry) and
its entries of sessions that cannot be read here are kept and written back.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from store import layout
from store.commit.core import Core
from store.disk import trash
from store.disk.file import File, Stamp
from store.documents import json_text
from store.errors import Corrupt, InvalidContent
from store.home.bamboo_server import BambooServer
from store.home.export_entries import ExportEntries, parse_export
from store.model.timestamp import Timestamp

log = logging.getLogger("grovefs.store")

VERSION = 2  # as Bamboo 2026.6 writes; the version of an existing file is kept


@dataclass
class SessionsJson:
    core: Core
    server: BambooServer
    # The file that was found to be ours last: a save need not ask the database again.
    _ours: list[int] | None = field(init=False, default=None)

    @property
    def entries(self) -> ExportEntries:
        return ExportEntries(self.core)

    def is_foreign(self) -> bool:
        """Whether another program wrote sessions.json since our last export. False if the file does not exist."""
        while True:
            found = self.core.disk.stat(layout.INDEX_EXPORT)
            if found is None:
                return False
            # The ctime is not compared: the rename that ended the export changed it.
            stamp = [found.st_ino, found.st_size, found.st_mtime_ns]
            if stamp == self._ours or stamp in self._exported():
                self._ours = stamp
                return False
            # Another GroveFS process may have exported twice between the two reads; then the file differs by now.
            if self.core.disk.stat(layout.INDEX_EXPORT) == found:
                return True

    def keep_unknown_keys(self) -> None:
        """Store the unknown members of a foreign sessions.json. An invalid file goes to the trash with a warning."""
        from store.model.index_entry import IndexEntry

        try:
            file = self.core.disk.read(layout.INDEX_EXPORT)
        except Corrupt as error:
            log.warning("moved to the trash, will be rebuilt from the sessions: %s", error)
            self._trash_invalid()
            return
        if file is None:
            return
        try:
            found = parse_export(file.data)
        except InvalidContent as error:
            if file.data:  # an empty file is not worth keeping
                self._trash_invalid(file)
            log.warning("ignored, will be rebuilt from the sessions: %s", error)
            self.mark_as_exported()
            return
        head = {k: v for k, v in found.items() if k not in ("updated_at", "sessions")}
        self.core.db.set_meta(export_head=orjson.dumps(head).decode())
        self.entries.note_unknown(found["sessions"])
        self.mark_as_exported()
        with self.core.db.write() as db:
            for entry in found["sessions"].values():
                location = layout.locate_path(str(entry.get("rel_path"))) if isinstance(entry, dict) else None
                if location is not None:
                    extra = {k: v for k, v in entry.items() if k not in IndexEntry.model_fields}
                    self.core.index.put_extra(db, location[0], extra)

    def mark_as_exported(self) -> None:
        """Treat the existing file as our export, so that the next export replaces it."""
        found = self.core.disk.stamp(layout.INDEX_EXPORT)
        self.core.db.set_meta(export_stamps=_packed([found] if found else []), export_digest="", export_cursor="")

    def _trash_invalid(self, file: File | None = None) -> None:
        """Copy an invalid file to the trash; move it there if it is not a regular file."""
        copy = self.core.disk.write_temp([file.data], file) if file else None
        trash.move_top_level(self.core.disk, layout.INDEX_EXPORT, copy)

    def export(self) -> bool:
        """Replace sessions.json if it differs from the index; False if nothing was written."""
        with self.server.index_lock():
            if self.is_foreign():
                return False  # foreign: check_writable takes it over first
            present = self.core.disk.stamp(layout.INDEX_EXPORT)
            cursor = "/".join(map(str, self.core.feed.cursor()))  # read first, so that later changes are exported later
            if present is not None and self.core.db.get_meta("export_cursor") == cursor:
                return False
            body = b",\n".join(self.entries.rendered())
            digest = blake2b(body, digest_size=16).hexdigest()
            is_new = present is None or self.core.db.get_meta("export_digest") != digest
            if is_new:
                self._replace(self._rendered(body), present)
            self.core.db.set_meta(export_digest=digest, export_cursor=cursor)
            return is_new

    def render(self, shows: Callable[[str], bool] | None = None) -> bytes:
        """Render the whole file, or the sessions that `shows` selects by directory, without writing it."""
        return b"".join(self._rendered(b",\n".join(self.entries.rendered(shows))))

    def _replace(self, parts: list[bytes], present: Stamp | None) -> None:
        temp = self.core.disk.write_temp(parts, self.core.disk.stat_file(layout.INDEX_EXPORT))
        new = self.core.disk.stamp(temp)
        if new is None:  # another program removes files from .grovefs/tmp
            raise FileNotFoundError(
                errno.ENOENT, "temporary file removed before it could be renamed to sessions.json", temp
            )
        # Both stamps count as ours until the rename: a crash before or after it must not look like a foreign
        # write. The cursor stays empty until then: nothing has been exported yet.
        stamps = [new] if present is None else [present, new]
        try:
            self.core.db.set_meta(export_stamps=_packed(stamps), export_digest="", export_cursor="")
            self.core.disk.move(temp, layout.INDEX_EXPORT)
        except OSError:
            with suppress(OSError):  # report the first error; the next opening empties tmp/
                self.core.disk.remove(temp)
            raise
        self.core.disk.sync_dirs([""])

    def _rendered(self, body: bytes) -> list[bytes]:
        head: dict[str, Any] = orjson.loads(self.core.db.get_meta("export_head", "{}"))
        top = {"version": head.pop("version", VERSION), "updated_at": Timestamp.now()}
        opening = json_text.render(top)[:-2] + b',\n  "sessions": {'
        rest = json_text.render(head)[1:-2] if head else b""
        inside = b"\n" + body + b"\n  }" if body else b"}"
        return [opening, inside, b"," + rest if rest else b"", b"\n}"]

    def _exported(self) -> list[list[int]]:
        stamps: list[list[int]] = orjson.loads(self.core.db.get_meta("export_stamps", "[]"))
        return stamps


def _packed(stamps: list[Stamp]) -> str:
    return orjson.dumps([list(stamp[:3]) for stamp in stamps]).decode()
