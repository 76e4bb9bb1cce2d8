"""IndexEntry: what the index knows about a session, one value of `sessions` in sessions.json.

The format is Bamboo's. Pure.
"""

from typing import Any, Self

import orjson

from store.model.budget import TokenBudgetUsage
from store.model.record import U32, U64, Missing, Opt, Record
from store.model.runtime_state import PermissionMode, PlanModeState
from store.model.session import ProviderModelRef, ReasoningEffort, Session, SessionKind
from store.model.timestamp import Timestamp

_MAX_DEPTH = 127  # of serde_json


class IndexEntry(Record):
    """The index entry of one session."""

    id: str
    kind: SessionKind
    rel_path: str
    title: str
    title_version: U64 = 0
    title_generated: Missing[bool] = None
    pinned: bool
    parent_session_id: str | None = None  # the only member written as null
    root_session_id: str
    spawn_depth: U32
    model: str = ""
    model_ref: Opt[ProviderModelRef] = None
    reasoning_effort: Opt[ReasoningEffort] = None
    workspace_path: Opt[str] = None
    project_id: Opt[str] = None
    gold_config_json: Opt[str] = None
    created_by_schedule_id: Opt[str] = None
    created_by_connect_key: Opt[str] = None
    schedule_run_id: Opt[str] = None
    created_at: Timestamp
    updated_at: Timestamp
    last_activity_at: Timestamp
    message_count: U64
    has_attachments: bool
    has_pending_question: bool = False
    plan_mode: Opt[PlanModeState] = None
    bypass_permissions: bool = False
    permission_mode: Missing[PermissionMode] = None
    last_run_status: Opt[str] = None
    last_run_error: Opt[str] = None
    token_usage: Opt[TokenBudgetUsage] = None
    subagent_type: Opt[str] = None
    lifecycle: Opt[str] = None
    resident_name: Opt[str] = None
    placement: Opt[Any] = None

    @classmethod
    def of(
        cls,
        session: Session,
        *,
        location_id: str,
        rel_path: str,
        kind: SessionKind,
        root_id: str,
        message_count: int,
        has_attachments: bool,
    ) -> Self:
        """The entry of `session`. Its identity comes from its path, not from the document (rule 9)."""
        metadata = session.metadata
        state = session.agent_runtime_state
        entry = cls(
            id=location_id,
            kind=kind,
            rel_path=rel_path,
            title=session.title,
            title_version=session.title_version,
            pinned=session.pinned,
            parent_session_id=session.parent_session_id,
            root_session_id=root_id,
            spawn_depth=session.spawn_depth,
            model=session.model,
            model_ref=session.model_ref,
            reasoning_effort=session.reasoning_effort,
            workspace_path=_unless_blank(session.workspace_path),
            project_id=_unless_blank(session.project_id),
            gold_config_json=_unless_blank(metadata.get("gold_config")),
            created_by_schedule_id=_unless_blank(metadata.get("created_by_schedule_id")),
            created_by_connect_key=_unless_blank(metadata.get("created_by_connect_key")),
            schedule_run_id=_unless_blank(metadata.get("schedule_run_id")),
            created_at=session.created_at,
            updated_at=session.updated_at,
            last_activity_at=session.updated_at,
            message_count=message_count,
            has_attachments=has_attachments,
            has_pending_question=session.has_pending_question(),
            plan_mode=state.plan_mode if state else None,
            bypass_permissions=state.bypass_permissions if state else False,
            last_run_status=_unless_blank(session.last_run_status),
            last_run_error=_unless_blank(session.last_run_error),
            token_usage=session.token_usage,
            subagent_type=_unless_blank(session.subagent_type),
            lifecycle=_unless_blank(metadata.get("lifecycle")),
            resident_name=_unless_blank(metadata.get("resident_name")),
            placement=_parse_object(metadata.get("placement")),
        )
        # Assigned after construction, because the constructor rejects None: absent is valid, null is not.
        entry.title_generated = session.title_generated
        if state and state.permission_mode is not None:
            entry.permission_mode = state.effective_permission_mode()
        return entry


def _unless_blank(text: str | None) -> str | None:
    """`text` unchanged, or None if it is empty or only white space."""
    return text if text and text.strip() else None


def _parse_object(text: str | None) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text) if text else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and not _is_too_deep(value) else None


def _is_too_deep(value: dict[str, Any]) -> bool:
    """Whether a value is nested deeper than Bamboo reads, and deeper than can be written safely."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        containers = [item for item in level if isinstance(item, dict | list)]
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    return any(isinstance(item, dict | list) for item in level)
