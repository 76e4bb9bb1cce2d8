"""WriteRequest: one file to be committed whole, with all options of the commit.

The mount builds it from a write buffer, the API from bytes. Every layer passes it on unchanged, so
none has to repeat its members.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, NamedTuple

from store.disk.file import File, NewFile, Temp
from store.documents import json_text
from store.errors import Conflict
from store.index.catalog import Version
from store.path_kinds import PathInfo

OnConflict = Literal["reject", "overwrite"]


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
    # Create the directories and sidecar of a new session; copy tools create them themselves and
    # fail if they exist.
    add_missing: bool = False

    @property
    def checked_base(self) -> Version | None:
        """The version that must still be current; None if any may be replaced."""
        return self.base if self.on_conflict == "reject" else None

    def read(self, limit_bytes: int) -> bytes:
        """The content. A file over the limit is rejected before it is read into memory."""
        content = self.content
        if not isinstance(content, Temp):
            return content or b""
        size = os.fstat(content.fd).st_size
        json_text.check_size(size, self.target.path, limit_bytes)
        return os.pread(content.fd, size, 0)

    def new_file(self, raw: bytes, replaced: File | None) -> NewFile:
        """The file for the commit. `raw` is what `read` returned."""
        content = self.content if isinstance(self.content, Temp) else [raw]
        return NewFile(self.target.path, content, replaced, self.mtime_ns, self.mode)


def stale_error(path: str) -> Conflict:
    return Conflict(f"{path} was changed by another writer since this copy was opened; the newer version is kept")


class CommitResult(NamedTuple):
    """The state after a commit."""

    is_changed: bool  # False: the file already had these bytes
    info: os.stat_result | None


class UnfinishedCommit(OSError):
    """A commit failed and could not be undone. Recovery will finish it, and needs its temporary files."""
