"""Compares a mounted home with the model: on disk, in the mount, in index, search and `check`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from typing import Any

from store.layout import SESSIONS
from tests.torture.model import Model
from tests.torture.model_parts import Doc, Rejected, said
from tests.torture.mounted_home import MountedHome, read_tree

SOON_S = 30.0  # another process's change is visible within a second on an idle machine
NAMED = ("title", "pinned", "updated_at", "parent_session_id")


class Comparison:
    """Compares the roots whose names begin with a prefix."""

    model: Model
    texts: dict[bytes, dict[str, Any]]

    def __init__(self, grove: MountedHome, prefix: str) -> None:
        self.grove = grove
        self.prefix = prefix

    def see(self, model: Model, words: list[str], texts: dict[bytes, dict[str, Any]]) -> None:
        """Fail on any difference. The meaning of document bytes is added to `texts`."""
        self.model, self.texts = model, texts
        self.files_agree()
        self.index_agrees()
        self.search_agrees(words)
        found = {(f.kind, f.path) for f in self.grove.store.check().findings}
        wanted = self.model.findings()
        assert found == wanted, f"check: {_difference(found, wanted)}"
        self.wait_for_mount()
        assert "Traceback" not in self.grove.logged()

    def wait_for_mount(self) -> None:
        """Wait until the mount shows another process's change."""
        deadline = time.monotonic() + SOON_S
        while (differs := self.what_differs()) is not None:
            assert time.monotonic() < deadline, f"in the mount {differs}"
            time.sleep(0.01)

    def clear_temporaries(self, model: Model) -> None:
        """Remove temporary files of a killed process: they stay while another process has the home open."""
        found = {(f.kind, f.path) for f in self.grove.store.check().findings if f.kind != "temporary"}
        wanted = model.findings()
        assert found == wanted, f"check after the kill: {_difference(found, wanted)}"
        self.grove.store.check(repair=True)

    def own_roots(self) -> set[str]:
        return {name for name in os.listdir(self.grove.home / SESSIONS) if name.startswith(self.prefix)}

    def files_agree(self) -> None:
        on_disk: dict[str, bytes | None] = {}
        for name in self.own_roots():
            on_disk |= read_tree(self.grove.home, f"{SESSIONS}/{name}")
        wanted = self.model.files(in_mount=False)
        assert set(on_disk) == set(wanted), _difference(on_disk, wanted)
        for path, content in wanted.items():
            found = on_disk[path]
            if isinstance(content, Doc) and content.raw is None:
                assert found is not None
                content.adopt(found)
                self.texts[found] = content.data
            else:
                _same(path, found, content.raw if isinstance(content, Doc) else content)

    def what_differs(self) -> str | None:
        try:
            shown = self.shown()
        except FileNotFoundError as error:  # it is just being updated
            return f"{error.filename} is listed but missing"
        wanted = self.model.files(in_mount=True)
        if set(shown) != set(wanted):
            return _difference(shown, wanted)
        for path, content in wanted.items():
            found = shown[path]
            if isinstance(content, Rejected):
                content.reason = content.reason or found
                assert found is not None
                assert b"was rejected" in found
                content = content.reason
            if found != (content.raw if isinstance(content, Doc) else content):
                return f"{path} is {found!r}"
        rendered = json.loads((self.grove.mounts[0].path / "sessions.json").read_bytes())["sessions"]
        return None if rendered == self.exported() else "sessions.json differs"

    def exported(self) -> dict[str, Any]:
        self.grove.store.maintenance.export_sessions_json()
        found: dict[str, Any] = json.loads((self.grove.home / "sessions.json").read_bytes())["sessions"]
        return found

    def shown(self) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name in os.listdir(self.grove.sessions):
            if name.startswith(self.prefix):
                found |= read_tree(self.grove.mounts[0].path, f"{SESSIONS}/{name}")
        return found

    def index_agrees(self) -> None:
        sessions = self.model.sessions()
        rows = {(entry.root_session_id, entry.rel_path): entry for entry in self.grove.store.entries(limit=-1)}
        _same("rows", {path for _, path in rows}, {location.dir for location in sessions})
        for location, record in sessions.items():
            entry = rows[location.root, location.dir]
            attached = self.model.dirs[location].attachments
            says = (entry.id, entry.kind, entry.title, entry.pinned, entry.updated_at, entry.parent_session_id or None)
            wanted = (location.id, location.kind, *(record.get(name) for name in NAMED))
            _same(f"row of {location}", says, (*wanted[:3], bool(wanted[3]), *wanted[4:]))
            counts = (entry.message_count, entry.has_attachments)
            _same(f"row of {location}", counts, (len(record["messages"]), bool(attached)))
        _same("sessions.json", set(self.exported()), {location.id for location in sessions})

    def search_agrees(self, words: list[str]) -> None:
        texts_by_session = {
            location: [record["title"], *said(record)] for location, record in self.model.sessions().items()
        }
        for word in words:
            wanted = {
                location for location, texts in texts_by_session.items() if any(word in text.split() for text in texts)
            }
            found = {hit.location for hit in self.grove.store.search(word, limit=100, by_session=True)}
            _same(f"search for {word}", found, wanted)


def _same(what: str, found: object, wanted: object) -> None:
    assert found == wanted, f"{what}: {found!r} is there, {wanted!r} was expected"


def _difference(found: Collection[Any], wanted: Collection[Any]) -> str:
    return f"unexpected: {sorted(set(found) - set(wanted))}, missing: {sorted(set(wanted) - set(found))}"
