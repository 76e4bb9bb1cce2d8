"""The behaviour of every Backend: one suite for Store and MemoryStore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import (
    Ambiguous,
    ArtifactSet,
    Backend,
    Conflict,
    InvalidContent,
    InvalidName,
    MemoryStore,
    Message,
    NotFound,
    Protected,
    Session,
    Store,
    TooLarge,
)
from store.sessions.artifacts import MAX_ARTIFACTS, MAX_CONTENT_BYTES
from tests.builders import make_session
from tests.records import make_artifact, make_check, make_event, make_report


@pytest.fixture(params=["local", "memory"])
def backend(request: pytest.FixtureRequest, home: Path) -> Iterator[Backend]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with Store.open(home, background=False) as store:
        yield store
        assert store.check().is_clean


def loaded(backend: Backend, session_id: str = "s1") -> Session:
    session = backend.load(session_id)
    assert session is not None
    return session


def add_child(backend: Backend, id: str = "kid", root: str = "s1", parent: str | None = None, **fields: Any) -> None:
    session = Session.new_child(id, root, "m", "A child")
    session.parent_session_id = parent or root
    for name, value in fields.items():
        setattr(session, name, value)
    backend.save(session)


def at_once(work: Callable[[int], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- the protocol itself -------------------------------------------------------------------------------------


def test_backend_has_a_name_and_is_healthy(backend: Backend) -> None:
    """The name is for diagnostics; a healthy backend has no failed probe."""
    assert isinstance(backend, Backend)
    assert backend.backend_name in ("local", "memory")
    health = backend.health()
    assert health.ok, health
    assert health.backend == backend.backend_name
    assert health.as_dict()["ok"] is True


# -- sessions ------------------------------------------------------------------------------------------------


def test_saved_session_is_loaded(backend: Backend) -> None:
    """The whole record, including unknown members."""
    session = Session.model_validate(make_session("s1", title="T").model_dump() | {"strange": [1, {"b": 2}]})
    backend.save(session)
    assert loaded(backend) == session
    assert loaded(backend).model_extra == {"strange": [1, {"b": 2}]}


def test_unknown_session_is_none_or_false(backend: Backend) -> None:
    """Reading an unknown id raises nothing."""
    assert backend.load("unknown") is None
    assert backend.load("no/body") is None
    assert backend.exists("unknown") is False
    assert backend.delete("unknown") is False
    assert backend.ids() == []


def test_wrong_argument_is_a_type_error_and_changes_nothing(backend: Backend) -> None:
    """The error names the argument, the expected type and the given type."""
    calls: dict[str, Callable[[Any], object]] = {
        "save: expected a Session, got str": lambda b: b.save("text"),
        "session id: expected a string, got int": lambda b: b.load(5),
        "session id: expected a string, got NoneType": lambda b: b.delete(None),
    }
    for message, call in calls.items():
        with pytest.raises(TypeError, match=message):
            call(backend)
    assert backend.ids() == []


def test_sessions_are_listed_by_their_exact_names(backend: Backend) -> None:
    """A child as `root/child`."""
    for id in ("s2", "s1"):
        backend.save(make_session(id))
    add_child(backend)
    assert backend.ids() == ["s1", "s1/kid", "s2"]
    assert all(backend.exists(id) for id in backend.ids())
    assert loaded(backend, "kid") == loaded(backend, "s1/kid")


def test_descendants_are_deleted_too(backend: Backend) -> None:
    """At any depth, and no other session."""
    backend.save(make_session("s1"))
    add_child(backend)
    add_child(backend, "grandkid", parent="kid")
    add_child(backend, "other")
    assert backend.delete("kid")
    assert backend.ids() == ["s1", "s1/other"]
    assert backend.delete("s1")
    assert backend.ids() == []
    assert backend.exists("s1") is False


def test_pinned_session_is_not_deleted_without_force(backend: Backend) -> None:
    """Nor is one with a pinned descendant."""
    backend.save(make_session("s1"))
    add_child(backend, pinned=True)
    for id in ("s1", "kid"):
        with pytest.raises(Protected, match="pinned"):
            backend.delete(id)
    assert len(backend.ids()) == 2
    assert backend.delete("s1", force=True)
    assert backend.ids() == []


def test_stale_copy_is_rejected(backend: Backend) -> None:
    """Rule 8: the second of two writers gets Conflict."""
    backend.save(make_session("s1"))
    one, two = loaded(backend), loaded(backend)
    one.title = "first"
    backend.save(one)
    two.title = "second"
    with pytest.raises(Conflict, match="changed by another writer"):
        backend.save(two)
    with pytest.raises(Conflict, match="was not loaded from it"):
        backend.save(make_session("s1"))
    assert loaded(backend).title == "first"
    backend.save(two, overwrite=True)
    assert loaded(backend).title == "second"


def test_one_copy_can_be_saved_repeatedly(backend: Backend) -> None:
    """It is up to date after each save, and updated_at never decreases."""
    session = make_session("s1", messages=0)
    moments = []
    for number in range(3):
        session.add_message(Message.user(str(number)))
        backend.save(session)
        moments.append(loaded(backend).updated_at.ns)
    assert moments == sorted(set(moments))
    assert len(loaded(backend).messages) == 3


def test_saving_an_unchanged_session_changes_nothing(backend: Backend) -> None:
    """Not even updated_at."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    backend.save(session)
    assert loaded(backend) == session


