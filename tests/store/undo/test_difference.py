"""The difference between two versions of a session or of another file."""

from __future__ import annotations

from store.history.versions import VersionTexts
from store.undo.difference import NOTHING, Difference, difference
from tests.builders import make_document


def session(old: VersionTexts, new: VersionTexts) -> Difference:
    return difference(old, new, is_session=True)


def text(old: bytes | None, new: bytes | None) -> Difference:
    return difference(VersionTexts(old, None), VersionTexts(new, None), is_session=False)


MADE = VersionTexts(make_document(), None)


def test_a_session_is_summarised_in_words() -> None:
    """From its first version to its removal."""
    retitled = VersionTexts(make_document(title="B title"), None)
    assert session(NOTHING, MADE).summary() == "created, 1 message"
    assert session(MADE, retitled).summary() == "title: [-A-]{+B+} title"
    assert session(MADE, MADE).summary() == "no change"
    assert session(MADE, VersionTexts(make_document(indent=None), None)).summary() == "layout only"
    assert session(MADE, NOTHING).summary() == "removed"


def test_a_sidecar_counts_too() -> None:
    """An agent that saves its state changes runtime.json alone."""
    side = make_document(messages=[], pinned=True)
    shown = session(MADE, MADE._replace(side=side))
    assert shown.summary() == "pinned: {+true+}"
    assert [line for line in shown.raw("s1@1", "s1@2") if line.startswith(("---", "+++"))] == [
        "--- s1@1 runtime.json",
        "+++ s1@2 runtime.json",
    ]


def test_a_change_of_the_layout_is_shown_by_the_raw_form() -> None:
    """The words say so."""
    shown = session(MADE, VersionTexts(make_document(indent=4), None))
    assert [str(line) for line in shown.lines()] == ["only the layout differs; --raw shows it"]
    assert list(shown.raw("a", "b"))


def test_texts_are_compared_by_lines() -> None:
    """Markdown, or JSON that a program outside the store damaged."""
    shown = text(b"a\nb\n", b"a\nc\n")
    assert shown.summary() == "+1 line, -1 line"
    assert [str(line) for line in shown.lines()] == [" a", "-b", "+c"]
    assert shown.as_json() == {"lines": [" a", "-b", "+c"]}
    damaged = session(MADE, VersionTexts(b"{ damaged", None))
    assert damaged.changes is None
    assert damaged.summary().startswith("+1 line")


def test_other_json_documents_are_compared_by_members() -> None:
    """State documents, records and project payloads, which may be arrays too."""
    assert text(b'{"a": 1}', b'{"a": 2}').summary() == "a: [-1-]{+2+}"
    assert text(b"[1]", b"[2]").summary() == "[0]: [-1-]{+2+}"
    assert text(None, b"[1]").summary() == "created"
    assert text(b"7", None).summary() == "removed"
