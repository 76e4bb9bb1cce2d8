"""Artifacts, trace events and reports as values: their forms, their limits, what follows from them."""

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


def refusal(name: str, value: Any) -> str:
    with pytest.raises(InvalidContent) as refused:
        parse_record(name, json.dumps(value).encode(), name)
    return str(refused.value)


# -- artifacts ---------------------------------------------------------------------------------------------


def test_a_uri_stands_for_one_artifact_and_the_newest_is_last() -> None:
    """Putting one again replaces it, and makes it the newest."""
    found = ArtifactSet.of([make_artifact("a"), make_artifact("b"), make_artifact("a", "other")])
    assert [a.artifact_uri[-1] for a in found.artifacts] == ["b", "a"]
    assert len(found) == 2
    again = found.find("a3s://tool-output/test/a")
    assert again is not None
    assert again.content == "other"
    assert found.find("a3s://nothing") is None


def test_the_oldest_go_when_there_are_too_many() -> None:
    """256 stay."""
    found = ArtifactSet.of(make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 3))
    gone = found.evict()
    assert [a.artifact_uri.rpartition("/")[2] for a in gone] == ["0", "1", "2"]
    assert len(found) == MAX_ARTIFACTS
    assert found.evict() == []


def test_the_oldest_go_when_they_are_too_large() -> None:
    """16 MiB stay, counted in bytes as they are stored."""
    found = ArtifactSet.of(make_artifact(str(i), "é" * (3 * MIB)) for i in range(4))  # 6 MiB each
    assert [a.artifact_uri[-1] for a in found.evict()] == ["0", "1"]
    assert found.content_bytes == 12 * MIB
    exact = ArtifactSet.of(make_artifact(str(i), "x" * (8 * MIB)) for i in range(2))
    assert exact.evict() == []
    assert exact.content_bytes == MAX_CONTENT_BYTES


def test_retained_artifacts_stay() -> None:
    """The next oldest goes in their place."""
    found = ArtifactSet.of((make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 1)), ["a3s://tool-output/test/0"])
    assert [a.artifact_uri.rpartition("/")[2] for a in found.evict()] == ["1"]


def test_what_can_never_fit_is_refused_and_nothing_goes() -> None:
    """One artifact over the limit, or too much that is retained: no other is sacrificed in vain."""
    huge = ArtifactSet.of([make_artifact("a"), make_artifact("b", "x" * (MAX_CONTENT_BYTES + 1))])
    with pytest.raises(TooLarge, match="nothing was changed"):
        huge.evict()
    assert len(huge) == 2
    kept = [make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 1)]
    retained = ArtifactSet.of(kept, [a.artifact_uri for a in kept])
    with pytest.raises(TooLarge):
        retained.evict()


def test_one_uri_for_two_contents_is_refused() -> None:
    """But the same artifact twice is only said twice."""
    one, other = make_artifact("a").model_dump(), make_artifact("a", "other").model_dump()
    assert "two different artifacts" in refusal("artifacts.json", {"artifacts": [one, other]})
    assert len(parse_record("artifacts.json", json.dumps({"artifacts": [one, one]}).encode(), "x")) == 2


# -- traces ------------------------------------------------------------------------------------------------


def test_a_trace_event_notes_what_its_metadata_names() -> None:
    """Keys and artifact uris, in order and once; not the metadata."""
    metadata = {"b": [{"artifact_uri": "u2"}, {"artifact_uri": "u1"}], "a": {"x": {"artifact_uri": "u2"}}}
    event = make_event(metadata=metadata)
    assert event.metadata_keys == ["a", "b"]
    assert event.artifact_uris == ["u1", "u2"]
    assert event.model_dump()["schema"] == "a3s.trace_event.v1"
    assert make_event().model_dump().keys() == {
        *("schema", "kind", "name", "success", "exit_code", "duration_ms", "output_bytes")
    }


def test_a_program_event_keeps_the_numbers_of_its_trace() -> None:
    """And not its steps."""
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
def test_the_status_of_a_report_follows_from_its_checks_and_risks(checks: Any, risks: Any, status: str) -> None:
    """Whatever a check's own remark of a risk says."""
    assert VerificationReport.new("s", checks, risks).status == status
    assert make_report("s", make_check("passed", residual_risk="small")).status == "passed"


def test_a_status_that_does_not_follow_is_refused() -> None:
    """A report cannot be made to pass by hand, unless its checks are. One that lies there so can still be read."""
    claimed = make_report("s", make_check("failed")).model_dump() | {"status": "passed"}
    raw = json.dumps([make_report().model_dump(), claimed]).encode()
    found = parse_record("verification.json", raw, "x")
    assert [report.status for report in found] == ["passed", "passed"]
    with pytest.raises(InvalidContent) as refused:
        check_statuses("verification.json", found, raw, "x")
    assert "[1].status: 'passed' does not follow" in str(refused.value)
    assert "which make it 'failed'" in str(refused.value)
    check_statuses("verification.json", found[:1], raw, "x")
    check_statuses("traces.json", [make_event()], b"[]", "x")


# -- the files ---------------------------------------------------------------------------------------------


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
def test_a_record_of_another_shape_is_refused_with_its_place(name: str, value: Any, reason: str) -> None:
    """Rule 6: what the owning agent could not load is not stored."""
    assert reason in refusal(name, value)


def test_a_fault_is_found_where_it_is() -> None:
    """Line and column, as for a conversation."""
    with pytest.raises(InvalidContent) as refused:
        parse_record("traces.json", b'[\n  {"schema": 5}\n]', "sessions/s1/traces.json")
    assert str(refused.value).startswith("sessions/s1/traces.json:2:14: [0].schema: expected a string, got a number")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
extras = st.dictionaries(texts.map(lambda t: f"x{t}"), st.none() | st.booleans() | texts, max_size=2)


@given(st.lists(st.builds(make_artifact, texts, texts), max_size=4), extras)
def test_artifacts_read_back_as_they_were_written(found: list[Any], extra: dict[str, Any]) -> None:
    """Rule 5: with members that nobody knows."""
    written = ArtifactSet.model_validate(ArtifactSet.of(found).model_dump() | extra)
    raw = json_text.render(dump_record("artifacts.json", written))
    assert parse_record("artifacts.json", raw, "x") == written


@given(st.lists(st.tuples(st.sampled_from(["passed", "failed", "needs_review", "skipped"]), st.booleans())))
def test_every_report_made_here_may_be_stored(checks: list[tuple[str, bool]]) -> None:
    """Its status is always the one that follows."""
    report = VerificationReport.new("s", [make_check(status, required=required) for status, required in checks])
    raw = json_text.render(dump_record("verification.json", [report]))
    assert parse_record("verification.json", raw, "x") == [report]
