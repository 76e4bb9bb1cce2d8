"""Records of runs: artifacts, trace events, verification reports. Pure.

Each is a file of a session, validated as a whole before it is stored, so that the agent can load
it (rule 6). Artifacts have limits: a save through the API evicts the oldest; loading or copying does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, Self

import pydantic
from pydantic import ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from store.documents import json_text
from store.documents.document import type_problem
from store.errors import InvalidContent, Problem, TooLarge
from store.layout import ARTIFACTS, TRACES, VERIFICATION
from store.model.record import I32, U64, OmitEmpty, Opt, Record

MAX_ARTIFACTS = 256
MAX_CONTENT_BYTES = 16 * 1024 * 1024
TRACE_SCHEMA = "a3s.trace_event.v1"
REPORT_SCHEMA = "a3s.verification_report.v1"

VerificationStatus = Literal["passed", "failed", "needs_review", "skipped"]


class _SchemaRecord(Record):
    """A record with a `schema` member.

    The field is named `schema_`, because pydantic has a method `schema`.
    """

    model_config = ConfigDict(serialize_by_alias=True)


# -- artifacts -------------------------------------------------------------------------------------


class ToolArtifact(Record):
    """The complete output of a tool; the conversation contains only a part of it."""

    artifact_id: str
    artifact_uri: str
    tool_name: str
    content: str
    original_bytes: U64
    shown_bytes: U64


class ArtifactSet(Record):
    """`artifacts.json`: the artifacts of a session, oldest first. URIs are unique."""

    artifacts: list[ToolArtifact]
    retained_uris: OmitEmpty[list[str]] = Field(default_factory=list)  # never evicted

    @classmethod
    def of(cls, artifacts: Iterable[ToolArtifact] = (), retained_uris: Iterable[str] = ()) -> Self:
        """A set of these artifacts; of two with the same URI the later one."""
        found = cls(artifacts=[], retained_uris=sorted(set(retained_uris)))
        for artifact in artifacts:
            found.put(artifact)
        return found

    @model_validator(mode="after")
    def _check_unique_uris(self) -> Self:
        seen: dict[str, ToolArtifact] = {}
        for artifact in self.artifacts:
            if seen.setdefault(artifact.artifact_uri, artifact) != artifact:
                uri = {"uri": artifact.artifact_uri}
                raise PydanticCustomError("two_contents", "two different artifacts have the URI {uri}", uri)
        return self

    def __len__(self) -> int:
        return len(self.artifacts)

    def __bool__(self) -> bool:
        return True  # an empty set may have unknown members

    def find(self, uri: str) -> ToolArtifact | None:
        return next((a for a in self.artifacts if a.artifact_uri == uri), None)

    def put(self, artifact: ToolArtifact) -> None:
        """Add an artifact as the newest; replace one with the same URI."""
        self.artifacts = [*(a for a in self.artifacts if a.artifact_uri != artifact.artifact_uri), artifact]

    @property
    def content_bytes(self) -> int:
        return sum(_size(a) for a in self.artifacts)

    def evict(self) -> list[ToolArtifact]:
        """Remove the oldest artifacts until the rest is within the limits, and return them.

        Retained artifacts and the newest one are never evicted. Raises TooLarge, and changes
        nothing, if these alone exceed the limits.
        """
        kept = {*self.retained_uris, *(a.artifact_uri for a in self.artifacts[-1:])}
        count, size = len(self.artifacts), self.content_bytes
        evicted: list[ToolArtifact] = []
        for artifact in self.artifacts:
            if count <= MAX_ARTIFACTS and size <= MAX_CONTENT_BYTES:
                break
            if artifact.artifact_uri not in kept:
                evicted.append(artifact)
                count, size = count - 1, size - _size(artifact)
        if count > MAX_ARTIFACTS or size > MAX_CONTENT_BYTES:
            text = f"{count} artifacts of {size} bytes cannot be evicted and exceed the limits"
            limits = f"{MAX_ARTIFACTS} artifacts and {MAX_CONTENT_BYTES} bytes"
            raise TooLarge(ARTIFACTS, Problem(f"{text} of {limits}; nothing was changed"))
        uris = {artifact.artifact_uri for artifact in evicted}
        self.artifacts = [a for a in self.artifacts if a.artifact_uri not in uris]
        return evicted


def _size(artifact: ToolArtifact) -> int:
    return len(artifact.content.encode(errors="surrogatepass"))


# -- traces ----------------------------------------------------------------------------------------


class TraceEvent(_SchemaRecord):
    """Summary of one execution: name, result, duration."""

    schema_: str = Field(alias="schema")
    kind: Literal["tool_execution", "program_execution"]
    name: str
    success: bool
    exit_code: I32
    duration_ms: U64
    output_bytes: U64
    metadata_keys: OmitEmpty[list[str]] = Field(default_factory=list)
    artifact_uris: OmitEmpty[list[str]] = Field(default_factory=list)
    details: Opt[Any] = None

    @classmethod
    def tool_execution(cls, name: str, *, metadata: Any = None, **members: Any) -> Self:
        """The event of a tool call.

        It keeps the keys and artifact URIs of `metadata`, not the values.
        """
        return cls._of("tool_execution", name, metadata, members)

    @classmethod
    def program_execution(cls, name: str, *, metadata: Any = None, **members: Any) -> Self:
        """The event of a program run. Of the trace in `metadata` only the summary is kept."""
        trace = metadata.get("trace") if isinstance(metadata, dict) else None
        if isinstance(trace, dict):
            shown = ("program_name", "success", "step_count", "failed_steps")
            members = {**members, "details": {key: trace.get(key) for key in shown}}
        return cls._of("program_execution", name, metadata, members)

    @classmethod
    def _of(cls, kind: str, name: str, metadata: Any, members: dict[str, Any]) -> Self:
        keys = sorted(metadata) if isinstance(metadata, dict) else []
        uris = sorted(set(_uris_in(metadata)))
        summary = {"schema": TRACE_SCHEMA, "kind": kind, "name": name, "metadata_keys": keys, "artifact_uris": uris}
        return cls.model_validate({**summary, **members})


def _uris_in(value: Any) -> Iterable[str]:
    """The values of all `artifact_uri` members at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get("artifact_uri"), str):
            yield value["artifact_uri"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _uris_in(inner)


# -- verification ----------------------------------------------------------------------------------


class VerificationCheck(Record):
    id: str
    kind: str
    description: str
    status: VerificationStatus
    required: bool = False
    suggested_tools: OmitEmpty[list[str]] = Field(default_factory=list)
    evidence_uris: OmitEmpty[list[str]] = Field(default_factory=list)
    residual_risk: Opt[str] = None


class VerificationReport(_SchemaRecord):
    """Checks of a subject. `status` must be the one derived from the checks and risks."""

    schema_: str = Field(alias="schema")
    subject: str
    status: VerificationStatus
    checks: list[VerificationCheck]
    residual_risks: OmitEmpty[list[str]] = Field(default_factory=list)
    effect_digest: Opt[str] = None

    @classmethod
    def new(cls, subject: str, checks: Iterable[VerificationCheck] = (), risks: Iterable[str] = ()) -> Self:
        report = cls(
            schema=REPORT_SCHEMA,
            subject=subject,
            status="skipped",
            checks=list(checks),
            residual_risks=list(risks),
        )
        report.status = report.derived_status()
        return report

    def derived_status(self) -> VerificationStatus:
        """The status that the checks and risks imply.

        `failed` with a failed check, `needs_review` with an open required check or a risk,
        `skipped` without checks and risks, otherwise `passed`.
        """
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        is_open = any(check.required and check.status in ("needs_review", "skipped") for check in self.checks)
        if is_open or self.residual_risks:
            return "needs_review"
        return "passed" if self.checks else "skipped"


# -- files -----------------------------------------------------------------------------------------

_FORMATS: dict[str, Any] = {
    ARTIFACTS: ArtifactSet,
    TRACES: list[TraceEvent],
    VERIFICATION: list[VerificationReport],
}


@cache
def _format(name: str) -> TypeAdapter[Any]:
    """Validator of the record file `name`. Built on first use: most programs meet no such file."""
    return TypeAdapter(_FORMATS[name])


def parse_record(name: str, raw: bytes, path: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> Any:
    """Parse the record file `name`. Raises InvalidContent with the position of the error."""
    value = json_text.parse_value(raw, path, limit=limit)
    try:
        record = _format(name).validate_python(value)
    except pydantic.ValidationError as error:
        raise InvalidContent(path, type_problem(error, raw)) from None
    return record


def check_statuses(name: str, record: Any, raw: bytes, path: str) -> None:
    """Raise InvalidContent if the status of a report is not the derived one.

    Only writes call this.
    """
    reports: list[VerificationReport] = record if name == VERIFICATION else []
    for number, report in enumerate(reports):
        derived = report.derived_status()
        if report.status != derived:
            place: json_text.Path = (number, "status")
            reason = f"expected {derived!r}, derived from the checks and risks, got {report.status!r}"
            raise InvalidContent(path, Problem(reason, *json_text.locate(raw, place), json_text.render_path(place)))


def dump_record(name: str, record: Any) -> Any:
    """The JSON value of a record."""
    return _format(name).dump_python(record, warnings=False)
