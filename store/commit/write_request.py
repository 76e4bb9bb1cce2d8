"""WriteRequest: one file to be committed whole, with all options of the commit.

The mount builds it from a write buffer, the API from bytes. Every layer passes it on unchanged, so
none has to repeat its members.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from store.disk.disk import Disk
from store.disk.file import File, NewFile, Stamp, Temp, is_same_content
from store.disk.file_io import iter_chunks
from store.documents import json_text
from store.errors import Conflict, FileGone
from store.history.authors import Author
from store.index.catalog import Version
from store.path_kinds import PathInfo

OnConflict = Literal["merge", "reject", "overwrite"]


@dataclass(frozen=True)
class Writer:
    """What the mount knows of the process that wrote a file, as it was when the process opened the handle."""

    author: Author
    process: tuple[int, int] | None = None  # thread group id and start time; None if unknown (pid 0)
    # Versions it is known to have had: its own last saved version, if that was stored as typed, and
    # what it opened for reading since. Without a saved version, all it opened.
    opened: tuple[Stamp, ...] = ()
    saved: Stamp | None = None  # its own last saved version, if that was stored as typed; also in `opened`
    last_draft: int | None = None  # its own last accepted text, if that was merged (CommitResult.draft)
    # False: the buffer started from the bytes of the request's base. True again once this handle has
    # saved a text that was merged: from then on its bytes are those of `last_draft`.
    is_truncated: bool = True
    # Versions that related processes read within ten minutes, if it has read none itself: evidence for a file
    # that another process than its writer stores.
    relatives: tuple[Stamp, ...] = ()
    near_relatives: tuple[Stamp, ...] = ()  # those that the nearest of them read: commands of the same pipeline
    saved_by_relatives: tuple[Stamp, ...] = ()  # they knew these, but it does not tell what this text was made from
    opened_ns: int = 0  # when it opened the first of `opened`, or a relative the last version; 0 if that is not known
    opened_times: tuple[int, ...] = ()  # when it opened or saved each of `opened` first
    reread_ns: int = 0  # when it read the document again after a refusal that named what others changed

    def text_ns(self, base: Stamp | None) -> int:
        """Since when it has had the text that it edited: a version of `opened`, if that is known. 0 if not known."""
        times: dict[Stamp | None, int] = dict(zip(self.opened, self.opened_times, strict=False))
        return max(times.get(base, self.opened_ns), self.reread_ns)

    def is_outdated(self, present: Stamp) -> bool:
        """Whether it, or relatives, had versions of the file, and not the present one."""
        had = self.opened or (*self.relatives, *self.saved_by_relatives)
        return bool(had) and self.last_draft is None and not any(is_same_content(stamp, present) for stamp in had)


@dataclass(frozen=True)
class WriteRequest:
    """`target` gets `content`: bytes, or a finished temporary file that is renamed into place.

    Content None changes mode and times only.
    """

    target: PathInfo
    content: bytes | Temp | None
    base: Version | None = None  # the version the writer started from; None skips that check
    on_conflict: OnConflict = "reject"
    unlinked_first: bool = False  # by the writer: an older updated_at is then intended
    mode: int | None = None  # None keeps the mode of the replaced file
    mtime_ns: int | None = None
    owner: tuple[int, int] | None = None  # user and group id; None keeps those of the replaced file
    # Create the directories and sidecar of a new session; copy tools create them themselves and
    # fail if they exist.
    add_missing: bool = False
    base_text: bytes | None = None  # the text the writer started from, if it kept that; for merging
    base_sidecar: bytes | None = None  # runtime.json at that time, if it kept that
    # Append this part of `content`, a temporary file, to what the file contains at the commit.
    appended: tuple[int, int] | None = None  # start and end
    replaces_own: bool = False  # the replaced version was committed by the same open file
    writer: Writer | None = None  # None: the API, or a mount that knows nothing of the process
    unlinked: Stamp | None = None  # with `unlinked_first`: the version that was unlinked, if that is known

    def is_outdated(self, present: Stamp) -> bool:
        """Whether the writer is known to have started from an older version; False if any may be replaced."""
        if (
            self.writer is None
            or self.on_conflict == "overwrite"
            or self.unlinked_first
            or not self.writer.is_truncated
        ):
            return False
        return self.writer.is_outdated(present)

    @property
    def checked_base(self) -> Version | None:
        """The version that must still be current; None if any may be replaced."""
        return self.base if self.on_conflict != "overwrite" else None

    def read(self, limit_bytes: int) -> bytes:
        """The content. A file over the limit is rejected before it is read into memory."""
        content = self.content
        if not isinstance(content, Temp):
            return content or b""
        start, end = self.appended or (0, os.fstat(content.fd).st_size)
        json_text.check_size(end - start, self.target.path, limit_bytes)
        return os.pread(content.fd, end - start, start)

    def parts(self) -> Iterable[bytes]:
        """The content in pieces: an attachment may be larger than memory."""
        if not isinstance(self.content, Temp):
            return [self.content or b""]
        start, end = self.appended or (0, os.fstat(self.content.fd).st_size)
        return iter_chunks(self.content.fd, end, start)

    def new_file(self, raw: bytes, replaced: File | None) -> NewFile:
        """The file for the commit. `raw` is what `read` returned."""
        if not isinstance(self.content, Temp):
            return NewFile(self.target.path, [raw], replaced, self.mtime_ns, self.mode, self.owner)
        text = raw if self.appended is None else None
        return NewFile(self.target.path, self.content, replaced, self.mtime_ns, self.mode, self.owner, text=text)


def stale_error(path: str, *, is_gone: bool = False) -> Conflict:
    if is_gone:
        return FileGone(f"{path} was deleted or renamed since this copy was opened")
    return Conflict(f"{path} was changed by another writer since this copy was opened; the newer version is kept")


def require_directory(disk: Disk, path: str) -> None:
    """Raise Conflict if the directory of a file that is appended to does not exist any more."""
    directory = path.rpartition("/")[0]
    if disk.stat(directory) is None:
        raise Conflict(f"{directory} was renamed or deleted since {path} was opened; nothing was stored there")


class PutResult(NamedTuple):
    """What `put` did with a document."""

    is_changed: bool  # False: nothing had to be stored
    draft: int | None = None  # as in CommitResult
    info: os.stat_result | None = None  # of the file, before another writer could replace it; None: not looked at
    base: Stamp | None = None  # of the version that the text was edited from, if that was found
    at_ns: int | None = None  # as in CommitResult


class CommitResult(NamedTuple):
    """The state after a commit."""

    is_changed: bool  # False: the file already had these bytes
    info: os.stat_result | None
    # Key of the draft, if the file does not have the typed bytes now: a merged text was stored, or,
    # where the typed text was an unchanged older version, nothing.
    draft: int | None = None
    base: Stamp | None = None  # of the version that the text was edited from, if that was found
    is_in_place: bool = False  # the temporary file of the request has become the file
    at_ns: int | None = None  # of a session's document: a moment after this commit and before the next one


class UnfinishedCommit(OSError):
    """A commit failed and could not be undone. Recovery will finish it, and needs its temporary files."""
