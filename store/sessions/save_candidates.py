"""Candidates for the base of a save, from the history and from what the mount knows of the writer.

Texts are loaded only when they are compared. Where the writer is known to have had a version with
the `updated_at` of the typed text, nothing else is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from store import layout
from store.commit.agreement import PastText
from store.commit.write_request import Writer, WriteRequest
from store.disk.file import File, Stamp
from store.errors import Conflict
from store.history.history import History
from store.history.versions import Draft, SavedVersion, digest_of, lineage_path
from store.sessions.base_of_save import Candidate, SaveEvidence


@dataclass
class CandidateSearch:
    """The search for the base of one save. The caller holds the session's lock."""

    history: History
    request: WriteRequest
    raw: bytes  # as typed
    said_ns: int | None  # its updated_at; None if files of this kind have none
    current: File  # the version on disk
    agreed_texts: Callable[[str, int], Sequence[PastText]] = lambda path, said_ns: ()  # what a grove has besides
    is_incomplete: bool = False  # the writer had versions that are no longer kept

    def __post_init__(self) -> None:
        self._path = lineage_path(self.request.target.path)
        self._name = self.request.target.name
        self._is_main = self._name != layout.RUNTIME
        self._no_time = 0 if self.said_ns is None else None
        self.typed = Candidate(("typed", 0), 0, lambda: self.raw, known_said_ns=self.said_ns or 0)
        self.present = self._present()

    def evidence(self) -> SaveEvidence:
        request, writer = self.request, self.request.writer
        pinned = self._pinned()
        opened = [*self._opened(writer)] if writer is not None and pinned is None else []
        is_known = writer is not None and not opened and not self._was_absent()
        relatives = self._read_by_relatives(writer) if writer is not None and is_known else []
        same_time = [c for c in opened if c.said_ns == self.typed.said_ns]
        if self.said_ns is None:
            same_time = []
        elif not same_time and pinned is None and not self._was_absent():
            same_time = [*self._same_time(writer, self.said_ns)]
        return SaveEvidence(
            self.typed,
            self.present,
            same_time,
            opened,
            relatives,
            near_relatives=[c for c in relatives if writer is not None and c.stamp in writer.near_relatives],
            is_present_theirs=writer is not None and self.current.stamp in writer.saved_by_relatives,
            is_incomplete=self.is_incomplete,
            pinned=pinned,
            own_last=self._own_last(writer, opened),
            unlinked_first=request.unlinked_first and request.unlinked in (None, self.current.stamp),
        )

    # -- versions ----------------------------------------------------------------------------------

    def _present(self) -> Candidate:
        file = self.current
        version = None
        if self.request.base_text is None:  # else the history is not needed, and may not work
            version = self.history.with_stamp(self._path, self._name, file.stamp)
        if version is None:
            return Candidate(
                ("present", 0), file.stamp.mtime_ns, lambda: file.data, known_said_ns=self._no_time, stamp=file.stamp
            )
        said_ns = version.said_ns if self._is_main and self._no_time is None else self._no_time
        key = ("version", version.key)
        return Candidate(
            key,
            version.at_ns,
            lambda: file.data,
            version.shown_number or 0,
            known_said_ns=said_ns,
            stamp=file.stamp,
        )

    def _find(self, stamp: Stamp) -> Candidate | None:
        """The version that was stored as the file with this stamp."""
        if stamp == self.current.stamp:
            return self.present
        version = self.history.with_stamp(self._path, self._name, stamp)
        return replace(self._candidate(version), stamp=stamp) if version is not None else None

    def _candidate(self, version: SavedVersion) -> Candidate:
        if ("version", version.key) == self.present.key:
            return self.present
        size = version.main_bytes if self._is_main else version.side_bytes
        is_exact: bool | None = None
        if size != len(self.typed.text):
            is_exact = False
        elif self._is_main and version.main_digest:
            is_exact = version.main_digest == digest_of(self.typed.text)
        return Candidate(
            ("version", version.key),
            version.at_ns,
            lambda: text_of(self.history, version, self._name),
            version.shown_number or 0,
            is_exact,
            version.said_ns if self._is_main and self._no_time is None else self._no_time,
        )

    def _agreed_candidate(self, past: PastText, said_ns: int) -> Candidate:
        return Candidate(("agreed", past.number), past.at_ns, lambda: past.text, past.number, known_said_ns=said_ns)

    def _draft(self, draft: Draft) -> Candidate:
        return Candidate(("draft", draft.key), draft.at_ns, lambda: draft.text, known_said_ns=self._no_time)

    # -- evidence ----------------------------------------------------------------------------------

    def _pinned(self) -> Candidate | None:
        """The version that the text is known to have started from; None if it has to be found."""
        request = self.request
        if request.base_text is not None:
            raw = request.base_text
            return Candidate(("given", 0), 0, lambda: raw, known_said_ns=self._no_time)
        if request.base is None or (request.writer is not None and request.writer.is_truncated):
            return None
        stamp = request.base.main if self._is_main else request.base.side
        if stamp is None:
            return None
        found = self._find(stamp)
        if found is None:
            raise Conflict(
                f"{request.target.path} was changed by another writer since this copy was opened, and the version "
                "it was opened from is not kept any more; the newer version is kept"
            )
        return found

    def _was_absent(self) -> bool:
        """Whether the writer opened a name that did not exist: it cannot have read what is there now."""
        base = self.request.base
        if base is None or self.request.unlinked_first:
            return False
        return (base.main if self._is_main else base.side) is None

    def _opened(self, writer: Writer) -> Iterator[Candidate]:
        """What the writer itself had."""
        if writer.last_draft is not None:
            draft = self.history.draft(writer.last_draft)
            if draft is None:
                self.is_incomplete = True
            else:
                yield self._draft(draft)
        yield from self._versions(writer.opened)

    def _read_by_relatives(self, writer: Writer) -> list[Candidate]:
        """What relatives read. One of several that is not kept tells nothing: its text may be stored already."""
        found = [candidate for stamp in writer.relatives if (candidate := self._find(stamp)) is not None]
        self.is_incomplete = self.is_incomplete or (bool(writer.relatives) and not found)
        return found

    def _versions(self, stamps: Iterable[Stamp]) -> Iterator[Candidate]:
        for stamp in dict.fromkeys(stamps):
            found = self._find(stamp)
            if found is None:
                self.is_incomplete = True
            else:
                yield found

    def _own_last(self, writer: Writer | None, opened: list[Candidate]) -> Candidate | None:
        if writer is None:
            return None
        if writer.last_draft is not None:
            return next((c for c in opened if c.key == ("draft", writer.last_draft)), None)
        return self._find(writer.saved) if writer.saved is not None else None

    def _same_time(self, writer: Writer | None, said_ns: int) -> Iterator[Candidate]:
        """Every version, and every draft of the same user, with the updated_at of the typed text."""
        versions = [self._candidate(v) for v in self.history.with_updated_at(self._path, self._name, said_ns)]
        if not versions and self.present.said_ns != said_ns:  # this host may never have had it
            found = self.agreed_texts(self.request.target.path, said_ns)
            versions = [self._agreed_candidate(past, said_ns) for past in found]
        yield from versions
        if self.present.said_ns == said_ns and all(c.key != self.present.key for c in versions):
            yield self.present
        if writer is not None:
            drafts = self.history.drafts(self._path, self._name, updated_at_ns=said_ns)
            yield from (self._draft(draft) for draft in drafts if draft.uid == writer.author.uid)


def had_only(request: WriteRequest, current: File) -> bool:
    """Whether the writer is known to have had the present version, and no other.

    If its text says the same updated_at, no other version can be the base: nothing has to be looked up.
    """
    writer = request.writer
    if writer is None or request.base_text is not None or writer.last_draft is not None:
        return False
    return writer.is_truncated and writer.opened == (current.stamp,)


def text_of(history: History, version: SavedVersion, name: str) -> bytes:
    """The bytes of one document of a version."""
    texts = history.read(version)
    return (texts.side if name == layout.RUNTIME else texts.main) or b""
