"""Findings and reports: the result of a check run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "missing-row",
    "extra-row",
    "stale-row",
    "search-rows",
    "unparsable",
    "sidecar-corrupt",
    "sidecar-messages",
    "sidecar-stale",
    "identity",
    "orphan-child",
    "dangling-attachment",
    "temporary",
    "not-plain",
    "unfinished",
    "export",
    "foreign-file",
    "incoming",
    "log-line",
    "session-lost",
    "secret",
    "trigrams",
    "message",
    "set-aside",
    "derived",
    "hard-link",
    "duplicate-id",
    "history",
    "history-behind",
    "secret-in-history",
]

# Reported, but not counted as damage.
NOTES: frozenset[Kind] = frozenset(
    {
        "foreign-file",
        "incoming",
        "log-line",
        "set-aside",
        "hard-link",
        "duplicate-id",
        "sidecar-stale",
        "history-behind",
    }
)


@dataclass(frozen=True)
class Finding:
    """One damaged or unexpected file or row; `repair` is None if it cannot be repaired automatically."""

    kind: Kind
    path: str
    text: str
    repair: Callable[[], object] | None = field(default=None, repr=False, compare=False)
    repaired: bool = False

    @property
    def is_damage(self) -> bool:
        return self.kind not in NOTES and not self.repaired

    def __str__(self) -> str:
        return f"{self.path}: {self.text} [{self.kind}{', repaired' if self.repaired else ''}]"


@dataclass(frozen=True)
class Report:
    """All findings of a run, and the number of sessions checked."""

    findings: list[Finding]
    sessions: int

    @property
    def is_clean(self) -> bool:
        return not any(f.is_damage for f in self.findings)

    @property
    def exit_code(self) -> int:
        """0 clean, 1 all damage repaired, 4 damage left: the codes of fsck(8)."""
        if not self.is_clean:
            return 4
        return 1 if any(f.repaired for f in self.findings) else 0


def display_path(path: str) -> str:
    """A path to print: bytes that are not UTF-8 are replaced."""
    return path.encode(errors="replace").decode()
