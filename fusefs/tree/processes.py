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

    def generations_to(self, other: Process) -> int | None:
        """How far up this process's line the first one stands that is, or runs, the other process; None: unrelated.

        0: this process runs it. 1: both are commands of one script or pipeline, or the other is that script.
        2: as the shell in `jq … F > t; timeout 9 cp t F`, for cp and jq.
        """
        if self.session_id != other.session_id:
            return None
        if self.runs(other):
            return 0
        if self.parent == other.parent != 0:
            return 1
        line = {*other.ancestors, other.pid} if other.started <= self.started else {*other.ancestors}
        return next((far for far, pid in enumerate(self.ancestors, start=1) if pid in line), None)

    def runs(self, other: Process) -> bool:
        """Whether the other process was started by this one.

        A shell becomes the last command of its script: `bash -c 'sed … | jq … > t && mv t F'` is mv in the end.
        """
        return self.pid in other.ancestors and self.started <= other.started

    @property
    def author(self) -> Author:
        return Author("mount", self.program, self.pid, self.uid)


UNKNOWN = Process()
