"""TextUpdate: which full-text rows a commit changes. A value; `fulltext` computes and applies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from store.documents.transcript import PieceSize

Columns = tuple[str, str | None, int | None, str | None, int]  # role, message id, created_ns, tools, digest


class WrittenRow(Protocol):
    """A row to be written: nothing but unpacking is left to do."""

    @property
    def text_bytes(self) -> int: ...
    def columns(self) -> Columns: ...
    def indexed(self) -> str: ...


class TextUpdate(NamedTuple):
    """The rows of one session or document that change, counted from its first row.

    It is complete: applying it inside a transaction only unpacks what was computed.
    """

    stale: Sequence[int]  # rows whose text is gone or replaced
    moved: Sequence[tuple[int, Columns, int]]  # rows whose text has a number already
    new: Sequence[tuple[int, WrittenRow]]  # rows with a new text
    unused: Sequence[int]  # numbers of texts that no row uses now
    sizes: Sequence[tuple[int, PieceSize]]  # of the transcript's pieces that changed

    def and_also(self, other: TextUpdate) -> TextUpdate:
        """Both updates. They must not be of the same rows."""
        return TextUpdate(
            stale=[*self.stale, *other.stale],
            moved=[*self.moved, *other.moved],
            new=[*self.new, *other.new],
            unused=[*self.unused, *other.unused],
            sizes=[*self.sizes, *other.sizes],
        )


NO_TEXTS = TextUpdate((), (), (), (), ())
