"""A session.json to which an import appends messages and whose other members it changes, without parsing its messages.

The text without its messages is a small document, which is parsed and spliced as usual. Then the messages are put back,
byte for byte, with the new ones after them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from store import layout
from store.commit import session_reader
from store.commit.session_reader import DocumentPair
from store.disk.file import File
from store.documents import append_offsets, json_text, sidecar
from store.documents.append_offsets import AppendOffsets
from store.documents.document import parse_document
from store.documents.json_splice import splice
from store.history.versions import Splice
from store.layout import Location
from store.model.session import Session
from store.transfer.formats.resuming import NeedsWholeFile

# How the array begins and ends in a document that an import wrote. No string contains a newline.
_BEGIN = b'\n  "messages": [\n'
_END = b"\n  ]"
_INDENT = b"    "
_MAX_HEAD_BYTES = 256 * 1024


class ExtendedDocument(NamedTuple):
    """Both documents after an append."""

    parts: list[bytes | memoryview]  # of session.json
    splices: tuple[Splice, ...]  # the difference to session.json as it was
    offsets: AppendOffsets
    side: bytes
    main_record: Session  # without messages
    side_record: Session


class OpenDocument:
    """Raises NeedsWholeFile if the text is not laid out as an import writes it."""

    members: dict[str, Any]  # of the session as it is here, without messages

    def __init__(self, location: Location, main: File, side: File, offsets: AppendOffsets) -> None:
        raw = main.data
        begin, end = raw.find(_BEGIN, 0, _MAX_HEAD_BYTES), offsets.append_at
        is_usual = begin >= 0 and raw.startswith(_END, end) and append_offsets.still_valid(raw, offsets)
        if not is_usual or sidecar.AUTHORITY.encode() in raw[:64]:
            raise NeedsWholeFile("session.json was formatted by another program")
        self._location, self._raw, self._side = location, raw, side.data
        self._begin, self._end = begin + len(_BEGIN), end
        self._outside = raw[: self._begin] + raw[end:]
        loaded = session_reader.parse(DocumentPair(location, main._replace(data=self._outside), side))
        if loaded.side is None:
            raise NeedsWholeFile("runtime.json is invalid or older than session.json")
        dump = loaded.session.model_dump(warnings=False)
        self.members = {**sidecar.merged_main(loaded.main.data, dump, dump), "messages": []}
        self._data = loaded.main.data

    def extended(self, members: dict[str, Any], messages: list[dict[str, Any]]) -> ExtendedDocument:
        """The documents with these members, and with messages appended."""
        changed = {key: value for key, value in members.items() if self.members.get(key) != value}
        outside = splice(self._outside, self._data, {**self._data, **changed})
        begin = outside.index(_BEGIN) + len(_BEGIN)
        head, tail = outside[:begin], outside[begin:]
        added = b"".join(b",\n" + _INDENT + json_text.render_indented(message, _INDENT) for message in messages)
        kept = memoryview(self._raw)[self._begin : self._end]
        side = sidecar.apply_changes_to_sidecar(self._side, self.members, members)
        return ExtendedDocument(
            parts=[head, kept, added, tail],
            splices=self._splices(head, added, tail),
            offsets=_offsets(outside, begin, len(kept) + len(added)),
            side=side,
            main_record=parse_document(outside, self._location.path(layout.SESSION)).record,
            side_record=parse_document(side, self._location.path(layout.RUNTIME)).record,
        )

    def _splices(self, head: bytes, added: bytes, tail: bytes) -> tuple[Splice, ...]:
        found = [
            _difference(0, self._raw[: self._begin], head),
            Splice(self._end, 0, added),
            _difference(self._end, self._raw[self._end :], tail),
        ]
        return tuple(splice for splice in found if splice.removed or splice.text)


def _difference(start: int, old: bytes, new: bytes) -> Splice:
    """The part in which two texts differ."""
    same, shorter = 0, min(len(old), len(new))
    while same < shorter and old[same] == new[same]:
        same += 1
    end = 0
    while end < shorter - same and old[-1 - end] == new[-1 - end]:
        end += 1
    return Splice(start + same, len(old) - same - end, new[same : len(new) - end])


def _offsets(outside: bytes, begin: int, inserted: int) -> AppendOffsets:
    """The append offsets of a text with `inserted` bytes at `begin`."""
    updated_at = next(member for member in json_text.members(outside) if member.key == "updated_at")
    text = json_text.parse(b'{"at":' + outside[updated_at.start : updated_at.end] + b"}", layout.SESSION)["at"]
    moved = inserted if updated_at.start > begin else 0
    return AppendOffsets(begin + inserted, updated_at.start + moved, text)
