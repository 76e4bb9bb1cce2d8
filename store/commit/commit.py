"""Commit: the description of one change, which the journal makes as a whole. Values; they do nothing themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.disk.file import NewFile, Stamp
from store.history.versions import AgreedNumber, FileChanges, KnownChange, lineage_path
from store.index.change_feed import What
from store.layout import Location

WHOLE_TREE = "*"


@dataclass(frozen=True)
class IndexRefresh:
    """Rows that a rare commit changes, made from the files once these are in place.

    A frequent one has an `IndexUpdate` instead, which is computed before the transaction.
    """

    reread: Sequence[Location] = ()  # indexed again: sessions, or areas such as a project
    what: What = "reread"  # what the feed calls that
    gone: Sequence[Location] = ()  # removed sessions
    documents: Sequence[str] = ()  # state documents, or directories of them, that were put or removed
    # Sessions that got an attachment (True), or that may have lost their last one (False).
    attachments: Mapping[Location, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class AgreedVersion:
    """A version of a unit that the grove has agreed to. The journal entry of its commit contains it."""

    unit: str  # directory, relative to the home
    version: int
    token: str  # uuid of the attempt
    shard: int
    seq: int
    digests: Mapping[str, str | None]  # sha256 in hex by path below the unit; None: removed
    is_gone: bool = False
    is_whole: bool = False  # files that `digests` does not name do not exist
    claims: Mapping[str, str | None] = field(default_factory=dict)  # host by path of a message in cur/; None: none
    made_ns: int | None = None  # when another host made it; None: this host

    @property
    def number(self) -> AgreedNumber:
        return AgreedNumber(self.version, self.made_ns)

    def numbers(self) -> dict[str, AgreedNumber]:
        """The number of this version, for each lineage of the history that it changes."""
        return {lineage_path(f"{self.unit}/{path}"): self.number for path, digest in self.digests.items() if digest}

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "digests": dict(self.digests), "claims": dict(self.claims)}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> AgreedVersion:
        return cls(**members)


@dataclass(frozen=True)
class Commit:
    """A change made as a whole: `links`, then `files`, then `moves`, each in order.

    The last rename is the point of no return.
    """

    location: Location
    files: Sequence[NewFile] = ()
    moves: Sequence[tuple[str, str]] = ()
    dirs: Sequence[str] = ()  # created first if missing; removed again if the commit fails
    touched: Sequence[Location] = ()  # what recovery indexes again; default: `location`
    whole_tree: bool = False
    what: What | None = None  # for the change feed
    label: str = ""  # what the history calls the change; default: `what`
    known: Mapping[str, KnownChange] = field(default_factory=dict)  # by path of a file, for the history
    notes: Mapping[str, str] = field(default_factory=dict)  # by directory of a session, for the history
    links: Sequence[tuple[str, str]] = ()  # hard links to files that the commit replaces
    agreed: Sequence[AgreedVersion] = ()  # from the log of a grove, which has agreed already
    # By path of a new file: what it replaces, as it was read. Anything else that it replaces is kept as rejected.
    replaced: Mapping[str, Stamp] = field(default_factory=dict)

    @property
    def is_atomic(self) -> bool:
        """Whether it is one rename, which a power cut leaves made or not made, of a file.

        Not of a directory: the history has to follow that, from the journal entry if need be.
        """
        return len(self.files) == 1 and not self.moves and not self.links

    @property
    def for_history(self) -> FileChanges:
        label = self.label or self.what or "saved"
        return FileChanges(self.files, self.moves, label, self.known, self.notes)