def test_session_deleted_meanwhile_is_not_created_again(backend: Backend) -> None:
    """Unless overwrite=True."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    backend.delete("s1")
    with pytest.raises(Conflict, match="deleted"):
        backend.save(session)
    backend.save(session, overwrite=True)
    assert backend.exists("s1")


def test_save_rejects_fewer_messages_without_shorten(backend: Backend) -> None:
    """A save that would drop messages raises Conflict."""
    backend.save(make_session("s1", messages=3))
    session = loaded(backend)
    session.messages.pop()
    with pytest.raises(Conflict, match="would drop 1 message"):
        backend.save(session)
    backend.save(session, shorten=True)
    assert len(loaded(backend).messages) == 2


def test_titles_and_pins_increment_their_versions(backend: Backend) -> None:
    """As Bamboo expects of every writer."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    session.title, session.pinned = "Other", True
    backend.save(session)
    assert (loaded(backend).title_version, loaded(backend).metadata_version) == (1, 1)


def test_change_after_a_save_is_not_saved(backend: Backend) -> None:
    """The store shares no object with its callers."""
    session = make_session("s1")
    backend.save(session)
    session.messages[0].content = "changed"
    loaded(backend).messages[0].content = "changed too"
    assert loaded(backend).messages[0].content == "msg-0"


@pytest.mark.parametrize(
    "damage",
    [
        {"title": 5},
        {"metadata": {"k": 5}},
        {"messages": "none"},
        {"title": "\ud800"},
        {"kind": "uncle"},
        {"updated_at": "yesterday"},
        {"reasoning_effort": "heroic"},
    ],
)
def test_invalid_session_is_not_saved(backend: Backend, damage: dict[str, Any]) -> None:
    """Rules 3 and 6."""
    session = make_session("s1")
    for name, value in damage.items():
        setattr(session, name, value)
    with pytest.raises(InvalidContent):
        backend.save(session)
    assert backend.ids() == []


@pytest.mark.parametrize("bad", ["", ".", "../x", "a/b/c", "a\\b", "x" * 256, "a\0b"])
def test_ids_with_separators_are_rejected(backend: Backend, bad: str) -> None:
    """They are never rewritten to another id."""
    for question in (backend.load, backend.exists, backend.delete, backend.records.load_traces):
        with pytest.raises(InvalidName):
            question(bad)
    with pytest.raises(InvalidName):
        backend.save(make_session(bad))
    assert backend.ids() == []


@pytest.mark.parametrize("bad", [".hidden", "a\nb"])
def test_ids_unsafe_in_a_shell_are_not_created(backend: Backend, bad: str) -> None:
    """Existing ones on disk can be used."""
    with pytest.raises(InvalidName):
        backend.save(make_session(bad))


def test_child_id_under_two_roots_is_ambiguous(backend: Backend) -> None:
    """Its exact name is not."""
    for root in ("s1", "s2"):
        backend.save(make_session(root))
        add_child(backend, root=root)
    with pytest.raises(Ambiguous, match="s1/kid, s2/kid"):
        backend.load("kid")
    assert loaded(backend, "s2/kid").root_session_id == "s2"


def test_of_concurrent_saves_one_wins_and_the_others_get_conflict(backend: Backend) -> None:
    """No save is half applied."""
    backend.save(make_session("s1"))
    copies = [loaded(backend) for _ in range(8)]
    refused: list[int] = []

    def save(number: int) -> None:
        copies[number].title = f"title {number}"
        try:
            backend.save(copies[number])
        except Conflict:
            refused.append(number)

    at_once(save)
    assert len(refused) == 7
    assert loaded(backend).title_version == 1


# -- records -------------------------------------------------------------------------------------------------


def test_records_are_none_until_they_are_saved(backend: Backend) -> None:
    """Also for an unknown session; saving for one raises NotFound."""
    records = backend.records
    backend.save(make_session("s1"))
    for id in ("s1", "unknown"):
        assert records.load_artifacts(id) is None
        assert records.load_traces(id) is None
        assert records.load_verification(id) is None
    for save in (
        lambda: records.save_artifacts("unknown", ArtifactSet.of()),
        lambda: records.add_artifacts("unknown", []),
        lambda: records.save_traces("unknown", []),
        lambda: records.add_verification("unknown", []),
    ):
        with pytest.raises(NotFound):
            save()
    assert backend.ids() == ["s1"]


def test_records_are_loaded_unchanged(backend: Backend) -> None:
    """Each kind separately; a save replaces the whole record."""
    records = backend.records
    backend.save(make_session("s1"))
    assert records.save_artifacts("s1", ArtifactSet.of([make_artifact()])) == []
    records.save_traces("s1", [make_event(metadata={"artifact_uri": "u"})])
    records.save_verification("s1", [make_report()])
    assert records.load_artifacts("s1") == ArtifactSet.of([make_artifact()])
    assert records.load_traces("s1") == [make_event(metadata={"artifact_uri": "u"})]
    assert records.load_verification("s1") == [make_report()]
    records.save_traces("s1", [])
    assert records.load_traces("s1") == []
    assert records.load_verification("s1") == [make_report()]


