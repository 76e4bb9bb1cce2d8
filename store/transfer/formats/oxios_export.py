"""Write a session as a file of an oxios workspace: `sessions/<id>.json`. Pure.

Texts of the user become user messages, texts of the agent become responses, and trajectory.jsonl
becomes the steps. An oxios session has no place for system messages, tool calls and attachments.
A session that was imported from oxios and not changed since is written with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pydantic

from store import layout
from store.documents import json_text
from store.model.timestamp import Timestamp
from store.sessions.logs import TrajectoryStep
from store.transfer.formats.coerce import as_dict, as_str, make_title
from store.transfer.formats.exported_session import ExportedSession, FileToWrite, JsonObject
from store.transfer.formats.oxios import OWNERS, REASONING, WITHOUT_SEEDS, project_in
from store.transfer.formats.oxios_records import NAME, AgentResponse, OxiosSession, UserMessage, response_of
from store.transfer.formats.session_builder import SessionBuilder

_FORBIDDEN = ("/", "\\", "..", "\0")  # in the file name of a session


def write_oxios(session: ExportedSession) -> Iterator[FileToWrite]:
    document = _OxiosWriter(session).document()
    has_name = not any(part in document["id"] for part in _FORBIDDEN)
    name = document["id"] if has_name else session.location.id
    yield FileToWrite(f"sessions/{name}.json", json_text.render(document))


class _OxiosWriter:
    def __init__(self, session: ExportedSession) -> None:
        self.session = session
        self.members = session.members
        self.fields = as_dict(session.kept(NAME, "fields"))  # see `oxios._fields_to_keep`
        self.original = as_dict(session.kept(NAME, "metadata"))

    def document(self) -> JsonObject:
        known = {"id": self.session.location.id, **self._owners(), **self._conversation(), **self._times()}
        known |= {
            "trajectory_steps": [*self._steps()],
            "reasoning_records": [*self.session.lines(REASONING)],
            "project_id": self._project(),
            "parent_session_id": self._parent(),
            "metadata": self._metadata(),
        }
        kept = {key: value for key, value in self.fields.items() if key not in known or key == "id"}
        found = OxiosSession.model_validate({**known, **kept}).model_dump()
        if self.session.kept_text(NAME, WITHOUT_SEEDS):
            _remove_seeds(found)
        return found

    def _owners(self) -> dict[str, str | None]:
        owners = {key: self.session.metadata.get(key) for key in OWNERS}
        return {**owners, "user_id": owners["user_id"] or ""}

    def _conversation(self) -> dict[str, list[Any]]:
        questions: list[UserMessage] = []
        answers: list[AgentResponse] = []
        at = Timestamp(self.members["created_at"])
        for message in self.session.messages:
            at = Timestamp(message.get("created_at") or at)  # one without a time has that of the one before
            if message["role"] == "user":
                questions.append(UserMessage(content=message["content"], timestamp=at))
            elif message["role"] == "assistant" and (message["content"] or not message.get("tool_calls")):
                answers.append(response_of(message, at))
        return {"user_messages": questions, "agent_responses": answers}

    def _steps(self) -> Iterator[TrajectoryStep]:
        """The steps in trajectory.jsonl; lines that are none are left out, as by other readers."""
        for line in self.session.lines(layout.TRAJECTORY):
            with suppress(pydantic.ValidationError):
                yield TrajectoryStep.model_validate(line)

    # -- what the import may have changed ----------------------------------------------------------

    def _times(self) -> JsonObject:
        """created_at and updated_at; as imported, unless the session has changed since."""
        created, updated = self.members["created_at"], self.members["updated_at"]
        kept = {key: self.fields[key] for key in ("created_at", "updated_at") if key in self.fields}
        said = [message["created_at"] for message in self.session.messages if message.get("created_at")]
        last = max((Timestamp(at).ns for at in (*said, *kept.values())), default=0)
        is_changed = Timestamp(updated).ns > last
        return {
            "created_at": kept.get("created_at", created),
            "updated_at": updated if is_changed else kept.get("updated_at", updated),
        }

    def _project(self) -> str | None:
        present = self.session.metadata.get("project_id")
        if present == (as_str(self.fields.get("project_id")) or project_in(self.original)):
            return self.fields.get("project_id")
        return present

    def _parent(self) -> str | None:
        return self.session.kept_text(NAME, "parent_session_id") or self.members.get("parent_session_id")

    def _metadata(self) -> JsonObject:
        title, before = self.members.get("title"), as_str(self.original.get("title"))
        if title in ("", make_title(before) or self._derived_title()):
            return self.original
        return {**self.original, "title": title}

    def _derived_title(self) -> str:
        """The title that an import would give to a session without one."""
        builder = SessionBuilder(NAME, self.session.location, "", self.session.location.id)
        for number, message in enumerate(self.session.messages):
            builder.add_message(message["role"], message["content"], id=str(number))
        return builder.derive_title()


def _remove_seeds(found: JsonObject) -> None:
    """Newer versions of oxios have no seeds."""
    for answer in found["agent_responses"]:
        if answer["seed_id"] is None:
            del answer["seed_id"]
