"""Plans of an undo, decided from the versions of one session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.history.authors import Author
from store.history.versions import SavedVersion
from store.undo.undo_plan import UndoItem, UndoRefusal, UndoRequest, decide, is_bad, matches_author

SED = Author("mount", "sed", 4711, 1000)
AGENT = Author("api", "agent", 12, 1000)
WINDOW = UndoRequest(10, 20)


def version(number: int, at_ns: int, author: Author = SED, **other: Any) -> SavedVersion:
    members = {"what": "saved", "path": "sessions/s1", "main_bytes": 100, **other}
    fixed: dict[str, Any] = {"lineage": 1, "key": number, "side_bytes": 50, "main_digest": b"", "said_ns": 0, "mark": 0}
    return SavedVersion(number=number, at_ns=at_ns, author=author, **fixed, **members)


def decided(*versions: SavedVersion, **request: Any) -> UndoItem | UndoRefusal | None:
    return decide(versions, UndoRequest(**{"since_ns": 10, "until_ns": 20, **request}))


def reason(*versions: SavedVersion, **request: Any) -> str:
    refusal = decided(*versions, **request)
    assert isinstance(refusal, UndoRefusal)
    return refusal.reason


def test_the_version_before_the_first_bad_one_comes_back() -> None:
    """All that were made in the window are bad."""
    item = decided(version(1, 5), version(2, 10), version(3, 20))
    assert isinstance(item, UndoItem)
    assert ([bad.number for bad in item.bad], item.target.number, item.newest) == ([2, 3], 1, 3)
    assert not item.is_merge


def test_nothing_bad_is_left_alone() -> None:
    """Versions outside the window, or by others."""
    assert decided(version(1, 5), version(2, 9), version(3, 21)) is None
    assert decided(version(1, 5), version(2, 15, AGENT), by="sed") is None


def test_a_session_made_in_the_window_is_refused() -> None:
    """There is nothing to go back to; also for a document that was removed and made again."""
    assert reason(version(1, 15)).startswith("it was made in that time")
    assert reason(version(1, 5, main_bytes=None), version(2, 15)).startswith("it was made again")


def test_a_version_that_is_not_kept_is_refused() -> None:
    """An older one would take back other changes too."""
    assert reason(version(3, 5), version(5, 15)) == "version 4, the one before, is not kept any more"


def test_changes_by_others_are_refused() -> None:
    """Unless they are to be merged."""
    since = (version(1, 5), version(2, 15), version(3, 30, AGENT))
    assert reason(*since, by="sed") == "changed since by agent; --merge keeps those changes"
    between = (version(1, 5), version(2, 15), version(3, 16, AGENT), version(4, 17))
    assert reason(*between, by="sed") == "changed in between by agent; --merge keeps those changes"
    for versions, bad in ((since, [2]), (between, [2, 4])):
        item = decided(*versions, by="sed", merge=True)
        assert isinstance(item, UndoItem)
        assert ([each.number for each in item.bad], item.target.number, item.is_merge) == (bad, 1, True)


def test_the_same_author_after_the_window_is_another_change() -> None:
    """The window decides, not only the author."""
    assert reason(version(1, 5), version(2, 15), version(3, 30)).startswith("changed since by sed")


def test_moving_is_not_undone() -> None:
    """Nor does it count as a change by others: the session keeps today's name."""
    assert decided(version(1, 5), version(2, 15, what="moved")) is None
    item = decided(version(1, 5), version(2, 15), version(3, 30, AGENT, what="moved"))
    assert isinstance(item, UndoItem)
    assert not item.is_merge


def test_a_session_in_the_trash_is_refused() -> None:
    """Its versions went there with it."""
    path = ".grovefs/trash/1-s1/0"
    assert reason(version(1, 5, path=path), version(2, 15, path=path)).startswith("it is in the trash now")


@pytest.mark.parametrize("pattern", ["sed", "s*", "mount", "mount: sed", "mount: sed (4711)", "*4711*", None])
def test_authors_are_matched_by_program_or_way(pattern: str | None) -> None:
    """A pattern as in a shell."""
    assert matches_author(SED, pattern)
    assert matches_author(AGENT, pattern) == (pattern is None)


@pytest.mark.parametrize("pattern", ["sed", "sed@laptop", "mount: sed", "mount: sed@laptop", "*@laptop", "mount"])
def test_in_a_grove_authors_are_matched_with_and_without_their_host(pattern: str) -> None:
    """The same on the host that made a change and on the others."""
    assert matches_author(SED, pattern, host="laptop")
    assert matches_author(Author("mount", "sed@laptop"), pattern, host="server")
    is_of_any_host = "@" not in pattern
    assert matches_author(Author("mount", "sed@desk"), pattern, host="laptop") == is_of_any_host
    assert matches_author(SED, pattern, host="desk") == is_of_any_host


def test_a_program_without_a_name_is_matched_by_its_way() -> None:
    """`revert*` takes back an undo."""
    assert matches_author(Author("revert"), "revert*")
    assert matches_author(Author("revert", "grovefs", 7), "revert*")


@given(st.lists(st.tuples(st.integers(1, 10), st.sampled_from([SED, AGENT]), st.booleans()), min_size=1), st.booleans())
def test_an_undo_never_takes_back_what_is_not_bad(steps: list[tuple[int, Author, bool]], merge: bool) -> None:
    """Without a merge nothing but bad and moved versions comes after the target."""
    at_ns, versions = 0, []
    for number, (later, author, is_move) in enumerate(steps, 1):
        at_ns += later
        versions.append(version(number, at_ns, author, what="moved" if is_move else "saved"))
    request = UndoRequest(10, 20, by="sed", merge=merge)
    item = decide(versions, request)
    bad = [each for each in versions if is_bad(each, request)]
    assert (item is None) == (not bad)
    if isinstance(item, UndoItem):
        assert list(item.bad) == bad
        after = [each for each in versions if each.number > item.target.number]
        assert item.is_merge == any(each not in bad and each.what != "moved" for each in after)
        assert merge or not item.is_merge
