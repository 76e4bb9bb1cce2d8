"""The parts of the model: documents, other files, directories, and identity.

Where the store decides the new bytes of a document (a fork, a merged sidecar, an API save), only its members are
predicted, until the bytes on disk have been compared with them; from then on the exact bytes are known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from store.layout import Location

IDENTITY = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
# Members an API save may add, covered by other tests; the model compares what it set itself.
COMPARED = ("id", "kind", "root_session_id", "parent_session_id", "title", "pinned", "note", "metadata")


@dataclass
class Doc:
    data: dict[str, Any]
    raw: bytes | None  # None until read
    number: int  # time of its commit
    is_loose: bool = False  # written by the API: only COMPARED and the members set are predicted

    def adopt(self, found: bytes) -> None:
        """Compare with the bytes on disk and adopt them."""
        data = json.loads(found)
        view = _told if self.is_loose else _bare
        assert view(data) == view(self.data), f"{view(data)} is there, {view(self.data)} was expected"
        self.data, self.raw = data, found


def _told(data: dict[str, Any]) -> dict[str, Any]:
    compared = {name: data.get(name) for name in COMPARED if name != "metadata"}
    return compared | {"metadata": data.get("metadata") or {}, "said": said(data), "pinned": bool(data.get("pinned"))}


def _bare(data: dict[str, Any]) -> dict[str, Any]:
    """Without empty identity members."""
    return {k: v for k, v in data.items() if k not in IDENTITY or v not in (None, 0)}


def said(data: dict[str, Any]) -> list[str]:
    return [message["content"] for message in data["messages"]]


@dataclass
class File:
    data: bytes
    number: int  # creation time


@dataclass
class Rejected:
    data: bytes
    reason: bytes | None = None  # None until read


@dataclass
class Dir:
    """The directory of a session, or of a future one."""

    main: Doc | None = None
    side: Doc | None = None
    attachments: dict[str, bytes] | None = None  # None: the directory does not exist
    has_children: bool = False  # whether `children/` exists
    files: dict[str, File] = field(default_factory=dict)  # foreign files, and the log
    rejected: dict[str, Rejected] = field(default_factory=dict)

    @property
    def has_more(self) -> bool:
        """Whether it has more than session.json, which the mount may hide."""
        return bool(self.side or self.files or self.has_children or self.attachments is not None)


@dataclass
class Hidden:
    doc: Doc  # the hidden version; no other is deleted in its place
    was_deleted: bool  # by unlink, not by rename: after an unlink, the next file replaces it


# -- identity ----------------------------------------------------------------------------------------------------------


def spelled(data: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    """With other identity members; None removes one."""
    return {k: v for k, v in {**data, **members}.items() if k not in members or v is not None}


def is_same_session(new: dict[str, Any], old: dict[str, Any]) -> bool:
    return all(new.get(name) == old.get(name) for name in ("id", "kind", "root_session_id"))


def is_at_home(data: dict[str, Any], location: Location) -> bool:
    return (data["id"], data["kind"], data["root_session_id"]) == (location.id, location.kind, location.root)


def below_root(root: str) -> dict[str, Any]:
    return {"parent_session_id": root, "spawn_depth": 1}


def forked(data: dict[str, Any], location: Location) -> dict[str, Any]:
    """A document copied to a path that does not match its identity."""
    own: dict[str, Any] = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    if location.child is None:
        own |= {"parent_session_id": None, "spawn_depth": 0}
    elif data["kind"] == "root" or data["parent_session_id"] in (data["root_session_id"], location.id):
        own |= below_root(location.root)
    return spelled(data, own)


def identity_at(source: Location, target: Location) -> dict[str, Any]:
    own: dict[str, Any] = {"id": target.id, "kind": target.kind, "root_session_id": target.root}
    if target.child is None:
        return own | {"parent_session_id": None, "spawn_depth": 0}
    return own | (below_root(target.root) if source.child is None or source.root != target.root else {})
