"""Processes that make requests: what the mount knows of a caller."""

from __future__ import annotations

from dataclasses import dataclass

from store.history.authors import Author


@dataclass(frozen=True)
class Process:
    """A calling process. FUSE reports threads; `pid` is the thread group."""

    pid: int = 0  # 0: unknown, in another pid namespace
    started: int = 0  # clock ticks since boot; 0 if /proc does not tell. Pids are reused, this pair is not
    program: str = ""
    uid: int = 0
    session_id: int = 0  # as setsid(2) gives it: one terminal, usually; 0: it began outside of this container
    parent: int = 0  # 0: outside of this container
    ancestors: tuple[int, ...] = ()  # parent, grandparent …, as far as they are of the same session

    @property
    def key(self) -> tuple[int, int] | None:
        """Identifies the process for as long as the system runs. None if nothing does."""
        return (self.pid, self.started) if self.pid and self.started else None

    def is_related_to(self, other: Process) -> bool:
        """Whether both work on one thing: commands of one script or pipeline, or one of them runs the other.

        A shell becomes the last command of its script: `bash -c 'sed … | jq … > t && mv t F'` is mv in the end.
        """
        if self.session_id != other.session_id:
            return False
        are_siblings = self.parent == other.parent != 0
        return are_siblings or self._runs(other) or other._runs(self)

    def _runs(self, other: Process) -> bool:
        return self.pid in other.ancestors and self.started <= other.started

    @property
    def author(self) -> Author:
        return Author("mount", self.program, self.pid, self.uid)


UNKNOWN = Process()
