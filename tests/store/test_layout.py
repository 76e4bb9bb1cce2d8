"""Path ↔ identity, and which ids there can be."""

import os

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
def test_what_could_leave_the_sessions_is_no_id(text: str) -> None:
    """Bamboo's rule, and what no document could name: NUL, lone surrogates, the directory itself."""
    assert not layout.is_session_id(text)
    for check in (layout.check_id, layout.check_new_id):
        with pytest.raises(InvalidName, match="cannot be a session id"):
            check(text)


@pytest.mark.parametrize("text", TRAVERSAL)
def test_what_is_no_id_is_none_in_a_location_either(text: str) -> None:
    """However a Location was come by, a name in it that leads elsewhere is refused."""
    for location in (Location(text), Location("root", text), Location(text, "child")):
        with pytest.raises(InvalidName):
            layout.check_location(location)
        with pytest.raises(InvalidName):
            layout.check_new(location)


@pytest.mark.parametrize("text", ODD)
def test_odd_ids_that_bamboo_takes_are_read(text: str) -> None:
    """They may lie on disk already, and stay reachable."""
    assert layout.is_session_id(text)
    assert layout.check_id(text) == text
    assert layout.check_location(Location(text, text)) == (text, text)


@pytest.mark.parametrize("text", [".hidden", ".grovefs", "a\nb", "\x1b[31m", "x\x7f", "a\x85b", "\t"])
def test_new_ids_are_fit_for_shells_and_people(text: str) -> None:
    """No leading dot, no control characters."""
    assert layout.is_session_id(text)
    with pytest.raises(InvalidName, match="cannot be a new session id"):
        layout.check_new_id(text)


@pytest.mark.parametrize("letter", ["x", "é", "日", "🌳"])
def test_a_new_id_fits_a_file_name(letter: str) -> None:
    """255 bytes are the most that a name can have; bytes, not characters."""
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
def test_ordinary_ids_may_be_made(text: str) -> None:
    """Spaces, dots inside and any language are fine."""
    assert layout.check_new_id(text) == text
    layout.check_new(Location(text, text))


@given(st.text(st.characters(), max_size=8))
def test_an_id_is_one_name_below_its_directory(text: str) -> None:
    """What passes leads to exactly one name inside sessions/, whatever characters it has."""
    assume(layout.is_session_id(text))
    assert os.path.normpath(f"/sessions/{text}") == f"/sessions/{text}"
    assert os.path.dirname(os.path.normpath(f"/sessions/{text}")) == "/sessions"
    os.fsencode(text)


# -- locations ------------------------------------------------------------------------------------------


@given(LOCATIONS, st.sampled_from(["", "session.json", "attachments/a.png", "notes/x/y", "mailbox/new"]))
def test_paths_and_locations_are_inverse(location: Location, rest: str) -> None:
    """The path of anything in a session's directory leads back to the session and the rest."""
    path = location.path(rest) if rest else location.dir
    assert layout.locate_path(path) == (location, rest)


@given(IDS, IDS)
def test_exact_names_and_locations_are_inverse(root: str, child: str) -> None:
    """`root/child` is exact; a plain id has to be looked up."""
    location = Location(root, child)
    assert layout.parse_location(str(location)) == location
    assert layout.parse_location(str(Location(root))) is None


@given(LOCATIONS)
def test_a_location_knows_its_id_and_kind(location: Location) -> None:
    """The last name is the id; who has a child name is a child."""
    assert location.dir.rpartition("/")[2] == location.id
    assert location.kind == ("root" if location.child is None else "child")
    assert layout.check_location(location) is location


@pytest.mark.parametrize("text", ["a/", "/b", "a/b/c", "../x", "x/..", "a/.", "//", "a\\b/c", "a/b\0"])
def test_exact_names_that_lead_elsewhere_are_refused(text: str) -> None:
    """Both parts must be ids, and there are only two."""
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
def test_paths_outside_the_sessions_belong_to_none(path: str) -> None:
    """Only what lies below a session's directory does."""
    assert layout.locate_path(path) is None


def test_directories_that_begin_with_a_dot_are_foreign() -> None:
    """Whatever lies in them: rsync, git and editors make such, and no agent does."""
    assert layout.locate_path("sessions/.x/session.json") is None
    assert layout.locate_path("sessions/r/children/.x/session.json") == (Location("r"), "children/.x/session.json")
    assert layout.children_among("r", [".git", "c"]) == [Location("r", "c")]


def test_the_children_directory_itself_belongs_to_the_root() -> None:
    """So does a name in it that can be no session."""
    assert layout.locate_path("sessions/r/children") == (Location("r"), "children")
    assert layout.locate_path("sessions/r/children/../x") == (Location("r"), "children/../x")
    assert layout.locate_path("sessions/r/children/c/children/d") == (Location("r", "c"), "children/d")
    assert layout.locate_path("sessions/children/children/children/x") == (Location("children", "children"), "x")


# -- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [f"session.json.tmp.{UUID}", f"{UUID}.png.tmp.{UUID}", f".runtime_sidecar_migrated.tmp.{UUID}", f".tmp.{UUID}"],
)
def test_bamboos_temporaries_are_leftovers(name: str) -> None:
    """It never cleans them up after a crash."""
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
def test_other_names_are_no_leftovers(name: str) -> None:
    """A user's own file may look alike and is left alone."""
    assert not layout.is_leftover(name)


ROOT, CHILD = Location("r"), Location("r", "c")
KNOWN = ["session.json", "runtime.json", "token-usage.jsonl", "trajectory.jsonl", "attachments", "mailbox"]
KNOWN += ["artifacts.json", "traces.json", "verification.json", ".search-index-revision", ".actor-tree-revision.json"]


@pytest.mark.parametrize("name", KNOWN)
def test_names_with_a_meaning_are_known_in_roots_and_children(name: str) -> None:
    """The set is the same at both levels."""
    assert layout.is_known_name(ROOT, name)
    assert layout.is_known_name(CHILD, name)


def test_only_roots_have_children() -> None:
    """A tree is flat: a child has no children directory."""
    assert layout.is_known_name(ROOT, "children")
    assert not layout.is_known_name(CHILD, "children")


@pytest.mark.parametrize(
    "name", ["notes.md", "session.json~", ".session.json.swp", "Session.json", "session.json ", ""]
)
def test_other_names_are_foreign(name: str) -> None:
    """Editor backups and notes mean nothing to us."""
    assert not layout.is_known_name(ROOT, name)
