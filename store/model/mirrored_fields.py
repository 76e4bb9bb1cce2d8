"""Mirrored fields: runtime values stored typed in `runtime_metadata` and as strings in `metadata`.

Old agents know only the string; newer ones read the typed value first. So: read the typed value,
else the string; write both; clear both. `MirroredField` implements this; Session declares one per
value. The store calls `mirror_text` on save, for typed values that were changed in place.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import orjson

from store.model.record import U64, Opt, Record

T = TypeVar("T")


class SessionRuntimeMetadata(Record):
    """Well-known values of `metadata`, typed. Those of child launches and the inbox are not mirrored."""

    subagent_type: Opt[str] = None
    last_run_status: Opt[str] = None
    last_run_error: Opt[str] = None
    child_launch_generation: Opt[U64] = None
    child_cancelled_generation: Opt[U64] = None
    child_auto_run_launch_intent_generation: Opt[U64] = None
    provider_name: Opt[str] = None
    pending_injected_messages: Opt[list[Any]] = None
    selected_skill_ids: Opt[list[str]] = None
    skill_mode: Opt[str] = None
    reasoning_effort: Opt[str] = None
    enhance_prompt: Opt[str] = None
    root_orchestration_prompt: Opt[bool] = None
    task_list_version: Opt[str] = None
    todo_list_version: Opt[str] = None
    workspace_path: Opt[str] = None
    project_id: Opt[str] = None
    session_inbox_admission: Opt[Any] = None

    def is_empty(self) -> bool:
        """True if no member would be written, known or unknown."""
        return not self.model_dump()


# typed field -> key in metadata
MIRRORED: dict[str, str] = {
    name: name
    for name in (
        "subagent_type",
        "last_run_status",
        "last_run_error",
        "provider_name",
        "pending_injected_messages",
        "selected_skill_ids",
        "skill_mode",
        "reasoning_effort",
        "enhance_prompt",
        "root_orchestration_prompt",
        "task_list_version",
        "todo_list_version",
        "workspace_path",
        "project_id",
    )
}


def mirror_text(field: str, value: Any) -> str | None:
    """The string for `value` in metadata; None if the key must be absent (None and False)."""
    if value is None or value is False:
        return None
    if value is True:
        return "true"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return orjson.dumps(value).decode()
    raise TypeError(f"{field}: expected a string, a list or a boolean, got {type(value).__name__}")


def parse_text(text: str) -> str:
    return text


def parse_flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def parse_messages(text: str) -> list[Any]:
    """Malformed text reads as an empty list: messages were pending, but their content is lost."""
    messages = _parse_list(text)
    return [] if messages is None else messages


def parse_names(text: str) -> list[str] | None:
    names = _parse_list(text)
    return names if names is not None and all(isinstance(name, str) for name in names) else None


def _parse_list(text: str) -> list[Any] | None:
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None


class HasMirrors(Protocol):
    """The members of Session that MirroredField uses."""

    metadata: dict[str, str]
    runtime_metadata: SessionRuntimeMetadata | None


class MetadataField:
    """An attribute of Session stored only in `metadata`, under `key`. None clears it."""

    def __init__(self, key: str) -> None:
        self.key = key

    @overload
    def __get__(self, session: None, owner: type) -> Self: ...
    @overload
    def __get__(self, session: HasMirrors, owner: type) -> str | None: ...
    def __get__(self, session: HasMirrors | None, owner: type) -> Self | str | None:
        return self if session is None else session.metadata.get(self.key)

    def __set__(self, session: HasMirrors, value: str | None) -> None:
        if value is None:
            session.metadata.pop(self.key, None)
        else:
            session.metadata[self.key] = value


class MirroredField(Generic[T]):
    """An attribute of Session that reads and writes `field` in both places. None clears it."""

    def __init__(self, field: str, parse: Callable[[str], T | None], *, older_key: str | None = None) -> None:
        self.field = field
        self.key = MIRRORED[field]
        self.parse = parse
        self.older_key = older_key  # read last, never written

    @overload
    def __get__(self, session: None, owner: type) -> Self: ...
    @overload
    def __get__(self, session: HasMirrors, owner: type) -> T | None: ...
    def __get__(self, session: HasMirrors | None, owner: type) -> Self | T | None:
        if session is None:
            return self
        value: T | None = getattr(session.runtime_metadata, self.field, None)
        if value is not None:
            return value
        text = session.metadata.get(self.key)
        if text is None and self.older_key is not None:
            text = session.metadata.get(self.older_key)
        return None if text is None else self.parse(text)

    def __set__(self, session: HasMirrors, value: T | None) -> None:
        text = mirror_text(self.field, value)
        if text is None:
            self.__delete__(session)
            return
        if session.runtime_metadata is None:
            session.runtime_metadata = SessionRuntimeMetadata()
        setattr(session.runtime_metadata, self.field, value)
        session.metadata[self.key] = text

    def __delete__(self, session: HasMirrors) -> None:
        session.metadata.pop(self.key, None)
        if session.runtime_metadata is None:
            return
        setattr(session.runtime_metadata, self.field, None)
        if session.runtime_metadata.is_empty():
            session.runtime_metadata = None
