"""Export to oxios: unchanged sessions come back with the same bytes, changed ones with the changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store import Message, Store
from store.transfer.formats.oxios_records import OxiosSession
from tests.builders import make_session, read_json
from tests.store.transfer.foreign import canonical_oxios

AT = "2026-05-01T10:00:00Z"


def put(base: Path, *sessions: dict[str, Any]) -> Path:
    """As oxios writes them."""
    (base / "sessions").mkdir(parents=True, exist_ok=True)
    for session in sessions:
        text = json.dumps(session, indent=2, ensure_ascii=False)
        (base / f"sessions/{session['id']}.json").write_text(text)
    return base


def tree_of(base: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    assert found
    return found


def export(store: Store, dest: Path) -> dict[str, bytes]:
    found = [*store.exports.write_for_agent("oxios", store.exports.select(), dest)]
    assert all(hasattr(item, "location") for item in found), found
    return tree_of(dest)


def newest(id: str, **more: Any) -> dict[str, Any]:
    """A session of a version that has no seeds."""
    found = canonical_oxios(id, **more)
    for answer in found["agent_responses"]:
        del answer["seed_id"]
    return {key: value for key, value in found.items() if key != "active_seed_id"}


CASES: dict[str, list[dict[str, Any]]] = {
    "all members": [canonical_oxios()],
    "a thread": [canonical_oxios(), canonical_oxios("ox-2", parent_session_id="ox-1")],
    "a thread of an unknown session": [canonical_oxios("ox-2", parent_session_id="gone")],
    "without seeds": [newest("ox-1"), newest("ox-2", parent_session_id="ox-1")],
    "without a title": [canonical_oxios(metadata={"other": [1, {"a": None}]})],
    "several projects": [canonical_oxios(metadata={"project_ids": "pa,pb"})],
    "projects in both places": [canonical_oxios(metadata={"project_id": "pa"}, project_id="pb")],
    "times outside of the messages": [
        canonical_oxios(created_at="2026-05-01T11:00:00Z", updated_at="2026-05-01T11:00:01Z")
    ],
    "an id with a dot": [canonical_oxios(".hidden")],
    "unknown members": [{**canonical_oxios(), "later": {"b": 1, "a": [2.5]}}],
}


@pytest.mark.parametrize("sessions", CASES.values(), ids=CASES.keys())
def test_unchanged_sessions_are_the_same_to_the_byte(
    store: Store, tmp_path: Path, sessions: list[dict[str, Any]]
) -> None:
    base = put(tmp_path / "workspace", *sessions)
    assert store.imports.run(str(base)).problems == []
    assert export(store, tmp_path / "out") == tree_of(base)


@pytest.mark.parametrize("missing", ["active_seed_id", "active_persona_id", "project_id", "trajectory_steps"])
def test_members_that_oxios_omits_are_omitted(store: Store, tmp_path: Path, missing: str) -> None:
    session = {key: value for key, value in canonical_oxios().items() if key != missing}
    base = put(tmp_path / "workspace", session)
    store.imports.run(str(base))
    assert export(store, tmp_path / "out") == tree_of(base)


def test_an_import_of_an_export_gives_the_same_sessions(store: Store, tmp_path: Path) -> None:
    store.imports.run(
        str(put(tmp_path / "workspace", canonical_oxios(), canonical_oxios("ox-2", parent_session_id="ox-1")))
    )
    export(store, tmp_path / "out")
    with Store.open(tmp_path / "other", background=False) as other:
        assert other.imports.run(str(tmp_path / "out")).problems == []
        for id in ("ox-1", "ox-1/ox-2"):
            assert other.load(id) == store.load(id)
            assert other.trajectory.read(id) == store.trajectory.read(id)


def test_changes_made_here_are_exported(store: Store, tmp_path: Path) -> None:
    store.imports.run(str(put(tmp_path / "workspace", canonical_oxios())))

    def change(session: Any) -> None:
        session.title, session.seed_id, session.project_id = "Other", "seed-10", "p2"
        session.messages[0].content = "What is there?"

    store.update("ox-1", change)
    store.append("ox-1", [Message.assistant("Goodbye")])
    export(store, tmp_path / "out")
    found = read_json(tmp_path / "out/sessions/ox-1.json")
    assert (found["metadata"]["title"], found["active_seed_id"], found["project_id"]) == ("Other", "seed-10", "p2")
    assert found["metadata"]["compression"]["status"] == "done"
    assert found["user_messages"][0]["content"] == "What is there?"
    assert [answer["content"] for answer in found["agent_responses"]] == ["Two files.", "Goodbye"]
    assert found["updated_at"] > "2026-05-01T10:01:00Z"


def test_sessions_of_other_agents_load_in_oxios(store: Store, tmp_path: Path) -> None:
    session = make_session("s1", messages=4, title="Fix it")
    session.messages.insert(0, Message.system("You are a helper."))
    store.save(session)
    export(store, tmp_path / "out")
    found = OxiosSession.model_validate(read_json(tmp_path / "out/sessions/s1.json"))
    assert found.metadata == {"title": "Fix it"}
    assert (len(found.user_messages), len(found.agent_responses)) == (2, 2)
