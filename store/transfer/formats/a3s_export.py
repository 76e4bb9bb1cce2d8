"""Write a session as files of an A3S store, in the layout of the first releases. Pure.

A session that was imported from A3S and not changed since is written with the same bytes. For
others the members that A3S requires are taken from the session, or have the defaults of A3S.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from store import layout
from store.documents import json_text
from store.model.timestamp import NS_PER_SECOND, Timestamp
from store.transfer.formats.a3s import STATUSES
from store.transfer.formats.a3s_blocks import NAME, render_messages
from store.transfer.formats.a3s_plans import write_tasks, write_usage
from store.transfer.formats.a3s_records import DEFAULT_CONTEXT_TOKENS, ContextUsage, SessionConfig, SessionData
from store.transfer.formats.coerce import as_dict, as_list, as_str, make_title
from store.transfer.formats.exported_session import ExportedSession, FileToWrite, JsonObject
from store.transfer.formats.session_builder import SessionBuilder

# Files of a session here, and their directories in the store.
_FRAGMENTS = {layout.TRACES: "traces", layout.VERIFICATION: "verification"}
_FRAGMENTS |= {f"{layout.ATTACHMENTS}/{kind}.json": kind for kind in ("runs", "subagent_tasks")}
_STATES = {status: state for state, status in STATUSES.items()} | {"cancelled": "Paused", "pending": "Active"}


def write_a3s(session: ExportedSession) -> Iterator[FileToWrite]:
    document = _A3sWriter(session).document()
    stem = safe_id(document["id"])
    artifacts = session.read(layout.ARTIFACTS)
    if artifacts is not None:
        yield FileToWrite(f"artifacts/{stem}/artifacts.json", artifacts)
    for name, directory in _FRAGMENTS.items():
        data = session.read(name)
        if data is not None:
            yield FileToWrite(f"{directory}/{stem}.json", data)
    yield FileToWrite(f"{stem}.json", json_text.render(document))


def safe_id(id: str) -> str:
    """The file name that A3S gives to a session."""
    return id.replace("/", "_").replace("\\", "_").replace("..", "_")


class _A3sWriter:
    def __init__(self, session: ExportedSession) -> None:
        self.session = session
        self.members = session.members

    def document(self) -> JsonObject:
        """The known members in the order of A3S, then unknown ones."""
        total, records = write_usage(self.session)
        found: JsonObject = {
            "id": self.session.kept_text(NAME, "id") or self.session.location.id,
            "config": self._config(),
            "state": self._state(),
            "messages": render_messages(self.session.messages, self.session.resolve),
            "context_usage": self._kept("context_usage", ContextUsage(turns=self._turns()).model_dump()),
            "total_usage": self._kept("total_usage", total.model_dump()),
            "total_cost": self._kept("total_cost", sum(record.cost_usd or 0.0 for record in records)),
            "model_name": self.session.kept_text(NAME, "model_name") or self._model(),
            "cost_records": self._kept("cost_records", [record.model_dump() for record in records]),
            "tool_names": self._kept("tool_names", self._called_tools()),
            "thinking_enabled": self._kept("thinking_enabled", any("reasoning" in m for m in self.session.messages)),
            "thinking_budget": self._kept("thinking_budget", None),
            "created_at": self._seconds("created_at"),
            "updated_at": self._seconds("updated_at"),
            "llm_config": self._kept("llm_config", self._llm_config()),
            "tasks": write_tasks(self.members.get("task_list"), as_list(self._kept_tasks())),
            "parent_id": self.session.kept_text(NAME, "parent_id") or self.members.get("parent_session_id"),
        }
        found |= as_dict(self.session.kept(NAME, "fields"))
        return SessionData.model_validate(found).model_dump()

    @property
    def is_imported(self) -> bool:
        return self.session.metadata.get("imported_from") == NAME

    def _kept(self, key: str, other: Any) -> Any:
        """A member as it was imported; `other` if there is none."""
        if self.is_imported and key == "cost_records" and f"{NAME}.{key}" not in self.session.metadata:
            return []
        return other if f"{NAME}.{key}" not in self.session.metadata else self.session.kept(NAME, key)

    def _kept_tasks(self) -> Any:
        return self.session.kept(NAME, "tasks") or self.session.kept(NAME, "todos")

    # -- members that may have changed here --------------------------------------------------------

    def _config(self) -> JsonObject:
        kept = self.session.kept(NAME, "config")
        if kept is None:
            budget = as_dict(self.members.get("token_budget")).get("max_context_tokens")
            kept = SessionConfig(max_context_length=budget or DEFAULT_CONTEXT_TOKENS).model_dump()
        config = {**kept, "workspace": self.session.metadata.get("workspace_path") or as_str(kept.get("workspace"))}
        title = as_str(self.members.get("title"))
        if title != (make_title(as_str(kept.get("name"))) or self._derived_title()):
            config["name"] = title
        return config

    def _derived_title(self) -> str:
        """The title that an import would give to a session without one."""
        builder = SessionBuilder(NAME, self.session.location, "", self.session.location.id)
        for number, message in enumerate(self.session.messages):
            builder.add_message(message["role"], message["content"], id=str(number))
        return builder.derive_title()

    def _state(self) -> str:
        kept, status = self.session.kept_text(NAME, "state"), self.session.metadata.get("last_run_status")
        if kept and STATUSES.get(kept, status) == status:
            return kept
        return _STATES.get(status or "", "Unknown")

    def _model(self) -> str | None:
        llm = as_dict(self.session.kept(NAME, "llm_config"))
        model = as_str(self.members.get("model"))
        return model if model and model != llm.get("model") else None

    def _llm_config(self) -> JsonObject | None:
        reference = as_dict(self.members.get("model_ref"))
        return {**reference, "base_url": None} if reference else None

    def _seconds(self, key: str) -> int:
        return Timestamp(self.members[key]).ns // NS_PER_SECOND

    def _turns(self) -> int:
        return sum(message["role"] == "user" for message in self.session.messages)

    def _called_tools(self) -> list[str]:
        calls = (call for message in self.session.messages for call in message.get("tool_calls") or ())
        return [*dict.fromkeys(call["function"]["name"] for call in calls)]
