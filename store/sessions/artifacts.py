"""What a run left beside the conversation: artifacts, trace events, verification reports (FORMATS G.3). Pure.

Three files of a session, each checked as a whole before it is stored, as the agent that owns the format would load it
(rule 6). Artifacts are bounded: the oldest go, but only when a program saves, never when someone loads or copies.
"""

from __future__ import annotations

from collections.abc import Iterable
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

Status = Literal["passed", "failed", "needs_review", "skipped"]


class _SchemaRecord(Record):
    """A record that names its schema. pydantic has a `schema` of its own, so the field is spelled otherwise."""

    model_config = ConfigDict(serialize_by_alias=True)


# -- artifacts ---------------------------------------------------------------------------------------------


class ToolArtifact(Record):
    """The whole output of a tool, of which the conversation shows only a part."""

    artifact_id: str
    artifact_uri: str
    tool_name: str
    content: str
    original_bytes: U64
    shown_bytes: U64


class ArtifactSet(Record):
    """`artifacts.json`: the artifacts of a session, the oldest first. A uri stands for one of them."""

    artifacts: list[ToolArtifact]
    retained_uris: OmitEmpty[list[str]] = Field(default_factory=list)  # of those that must not be evicted

    @classmethod
    def of(cls, artifacts: Iterable[ToolArtifact] = (), retained_uris: Iterable[str] = ()) -> Self:
        """A set with these in it; of two of one uri the later one."""
        found = cls(artifacts=[], retained_uris=sorted(set(retained_uris)))
        for artifact in artifacts:
            found.put(artifact)
        return found

    @model_validator(mode="after")
    def _refuse_two_contents(self) -> Self:
        seen: dict[str, ToolArtifact] = {}
        for artifact in self.artifacts:
            if seen.setdefault(artifact.artifact_uri, artifact) != artifact:
                uri = {"uri": artifact.artifact_uri}
                raise PydanticCustomError("two_contents", "{uri} stands for two different artifacts", uri)
        return self

    def __len__(self) -> int:
        return len(self.artifacts)

    def __bool__(self) -> bool:
        return True  # an empty set is one all the same, with members that nobody knows

    def find(self, uri: str) -> ToolArtifact | None:
        return next((a for a in self.artifacts if a.artifact_uri == uri), None)

    def put(self, artifact: ToolArtifact) -> None:
        """Add it as the newest, in the place of one of the same uri."""
        self.artifacts = [*(a for a in self.artifacts if a.artifact_uri != artifact.artifact_uri), artifact]

    @property
    def content_bytes(self) -> int:
        return sum(_size(a) for a in self.artifacts)

    def evict(self) -> list[ToolArtifact]:
        """Let the oldest go until the rest is within the limits, and return them. Retained ones stay.

        TooLarge, and nothing is changed, if the newest would have to go: then it is itself too large.
        """
        spared = {*self.retained_uris, *(a.artifact_uri for a in self.artifacts[-1:])}
        count, size = len(self.artifacts), self.content_bytes
        gone: list[ToolArtifact] = []
        for artifact in self.artifacts:
            if count <= MAX_ARTIFACTS and size <= MAX_CONTENT_BYTES:
                break
            if artifact.artifact_uri not in spared:
                gone.append(artifact)
                count, size = count - 1, size - _size(artifact)
        if count > MAX_ARTIFACTS or size > MAX_CONTENT_BYTES:
            text = f"{count} artifacts of {size} bytes that must stay are over the limits"
            limits = f"{MAX_ARTIFACTS} and {MAX_CONTENT_BYTES} bytes of content"
            raise TooLarge(ARTIFACTS, Problem(f"{text} of {limits}; nothing was changed"))
        uris = {artifact.artifact_uri for artifact in gone}
        self.artifacts = [a for a in self.artifacts if a.artifact_uri not in uris]
        return gone


def _size(artifact: ToolArtifact) -> int:
    return len(artifact.content.encode(errors="surrogatepass"))


