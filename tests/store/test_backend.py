"""What every backend does: one suite for the home on a disk and for the dictionary in memory."""

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


def test_a_backend_says_what_it_is_and_that_it_works(backend: Backend) -> None:
    """Its name is for diagnostics; a healthy one has no probe that failed."""
    assert isinstance(backend, Backend)
    assert backend.backend_name in ("local", "memory")
    health = backend.health()
    assert health.ok, health
    assert health.backend == backend.backend_name
    assert health.as_dict()["ok"] is True


# -- sessions ------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(backend: Backend) -> None:
    """The whole record, unknown members too."""
    session = Session.model_validate(make_session("s1", title="T").model_dump() | {"strange": [1, {"b": 2}]})
    backend.save(session)
    assert loaded(backend) == session
    assert loaded(backend).model_extra == {"strange": [1, {"b": 2}]}


def test_an_unknown_session_is_none_or_false(backend: Backend) -> None:
    """No exception for a question."""
    assert backend.load("nobody") is None
    assert backend.load("no/body") is None
    assert backend.exists("nobody") is False
    assert backend.delete("nobody") is False
    assert backend.ids() == []


def test_a_wrong_argument_is_a_type_error_and_changes_nothing(backend: Backend) -> None:
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
    """Children under their roots."""
    for id in ("s2", "s1"):
        backend.save(make_session(id))
    add_child(backend)
    assert backend.ids() == ["s1", "s1/kid", "s2"]
    assert all(backend.exists(id) for id in backend.ids())
    assert loaded(backend, "kid") == loaded(backend, "s1/kid")


def test_what_is_deleted_is_gone_with_its_descendants(backend: Backend) -> None:
    """At any depth; and only they."""
    backend.save(make_session("s1"))
    add_child(backend)
    add_child(backend, "grandkid", parent="kid")
    add_child(backend, "other")
    assert backend.delete("kid")
    assert backend.ids() == ["s1", "s1/other"]
    assert backend.delete("s1")
    assert backend.ids() == []
    assert backend.exists("s1") is False


def test_a_pinned_session_is_not_deleted_unless_forced(backend: Backend) -> None:
    """Nor one with a pinned descendant."""
    backend.save(make_session("s1"))
    add_child(backend, pinned=True)
    for id in ("s1", "kid"):
        with pytest.raises(Protected, match="pinned"):
            backend.delete(id)
    assert len(backend.ids()) == 2
    assert backend.delete("s1", force=True)
    assert backend.ids() == []


def test_an_outdated_copy_is_refused(backend: Backend) -> None:
    """Rule 8: who saves second is told."""
    backend.save(make_session("s1"))
    one, two = loaded(backend), loaded(backend)
    one.title = "first"
    backend.save(one)
    two.title = "second"
    with pytest.raises(Conflict, match="changed by someone else"):
        backend.save(two)
    with pytest.raises(Conflict, match="was not loaded from it"):
        backend.save(make_session("s1"))
    assert loaded(backend).title == "first"
    backend.save(two, overwrite=True)
    assert loaded(backend).title == "second"


def test_one_copy_can_be_saved_again_and_again(backend: Backend) -> None:
    """It is up to date after each save, and updated_at never goes back."""
    session = make_session("s1", messages=0)
    moments = []
    for number in range(3):
        session.add_message(Message.user(str(number)))
        backend.save(session)
        moments.append(loaded(backend).updated_at.ns)
    assert moments == sorted(set(moments))
    assert len(loaded(backend).messages) == 3


def test_saving_without_a_change_is_no_change(backend: Backend) -> None:
    """Not even of updated_at."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    backend.save(session)
    assert loaded(backend) == session


def test_a_session_deleted_meanwhile_does_not_come_back_by_itself(backend: Backend) -> None:
    """Only if that is asked for."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    backend.delete("s1")
    with pytest.raises(Conflict, match="deleted"):
        backend.save(session)
    backend.save(session, overwrite=True)
    assert backend.exists("s1")


def test_messages_are_not_lost_unless_asked(backend: Backend) -> None:
    """A save that would shorten the conversation is refused."""
    backend.save(make_session("s1", messages=3))
    session = loaded(backend)
    session.messages.pop()
    with pytest.raises(Conflict, match="would drop 1 message"):
        backend.save(session)
    backend.save(session, shorten=True)
    assert len(loaded(backend).messages) == 2


