"""A past version made fit for today: the same content under the session's present identity. Pure.

A session may have been renamed or moved below another root since. It keeps today's id, kind, root,
parent and depth. `updated_at` is new, unless the present version has that of the past one, and the
counters that agents compare never go back, or an agent could take the restored version for an old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from store import layout
from store.documents import json_text, sidecar
from store.documents.document import Document, identity_problem, parse_document, with_identity
from store.documents.json_splice import same, splice
from store.documents.secrets import reject_api_keys
from store.errors import InvalidContent
from store.history.versions import VersionTexts
from store.layout import Location
from store.model.timestamp import Timestamp

IDENTITY = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
COUNTERS = ("title_version", "metadata_version")


@dataclass(frozen=True)
class PresentSession:
    """The documents of a session now. `main` is None if session.json is damaged: a past version repairs it."""

    location: Location
    main: dict[str, Any] | None
    side: dict[str, Any] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        path_says = {"id": self.location.id, "kind": self.location.kind, "root_session_id": self.location.root}
        return path_says if self.main is None else {key: self.main.get(key) for key in IDENTITY} | path_says

    @property
    def updated_at(self) -> Timestamp | None:
        """The later one of both documents."""
        found = [Timestamp(document["updated_at"]) for document in (self.main, self.side) if document is not None]
        return max(found, key=lambda moment: moment.ns, default=None)

    def counter(self, name: str) -> int:
        return max(int((document or {}).get(name) or 0) for document in (self.main, self.side))


@dataclass(frozen=True)
class RenewedSession:
    """Both documents, ready to be committed."""

    main: Document
    side: Document


def renew_session(then: VersionTexts, present: PresentSession, limit_bytes: int) -> RenewedSession:
    """The documents of a past version for today. A version without a sidecar gets one.

    Raises InvalidContent if the version is damaged: a program outside the store may have written it.
    """
    assert then.main is not None
    main = renew(then.main, layout.SESSION, present, limit_bytes)
    try:
        side = renew(then.side, layout.RUNTIME, present, limit_bytes) if then.side is not None else None
    except InvalidContent:  # ignored when the session was loaded then, so it is not worth restoring
        side = None
    if side is None or sidecar.is_stale(side.record, main.record):
        path = present.location.path(layout.RUNTIME)
        side = parse_document(sidecar.sidecar_of(main.raw, main.data), path, limit=limit_bytes)
    now, was = present.updated_at, main.record.updated_at
    # An edit by hand leaves updated_at alone; so does taking it back, or lists would be in another order.
    moment = was if now is not None and now.ns == was.ns else Timestamp.after(now or was)
    return RenewedSession(_with_updated_at(main, moment), _with_updated_at(side, moment))


def renew(text: bytes, name: str, present: PresentSession, limit_bytes: int) -> Document:
    """One document with today's identity and counters. Every other byte is kept."""
    path = present.location.path(name)
    document = parse_document(text, path, limit=limit_bytes)
    reject_api_keys(text, document.data, path)
    wanted = {key: value for key, value in present.identity.items() if not same(document.data.get(key), value)}
    raw = with_identity(document, wanted) if wanted else text
    before = json_text.parse(raw, path)
    after = {key: value for key, value in before.items() if key != sidecar.AUTHORITY}  # it seals other bytes
    after |= {name: present.counter(name) for name in COUNTERS if present.counter(name) > (before.get(name) or 0)}
    renewed = parse_document(splice(raw, before, after), path, limit=limit_bytes)
    problem = identity_problem(renewed, present.location)
    if problem is not None:
        raise InvalidContent(path, problem)
    return renewed


def _with_updated_at(document: Document, moment: Timestamp) -> Document:
    if document.record.updated_at.ns == moment.ns:
        return document
    after = {**document.data, "updated_at": str(moment)}
    record = document.record.model_copy(update={"updated_at": moment})
    return Document(splice(document.raw, document.data, after), after, record)


def is_same_but_for_time(renewed: Document, present: bytes | None) -> bool:
    """Whether a document has these bytes already, apart from `updated_at`."""
    if present is None:
        return False
    try:
        updated_at = json_text.parse(present, "the present version")["updated_at"]
    except (InvalidContent, KeyError):
        return False
    return splice(renewed.raw, renewed.data, {**renewed.data, "updated_at": updated_at}) == present
