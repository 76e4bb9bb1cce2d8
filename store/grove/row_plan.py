"""What a row of the log changes in this home: the files to write, to move and to remove.

The row is untrusted: `wire.decode_ops` has checked its paths, and every text is compared with the
agreed SHA-256 before anything is replaced. A file that has the agreed content already is left
alone, so a row can be planned twice. A file that is neither what this home agreed to before nor
what the row brings was edited by another program: it is listed in `edits`, with its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from store.commit.commit import AgreedVersion
from store.disk.disk import Disk
from store.disk.file import File, NewFile, Stamp, is_same_content
from store.grove.collapsing import ChunkReader
from store.grove.replica import AgreedFile
from store.grove.units import unescape_path
from store.grove.wire import BadRow, Claim, Gone, LogRow, Operation, Put, Remove, Rename, Whole, inline_text
from store.history.versions import place_of
from store.path_kinds import PathKind, classify_path

BaseReader = Callable[[str, bytes], bytes | None]  # an older text of a path, by SHA-256

CLAIMED = "cur/"


class OutsideEdit(NamedTuple):
    """A file that another program changed, found when a row replaces it."""

    path: str  # relative to the home
    stamp: Stamp
    agreed: str  # sha256 in hex of the content that this home had agreed to; "" if none
    digest: str  # sha256 in hex of the content that it has now
    text: bytes | None  # None: an attachment, which may be larger than memory

    @property
    def is_new(self) -> bool:
        """Whether the grove does not have a file of this name."""
        return not self.agreed


@dataclass
class RowPlan:
    """The effects of one row. Paths are relative to the home, those of `digests` and `claims` to the unit."""

    row: LogRow
    files: list[NewFile] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    edits: list[OutsideEdit] = field(default_factory=list)
    digests: dict[str, str | None] = field(default_factory=dict)
    claims: dict[str, str | None] = field(default_factory=dict)
    replaced: dict[str, Stamp] = field(default_factory=dict)  # by path: the file that was read
    present: dict[str, Stamp] = field(default_factory=dict)  # by path: files that have the agreed content already
    size_bytes: int = 0  # of the new files
    is_whole: bool = False
    is_gone: bool = False

    @property
    def changes_files(self) -> bool:
        return bool(self.files or self.moves or self.removed)

    @property
    def version(self) -> AgreedVersion:
        row = self.row
        return AgreedVersion(
            row.unit,
            row.version,
            row.token,
            row.shard,
            row.seq,
            self.digests,
            is_gone=self.is_gone,
            is_whole=self.is_whole,
            claims=self.claims,
            made_ns=row.at_ns,
        )


@dataclass
class RowPlanner:
    """Plans one row. `agreed` are the files of the unit as this home has agreed to them."""

    disk: Disk
    agreed: dict[str, AgreedFile]
    read_chunk: ChunkReader
    read_base: BaseReader
    plan: RowPlan

    def run(self, ops: Sequence[Operation]) -> RowPlan:
        for operation in ops:
            self._add(operation)
        if self.plan.is_whole:
            for path in [path for path in self.agreed if path not in self.plan.digests]:
                self._remove(path)
        return self.plan

    def _add(self, operation: Operation) -> None:
        match operation:
            case Put():
                self._put(operation, unescape_path(operation.path))
            case Remove():
                self._remove(unescape_path(operation.path))
            case Rename():
                self._move(unescape_path(operation.source), unescape_path(operation.target))
            case Claim():
                self.plan.claims[unescape_path(operation.path)] = operation.host
            case Whole():
                self.plan.is_whole = True
            case Gone():
                self.plan.is_gone = True

    def _put(self, put: Put, name: str) -> None:
        path, digest = self._path(name), put.sha256.hex()
        self.plan.digests[name] = digest
        present = self.disk.stat_file(path)
        if present is not None and self._digest(path, name, present.stamp) == digest:
            self.plan.present[path] = present.stamp
            return
        if present is not None:
            self._note_edit(path, name, present.stamp)
            self.plan.replaced[path] = present.stamp
        # The journal keeps what it replaces in memory, so not that of an attachment.
        like = self.disk.read(path) if place_of(path) is not None else None
        content = self._from_chunks(put) if put.chunks else [self._text(put, path, like)]
        self.plan.files.append(NewFile(path, content, like, put.mtime_ns, put.mode or None))
        self.plan.size_bytes += put.size

    def _text(self, put: Put, path: str, present: File | None) -> bytes:
        if not put.base:
            return inline_text(put, None)
        file = present or self.disk.read(path)
        old = file.data if file is not None else None
        if old is None or hashlib.sha256(old).digest() != put.base:
            old = self.read_base(path, put.base)
        return inline_text(put, old)

    def _from_chunks(self, put: Put) -> Iterator[bytes]:
        """The content, read while it is written: an attachment may be larger than memory."""
        total, size = hashlib.sha256(), 0
        for digest in put.chunks:
            data = self.read_chunk(digest)
            total.update(data)
            size += len(data)
            yield data
        if size != put.size or total.digest() != put.sha256:
            raise BadRow(f"{put.path!r}: the chunks of the row do not have the agreed digest")

    def _remove(self, name: str) -> None:
        path = self._path(name)
        self.plan.digests[name] = None
        self._unclaim(name)
        if self.disk.stat(path) is not None:
            self.plan.removed.append(path)

    def _move(self, source: str, target: str) -> None:
        known = self.agreed.get(source)
        digest = self.plan.digests.get(source) or (known.sha256.hex() if known is not None else None)
        if digest is None:
            raise BadRow(f"{self.plan.row.unit}: the row moves {source!r}, which does not exist")
        self.plan.digests.update({source: None, target: digest})
        self._unclaim(source)
        if target.startswith(CLAIMED):
            self.plan.claims[target] = self.plan.row.host
        if self.disk.stat(self._path(source)) is not None:
            self.plan.moves.append((self._path(source), self._path(target)))
        elif self.disk.stat(self._path(target)) is None:
            raise BadRow(f"{self.plan.row.unit}: {source!r} is missing here")

    def _unclaim(self, name: str) -> None:
        if name.startswith(CLAIMED):
            self.plan.claims[name] = None

    def _note_edit(self, path: str, name: str, stamp: Stamp) -> None:
        known = self.agreed.get(name)
        if known is None or self._digest(path, name, stamp) != known.sha256.hex():
            edit = read_edit(self.disk, path, known)
            if edit is not None:
                self.plan.edits.append(edit)

    def _digest(self, path: str, name: str, stamp: Stamp) -> str:
        """The SHA-256 of a file. Not read if it has the stamp that it had when it was agreed to."""
        known = self.agreed.get(name)
        if known is not None and known.stamp is not None and is_same_content(known.stamp, stamp):
            return known.sha256.hex()
        return file_digest(self.disk, path)

    def _path(self, name: str) -> str:
        return f"{self.plan.row.unit}/{name}"


def read_edit(disk: Disk, path: str, known: AgreedFile | None) -> OutsideEdit | None:
    """A file as another program left it; None if it has the agreed content, or does not exist."""
    agreed = known.sha256.hex() if known is not None else ""
    present = disk.stat_file(path)
    if present is None:
        return None
    text: bytes | None = None
    if classify_path(path).kind is not PathKind.ATTACHMENT:
        present = disk.read(path)
        if present is None:
            return None
        text = present.data
    digest = hashlib.sha256(text).hexdigest() if text is not None else file_digest(disk, path)
    return OutsideEdit(path, present.stamp, agreed, digest, text) if digest not in (agreed, "") else None


def file_digest(disk: Disk, path: str) -> str:
    """The SHA-256 of a file in hex; "" if there is none."""
    found = hashlib.sha256()
    try:
        for chunk in disk.iter_chunks(path):
            found.update(chunk)
    except FileNotFoundError:
        return ""
    return found.hexdigest()
