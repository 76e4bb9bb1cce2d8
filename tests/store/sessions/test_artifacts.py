"""Artifacts, trace events and reports: formats, limits, derived values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import ArtifactSet, InvalidContent, TooLarge, TraceEvent, VerificationReport
from store.documents import json_text
from store.sessions.artifacts import MAX_ARTIFACTS, MAX_CONTENT_BYTES, check_statuses, dump_record, parse_record
from tests.records import make_artifact, make_check, make_event, make_report

MIB = 1024 * 1024


def rejection(name: str, value: Any) -> str:
    with pytest.raises(InvalidContent) as rejected:
        parse_record(name, json.dumps(value).encode(), name)
    return str(rejected.value)


# -- artifacts ---------------------------------------------------------------------------------------------


def test_putting_an_artifact_again_replaces_it_and_makes_it_newest() -> None:
    """URIs are unique."""
    found = ArtifactSet.of([make_artifact("a"), make_artifact("b"), make_artifact("a", "other")])
    assert [a.artifact_uri[-1] for a in found.artifacts] == ["b", "a"]
    assert len(found) == 2
    again = found.find("a3s://tool-output/test/a")
    assert again is not None
    assert again.content == "other"
    assert found.find("a3s://nothing") is None


def test_the_oldest_artifacts_beyond_the_count_limit_are_evicted() -> None:
    """256 are kept."""
    found = ArtifactSet.of(make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 3))
    evicted = found.evict()
    assert [a.artifact_uri.rpartition("/")[2] for a in evicted] == ["0", "1", "2"]
    assert len(found) == MAX_ARTIFACTS
    assert found.evict() == []


def test_the_oldest_artifacts_beyond_the_size_limit_are_evicted() -> None:
    """16 MiB are kept, counted in UTF-8 bytes."""
    found = ArtifactSet.of(make_artifact(str(i), "é" * (3 * MIB)) for i in range(4))  # 6 MiB each
    assert [a.artifact_uri[-1] for a in found.evict()] == ["0", "1"]
    assert found.content_bytes == 12 * MIB
    exact = ArtifactSet.of(make_artifact(str(i), "x" * (8 * MIB)) for i in range(2))
    assert exact.evict() == []
    assert exact.content_bytes == MAX_CONTENT_BYTES


def test_retained_artifacts_are_not_evicted() -> None:
    """The next oldest is evicted instead."""
    found = ArtifactSet.of((make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 1)), ["a3s://tool-output/test/0"])
    assert [a.artifact_uri.rpartition("/")[2] for a in found.evict()] == ["1"]


def test_artifacts_that_cannot_fit_are_rejected_and_nothing_is_evicted() -> None:
    """One artifact above the limit, or too many retained ones."""
    huge = ArtifactSet.of([make_artifact("a"), make_artifact("b", "x" * (MAX_CONTENT_BYTES + 1))])
    with pytest.raises(TooLarge, match="nothing was changed"):
        huge.evict()
    assert len(huge) == 2
    kept = [make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 1)]
    retained = ArtifactSet.of(kept, [a.artifact_uri for a in kept])
    with pytest.raises(TooLarge):
        retained.evict()


def test_two_artifacts_with_one_uri_are_rejected() -> None:
    """The same artifact listed twice is allowed."""
    one, other = make_artifact("a").model_dump(), make_artifact("a", "other").model_dump()
    assert "two different artifacts" in rejection("artifacts.json", {"artifacts": [one, other]})
    assert len(parse_record("artifacts.json", json.dumps({"artifacts": [one, one]}).encode(), "x")) == 2


# -- traces ------------------------------------------------------------------------------------------------


def test_a_trace_event_keeps_the_keys_and_uris_of_its_metadata() -> None:
    """Sorted and without duplicates; the metadata itself is not stored."""
    metadata = {"b": [{"artifact_uri": "u2"}, {"artifact_uri": "u1"}], "a": {"x": {"artifact_uri": "u2"}}}
    event = make_event(metadata=metadata)
    assert event.metadata_keys == ["a", "b"]
    assert event.artifact_uris == ["u1", "u2"]
    assert event.model_dump()["schema"] == "a3s.trace_event.v1"
    assert make_event().model_dump().keys() == {
        *("schema", "kind", "name", "success", "exit_code", "duration_ms", "output_bytes")
    }


def test_a_program_event_keeps_the_summary_of_its_trace() -> None:
    """Not the steps."""
    trace = {"program_name": "map", "success": True, "step_count": 7, "failed_steps": 0, "steps": [{"output": "x"}]}
    event = TraceEvent.program_execution(
        "map", success=True, exit_code=0, duration_ms=3, output_bytes=42, metadata={"trace": trace}
    )
    assert event.kind == "program_execution"
    assert event.details == {k: v for k, v in trace.items() if k != "steps"}


# -- reports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checks", "risks", "status"),
    [
        ([], [], "skipped"),
        ([], ["it may rain"], "needs_review"),
        ([make_check("passed")], [], "passed"),
        ([make_check("passed")], ["it may rain"], "needs_review"),
        ([make_check("needs_review")], [], "needs_review"),
        ([make_check("skipped")], [], "needs_review"),
        ([make_check("needs_review", required=False)], [], "passed"),
        ([make_check("skipped", required=False)], [], "passed"),
        ([make_check("needs_review"), make_check("failed", required=False)], ["it may rain"], "failed"),
    ],
)
def test_the_status_of_a_report_is_derived_from_checks_and_risks(checks: Any, risks: Any, status: str) -> None:
    """The residual risk of a single check does not matter."""
    assert VerificationReport.new("s", checks, risks).status == status
    assert make_report("s", make_check("passed", residual_risk="small")).status == "passed"


def test_a_status_other_than_the_derived_one_is_rejected() -> None:
    """Writes only: such a report on disk can still be read."""
    claimed = make_report("s", make_check("failed")).model_dump() | {"status": "passed"}
    raw = json.dumps([make_report().model_dump(), claimed]).encode()
    found = parse_record("verification.json", raw, "x")
    assert [report.status for report in found] == ["passed", "passed"]
    with pytest.raises(InvalidContent) as rejected:
        check_statuses("verification.json", found, raw, "x")
    assert "[1].status: expected 'failed', derived" in str(rejected.value)
    assert "got 'passed'" in str(rejected.value)
    check_statuses("verification.json", found[:1], raw, "x")
    check_statuses("traces.json", [make_event()], b"[]", "x")


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("artifacts.json", [], "expected an object, got an array"),
        ("artifacts.json", {}, "required member is missing"),
        ("artifacts.json", {"artifacts": [{}]}, "artifacts[0].artifact_id"),
        ("artifacts.json", {"artifacts": [make_artifact().model_dump() | {"shown_bytes": -1}]}, "shown_bytes"),
        ("traces.json", {}, "expected an array, got an object"),
        ("traces.json", [make_event().model_dump() | {"kind": "dance"}], "[0].kind"),
        ("traces.json", [make_event().model_dump() | {"exit_code": 2**31}], "[0].exit_code"),
        ("traces.json", [{**make_event().model_dump(), "schema": None}], "[0].schema"),
        ("verification.json", [{**make_report().model_dump(), "checks": None}], "[0].checks"),
        ("verification.json", [{**make_report().model_dump(), "status": "fine"}], "[0].status"),
    ],
)
def test_a_record_of_the_wrong_type_is_rejected_with_its_position(name: str, value: Any, reason: str) -> None:
    """Rule 6: a file that the agent could not load is not stored."""
    assert reason in rejection(name, value)


def test_errors_have_line_and_column() -> None:
    with pytest.raises(InvalidContent) as rejected:
        parse_record("traces.json", b'[\n  {"schema": 5}\n]', "sessions/s1/traces.json")
    assert str(rejected.value).startswith("sessions/s1/traces.json:2:14: [0].schema: expected a string, got a number")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
extras = st.dictionaries(texts.map(lambda t: f"x{t}"), st.none() | st.booleans() | texts, max_size=2)


@given(st.lists(st.builds(make_artifact, texts, texts), max_size=4), extras)
def test_artifacts_round_trip(found: list[Any], extra: dict[str, Any]) -> None:
    """Rule 5: unknown members too."""
    written = ArtifactSet.model_validate(ArtifactSet.of(found).model_dump() | extra)
    raw = json_text.render(dump_record("artifacts.json", written))
    assert parse_record("artifacts.json", raw, "x") == written


@given(st.lists(st.tuples(st.sampled_from(["passed", "failed", "needs_review", "skipped"]), st.booleans())))
def test_every_new_report_has_its_derived_status(checks: list[tuple[str, bool]]) -> None:
    """It passes the check of writes."""
    report = VerificationReport.new("s", [make_check(status, required=required) for status, required in checks])
    raw = json_text.render(dump_record("verification.json", [report]))
    assert parse_record("verification.json", raw, "x") == [report]