def test_titles_and_pins_count_their_versions(backend: Backend) -> None:
    """As their owner expects of every writer."""
    backend.save(make_session("s1"))
    session = loaded(backend)
    session.title, session.pinned = "Other", True
    backend.save(session)
    assert (loaded(backend).title_version, loaded(backend).metadata_version) == (1, 1)


def test_what_is_changed_after_a_save_is_not_saved(backend: Backend) -> None:
    """The store shares nothing with its callers."""
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
def test_what_could_not_be_loaded_is_not_saved(backend: Backend, damage: dict[str, Any]) -> None:
    """Rules 3 and 6."""
    session = make_session("s1")
    for name, value in damage.items():
        setattr(session, name, value)
    with pytest.raises(InvalidContent):
        backend.save(session)
    assert backend.ids() == []


@pytest.mark.parametrize("bad", ["", ".", "../x", "a/b/c", "a\\b", "x" * 256, "a\0b"])
def test_ids_with_separators_are_refused_everywhere(backend: Backend, bad: str) -> None:
    """And never turned into another id."""
    for question in (backend.load, backend.exists, backend.delete, backend.records.load_traces):
        with pytest.raises(InvalidName):
            question(bad)
    with pytest.raises(InvalidName):
        backend.save(make_session(bad))
    assert backend.ids() == []


@pytest.mark.parametrize("bad", [".hidden", "a\nb"])
def test_ids_for_no_shell_are_not_made(backend: Backend, bad: str) -> None:
    """They may lie on disk, but no new one comes into being."""
    with pytest.raises(InvalidName):
        backend.save(make_session(bad))


def test_an_id_below_two_roots_is_ambiguous(backend: Backend) -> None:
    """Its exact name is not."""
    for root in ("s1", "s2"):
        backend.save(make_session(root))
        add_child(backend, root=root)
    with pytest.raises(Ambiguous, match="s1/kid, s2/kid"):
        backend.load("kid")
    assert loaded(backend, "s2/kid").root_session_id == "s2"


def test_of_savers_at_once_one_wins_and_the_rest_are_told(backend: Backend) -> None:
    """No save is half there."""
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
    """For an unknown session too; saving for one is refused."""
    shelf = backend.records
    backend.save(make_session("s1"))
    for id in ("s1", "nobody"):
        assert shelf.load_artifacts(id) is None
        assert shelf.load_traces(id) is None
        assert shelf.load_verification(id) is None
    for save in (
        lambda: shelf.save_artifacts("nobody", ArtifactSet.of()),
        lambda: shelf.add_artifacts("nobody", []),
        lambda: shelf.save_traces("nobody", []),
        lambda: shelf.add_verification("nobody", []),
    ):
        with pytest.raises(NotFound):
            save()
    assert backend.ids() == ["s1"]


def test_records_are_loaded_as_they_were_saved(backend: Backend) -> None:
    """Each kind by itself, and replaced as a whole."""
    shelf = backend.records
    backend.save(make_session("s1"))
    assert shelf.save_artifacts("s1", ArtifactSet.of([make_artifact()])) == []
    shelf.save_traces("s1", [make_event(metadata={"artifact_uri": "u"})])
    shelf.save_verification("s1", [make_report()])
    assert shelf.load_artifacts("s1") == ArtifactSet.of([make_artifact()])
    assert shelf.load_traces("s1") == [make_event(metadata={"artifact_uri": "u"})]
    assert shelf.load_verification("s1") == [make_report()]
    shelf.save_traces("s1", [])
    assert shelf.load_traces("s1") == []
    assert shelf.load_verification("s1") == [make_report()]


def test_records_are_added_to(backend: Backend) -> None:
    """What was there stays, in its order."""
    shelf = backend.records
    backend.save(make_session("s1"))
    for name in ("a", "b"):
        assert shelf.add_artifacts("s1", [make_artifact(name)]) == []
        shelf.add_traces("s1", [make_event(name)])
        shelf.add_verification("s1", [make_report(name)])
    assert [e.name for e in shelf.load_traces("s1") or []] == ["a", "b"]
    assert [r.subject for r in shelf.load_verification("s1") or []] == ["a", "b"]
    found = shelf.load_artifacts("s1")
    assert found is not None
    assert len(found) == 2


