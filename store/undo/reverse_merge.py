"""Taking a bad version out from between others, as `git revert` does.

The opposite of its change is merged into the present document: the base is the bad version, ours is
the one before it, theirs is the present one. So messages that were added since stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from store import layout
from store.commit.core import Core
from store.documents import json_text
from store.documents.merge import merge_documents, merge_objects
from store.errors import Conflict, NotFound
from store.history.versions import VersionTexts, is_session_dir
from store.path_kinds import PathKind, classify_path
from store.undo.renewal import PresentSession, renew
from store.undo.revert import RevertOperation, location_of, present_session
from store.undo.undo_plan import UndoItem


@dataclass(frozen=True)
class ReverseMerge:
    core: Core
    reverter: RevertOperation

    def merged(self, item: UndoItem) -> VersionTexts | None:
        """The present texts without the bad versions; None if that changes nothing.

        Raises Conflict if others changed the same, NotFound if a version is no longer kept.
        """
        texts = present = self._present(item.path)
        for bad in reversed(item.bad):
            before = self.core.history.find(item.path, bad.number - 1)
            if before is None:
                raise NotFound(f"version {bad.number - 1}, the one before, is not kept any more")
            read = self.core.history.read
            try:
                texts = self._without(item.path, texts, read(bad), read(before))
            except Conflict as error:
                raise Conflict(f"version {bad.label} cannot be taken out: {error}") from error
        return texts if texts != present else None

    def _present(self, path: str) -> VersionTexts:
        if not is_session_dir(path):
            file = self.core.disk.read(path)
            return VersionTexts(file.data if file is not None else None, None)
        pair = self.reverter.read(location_of(path))
        return VersionTexts(*(file.data if file is not None else None for file in (pair.main, pair.side)))

    def _without(self, path: str, now: VersionTexts, bad: VersionTexts, before: VersionTexts) -> VersionTexts:
        if not is_session_dir(path):
            return now._replace(main=self._merged_file(path, now.main, bad.main, before.main))
        present = present_session(self.reverter.read(location_of(path)))
        main = self._merged_document(layout.SESSION, present, now.main, bad.main, before.main)
        side = self._merged_document(layout.RUNTIME, present, now.side, bad.side, before.side)
        return VersionTexts(main, side)

    def _merged_document(
        self, name: str, present: PresentSession, now: bytes | None, bad: bytes | None, before: bytes | None
    ) -> bytes | None:
        """One document; unchanged if the bad version made or removed it."""
        if bad == before or now is None or bad is None or before is None:
            return now
        base, ours, theirs = (renew(text, name, present, self.core.limit_bytes) for text in (bad, before, now))
        merge = merge_documents(base.data, ours.data, theirs.data, name)
        if merge.data["messages"] == theirs.data["messages"] and _is_same(merge.data, theirs.data):
            return now
        return merge.render(ours.raw, theirs.raw)

    def _merged_file(self, path: str, now: bytes | None, bad: bytes | None, before: bytes | None) -> bytes | None:
        """A document that is not a session's."""
        if now is None or bad is None or before is None:
            raise Conflict("it was removed or made in between; that cannot be merged")
        if classify_path(path).kind is PathKind.STATE_TEXT:
            raise Conflict("only JSON documents can be merged; `grovefs revert` brings a version back")
        base, ours, theirs = (json_text.parse(text, path) for text in (bad, before, now))
        return merge_objects(base, ours, theirs, path).render(before, now)


def _is_same(merged: dict[str, object], present: dict[str, object]) -> bool:
    """Whether nothing but the time differs."""
    return {**merged, "updated_at": ""} == {**present, "updated_at": ""}
