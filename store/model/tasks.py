"""TaskList: the task list of a session. A task with criteria is complete when all are met.

Pure, except for the clock that sets the timestamps of transitions.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import AliasChoices, Field

from store.model.record import ALIASES, U32, AliasedRecord, OmitEmpty, Opt, Record
from store.model.timestamp import Timestamp

TaskStatus = Literal["pending", "in_progress", "completed", "blocked"]
TaskPhase = Literal["planning", "execution", "verification", "handoff"]
TaskPriority = Literal["low", "medium", "high", "critical"]


class TaskEvidence(AliasedRecord):
    kind: Literal["note", "tool_call", "file", "command", "test", "observation"] = "note"
    summary: str
    reference: Opt[str] = Field(default=None, validation_alias=AliasChoices("reference", ALIASES["reference"]))
    tool_name: Opt[str] = None
    tool_call_id: Opt[str] = None
    round: Opt[U32] = None
    success: Opt[bool] = None


class TaskBlocker(Record):
    kind: Literal["user_input", "dependency", "tool_failure", "external", "unknown"] = "unknown"
    summary: str
    waiting_on: Opt[str] = None


class TaskTransition(Record):
    from_status: TaskStatus
    to_status: TaskStatus
    reason: Opt[str] = None
    round: Opt[U32] = None
    changed_at: Timestamp


class TaskItem(AliasedRecord):
    """One task. Very old ones have only the first five members."""

    id: str
    description: str
    status: TaskStatus
    depends_on: list[str] = Field(default_factory=list)
    notes: str = ""
    active_form: Opt[str] = Field(default=None, validation_alias=AliasChoices("active_form", ALIASES["active_form"]))
    parent_id: Opt[str] = None
    phase: TaskPhase = "execution"
    priority: TaskPriority = "medium"
    completion_criteria: OmitEmpty[list[str]] = Field(default_factory=list)
    evidence: OmitEmpty[list[TaskEvidence]] = Field(default_factory=list)
    blockers: OmitEmpty[list[TaskBlocker]] = Field(default_factory=list)
    transitions: OmitEmpty[list[TaskTransition]] = Field(default_factory=list)

    def missing_criteria(self, completed: Iterable[str]) -> list[str]:
        """The criteria not named in `completed`, by text or by number (`c1`, `criterion_1`)."""
        named = {_normalized(name) for name in completed}
        return [
            criterion.strip()
            for number, criterion in enumerate(self.completion_criteria, start=1)
            if named.isdisjoint(_criterion_names(number, criterion))
        ]

    def move_to(
        self,
        status: TaskStatus,
        notes: str | None = None,
        *,
        completed_criteria: Iterable[str] | None = None,
        round: int | None = None,
    ) -> None:
        """Set the status and append the notes. With unmet criteria, completed becomes in_progress."""
        reasons = [notes.strip()] if notes and notes.strip() else []
        if status == "completed" and self.status != "completed":
            missing = self.missing_criteria(completed_criteria or ())
            if missing:
                status = "in_progress"
                reasons.append(
                    f"Completion criteria not fully met; keeping task in_progress. Missing: {' | '.join(missing)}"
                )
        reason = "\n".join(reasons)
        if reason:
            self.notes = f"{self.notes}\n{reason}" if self.notes else reason
        if status != self.status:
            self.transitions.append(
                TaskTransition(
                    from_status=self.status,
                    to_status=status,
                    reason=reason or None,
                    round=round,
                    changed_at=Timestamp.now(),
                )
            )
            self.status = status


class TaskList(Record):
    session_id: str
    title: str
    items: list[TaskItem]
    created_at: Timestamp
    updated_at: Timestamp

    def find_item(self, item_id: str) -> TaskItem | None:
        return next((item for item in self.items if item.id == item_id), None)


def _normalized(text: str) -> str:
    return " ".join(text.split()).casefold()


def _criterion_names(number: int, criterion: str) -> set[str]:
    return {_normalized(criterion), f"c{number}", f"criterion_{number}", f"criterion-{number}"}
