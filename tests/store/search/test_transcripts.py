"""Transcripts: sizes come from the index without rendering and are exact after every change."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import Conflict, Location, Message, NotFound, Session, Store, Timestamp
from store.model.budget import ConversationSummary
from store.model.message import ImageUrl, MessagePart
from tests.builders import make_document, make_session
from tests.store.documents.test_transcript import messages as random_messages
from tests.store.documents.test_transcript import texts
from tests.store.tables import dump_tables

ONE = Location("s1")


def image(url: str) -> Message:
    message = Message.user("look")
    message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url))]
    return message


def text_of(store: Store, location: Location = ONE) -> str:
    """The rendered text. Checks that it has the stated size and equals `store.transcript`."""
    info = store.transcripts.find(location)
    assert info is not None
    data = store.transcripts.render(info)
    assert len(data) == info.size_bytes
    assert data.decode() == store.transcript(str(location))
    return data.decode()


# -- after changes ---------------------------------------------------------------------------------------


def test_saved_session_has_a_transcript(store: Store) -> None:
    store.save(make_session(title="A title"))
    text = text_of(store)
    assert text.startswith("# A title\n")
    assert "msg-0" in text
    assert "## [1] assistant" in text


def test_append_extends_the_transcript(store: Store) -> None:
    store.save(make_session())
    before = store.transcripts.find(ONE)
    store.append("s1", [Message.user("one more")])
    assert "one more" in text_of(store)
    assert before is not None
    assert "- messages: 2\n" in store.transcripts.render(before).decode()


def test_runtime_save_changes_only_the_header(store: Store) -> None:
    """The title comes from the sidecar, which is newer."""
    store.save(make_session(title="Old"))
    session = store.load_runtime("s1")
    assert session is not None
    session.title = "Another, longer title"
    store.save_runtime(session)
    assert text_of(store).startswith("# Another, longer title\n")


def test_summary_is_included(store: Store) -> None:
    store.save(make_session())
    now = Timestamp.now()

    def summarise(session: Session) -> None:
        session.conversation_summary = ConversationSummary(
            created_at=now, updated_at=now, content="In short: ünïcode", message_count=2, token_count=3
        )

    store.update("s1", summarise)
    assert "\n## Summary\n\nIn short: ünïcode\n" in text_of(store)


def test_clear_delete_and_rename_are_followed(store: Store) -> None:
    store.save(make_session())
    store.clear("s1")
    assert "msg-0" not in text_of(store)
    store.rename("s1", "s2")
    assert store.transcripts.find(ONE) is None
    assert "- session: s2\n" in text_of(store, Location("s2"))
    store.delete("s2")
    assert store.transcripts.find(Location("s2")) is None
    assert store.transcript("s2") is None


def test_children_are_listed_below_their_root(store: Store) -> None:
    root = make_session("r")
    store.save(root)
    store.save(make_session("plain"))
    store.save(Session.new_child_of("c", root, "m", "A child"))
    assert [info.location for info in store.transcripts.iter_roots()] == [Location("plain"), Location("r")]
    assert [info.location for info in store.transcripts.iter_children("r")] == [Location("r", "c")]
    assert [root for root, _ in store.transcripts.iter_parents()] == ["r"]
    assert store.transcripts.find_newest_child("plain") is None
    assert "- child of: r\n" in text_of(store, Location("r", "c"))


def test_mtime_is_that_of_the_newer_document(store: Store, home: Path) -> None:
    store.save(make_session())
    os.utime(home / "sessions/s1/runtime.json", ns=(7, 7))
    os.utime(home / "sessions/s1/session.json", ns=(9, 9))
    store.maintenance.sweep()
    info = store.transcripts.find(ONE)
    assert info is not None
    assert info.mtime_ns == 9


# -- links ---------------------------------------------------------------------------------------------------


def test_link_points_to_the_attachment(store: Store, home: Path) -> None:
    """Also from a child's transcript, one directory deeper, and to the root's attachments."""
    root = make_session("r")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "A child"))
    for name, base in (("r", "transcripts"), ("r/c", "transcripts/r")):
        own, above = store.attach(name, b"x", "image/png"), store.attach("r", b"y", "text/plain")
        store.append(name, [image(own.url), image(above.url)])
        location = Location(*name.split("/"))
        links = [line.partition("](")[2].rstrip(")") for line in text_of(store, location).split("\n") if "](" in line]
        assert [(home / base / link).resolve().read_bytes() for link in links[-2:]] == [b"x", b"y"]


def test_link_to_an_attachment_of_another_session(store: Store) -> None:
    """Resolved if the id is unique; an unresolvable reference is shown unchanged."""
    for name in ("s1", "other"):
        store.save(make_session(name, messages=0))
    twins = [make_session(name, messages=0) for name in ("t1", "t2")]
    for twin in twins:
        store.save(twin)
        store.save(Session.new_child_of("twin", twin, "m", "Twin"))
    found = store.attach("other", b"x", "image/png")
    store.append("s1", [image(found.url), image("bamboo-attachment://twin/x"), image("bamboo-attachment://../x")])
    text = text_of(store)
    assert f"](../sessions/other/attachments/{found.id}.png)" in text
    assert "](bamboo-attachment://twin/x)" in text
    assert "](bamboo-attachment://../x)" in text


def test_later_attachment_changes_the_size(store: Store, home: Path) -> None:
    """Link targets are resolved at lookup, so no commit is needed."""
    store.save(make_session(messages=0))
    store.append("s1", [image("bamboo-attachment://s1/later"), image("bamboo-attachment://nobody/x")])
    assert "](bamboo-attachment://s1/later)" in text_of(store)
    before = store.transcripts.find(ONE)
    (home / "sessions/s1/attachments/later.jpeg").write_bytes(b"x")
    assert "](../sessions/s1/attachments/later.jpeg)" in text_of(store)
    after = store.transcripts.find(ONE)
    assert before is not None
    assert after is not None
    assert before.digest != after.digest
    assert b"](bamboo-attachment://s1/later)" in store.transcripts.render(before)
    store.maintenance.sweep()


def test_edited_message_loses_its_links(store: Store) -> None:
    store.save(make_session(messages=0))
    url = store.attach("s1", b"x", "image/png").url
    store.append("s1", [image(url), image(url)])
    assert text_of(store).count("](../sessions/s1/attachments/") == 2

    def edit(session: Session) -> None:
        session.messages[0].content_parts = None

    store.update("s1", edit)
    assert text_of(store).count("](../sessions/s1/attachments/") == 1


# -- concurrent changes --------------------------------------------------------------------------------------


def test_stale_info_raises_conflict_after_an_edit(store: Store) -> None:
    """Even if the edit did not change the length."""
    store.save(make_session())
    info = store.transcripts.find(ONE)
    assert info is not None
    raw = store.get_document(ONE, "session.json")
    assert raw is not None
    store.put_document(ONE, "session.json", raw.replace(b"msg-0", b"MSG-0"))
    with pytest.raises(Conflict, match="retry"):
        store.transcripts.render(info)
    assert "MSG-0" in text_of(store)


def test_info_stays_valid_after_appends_and_runtime_saves(store: Store) -> None:
    """They leave all earlier messages unchanged."""
    store.save(make_session(title="Before"))
    info = store.transcripts.find(ONE)
    assert info is not None
    text = store.transcripts.render(info)
    store.append("s1", [Message.user("more")])
    session = store.load_runtime("s1")
    assert session is not None
    session.title = "Afterwards, and longer"
    store.save_runtime(session)
    assert store.transcripts.render(info) == text
    now = Timestamp.now()
    session.conversation_summary = ConversationSummary(
        created_at=now, updated_at=now, content="In short", message_count=2, token_count=3
    )
    store.save_runtime(session)
    with pytest.raises(Conflict):
        store.transcripts.render(info)


def test_outside_edit_is_noticed_on_render(store: Store, home: Path) -> None:
    store.save(make_session())
    info = store.transcripts.find(ONE)
    assert info is not None
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"something else"))
    with pytest.raises(Conflict):
        store.transcripts.render(info)
    assert "something else" in text_of(store)
    store.maintenance.sweep()


def test_deleted_session_is_not_found(store: Store) -> None:
    store.save(make_session())
    info = store.transcripts.find(ONE)
    assert info is not None
    store.delete("s1")
    with pytest.raises(NotFound):
        store.transcripts.render(info)


# -- property test ---------------------------------------------------------------------------------------------

changes = st.one_of(
    st.tuples(st.just("append"), st.lists(random_messages, min_size=1, max_size=2)),
    st.tuples(st.just("put"), st.lists(random_messages, max_size=4)),
    st.tuples(st.just("title"), texts),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("attach"), st.none()),
    st.tuples(st.just("clear"), st.none()),
)


def apply(store: Store, what: str, value: Any) -> None:
    if what == "append":
        store.append("s1", value)
    elif what == "put":
        when = Timestamp.after(store.entry("s1").updated_at)  # type: ignore[union-attr]
        store.put_document(ONE, "session.json", make_document(messages=value, updated_at=when))
    elif what == "title":
        session = store.load_runtime("s1")
        assert session is not None
        session.title = value
        store.save_runtime(session)
    elif what == "drop":
        store.update("s1", lambda session: session.messages.__delitem__(slice(value, value + 1)), shorten=True)
    elif what == "attach":
        store.append("s1", [image(store.attach("s1", b"x", "image/png").url)])
    else:
        store.clear("s1")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(changes, max_size=6))
def test_sizes_are_exact_after_any_edits(steps: list[tuple[str, Any]]) -> None:
    """After every step the stated size is that of the text, and a rebuild gives the same sizes (rules 1 and 7)."""
    with tempfile.TemporaryDirectory() as directory:
        with Store.open(directory, background=False, durability="normal") as store:
            store.put_document(ONE, "session.json", make_document())
            for what, value in steps:
                apply(store, what, value)
                text_of(store)
            assert {finding.kind for finding in store.check().findings} <= {"dangling-attachment"}
        kept = dump_tables(Path(directory))
        with Store.open(directory, background=False) as store:
            store.maintenance.rebuild()
        rebuilt = dump_tables(Path(directory))
        assert {name: kept[name] for name in ("sessions", "pieces", "links")} == {
            name: rebuilt[name] for name in ("sessions", "pieces", "links")
        }


# -- damage and renderer versions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE pieces SET bytes = bytes + 1 WHERE row & 3 = 1",
        "DELETE FROM pieces WHERE row & 3 = 2",
        "INSERT INTO pieces VALUES ((1 << 24) + 77, 5)",
        "INSERT INTO pieces VALUES (99 << 24, 5)",
        "INSERT INTO links VALUES ((1 << 24) + 1, 'bamboo-attachment://s1/x', 1)",
        "UPDATE sessions SET text_bytes = text_bytes - 1",
        "UPDATE sessions SET header_bytes = 1",
        "UPDATE sessions SET name = 'x'",
    ],
)
def test_check_finds_and_repairs_wrong_sizes(home: Path, damage: str) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session())
    connection = apsw.Connection(str(home / ".grovefs/index.db"))
    connection.execute(damage)
    connection.close()
    with Store.open(home, background=False) as store:
        assert [finding.kind for finding in store.check().findings] == ["search-rows"]
        assert store.check(repair=True).exit_code == 1
        assert store.check().is_clean
        text_of(store)


def test_index_of_another_renderer_version_is_rebuilt(home: Path) -> None:
    """Its sizes would be wrong."""
    with Store.open(home, background=False) as store:
        store.save(make_session())
    connection = apsw.Connection(str(home / ".grovefs/index.db"))
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'renderer'; UPDATE pieces SET bytes = 1")
    connection.close()
    with Store.open(home, background=False) as store:
        text_of(store)
        assert store.check().is_clean


def _record_event(seen: list[str], event: Any) -> None:
    seen.append(json.dumps(event, default=str))


def test_append_cost_does_not_grow_with_the_conversation(store: Store) -> None:
    """It reads and writes the same rows at any length."""
    counts = []
    for name, messages in (("short", 3), ("long", 400)):
        store.save(make_session(name, messages=messages))
        db = store._core.db._writer
        seen: list[str] = []
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, partial(_record_event, seen))
        store.append(name, [Message.user("x")])
        db.trace_v2(0, None)
        counts.append(len([line for line in seen if "pieces" in line or "links" in line]))
    assert counts[0] == counts[1] > 0
