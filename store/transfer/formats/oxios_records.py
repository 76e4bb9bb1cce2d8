"""The records of an oxios session file, in the order in which oxios writes them. Pure.

As in `store.model.record`: unknown members are kept, and what does not load in oxios does not load
here. An imported answer keeps its own members in the metadata of its message: `response_of` reads
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from store.model.record import U64, Opt, Record
from store.model.timestamp import Timestamp
from store.sessions.logs import TrajectoryStep
from store.transfer.formats.coerce import as_dict

NAME = "oxios"
_IS_EMPTY = Field(exclude_if=lambda found: not found)


class UserMessage(Record):
    content: str
    timestamp: Timestamp


class TrajectoryRange(Record):
    """The steps that led to an answer: numbers in the trajectory, the last one excluded."""

    start: U64
    end: U64


class AgentResponse(Record):
    """An answer, the seed it came from, and how its evaluation ended."""

    content: str
    session_id: str | None = None
    seed_id: str | None = None
    phase_reached: str | None = None
    evaluation_passed: bool | None = None
    timestamp: Timestamp
    trajectory_range: Opt[TrajectoryRange] = None


class OxiosSession(Record):
    id: str
    user_id: str
    user_messages: list[UserMessage] = Field(default_factory=list)
    agent_responses: list[AgentResponse] = Field(default_factory=list)
    trajectory_steps: Annotated[list[TrajectoryStep], _IS_EMPTY] = Field(default_factory=list)
    reasoning_records: Annotated[list[dict[str, Any]], _IS_EMPTY] = Field(default_factory=list)
    active_seed_id: Opt[str] = None
    active_persona_id: Opt[str] = None
    project_id: Opt[str] = None
    parent_session_id: Opt[str] = None
    created_at: Timestamp
    updated_at: Timestamp
    metadata: dict[str, Any] = Field(default_factory=dict)


def response_of(message: Mapping[str, Any], fallback: Timestamp) -> AgentResponse:
    """A message as an answer, with the members its import kept. `fallback` is the time of one without."""
    kept = as_dict(as_dict(message.get("metadata")).get(NAME))
    at = message.get("created_at") or fallback
    return AgentResponse.model_validate({**kept, "content": message["content"], "timestamp": at})
