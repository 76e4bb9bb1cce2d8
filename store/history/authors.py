"""Author of a change: which program made it, and by which way it reached the store.

The author is a context variable, so no function between a caller and the commit has to pass it on.
Command lines are never recorded: they may hold secrets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Via = Literal["mount", "api", "cli", "outside", "revert", "import"]


@dataclass(frozen=True)
class Author:
    """`program` is the name of a process, or the name a caller gave to `Store.open(author=…)`."""

    via: Via
    program: str = ""
    pid: int = 0  # 0: unknown, or a process of another pid namespace
    uid: int = 0

    def __str__(self) -> str:
        who = f"{self.via}: {self.program}" if self.program else self.via
        return f"{who} ({self.pid})" if self.pid else who


OUTSIDE = Author("outside")

_current: ContextVar[Author | None] = ContextVar("author", default=None)


def current_author(default: Author) -> Author:
    """The author of the change this context is making."""
    return _current.get() or default


@contextmanager
def acting_as(author: Author) -> Iterator[None]:
    """Attribute all commits of this block to `author`."""
    token = _current.set(author)
    try:
        yield
    finally:
        _current.reset(token)


def this_process(via: Via = "api", name: str | None = None) -> Author:
    """This process as an author; `name` replaces the name of its program."""
    program = name or Path(sys.argv[0] if sys.argv and sys.argv[0] else sys.executable).name
    return Author(via, program, os.getpid(), os.getuid())
