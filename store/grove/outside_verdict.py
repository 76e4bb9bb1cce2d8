"""What becomes of a file that another program wrote on a replica's disk.

publish    as it is: it was edited from the agreed version, or is new
merge      it was edited from an older version, which `base` is
restore    it is an older version, byte for byte: not an edit, the agreed version comes back
reject     it is invalid, or nobody knows which version it was edited from: the text is kept, with `why`
leave      a new file that is not valid: it stays here, and is not published

The version that a document was edited from is found by its `updated_at`, as in a save through the
mount. Other files have none: they count as edited from the agreed version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from store import layout
from store.documents import json_text, secrets
from store.documents.document import Document, check_authority, identity_problem, parse_document
from store.errors import Conflict, InvalidContent, Problem, StoreError
from store.grove.past_texts import PastTexts
from store.grove.row_plan import OutsideEdit
from store.history.texts import said_ns_of
from store.path_kinds import PathInfo, PathKind, classify_path
from store.sessions import artifacts
from store.sessions.base_of_save import Candidate, SaveEvidence, decide
from store.workspace.mail_message import parse_message


class Verdict(NamedTuple):
    action: Literal["publish", "merge", "restore", "reject", "leave"]
    base: bytes | None = None  # the text that the edit started from, if that is known
    why: StoreError | None = None


@dataclass(frozen=True)
class Judge:
    past: PastTexts
    limit_bytes: int

    def judge(self, edit: OutsideEdit) -> Verdict:
        agreed = bytes.fromhex(edit.agreed)
        digest = bytes.fromhex(edit.digest)
        if not edit.is_new and self.past.is_past(edit.path, edit.text, digest, agreed=agreed):
            return Verdict("restore")
        try:
            document = self._check(edit)
        except StoreError as error:
            return Verdict("leave") if edit.is_new else Verdict("reject", why=error)
        if edit.is_new or edit.text is None:
            return Verdict("publish")
        base = self.past.find(edit.path, agreed)
        return Verdict("publish", base) if document is None else self._by_updated_at(edit, document, base)

    def _check(self, edit: OutsideEdit) -> Document | None:
        """Raise InvalidContent for what a save would not store either."""
        place, text = classify_path(edit.path), edit.text or b""
        if place.kind is PathKind.DOCUMENT:
            return self._checked_document(place, text)
        if place.kind is PathKind.RECORD:
            record = artifacts.parse_record(place.name, text, place.path, limit=self.limit_bytes)
            artifacts.check_statuses(place.name, record, text, place.path)
        elif place.kind is PathKind.STATE_JSON:
            json_text.parse_value(text, place.path, limit=self.limit_bytes)
        elif place.kind is PathKind.MESSAGE:
            parse_message(text, place.path, limit=self.limit_bytes)
        return None

    def _checked_document(self, place: PathInfo, text: bytes) -> Document:
        document = parse_document(text, place.path, limit=self.limit_bytes)
        secrets.reject_api_keys(text, document.data, place.path)
        if place.name == layout.RUNTIME and document.data["messages"]:
            raise InvalidContent(place.path, Problem("the sidecar must not have messages", field="messages"))
        assert place.location is not None
        problem = identity_problem(document, place.location)
        if problem is not None:
            raise InvalidContent(place.path, problem)
        check_authority(document, place.path)
        return document

    # -- the version that it was edited from -------------------------------------------------------

    def _by_updated_at(self, edit: OutsideEdit, document: Document, agreed: bytes | None) -> Verdict:
        if agreed is None or edit.text is None:
            return _reject(edit, "the version that it was edited from is not known")
        said_ns, text = document.record.updated_at.ns, edit.text
        typed = Candidate(("typed", 0), 0, lambda: text, known_said_ns=said_ns)
        present = Candidate(("agreed", 0), edit.stamp.mtime_ns, lambda: agreed)
        decision = decide(SaveEvidence(typed, present, self._same_time(edit, said_ns, present)))
        if decision.action == "take" or present in decision.bases:  # in doubt, the version that was in place
            return Verdict("publish", agreed)
        if decision.action == "nothing":
            return Verdict("restore")
        if decision.action == "merge" and len(decision.bases) == 1:
            return Verdict("merge", decision.bases[0].text)
        return _reject(edit, decision.reason or "it may have been edited from one of several versions")

    def _same_time(self, edit: OutsideEdit, said_ns: int, present: Candidate) -> list[Candidate]:
        """The versions up to the agreed one that say the same updated_at."""
        found = [present] if present.said_ns == said_ns else []
        return found + (self._kept(edit, said_ns) or self._logged(edit, said_ns))

    def _kept(self, edit: OutsideEdit, said_ns: int) -> list[Candidate]:
        last = self.past.agreed_number(edit.path, bytes.fromhex(edit.agreed)) or 0
        versions = [v for v in self.past.with_updated_at(edit.path, said_ns) if v.number < last]
        texts = [(v, self.past.read(edit.path, v) or b"") for v in versions]
        return [_candidate(("version", v.key), v.at_ns, text, said_ns) for v, text in texts]

    def _logged(self, edit: OutsideEdit, said_ns: int) -> list[Candidate]:
        return [
            _candidate(("log", row.version), row.at_ns, text, said_ns)
            for row, text in self.past.logged_texts(edit.path)
            if said_ns_of(text) == said_ns
        ]


def _candidate(key: tuple[str, int], at_ns: int, text: bytes, said_ns: int) -> Candidate:
    return Candidate(key, at_ns, lambda: text, known_said_ns=said_ns)


def _reject(edit: OutsideEdit, reason: str) -> Verdict:
    text = f"{edit.path} was edited on disk, and cannot be published: {reason}; the version of the grove is in place"
    return Verdict("reject", why=Conflict(text))