# -- traces ------------------------------------------------------------------------------------------------


class TraceEvent(_SchemaRecord):
    """One execution, in short: what ran, how it ended, how long it took."""

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
        """Of a tool; what its metadata names is noted, not the metadata itself."""
        return cls._of("tool_execution", name, metadata, members)

    @classmethod
    def program_execution(cls, name: str, *, metadata: Any = None, **members: Any) -> Self:
        """Of a program; of its trace only the numbers are kept."""
        trace = metadata.get("trace") if isinstance(metadata, dict) else None
        if isinstance(trace, dict):
            shown = ("program_name", "success", "step_count", "failed_steps")
            members = {**members, "details": {key: trace.get(key) for key in shown}}
        return cls._of("program_execution", name, metadata, members)

    @classmethod
    def _of(cls, kind: str, name: str, metadata: Any, members: dict[str, Any]) -> Self:
        keys = sorted(metadata) if isinstance(metadata, dict) else []
        uris = sorted(set(_uris_in(metadata)))
        noted = {"schema": TRACE_SCHEMA, "kind": kind, "name": name, "metadata_keys": keys, "artifact_uris": uris}
        return cls.model_validate({**noted, **members})


def _uris_in(value: Any) -> Iterable[str]:
    """Every `artifact_uri` at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get("artifact_uri"), str):
            yield value["artifact_uri"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _uris_in(inner)


# -- verification ------------------------------------------------------------------------------------------


class VerificationCheck(Record):
    id: str
    kind: str
    description: str
    status: Status
    required: bool = False
    suggested_tools: OmitEmpty[list[str]] = Field(default_factory=list)
    evidence_uris: OmitEmpty[list[str]] = Field(default_factory=list)
    residual_risk: Opt[str] = None


class VerificationReport(_SchemaRecord):
    """What was checked of a subject. Its status follows from the checks and risks, whoever writes it."""

    schema_: str = Field(alias="schema")
    subject: str
    status: Status
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

    def derived_status(self) -> Status:
        """A failed check fails it; an open question wants a look; without any check it was skipped."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        is_open = any(check.required and check.status in ("needs_review", "skipped") for check in self.checks)
        if is_open or self.residual_risks:
            return "needs_review"
        return "passed" if self.checks else "skipped"


# -- the three files ---------------------------------------------------------------------------------------

_TRACES: TypeAdapter[list[TraceEvent]] = TypeAdapter(list[TraceEvent])
_REPORTS: TypeAdapter[list[VerificationReport]] = TypeAdapter(list[VerificationReport])
_SHAPES: dict[str, TypeAdapter[Any]] = {
    ARTIFACTS: TypeAdapter(ArtifactSet),
    TRACES: _TRACES,
    VERIFICATION: _REPORTS,
}


def parse_record(name: str, raw: bytes, path: str, *, limit: int = json_text.MAX_DOCUMENT_BYTES) -> Any:
    """What the file of that name says; InvalidContent, with the place, if it cannot be what it should be."""
    value = json_text.parse_value(raw, path, limit=limit)
    try:
        record = _SHAPES[name].validate_python(value)
    except pydantic.ValidationError as error:
        raise InvalidContent(path, type_problem(error, raw)) from None
    return record


def check_statuses(name: str, record: Any, raw: bytes, path: str) -> None:
    """Refuse a report whose status does not follow from its checks and risks. One that lies there so can be read."""
    reports: list[VerificationReport] = record if name == VERIFICATION else []
    for number, report in enumerate(reports):
        derived = report.derived_status()
        if report.status != derived:
            place: json_text.Path = (number, "status")
            reason = f"{report.status!r} does not follow from the checks and risks, which make it {derived!r}"
            raise InvalidContent(path, Problem(reason, *json_text.locate(raw, place), json_text.render_path(place)))


def dump_record(name: str, record: Any) -> Any:
    """The plain value of a record, as it is written."""
    return _SHAPES[name].dump_python(record, warnings=False)
