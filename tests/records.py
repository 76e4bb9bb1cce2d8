"""Builders of artifacts, trace events and verification reports for tests."""

from __future__ import annotations

from typing import Any

from store import ToolArtifact, TraceEvent, VerificationCheck, VerificationReport


def make_artifact(name: str = "a", content: str = "artifact content") -> ToolArtifact:
    return ToolArtifact(
        artifact_id=f"tool-output:test:{name}",
        artifact_uri=f"a3s://tool-output/test/{name}",
        tool_name="test",
        content=content,
        original_bytes=len(content),
        shown_bytes=4,
    )


def make_event(name: str = "read", **members: Any) -> TraceEvent:
    return TraceEvent.tool_execution(
        name, **{"success": True, "exit_code": 0, "duration_ms": 9, "output_bytes": 12, **members}
    )


def make_check(status: Any = "passed", *, required: bool = True, **members: Any) -> VerificationCheck:
    return VerificationCheck(
        id="check:test", kind="test", description="Run tests", status=status, required=required, **members
    )


def make_report(subject: str = "program:test", *checks: VerificationCheck) -> VerificationReport:
    return VerificationReport.new(subject, checks or [make_check()])
