"""Oxios workspaces: two lists become one conversation, steps a trajectory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import Session, Store
from store.transfer.formats.oxios_records import response_of
from tests.store.transfer.foreign import kept_metadata, make_oxios, oxios_session


@pytest.fixture
def imported(store: Store, tmp_path: Path) -> Session:
    summary = store.imports.run(str(make_oxios(tmp_path / "workspace")))
    assert (summary.format, summary.problems, summary.counts) == ("oxios", [], {"new": 2})
    session = store.load("ox-1")
    assert session is not None
    return session


def test_messages_are_merged_by_time(imported: Session) -> None:
    assert [(m.role, m.content) for m in imported.messages] == [
        ("user", "What is here?"),
        ("assistant", "Two files."),
        ("user", "Thanks"),
    ]
    assert imported.messages[1].created_at == "2026-05-01T10:00:02.123456789Z"
    assert kept_metadata(imported.messages[1], "oxios")["trajectory_range"] == {"start": 0, "end": 1}


def test_session_members_are_imported(imported: Session) -> None:
    assert (imported.title, imported.user_id, imported.persona_id) == ("Files", "me", "dev")
    assert imported.project_id == "p1"
    assert imported.updated_at == "2026-05-01T10:01:00Z"
    assert imported.seed_id == "seed-9"
    assert json.loads(imported.metadata["oxios.metadata"])["compression"]["status"] == "done"


def test_steps_become_the_trajectory(imported: Session, store: Store) -> None:
    steps = store.trajectory.read("ox-1")
    assert steps is not None
    assert [step.model_dump() for step in steps] == oxios_session()["trajectory_steps"]
    reasons = store.attachments.read("ox-1", "reasoning")
    assert reasons is not None
    assert json.loads(reasons[0])["content"] == "ls will do"


def test_thread_becomes_a_child(imported: Session, store: Store) -> None:
    thread = store.load("ox-1/ox-2")
    assert thread is not None
    assert (thread.parent_session_id, thread.spawn_depth) == ("ox-1", 1)


def test_session_oxios_could_not_load_is_skipped_with_its_line(store: Store, tmp_path: Path) -> None:
    base = make_oxios(tmp_path / "workspace")
    broken = {
        "time": oxios_session("time", created_at="yesterday"),
        "text": oxios_session("text", user_messages=[{"content": 5, "timestamp": "2026-05-01T10:00:00Z"}]),
        "step": oxios_session("step", trajectory_steps=[{"tool_name": "x"}]),
        "list": oxios_session("list", agent_responses={}),
    }
    for name, session in broken.items():
        (base / f"sessions/{name}.json").write_text(json.dumps(session, indent=2))
    (base / "sessions/cut.json").write_text('{"id": "cut",\n"user_id": ')
    summary = store.imports.run(str(base))
    assert summary.counts == {"new": 2}
    assert len(summary.problems) == 5
    for problem in summary.problems:
        name = Path(problem.path).stem
        if name == "cut":
            assert (problem.line, "column" in problem.text) == (2, True)
        if name in ("time", "text"):
            assert problem.line is not None
            line = (base / f"sessions/{name}.json").read_text().splitlines()[problem.line - 1]
            assert "yesterday" in line or '"content": 5' in line


def test_repeated_import_updates_only_grown_sessions(store: Store, tmp_path: Path) -> None:
    base = make_oxios(tmp_path / "workspace")
    store.imports.run(str(base))
    assert store.imports.run(str(base)).counts == {"unchanged": 2}
    grown = oxios_session()
    grown["agent_responses"].append({"content": "You're welcome", "timestamp": "2026-05-01T10:01:05Z"})
    (base / "sessions/ox-1.json").write_text(json.dumps(grown))
    assert store.imports.run(str(base)).counts == {"updated": 1, "unchanged": 1}
    session = store.load("ox-1")
    assert session is not None
    assert session.messages[-1].content == "You're welcome"


def test_other_documents_become_state_documents(store: Store, tmp_path: Path) -> None:
    """Documents changed here are kept, invalid ones are reported, files of git are ignored."""
    base = make_oxios(tmp_path / "workspace")
    fact = '{"id": "f1", "content_hash": 18446744073709551615}'
    documents = {"memory/facts/f1.json": fact, "notes/todo.md": "# Todo\n", "cron/jobs.json": "[]"}
    for path, text in {**documents, ".git/config.json": "{}", "loose.json": "{}", "agents/bad.json": "{"}.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
    summary = store.imports.run(str(base))
    assert summary.counts == {"new": 5}
    assert [Path(p.path).name for p in summary.problems] == ["bad.json"]
    found = {path: (store.home / "state" / path).read_text() for path in documents}
    assert found == documents
    assert sorted(store.state.paths()) == sorted(f"state/{path}" for path in documents)
    assert store.imports.run(str(base)).counts == {"unchanged": 5}
    store.state.save_markdown("notes", "todo", "mine")
    assert store.imports.run(str(base)).counts == {"unchanged": 4, "kept": 1}
    assert store.state.load_markdown("notes", "todo") == "mine"


def test_c6_the_active_seed_is_an_attribute_a_summary_member_and_a_filter(imported: Session, store: Store) -> None:
    assert [(s.id, s.seed_id) for s in store.summaries.page(seed="seed-9", kind="root")] == [("ox-1", "seed-9")]
    assert [entry.id for entry in store.entries(seed="seed-9", kind="root")] == ["ox-1"]
    assert store.entries(seed="seed-8") == []
    store.update("ox-1", lambda session: setattr(session, "seed_id", None))
    assert [summary.seed_id for summary in store.summaries.page(kind="root")] == [None]


def test_c6_members_of_answers_have_types(store: Store, tmp_path: Path) -> None:
    """A session with an answer that oxios could not load is skipped, and the problem names the member."""
    base = make_oxios(tmp_path / "workspace")
    store.imports.run(str(base))
    session = store.load("ox-1")
    assert session is not None
    answer = response_of(session.messages[1].model_dump(), session.created_at)
    assert (answer.phase_reached, answer.evaluation_passed, answer.seed_id) == ("done", True, None)
    assert answer.trajectory_range is not None
    assert (answer.trajectory_range.start, answer.trajectory_range.end) == (0, 1)
    wrong = {
        "seed_id": 5,
        "phase_reached": ["done"],
        "evaluation_passed": "yes",
        "trajectory_range": {"start": -1, "end": 1},
    }
    for member, value in wrong.items():
        broken = oxios_session("x")
        broken["agent_responses"][0][member] = value
        (base / "sessions/x.json").write_text(json.dumps(broken))
        (problem,) = store.imports.run(str(base)).problems
        assert f"agent_responses[0].{member}" in problem.text


def test_c5_the_first_of_several_projects_is_kept(home: Path, tmp_path: Path) -> None:
    """`metadata.project_ids` lists them, separated by commas."""
    at = "2026-01-01T00:00:00Z"
    record: dict[str, object] = {
        "id": "o1",
        "user_id": "u",
        "created_at": at,
        "updated_at": at,
        "user_messages": [],
        "agent_responses": [],
    }
    record["metadata"] = {"project_ids": "pa,pb"}
    source = tmp_path / "workspace/sessions/o1.json"
    source.parent.mkdir(parents=True)
    source.write_text(json.dumps(record))
    with Store.open(home, background=False) as store:
        store.imports.run(str(tmp_path / "workspace"))
        assert [entry.project_id for entry in store.entries()] == ["pa"]
