"""Which version a save started from: one test for each row of the table in base_of_save.decide."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store.sessions import base_of_save
from store.sessions.base_of_save import Candidate, Decision, SaveEvidence, decide, holds_messages
from tests.builders import make_document

OLD, LATER, LATEST = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"


def text(*ids: str, at: str = OLD, **members: Any) -> bytes:
    messages = [{"id": id, "role": "user", "content": id} for id in ids]
    return make_document("s", messages=messages, updated_at=at, **members)


def version(number: int, raw: bytes) -> Candidate:
    return Candidate(("version", number), number, lambda: raw, number)


def draft(key: int, raw: bytes) -> Candidate:
    return Candidate(("draft", key), key, lambda: raw)


def typed(raw: bytes) -> Candidate:
    return Candidate(("typed", 0), 10**6, lambda: raw)


def save(raw: bytes, present: Candidate, **known: Any) -> Decision:
    return decide(SaveEvidence(typed(raw), present, **known))


def bases(decision: Decision) -> list[tuple[str, int]]:
    assert decision.action == "merge", decision
    return [base.key for base in decision.bases]


V1 = version(1, text("a"))
V2 = version(2, text("a", "b", at=LATER))


def test_row_1_the_present_version_needs_nothing() -> None:
    assert save(V2.text, V2).action == "nothing"


def test_row_2_a_buffer_that_started_from_bytes_has_their_version_as_base() -> None:
    """Whatever its updated_at says, and whatever else the process opened."""
    edited = text("a", title="T", at=LATER)
    assert bases(save(edited, V2, pinned=V1, same_time=[V2], opened=[V2])) == [V1.key]
    assert save(text("a", "b", at=LATER, title="T"), V2, pinned=V2).action == "take"


def test_row_3_without_any_knowledge_only_additions_are_taken() -> None:
    assert save(text("a", "b", "c", at=LATEST), V2).action == "take"
    assert save(text("a", at=LATEST), V2).action == "refuse"
    assert save(text("a", "b", "c", at="2026-01-01T12:00:00Z"), V2).action == "refuse"
    assert save(text("a", "b", "c", at=LATEST), V2, is_incomplete=True).action == "refuse"


def test_row_4_a_writer_that_set_updated_at_itself_started_from_what_it_read() -> None:
    """It must not delete the message that it never saw."""
    edited = text("a", title="T", at=LATEST)
    assert bases(save(edited, V2, opened=[V1])) == [V1.key]
    twice = [version(3, text("a", x=1)), version(4, text("a", x=2))]
    assert bases(save(edited, V2, opened=[*reversed(twice)])) == [("version", 3)]  # a tie: the older


def test_row_5_an_old_version_is_a_restore_only_after_an_unlink() -> None:
    restored = save(V1.text, V2, same_time=[V1], unlinked_first=True)
    assert (restored.action, restored.number) == ("restore", 1)
    refused = save(V1.text, V2, same_time=[V1])
    assert (refused.action, refused.number) == ("refuse", 1)


def test_row_5_does_not_hold_for_a_writer_that_read_this_version() -> None:
    assert save(V1.text, V2, same_time=[V1], opened=[V1], unlinked_first=True).action == "nothing"


def test_row_5_holds_whatever_other_processes_read() -> None:
    """tar c, an edit, tar x: the second tar did not read anything. Nor did the second of two cp."""
    assert save(V1.text, V2, same_time=[V1], relatives=[V1], unlinked_first=True).action == "restore"
    assert save(V1.text, V2, same_time=[V1], relatives=[V1]).action == "refuse"


def test_row_5_holds_for_documents_without_a_time() -> None:
    """cp of a state document to a backup, a save by others, and cp back: it was dropped with success."""
    assert save(V1.text, V2, relatives=[V1]).action == "refuse"
    assert save(V1.text, V2, relatives=[V1], unlinked_first=True).action == "restore"


def test_row_6_a_version_the_writer_had_comes_before_a_nearer_one() -> None:
    near = version(3, text("a", title="T"))
    edited = text("a", title="U")
    assert bases(save(edited, V2, same_time=[V1, near], opened=[V1])) == [V1.key]


def test_row_6_relatives_count_if_nothing_is_known_of_the_writer() -> None:
    """jq reads and mv renames: mv itself has opened nothing."""
    near = version(3, text("a", title="T"))
    edited = text("a", title="U")
    assert bases(save(edited, V2, same_time=[V1, near], relatives=[V1])) == [V1.key]


def test_row_6_without_evidence_the_nearest_text_is_the_base() -> None:
    other = version(3, text("a", title="T", x=1))
    assert bases(save(text("a", title="T", x=1, y=2), V2, same_time=[V1, other])) == [other.key]


def test_row_6_a_tie_is_the_own_last_save_or_all() -> None:
    one, two = version(3, text("a", x=1)), version(4, text("a", x=2))
    edited = text("a", x=3)
    assert bases(save(edited, V2, same_time=[one, two])) == [one.key, two.key]
    assert bases(save(edited, V2, same_time=[one, two], opened=[one, two], own_last=two)) == [two.key]


def test_row_6_drafts_count_as_bases() -> None:
    """The second save of a merged buffer is compared with what was typed first."""
    first = draft(7, text("a", title="B"))
    assert bases(save(text("a", title="C"), V2, same_time=[V1, first], opened=[first], own_last=first)) == [first.key]


def test_row_6_a_text_may_be_stale_or_set_something_back() -> None:
    """Title A, then B, then A again: without evidence of the writer nobody knows whether A is an old text."""
    older, present = version(3, text("a", title="A")), version(4, text("a", title="B"))
    back = text("a", title="A", x=1)
    assert bases(save(back, present, same_time=[older, present])) == [older.key, present.key]
    assert bases(save(back, present, same_time=[older, present], relatives=[older, present])) == [
        older.key,
        present.key,
    ]
    assert bases(save(back, present, same_time=[older, present], relatives=[older])) == [older.key]
    assert save(back, present, same_time=[older, present], relatives=[present]).action == "take"
    later = text("a", title="A", x=1, at=LATER)
    assert bases(save(later, present, relatives=[older, present])) == [older.key, present.key]


def test_row_6_of_equally_near_versions_that_relatives_read_their_own_save_counts() -> None:
    """A script sets the title again. If somebody else has set it meanwhile, it may be a clash."""
    older, present = version(3, text("a", title="A")), version(4, text("a", title="B"))
    read = {"same_time": [older, present], "relatives": [older, present]}
    assert save(text("a", title="C"), present, **read, is_present_theirs=True).action == "take"
    assert bases(save(text("a", title="C"), present, **read)) == [older.key, present.key]


def test_row_6_of_equally_near_versions_the_nearest_relatives_know_more() -> None:
    """`cat F | sed … > t && mv t F`, run by a program that has read an older version. Others saved the present one."""
    older, present = version(3, text("a", title="A")), version(4, text("a", title="B"))
    read = {"same_time": [older, present], "relatives": [older, present], "near_relatives": [present]}
    assert save(text("a", title="C"), present, **read).action == "take"
    back = text("a", title="A", x=1)
    assert bases(save(back, present, **read)) == [older.key, present.key], "a text that is more like the older one"


def test_row_6_a_text_made_of_what_the_nearest_relatives_read_is_not_an_edit_of_what_others_read() -> None:
    """`cat F | sed … > t && mv t F`, while another script, run by the same program, saves and reads F."""
    older, present = version(3, text("a", title="A")), version(4, text("a", title="B"))
    read = {"same_time": [older, present], "relatives": [older, present]}
    typed = text("a", title="A", x=1)
    assert bases(save(typed, present, **read, near_relatives=[older])) == [older.key]
    assert bases(save(typed, present, **read, near_relatives=[older, present])) == [older.key, present.key]
    later = text("a", title="A", x=1, at=LATER)
    assert bases(save(later, present, relatives=[older, present], near_relatives=[older])) == [older.key]


def test_row_6_too_many_candidates_are_a_refusal() -> None:
    many = [version(n, text("a", x=n)) for n in range(3, 4 + base_of_save.MAX_COMPARED)]
    assert save(text("a", title="T"), V2, same_time=many).action == "refuse"
    assert bases(save(text("a", title="T"), V2, same_time=many, opened=many[:1])) == [many[0].key]


def test_row_6_versions_that_are_not_kept_any_more_are_a_refusal() -> None:
    edited = text("a", title="T")
    assert save(edited, V2, same_time=[V1], is_incomplete=True).action == "refuse"
    assert bases(save(edited, V2, same_time=[V1], opened=[V1], is_incomplete=True)) == [V1.key]


def test_row_7_an_edit_of_the_present_version_is_taken_as_typed() -> None:
    assert save(text("a", "b", at=LATER, title="T"), V2, same_time=[V2], opened=[V2]).action == "take"


def test_row_7_an_unchanged_buffer_commits_nothing() -> None:
    assert save(V1.text, V2, same_time=[V1], opened=[V1]).action == "nothing"


def test_row_7_undo_in_an_editor_starts_from_its_own_last_save() -> None:
    """Read 1, save 3, undo everything, save: this takes 3 back, and keeps what others did since."""
    own = version(3, text("a", title="T"))
    present = version(4, text("a", "b", title="T", at=LATER))
    assert bases(save(V1.text, present, same_time=[V1, own], opened=[own, V1], own_last=own)) == [own.key]


def test_row_7_going_back_in_time_is_not_an_edit() -> None:
    """rsync reads the present version, and then writes an old backup that is not in the history."""
    assert save(text("a", title="T"), V2, opened=[V2]).action == "refuse"
    named = save(V1.text, V2, pinned=V2, same_time=[V1])
    assert (named.action, named.number) == ("refuse", 1)


def test_texts_are_not_read_where_evidence_decides() -> None:
    """A session edited a thousand times by hand has a thousand versions with one updated_at."""

    def unread() -> bytes:
        raise AssertionError("this version was read")

    many = [Candidate(("version", n), n, unread, n, is_exact=False) for n in range(3, 2000)]
    assert bases(save(text("a", title="T"), V2, same_time=[V1, *many], opened=[V1])) == [V1.key]


def test_holds_messages() -> None:
    one = json.loads(text("a", "b"))
    assert holds_messages(json.loads(text("a", "b", "c")), one)
    assert not holds_messages(json.loads(text("b", "c")), one)
    changed = json.loads(text("a", "b"))
    changed["messages"][0]["content"] = "other"
    assert not holds_messages(changed, one)


TEXTS = st.builds(
    lambda ids, x, at: text(*ids, x=x, at=at),
    st.lists(st.sampled_from("abc"), unique=True, max_size=3),
    st.integers(0, 2),
    st.sampled_from([OLD, LATER, LATEST]),
)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, st.data())
def test_only_a_known_base_replaces_the_present_version(texts: list[bytes], raw: bytes, data: st.DataObject) -> None:
    """A text is taken as typed only if its base is the present version, or if it adds to that."""
    versions = [version(number, each) for number, each in enumerate(texts, 1)]
    present = versions[-1]
    opened = data.draw(st.lists(st.sampled_from(versions), unique_by=lambda c: c.key))
    at = json.loads(raw)["updated_at"]
    same_time = [v for v in versions if v.data["updated_at"] == at]
    decision = save(raw, present, same_time=same_time, opened=opened)
    if decision.action != "take":
        return
    sources = [v for v in versions if v.text == present.text]
    is_known = any(v in opened or v in same_time for v in sources)
    assert is_known or holds_messages(json.loads(raw), present.data)
    assert not opened or any(v.text == present.text for v in [*opened, *same_time])
