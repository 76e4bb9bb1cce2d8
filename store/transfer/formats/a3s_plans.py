"""The plan and the costs of an A3S session, and what they are here: a task list and a usage log. Pure.

Both directions: a task that has not changed here is written back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pydantic

from store import layout
from store.model.tasks import TaskItem, TaskList, TaskStatus
from store.model.timestamp import Timestamp
from store.transfer.formats.a3s_records import A3sTask, A3sTaskStatus, LlmCostRecord, TotalUsage
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import as_dict, as_list, as_str, parse_time
from store.transfer.formats.exported_session import ExportedSession, JsonObject
from store.transfer.formats.session_builder import SessionBuilder

_TITLE = "Tasks"
_STATUSES: dict[A3sTaskStatus, TaskStatus] = {"failed": "blocked", "skipped": "completed", "cancelled": "completed"}


# -- tasks -----------------------------------------------------------------------------------------


def read_tasks(session: JsonObject, session_id: str) -> JsonObject | None:
    """The plan as a task list; None if there is none, or one that A3S could not load."""
    created, updated = (parse_time(session.get(key)) for key in ("created_at", "updated_at"))
    given = session.get("tasks") or session.get("todos")
    if not isinstance(given, list) or not given or created is None or updated is None:
        return None
    try:
        items = [_item_of(A3sTask.model_validate(task)) for task in given]
    except pydantic.ValidationError:
        return None
    found = TaskList(session_id=session_id, title=_TITLE, items=items, created_at=created, updated_at=updated)
    return found.model_dump()


def _item_of(task: A3sTask) -> TaskItem:
    is_same = task.status in ("pending", "in_progress", "completed")
    return TaskItem.model_validate(
        {
            "id": task.id,
            "description": task.content,
            "status": task.status if is_same else _STATUSES[task.status],
            "depends_on": task.dependencies,
            "notes": "" if is_same else task.status,
            "priority": task.priority,
            "completion_criteria": [task.success_criteria] if task.success_criteria else [],
        }
    )


def write_tasks(task_list: JsonObject | None, originals: Iterable[Any]) -> list[JsonObject]:
    """The tasks for A3S: the originals if there is no list here, or where they have not changed."""
    known = {as_str(as_dict(task).get("id")): as_dict(task) for task in originals}
    if task_list is None:
        return [*known.values()]
    return [_task_of(item, known.get(item["id"])) for item in TaskList.model_validate(task_list).model_dump()["items"]]


def _task_of(item: JsonObject, original: JsonObject | None) -> JsonObject:
    if original is not None and _item_of(A3sTask.model_validate(original)).model_dump() == item:
        return original
    criteria = item.get("completion_criteria") or ()
    task = {
        **(original or {}),
        "id": item["id"],
        "content": item["description"],
        "status": "pending" if item["status"] == "blocked" else item["status"],
        "priority": "high" if item["priority"] == "critical" else item["priority"],
        "dependencies": item["depends_on"],
        "success_criteria": "\n".join(criteria) or None,
    }
    return A3sTask.model_validate(task).model_dump()


# -- tokens and costs ------------------------------------------------------------------------------


def add_usage(builder: SessionBuilder, session: JsonObject) -> None:
    """Log each call with its tokens and cost; the totals as one call if the calls are not recorded."""
    records = as_list(session.get("cost_records"))
    for number, record in enumerate(map(as_dict, records)):
        at, model = parse_time(record.get("timestamp")), as_str(record.get("model")) or builder.model
        tokens = TokenCounts(count_of(record.get("prompt_tokens")), count_of(record.get("completion_tokens")))
        builder.logs.add_usage(f"{builder.source_id}:{number}", at, model, tokens, _cost(record.get("cost_usd")))
    total = as_dict(session.get("total_usage"))
    cached, written = (count_of(total.get(key)) for key in ("cache_read_tokens", "cache_write_tokens"))
    tokens = TokenCounts(
        max(count_of(total.get("prompt_tokens")) - cached - written, 0),
        count_of(total.get("completion_tokens")),
        cached,
        written,
    )
    if not records and any(tokens):
        at, cost = parse_time(session.get("updated_at")), _cost(session.get("total_cost"))
        builder.logs.add_usage(f"{builder.source_id}:total", at, builder.model, tokens, cost)


def _cost(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def write_usage(session: ExportedSession) -> tuple[TotalUsage, list[LlmCostRecord]]:
    """The totals and the calls of the usage log of a session."""
    total, records = TotalUsage(), list[LlmCostRecord]()
    at = Timestamp(session.members["created_at"])
    for line in session.lines(layout.TOKEN_USAGE):
        at = parse_time(line.get("ts")) or at
        cached, written = (count_of(line.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
        asked, answered = count_of(line.get("input_tokens")) + cached + written, count_of(line.get("output_tokens"))
        records.append(_cost_record(session, line, asked, answered, at))
        total.prompt_tokens += asked
        total.completion_tokens += answered
        total.cache_read_tokens = (total.cache_read_tokens or 0) + cached
        total.cache_write_tokens = (total.cache_write_tokens or 0) + written
    total.total_tokens = total.prompt_tokens + total.completion_tokens
    return total, records


def _cost_record(session: ExportedSession, line: JsonObject, asked: int, answered: int, at: Timestamp) -> LlmCostRecord:
    return LlmCostRecord(
        model=as_str(line.get("model")),
        provider=as_str(as_dict(session.members.get("model_ref")).get("provider")),
        prompt_tokens=asked,
        completion_tokens=answered,
        total_tokens=asked + answered,
        cost_usd=_cost(line.get("cost_usd")),
        timestamp=at,
        session_id=session.location.id,
    )