def test_records_have_a_session_of_their_own(backend: Backend) -> None:
    """Those of a child are not its root's."""
    backend.save(make_session("s1"))
    add_child(backend)
    backend.records.save_traces("s1/kid", [make_event()])
    assert backend.records.load_traces("s1") is None
    assert backend.records.load_traces("kid") == [make_event()]


def test_records_stay_when_the_session_is_saved_and_go_with_it(backend: Backend) -> None:
    """All three, and those of the children."""
    shelf = backend.records
    backend.save(make_session("s1"))
    add_child(backend)
    for id in ("s1", "kid"):
        shelf.save_artifacts(id, ArtifactSet.of([make_artifact()]))
        shelf.save_traces(id, [make_event()])
        shelf.save_verification(id, [make_report()])
    session = loaded(backend)
    session.title = "Other"
    backend.save(session)
    assert shelf.load_traces("s1") == [make_event()]
    backend.delete("s1")
    backend.save(make_session("s1"))
    add_child(backend)
    for id in ("s1", "kid"):
        assert shelf.load_artifacts(id) is None
        assert shelf.load_traces(id) is None
        assert shelf.load_verification(id) is None


def test_saving_evicts_the_oldest_artifacts_and_says_which(backend: Backend) -> None:
    """The set of the caller stays as it was."""
    backend.save(make_session("s1"))
    many = ArtifactSet.of(make_artifact(str(i)) for i in range(MAX_ARTIFACTS + 2))
    assert backend.records.save_artifacts("s1", many) == [f"a3s://tool-output/test/{i}" for i in range(2)]
    assert len(many) == MAX_ARTIFACTS + 2
    assert backend.records.add_artifacts("s1", [make_artifact("new")]) == ["a3s://tool-output/test/2"]
    found = backend.records.load_artifacts("s1")
    assert found is not None
    assert len(found) == MAX_ARTIFACTS


def test_an_artifact_that_can_never_fit_is_refused(backend: Backend) -> None:
    """Rule 3: those that were there stay."""
    backend.save(make_session("s1"))
    backend.records.add_artifacts("s1", [make_artifact("a")])
    with pytest.raises(TooLarge):
        backend.records.add_artifacts("s1", [make_artifact("b", "x" * (MAX_CONTENT_BYTES + 1))])
    assert backend.records.load_artifacts("s1") == ArtifactSet.of([make_artifact("a")])


def test_the_status_of_a_saved_report_is_the_one_that_follows(backend: Backend) -> None:
    """Whatever was assigned to it; the caller's own is left alone."""
    backend.save(make_session("s1"))
    report = make_report("s", make_check("failed"))
    report.status = "passed"
    backend.records.save_verification("s1", [report])
    assert [r.status for r in backend.records.load_verification("s1") or []] == ["failed"]
    assert report.status == "passed"


def test_a_record_that_could_not_be_loaded_is_not_saved(backend: Backend) -> None:
    """Rules 3 and 6."""
    backend.save(make_session("s1"))
    backend.records.save_traces("s1", [make_event()])
    for damage in ({"duration_ms": -1}, {"name": "\ud800"}, {"kind": "dance"}, {"details": object()}):
        with pytest.raises(InvalidContent):
            backend.records.add_traces("s1", [make_event().model_copy(update=damage)])
    assert backend.records.load_traces("s1") == [make_event()]


def test_what_is_changed_after_a_record_was_saved_is_not_saved(backend: Backend) -> None:
    """The store shares nothing with its callers."""
    backend.save(make_session("s1"))
    event = make_event()
    backend.records.save_traces("s1", [event])
    event.name = "changed"
    (backend.records.load_traces("s1") or [event])[0].name = "changed too"
    assert backend.records.load_traces("s1") == [make_event()]


def test_of_those_who_add_at_once_none_is_lost(backend: Backend) -> None:
    """Adding reads and writes under the session's lock."""
    backend.save(make_session("s1"))

    def add(number: int) -> None:
        backend.records.add_traces("s1", [make_event(str(number))])
        backend.records.add_artifacts("s1", [make_artifact(str(number))])

    at_once(add)
    assert {e.name for e in backend.records.load_traces("s1") or []} == {str(i) for i in range(8)}
    found = backend.records.load_artifacts("s1")
    assert found is not None
    assert len(found) == 8
