"""Undo: take back the changes of a span of time, in many sessions and documents.

A plan is made from the history and changes nothing. Applying it decides every item again under its
lock, so what others did since the plan was shown is never overwritten. Each item is one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from store.commit.agreement import repeats
from store.commit.core import Core
from store.errors import Busy, Conflict, Corrupt, InvalidContent, NotFound
from store.history.versions import SavedVersion
from store.index.database import now_ns
from store.undo.reverse_merge import ReverseMerge
from store.undo.revert import RevertOperation
from store.undo.undo_plan import UndoItem, UndoPlan, UndoRefusal, UndoRequest, UndoResult, decide, is_bad

PAGE = 50  # versions read at once

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class UndoOperation:
    core: Core
    reverter: RevertOperation
    merger: ReverseMerge

    # -- plan ------------------------------------------------------------------------------------------

    def plan(self, request: UndoRequest) -> UndoPlan:
        """What `apply` would do. Changes nothing."""
        to_undo: list[UndoItem] = []
        refused: list[UndoRefusal] = []
        unchanged: list[str] = []
        for path, first in self._touched(request).items():
            decision = self._decide(path, first, request)
            if isinstance(decision, UndoItem):
                to_undo.append(decision)
            elif isinstance(decision, UndoRefusal):
                refused.append(decision)
            else:
                unchanged.append(path)
        return UndoPlan(request, tuple(to_undo), tuple(refused), tuple(unchanged))

    def _touched(self, request: UndoRequest) -> dict[str, int]:
        """Every path with a bad version, and the number of its first one."""
        self.core.agreement.fill_history_between(request.since_ns, request.until_ns)
        first: dict[str, int] = {}
        paths = sorted(request.paths) if request.paths is not None else None
        for version in self.core.history.between(request.since_ns, request.until_ns, paths):
            if is_bad(version, request):
                first[version.path] = min(version.number, first.get(version.path, version.number))
        return first

    def _decide(self, path: str, first: int, request: UndoRequest) -> UndoItem | UndoRefusal | None:
        """What to do with one path now; None if it is already as before, or has no change left to undo."""
        versions = self._versions(path, first)
        if not versions:
            return UndoRefusal(path, "it was deleted or renamed since the plan was made")
        decision = decide(versions, request)
        if isinstance(decision, UndoRefusal) and decision.target is not None and self._is_back(path, decision.target):
            return None
        if isinstance(decision, UndoItem) and decision.is_merge:
            return self._tried(decision)
        return decision

    def _versions(self, path: str, first: int) -> list[SavedVersion]:
        """The versions from the one before `first` on, in order."""
        found: list[SavedVersion] = []
        before: int | None = None
        while page := self.core.history.log(path, limit=PAGE, before=before):
            found += [version for version in page if version.number >= first - 1]
            before = page[-1].number
            if before < first:
                break
        return found[::-1]

    def _is_back(self, path: str, target: SavedVersion) -> bool:
        """Whether a document has the content it is to get back."""
        try:
            return self.reverter.is_restored(path, self.core.history.read(target))
        except (NotFound, Corrupt, InvalidContent):
            return False

    def _tried(self, item: UndoItem) -> UndoItem | UndoRefusal | None:
        """A merge is made for the plan too: the authors alone do not say whether it is possible."""
        try:
            return item if self.merger.merged(item) is not None else None
        except (Conflict, NotFound, Corrupt, InvalidContent) as error:
            return UndoRefusal(item.path, str(error))

    # -- apply -----------------------------------------------------------------------------------------

    def apply(self, plan: UndoPlan, progress: Progress | None = None) -> UndoResult:
        """Undo what a plan lists, except what changed since in a way that its request does not allow."""
        self.core.check_writable()
        result = UndoResult(now_ns())
        for done, item in enumerate(plan.to_undo, 1):
            try:
                self._apply(item, plan.request, result)
            except (Busy, Conflict, NotFound, Corrupt, InvalidContent) as error:
                result.refused.append(UndoRefusal(item.path, str(error)))
            if progress is not None:
                progress(done, len(plan.to_undo))
        return result

    def _apply(self, item: UndoItem, request: UndoRequest, result: UndoResult) -> None:
        """Undo one item. In a grove it is decided again if another host was faster."""
        decision, is_done = self._apply_once(item, request)
        if isinstance(decision, UndoRefusal):
            result.refused.append(decision)
        elif decision is not None and is_done:
            result.undone.append(decision)
        else:
            result.unchanged.append(item.path)

    @repeats
    def _apply_once(self, item: UndoItem, request: UndoRequest) -> tuple[UndoItem | UndoRefusal | None, bool]:
        with self.reverter.locked(item.path), self.reverter.as_revert():
            decision = self._decide(item.path, item.bad[0].number, request)
            return decision, isinstance(decision, UndoItem) and self._commit(decision)

    def _commit(self, item: UndoItem) -> bool:
        if not item.is_merge:
            return self.reverter.restore(item.path, self.core.history.read(item.target), _note(item))
        merged = self.merger.merged(item)
        return merged is not None and self.reverter.restore(item.path, merged, _note(item))


def _note(item: UndoItem) -> str:
    numbers = [version.label for version in item.bad]
    shown = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else numbers[0]
    return f"undid {shown}"
