"""The outcome of an import, or of an export into a home, counted and printed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fusefs.cli.app import plural, print_json
from fusefs.cli.terminal import echo

if TYPE_CHECKING:
    from store.transfer.formats.importer import ImportProblem
    from store.transfer.imports import ImportOutcome

SHOWN_PROBLEMS = 20
SHOWN_UNKNOWN = 5
STATES = ("new", "updated", "unchanged", "kept")


class ImportTally:
    """Outcomes so far, also available after an interruption."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_agent: dict[str, Counter[str]] = {}
        self.problems: list[ImportProblem] = []
        self.kept: list[ImportOutcome] = []
        self.noted: list[ImportOutcome] = []  # updated, with something to report
        self.sessions: list[dict[str, Any]] = []
        self.unknown: dict[str, int] = {}
        self.interrupted = False
        self._agent = ""

    def begin(self, agent: str) -> None:
        """Count what follows for this agent."""
        self._agent = agent
        self.by_agent.setdefault(agent, Counter())

    def add(self, item: ImportOutcome | ImportProblem) -> None:
        from store.transfer.formats.importer import ImportProblem

        if isinstance(item, ImportProblem):
            self.problems.append(item)
            self.by_agent.setdefault(self._agent, Counter())["problem"] += 1
            return
        self.counts[item.state] += 1
        self.by_agent.setdefault(self._agent, Counter())[item.state] += 1
        if item.state == "kept":
            self.kept.append(item)
        elif item.reason:
            self.noted.append(item)
        if item.state not in ("unchanged", "deleted"):
            self.sessions.append({"id": str(item.location), "state": item.state, "path": item.path})

    def print(self, *, as_json: bool, dry_run: bool) -> None:
        if as_json:
            self._print_json(dry_run=dry_run)
            return
        lines = [f"problem: {problem}" for problem in self.problems]
        lines += [f"kept: {outcome.location}: {outcome.reason}" for outcome in self.kept]
        lines += [f"merged: {outcome.location}: {outcome.reason}" for outcome in self.noted]
        for line in lines[:SHOWN_PROBLEMS]:
            echo(line, err=True)
        if len(lines) > SHOWN_PROBLEMS:
            echo(f"… and {len(lines) - SHOWN_PROBLEMS} more; --json lists them all", err=True)
        self._print_unknown()
        lead = "dry run: " if dry_run else "interrupted; so far: " if self.interrupted else ""
        for agent, counts in self.by_agent.items():
            echo(f"{agent + ': ' if agent else ''}{lead}{_line(counts)}")
        if len(self.by_agent) != 1:
            echo(f"total: {lead}{_line(self.counts + Counter(problem=len(self.problems)))}")

    def _print_unknown(self) -> None:
        for path, count in [*self.unknown.items()][:SHOWN_UNKNOWN]:
            echo(f"not imported: {path}: {plural(count, 'log')} of an unknown kind", err=True)
        if len(self.unknown) > SHOWN_UNKNOWN:
            echo(f"… and {len(self.unknown) - SHOWN_UNKNOWN} more directories with such logs", err=True)

    def _print_json(self, *, dry_run: bool) -> None:
        print_json(
            {
                "format": ", ".join(self.by_agent) or None,
                "dry_run": dry_run,
                "interrupted": self.interrupted,
                "counts": {state: self.counts[state] for state in (*STATES, "deleted")},
                "agents": {agent: dict(counts) for agent, counts in self.by_agent.items()},
                "sessions": self.sessions,
                "kept": [{"location": str(o.location), "reason": o.reason, "path": o.path} for o in self.kept],
                "merged": [{"location": str(o.location), "reason": o.reason, "path": o.path} for o in self.noted],
                "unknown": self.unknown,
                "problems": [problem._asdict() for problem in self.problems],
            }
        )


def _line(counts: Counter[str]) -> str:
    found = [f"{counts[state]} {state}" for state in STATES]
    if counts["deleted"]:
        found.append(f"{counts['deleted']} deleted here (--deleted imports them again)")
    return f"{', '.join(found)}; {plural(counts['problem'], 'problem')}"
