"""What a commit does while the grove is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from store.disk.disk import Disk

if TYPE_CHECKING:
    from store.history.planning import RecordingPlan


class Meanwhile:
    """Work of a commit while the grove is asked: its disk and that of the database then work at the same time.

    The new files are synced, and the history gets ready. If this host dies in between, the log brings
    what was agreed to.
    """

    def __init__(self, disk: Disk, temps: Sequence[str], prepare: Callable[[], RecordingPlan | None]) -> None:
        self._disk, self._temps, self._prepare = disk, temps, prepare
        self._is_begun = False
        self._versions: RecordingPlan | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it, once. Never raises."""
        if self._is_begun:
            return
        self._is_begun = True
        try:
            self._disk.sync_temps(self._temps)
            self._versions = self._prepare()
        except BaseException as error:  # raised again by `result`
            self._error = error

    def result(self) -> RecordingPlan | None:
        """Do it, if that has not been done. Raises what went wrong."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._versions
