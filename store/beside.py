"""What lies beside the documents of a session: attachments and logs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import orjson

from store import attachments, layout
from store.commits import Commits
from store.core import Core
from store.errors import Flaw, InvalidContent
from store.index import Row
from store.journal import Commit, NewFile
from store.layout import Location
from store.models import Session
from store.saves import locate, location_of


class Attachment(NamedTuple):
    id: str
    url: str  # what a document refers to it by
    mime: str


@dataclass(frozen=True)
class Beside:
    core: Core
    commits: Commits

    def attach(self, target: Session | str, data: bytes | str, mime: str | None) -> Attachment:
        """Store a file with a session: bytes, base64 text, or a `data:` URL."""
        self.core.check_writable()
        location = location_of(target) if isinstance(target, Session) else locate(self.core, target)
        content, kind = attachments.decode(data, mime)
        extension = attachments.mime_to_extension(kind)
        if extension is None:
            raise InvalidContent("attachment", Flaw(f"{kind!r} is no MIME type"))
        attachment_id = str(uuid.uuid4())
        directory = location.path(layout.ATTACHMENTS)
        file = NewFile(f"{directory}/{attachment_id}.{extension}", [content])
        with self.core.locked(location):
            row = self.commits.current_row(location)
            self.commits.run(
                Commit(location, [file], dirs=[directory]),
                lambda db: self._note_attachments(db, location, row, present=True),
                "attachment",
            )
        url = attachments.reference(location.id, attachment_id)
        return Attachment(attachment_id, url, attachments.extension_to_mime(extension) or attachments.OCTETS)

    def _note_attachments(self, db: apsw.Connection, location: Location, row: Row | None, *, present: bool) -> None:
        if row is not None and row.entry.has_attachments != present:
            entry = row.entry.model_copy(update={"has_attachments": present})
            self.core.index.put_entry(db, row, entry)

    def append_log(self, session_id: str, name: str, record: str | dict[str, Any]) -> bool:
        """Append one line to a session's log; False, and nothing written, for an unknown id."""
        self.core.check_writable()
        location = self.core.locate(session_id)
        if location is None:
            return False
        line = record.rstrip("\n").encode() if isinstance(record, str) else orjson.dumps(record)
        with self.core.locked(location):
            self.core.disk.append_line(location.path(name), line + b"\n")
            with self.core.db.write() as db:
                self.core.feed.add(db, [location], "log")
        self.core.changed()
        return True