def test_records_can_be_appended(backend: Backend) -> None:
    """Existing items keep their order."""
    records = backend.records
    backend.save(make_session("s1"))
    for name in ("a", "b"):
        assert records.add_artifacts("s1", [make_artifact(name)]) == []
        records.add_traces("s1", [make_event(name)])
        records.add_verification("s1", [make_report(name)])
    assert [e.name for e in records.load_traces("s1") or []] == ["a", "b"]
    assert [r.subject for r in records.load_verification("s1") or []] == ["a", "b"]
    found = records.load_artifacts("s1")
    assert found is not None
    assert len(found) == 2


def test_records_belong_to_one_session(backend: Backend) -> None:
    """A child has records separate from its root."""
    backend.save(make_session("s1"))
    add_child(backend)
    backend.records.save_traces("s1/kid", [make_event()])
    assert backend.records.load_traces("s1") is None
    assert backend.records.load_traces("kid") == [make_event()]


def test_records_survive_a_save_and_are_deleted_with_the_session(backend: Backend) -> None:
    """All three kinds, and those of the children."""
    records = backend.records
    backend.save(make_session("s1"))
    add_child(backend)
    for id in ("s1", "kid"):
        records.save_artifacts(id, ArtifactSet.of([make_artifact()]))
        records.save_traces(id, [make_event()])
        records.save_verification(id, [make_report()])
    session = loaded(backend)
    session.title = "Other"
    backend.save(session)
    assert records.load_traces("s1") == [make_event()]
    backend.delete("s1")
    backend.save(make_session("s1"))
    add_child(backend)
    for id in ("s1", "kid"):
        assert records.load_artifacts(id) is None
        assert records.load_traces(id) is None
        assert records.load_verification(id) is None


def test_saving_evicts_the_oldest_artifacts_and_returns_them(backend: Backend) -> None:
    """The caller's set is unchanged."""
    backend.save(make_session("s1"))
    many = ArtifactSet.of(make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 2))
    assert backend.records.save_artifacts("s1", many) == [f"a3s://tool-output/test/{i}" for i in range(2)]
    assert len(many) == MAX_ARTIFACTS + 2
    assert backend.records.add_artifacts("s1", [make_artifact("new")]) == ["a3s://tool-output/test/2"]
    found = backend.records.load_artifacts("s1")
    assert found is not None
    assert len(found) == MAX_ARTIFACTS


def test_artifact_over_the_limit_is_rejected(backend: Backend) -> None:
    """Rule 3: the stored ones are unchanged."""
    backend.save(make_session("s1"))
    backend.records.add_artifacts("s1", [make_artifact("a")])
    with pytest.raises(TooLarge):
        backend.records.add_artifacts("s1", [make_artifact("b", "x" * (MAX_CONTENT_BYTES + 1))])
    assert backend.records.load_artifacts("s1") == ArtifactSet.of([make_artifact("a")])


def test_c11_status_of_a_saved_report_is_that_of_the_caller(backend: Backend) -> None:
    """Whatever the checks imply."""
    backend.save(make_session("s1"))
    report = make_report("s", make_check("failed"))
    report.status = "passed"
    backend.records.save_verification("s1", [report])
    assert [r.status for r in backend.records.load_verification("s1") or []] == ["passed"]
    assert report.status == "passed"


def test_invalid_record_is_not_saved(backend: Backend) -> None:
    """Rules 3 and 6."""
    backend.save(make_session("s1"))
    backend.records.save_traces("s1", [make_event()])
    for damage in ({"duration_ms": -1}, {"name": "\ud800"}, {"kind": "dance"}, {"details": object()}):
        with pytest.raises(InvalidContent):
            backend.records.add_traces("s1", [make_event().model_copy(update=damage)])
    assert backend.records.load_traces("s1") == [make_event()]


def test_change_after_saving_a_record_is_not_saved(backend: Backend) -> None:
    """The store shares no object with its callers."""
    backend.save(make_session("s1"))
    event = make_event()
    backend.records.save_traces("s1", [event])
    event.name = "changed"
    (backend.records.load_traces("s1") or [event])[0].name = "changed too"
    assert backend.records.load_traces("s1") == [make_event()]


def test_no_concurrent_append_is_lost(backend: Backend) -> None:
    """An append reads and writes under the session's lock."""
    backend.save(make_session("s1"))

    def add(number: int) -> None:
        backend.records.add_traces("s1", [make_event(str(number))])
        backend.records.add_artifacts("s1", [make_artifact(str(number))])

    at_once(add)
    assert {e.name for e in backend.records.load_traces("s1") or []} == {str(i) for i in range(8)}
    found = backend.records.load_artifacts("s1")
    assert found is not None
    assert len(found) == 8
