"""Session ids, and the mapping between paths and locations."""

import os
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from store import layout
from store.errors import InvalidName
from store.layout import Location

UUID = "5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001"

IDS = st.text(min_size=1, max_size=30).filter(layout.is_session_dir)
LOCATIONS = st.builds(Location, IDS, st.none() | IDS)

TRAVERSAL = [
    "",
    ".",
    "..",
    "../x",
    "x/..",
    "a/b",
    "/",
    "/etc",
    "a\\b",
    "\\",
    "a..b",
    "...",
    "x\0y",
    "\udce4",
    "a\ud800",
]
ODD = [" ", "a b", ".hidden", "-rf", "~", "a\nb", "\x7f", "日本", "🌳", "e\u0301", "*", "children", "a:b", "CON"]


# -- ids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TRAVERSAL)
def test_path_traversal_is_not_an_id(text: str) -> None:
    """Bamboo's rule, and names that a document cannot contain: NUL, lone surrogates, `.`."""
    assert not layout.is_session_id(text)
    for check in (layout.check_id, layout.check_new_id):
        with pytest.raises(InvalidName, match="cannot be a session id"):
            check(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "it is empty"),
        (".", "it is the name of the directory itself"),
        ("a/b", "it contains '/'"),
        ("a\\b", "it contains a backslash"),
        ("..", "it contains '..'"),
        ("a\0b", "it contains a NUL byte"),
        ("\udcff", "it is not valid Unicode"),
    ],
)
def test_error_names_the_rule_that_the_id_breaks(text: str, rule: str) -> None:
    with pytest.raises(InvalidName, match=f"cannot be a session id: {re.escape(rule)}$"):
        layout.check_id(text)


@pytest.mark.parametrize("text", TRAVERSAL)
def test_location_with_path_traversal_is_rejected(text: str) -> None:
    for location in (Location(text), Location("root", text), Location(text, "child")):
        with pytest.raises(InvalidName):
            layout.check_location(location)
        with pytest.raises(InvalidName):
            layout.check_new(location)


@pytest.mark.parametrize("text", ODD)
def test_unusual_ids_that_bamboo_allows_are_accepted(text: str) -> None:
    """They may exist on disk and must stay reachable."""
    assert layout.is_session_id(text)
    assert layout.check_id(text) == text
    assert layout.check_location(Location(text, text)) == (text, text)


@pytest.mark.parametrize("text", [".hidden", ".grovefs", "a\nb", "\x1b[31m", "x\x7f", "a\x85b", "\t"])
def test_new_id_has_no_leading_dot_or_control_characters(text: str) -> None:
    assert layout.is_session_id(text)
    with pytest.raises(InvalidName, match="cannot be a new session id"):
        layout.check_new_id(text)


@pytest.mark.parametrize("letter", ["x", "é", "日", "🌳"])
def test_id_is_limited_to_255_bytes(letter: str) -> None:
    """The limit of a file name, in bytes, not characters."""
    size = len(letter.encode())
    longest = letter * (255 // size) + "x" * (255 % size)
    assert len(longest.encode()) == 255
    assert layout.check_new_id(longest) == longest
    with pytest.raises(InvalidName, match="over 255 bytes"):
        layout.check_new_id(longest + "x")
    assert layout.check_id(longest) == longest
    with pytest.raises(InvalidName, match="over 255 bytes"):
        layout.check_id(longest + "x")


@pytest.mark.parametrize("text", ["s1", UUID, "日本", "a b", "-x", "a.b", "x..y".replace("..", ".")])
def test_ordinary_ids_can_be_created(text: str) -> None:
    """Spaces, inner dots and any language are allowed."""
    assert layout.check_new_id(text) == text
    layout.check_new(Location(text, text))


@given(st.text(st.characters(), max_size=8))
def test_id_is_a_single_path_component(text: str) -> None:
    """Any accepted id names an entry directly in sessions/."""
    assume(layout.is_session_id(text))
    assert os.path.normpath(f"/sessions/{text}") == f"/sessions/{text}"
    assert os.path.dirname(os.path.normpath(f"/sessions/{text}")) == "/sessions"
    os.fsencode(text)


# -- locations ------------------------------------------------------------------------------------------


@given(LOCATIONS, st.sampled_from(["", "session.json", "attachments/a.png", "notes/x/y", "mailbox/new"]))
def test_paths_and_locations_are_inverse(location: Location, rest: str) -> None:
    """A path in a session's directory maps back to the session and the rest of the path."""
    path = location.path(rest) if rest else location.dir
    assert layout.locate_path(path) == (location, rest)


@given(IDS, IDS)
def test_exact_names_and_locations_are_inverse(root: str, child: str) -> None:
    """`root/child` is exact; a plain id must be looked up."""
    location = Location(root, child)
    assert layout.parse_location(str(location)) == location
    assert layout.parse_location(str(Location(root))) is None


@given(LOCATIONS)
def test_location_has_id_and_kind(location: Location) -> None:
    """The last path component is the id."""
    assert location.dir.rpartition("/")[2] == location.id
    assert location.kind == ("root" if location.child is None else "child")
    assert layout.check_location(location) is location


@pytest.mark.parametrize("text", ["a/", "/b", "a/b/c", "../x", "x/..", "a/.", "//", "a\\b/c", "a/b\0"])
def test_invalid_exact_names_are_rejected(text: str) -> None:
    """There are two parts, and both must be ids."""
    with pytest.raises(InvalidName):
        layout.parse_location(text)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "sessions",
        "sessions/",
        "sessions/..",
        "sessions/a..b/x",
        "other/s1/session.json",
        "sessions.json",
        "/sessions/a",
    ],
)
def test_paths_outside_session_directories_have_no_location(path: str) -> None:
    assert layout.locate_path(path) is None


