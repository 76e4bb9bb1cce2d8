"""Older texts of shared files: from the history of this home, else from the log of the grove.

A version that this home never had on its disk, or that its history does not keep any more, is
replayed from the rows of the log. Attachments have no history: only their digests are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from store import layout
from store.commit.core import Core
from store.errors import StoreError
from store.grove.collapsing import ChunkReader, replay
from store.grove.units import escape_path, unit_of
from store.grove.wire import BadRow, LogRow, Put, Rename, decode_ops
from store.history.versions import DIGEST_BYTES, SavedVersion, place_of

HISTORY_VERSIONS = 500  # of the local history that are looked at
RowReader = Callable[[str], Sequence[LogRow]]  # the rows of a unit, oldest first


@dataclass(frozen=True)
class PastTexts:
    core: Core
    read_rows: RowReader
    read_chunk: ChunkReader

    def find(self, path: str, digest: bytes) -> bytes | None:
        """The text of a file that had this SHA-256; None if it is no longer kept."""
        for _, text in self._kept(path, lambda version: _may_be(version, path, digest)):
            if text is not None and sha256(text).digest() == digest:
                return text
        return next((text for _, text in self._logged(path, lambda put: put.sha256 == digest)), None)

    def is_past(self, path: str, text: bytes | None, digest: bytes, *, agreed: bytes) -> bool:
        """Whether a file that is not `agreed` has the content of an older version.

        Versions of the history after the agreed one do not count: they are the edit itself, observed.
        """
        return self._is_kept_past(path, text, agreed) or self._is_logged(path, digest)

    def with_updated_at(self, path: str, said_ns: int) -> list[SavedVersion]:
        """Versions of a document in the local history with this updated_at, oldest first."""
        name = path.rpartition("/")[2]
        try:
            return self.core.history.with_updated_at(path, name, said_ns)
        except (StoreError, OSError):
            return []  # the log has them too

    def logged_texts(self, path: str) -> Iterator[tuple[LogRow, bytes]]:
        """The texts that a file had in the log, oldest first."""
        return self._logged(path, lambda put: True)

    def read(self, path: str, version: SavedVersion) -> bytes | None:
        return self.core.history.read_document(version, is_side=path.endswith(f"/{layout.RUNTIME}"))

    def agreed_number(self, path: str, agreed: bytes) -> int | None:
        """The number of the newest version in the local history that has the agreed text."""
        for version, text in self._kept(path, lambda version: _may_be(version, path, agreed)):
            if text is not None and sha256(text).digest() == agreed:
                return version.number
        return None

    # -- the history -------------------------------------------------------------------------------

    def _kept(
        self, path: str, is_wanted: Callable[[SavedVersion], bool]
    ) -> Iterator[tuple[SavedVersion, bytes | None]]:
        """Versions of the local history, newest first, with their texts."""
        if place_of(path) is None:
            return
        try:
            for version in self.core.history.log(path, limit=HISTORY_VERSIONS):
                if is_wanted(version):
                    yield version, self.read(path, version)
        except (StoreError, OSError):
            return  # the log has them too

    def _is_kept_past(self, path: str, text: bytes | None, agreed: bytes) -> bool:
        last = self.agreed_number(path, agreed)
        if text is None or last is None:
            return False
        is_side = path.endswith(f"/{layout.RUNTIME}")

        def is_wanted(version: SavedVersion) -> bool:
            size = version.side_bytes if is_side else version.main_bytes
            return version.number < last and size == len(text)

        return any(found == text for _, found in self._kept(path, is_wanted))

    # -- the log -----------------------------------------------------------------------------------

    def _is_logged(self, path: str, digest: bytes) -> bool:
        unit = unit_of(path)
        if unit is None:
            return False
        names = {escape_path(path[len(unit) + 1 :])}
        for row in reversed(self.read_rows(unit)):
            for operation in reversed(decode_ops(row.ops, unit)):
                if isinstance(operation, Put) and operation.path in names and operation.sha256 == digest:
                    return True
                if isinstance(operation, Rename) and operation.target in names:
                    names.add(operation.source)
        return False

    def _logged(self, path: str, is_wanted: Callable[[Put], bool]) -> Iterator[tuple[LogRow, bytes]]:
        unit = unit_of(path)
        if unit is None:
            return
        name = escape_path(path[len(unit) + 1 :])
        try:
            for row, content in replay(self.read_rows(unit), self.read_chunk):
                put = content.puts.get(name)
                if put is not None and is_wanted(put):
                    yield row, content.text(name)
        except BadRow:
            return


def _may_be(version: SavedVersion, path: str, digest: bytes) -> bool:
    """Whether a version may have this digest, as far as that is known without its text."""
    is_main = not path.endswith(f"/{layout.RUNTIME}")
    return not (is_main and version.main_digest) or version.main_digest == digest[:DIGEST_BYTES]
