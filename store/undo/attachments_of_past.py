"""Attachments that a past version refers to and that were moved to the trash since: `clear` does that."""

from __future__ import annotations

from collections.abc import Iterator

from store import layout
from store.commit import session_reader
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.disk.trash import list_slots
from store.documents import attachment_names
from store.layout import Location
from store.model.session import Session


def find_missing(disk: Disk, location: Location, session: Session) -> list[str]:
    """The ids of attachments that messages show and that the session lacks."""
    urls = [part.image_url.url for m in session.messages for part in m.content_parts or () if part.image_url]
    references = filter(None, map(attachment_names.parse_reference, urls))
    ids = dict.fromkeys(id for owner, id in references if owner == location.id and layout.is_session_id(id))
    return [id for id in ids if session_reader.find_attachment(disk, location, id) is None]


def from_trash(disk: Disk, location: Location, session: Session) -> Iterator[NewFile]:
    """Copies of the missing attachments, from the newest deletion that has them. The trash stays as it is."""
    missing = find_missing(disk, location, session)
    directory = location.path(layout.ATTACHMENTS)
    for slot in list_slots(disk) if missing else ():
        for source, target in slot.moves:
            if source not in (directory, location.dir):
                continue
            kept = target if source == directory else f"{target}/{layout.ATTACHMENTS}"
            names = [entry.name for entry in disk.entries(kept) if entry.is_file]
            for id in [*missing]:
                name = attachment_names.find_name(id, names)
                file = disk.read(f"{kept}/{name}") if name else None
                if file is not None:
                    missing.remove(id)
                    yield NewFile(f"{directory}/{name}", [file.data], None, file.stamp.mtime_ns)