def test_directories_that_start_with_a_dot_are_foreign() -> None:
    """rsync, git and editors create them; no agent does."""
    assert layout.locate_path("sessions/.x/session.json") is None
    assert layout.locate_path("sessions/r/children/.x/session.json") == (Location("r"), "children/.x/session.json")
    assert layout.children_among("r", [".git", "c"]) == [Location("r", "c")]


def test_children_directory_belongs_to_the_root() -> None:
    """So does a name in it that cannot be a session."""
    assert layout.locate_path("sessions/r/children") == (Location("r"), "children")
    assert layout.locate_path("sessions/r/children/../x") == (Location("r"), "children/../x")
    assert layout.locate_path("sessions/r/children/c/children/d") == (Location("r", "c"), "children/d")
    assert layout.locate_path("sessions/children/children/children/x") == (Location("children", "children"), "x")


# -- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [f"session.json.tmp.{UUID}", f"{UUID}.png.tmp.{UUID}", f".runtime_sidecar_migrated.tmp.{UUID}", f".tmp.{UUID}"],
)
def test_temp_files_of_bamboo_are_leftovers(name: str) -> None:
    """Bamboo never deletes them after a crash."""
    assert layout.is_leftover(name)


@pytest.mark.parametrize(
    "name",
    [
        "session.json",
        f"{UUID}.png",
        f"tmp.{UUID}",
        f"a.tmp.{UUID}.png",
        f"a.tmp.{UUID.upper()}",
        "a.tmp.1",
        f"a.tmp.{UUID}\n",
    ],
)
def test_similar_names_are_not_leftovers(name: str) -> None:
    """A user's file with a similar name is not touched."""
    assert not layout.is_leftover(name)


ROOT, CHILD = Location("r"), Location("r", "c")
KNOWN = ["session.json", "runtime.json", "token-usage.jsonl", "trajectory.jsonl", "attachments", "mailbox"]
KNOWN += ["artifacts.json", "traces.json", "verification.json", ".search-index-revision", ".actor-tree-revision.json"]


@pytest.mark.parametrize("name", KNOWN)
def test_known_names_are_the_same_in_roots_and_children(name: str) -> None:
    assert layout.is_known_name(ROOT, name)
    assert layout.is_known_name(CHILD, name)


def test_only_roots_have_a_children_directory() -> None:
    """Trees are flat."""
    assert layout.is_known_name(ROOT, "children")
    assert not layout.is_known_name(CHILD, "children")


@pytest.mark.parametrize(
    "name", ["notes.md", "session.json~", ".session.json.swp", "Session.json", "session.json ", ""]
)
def test_other_names_are_foreign(name: str) -> None:
    """Editor backups, notes, other spellings."""
    assert not layout.is_known_name(ROOT, name)
