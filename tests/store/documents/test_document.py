"""Document: validation, identity and forks."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.documents import json_text
from store.documents.document import (
    MAX_PROBLEMS,
    Document,
    check_authority,
    fork_document,
    identity_problem,
    parse_document,
    parse_to_index,
    validate_rendered,
)
from store.errors import InvalidContent, Problem
from store.layout import Location
from tests.builders import NINE_DIGITS, make_document

ROOT = Location("s1")
CHILD = Location("r", "s1")


def document(raw: bytes) -> Document:
    return parse_document(raw, "session.json")


def child_document(id: str = "c1", root: str = "r1", parent: str | None = None, **members: Any) -> bytes:
    about = {"kind": "child", "root_session_id": root, "parent_session_id": parent or root, "spawn_depth": 1}
    return make_document(id, **{**about, **members})


# -- types --------------------------------------------------------------------------------------------------


def test_document_has_bytes_members_and_record() -> None:
    """The bytes are unchanged."""
    raw = make_document(unknown={"x": [1.50]})
    parsed = document(raw)
    assert parsed.raw == raw
    assert parsed.data["unknown"] == {"x": [1.5]}
    assert parsed.record.messages[0].content == "hello"


@pytest.mark.parametrize(
    "change",
    [{}, {"title": 3}, {"messages": None}, {"messages": {}}, {"messages": [{"role": "nobody", "content": 1}]}],
)
def test_document_to_index_is_validated_like_any_other(change: dict[str, Any]) -> None:
    """The record has no messages, and nothing else differs; nor do the errors and their positions."""
    raw = json_text.render(json.loads(make_document()) | change)

    def found(parse: Any) -> Any:
        try:
            parsed = parse(raw, "session.json")
        except InvalidContent as error:
            return error.problem
        return parsed.raw, parsed.data, parsed.record.model_copy(update={"messages": []})

    assert found(parse_to_index) == found(parse_document)


def test_rendered_document_is_validated_like_a_parsed_one() -> None:
    """The same record but for the messages, which are not kept; the same errors, with their position."""
    data = json.loads(make_document())
    raw = json_text.render(data)
    checked, parsed = validate_rendered(raw, data, "session.json"), document(raw)
    assert (checked.raw, checked.data) == (parsed.raw, parsed.data)
    assert checked.record == parsed.record.model_copy(update={"messages": []})
    for wrong in ({**data, "title": 3}, {**data, "messages": [*data["messages"], {"role": "nobody", "content": 1}]}):
        text = json_text.render(wrong)
        with pytest.raises(InvalidContent) as rendered:
            validate_rendered(text, wrong, "session.json")
        with pytest.raises(InvalidContent) as refused:
            document(text)
        assert rendered.value.problem == refused.value.problem


@pytest.mark.parametrize(
    ("members", "field", "reason"),
    [
        ({"title": None}, "title", "expected a string, got null"),
        ({"title": 3}, "title", "expected a string, got a number"),
        ({"pinned": "yes"}, "pinned", "expected a boolean, got a string"),
        ({"spawn_depth": 3.0}, "spawn_depth", "expected an integer, got 3.0"),
        ({"spawn_depth": True}, "spawn_depth", "expected an integer, got a boolean"),
        ({"spawn_depth": -1}, "spawn_depth", "expected a number >= 0, got -1"),
        ({"spawn_depth": 2**32}, "spawn_depth", "expected a number <= 4294967295, got 4294967296"),
        ({"kind": "x" * 41}, "kind", f"expected 'root' or 'child', got '{'x' * 40}…'"),
        ({"kind": None}, "kind", "expected 'root' or 'child', got null"),
        ({"created_at": "today"}, "created_at", "expected an RFC 3339 timestamp, got 'today'"),
        ({"messages": {}}, "messages", "expected an array, got an object"),
        ({"messages": [[]]}, "messages[0]", "expected an object, got an array"),
        ({"metadata": []}, "metadata", "expected an object, got an array"),
        ({"metadata": {"a": "x", "n": 1}}, "metadata.n", "expected a string, got a number"),
    ],
)
def test_wrong_type_reports_what_was_expected(members: dict[str, Any], field: str, reason: str) -> None:
    """With field, line and column of the value."""
    raw = make_document(**members)
    with pytest.raises(InvalidContent) as caught:
        document(raw)
    problem = caught.value.problem
    assert (problem.field, problem.reason) == (field, reason)
    assert problem.line is not None
    assert str(caught.value) == f"session.json:{problem.line}:{problem.column}: {field}: {reason}"


def test_missing_member_is_reported_at_its_container() -> None:
    """With the further errors."""
    with pytest.raises(InvalidContent) as caught:
        document(b'\n {"id": "s1"}')
    missing = "required member is missing"
    others = tuple(Problem(missing, 2, 2, name) for name in ("created_at", "updated_at"))
    assert caught.value.problem == Problem(missing, 2, 2, "messages", others)
    assert str(caught.value) == (
        f"session.json:2:2: messages: {missing}; 2:2: created_at: {missing}; 2:2: updated_at: {missing}"
    )


def test_all_errors_of_a_document_have_their_positions() -> None:
    """The text of the error is one line and names three; `others` has them up to a limit."""
    wrong = [{"role": number} for number in range(200)]
    with pytest.raises(InvalidContent) as caught:
        document(make_document("s1", title=1, messages=wrong))
    problem = caught.value.problem
    faults = [problem, *problem.others]
    assert len(faults) == MAX_PROBLEMS
    assert {fault.field for fault in faults} >= {"title", "messages[0].role", "messages[1].role"}
    assert len({(fault.line, fault.column) for fault in faults}) > MAX_PROBLEMS / 4, "they have different positions"
    assert re.search(r"\(and \d{3} more errors\)$", str(caught.value))
    assert str(caught.value).count(";") == 2


def test_error_below_an_alias_has_the_right_position() -> None:
    """A task list may have its older name."""
    item = {"id": "i", "description": "d", "status": "someday"}
    tasks = {**TASKS, "items": [item]}
    with pytest.raises(InvalidContent) as caught:
        document(make_document("s1", todo_list=tasks))
    assert (caught.value.problem.line, caught.value.problem.column) == (23, 19)


def test_minus_zero_is_not_an_integer() -> None:
    """serde reads it as a float and rejects it, so a commit must not succeed (rule 6)."""
    raw = make_document(spawn_depth=7).replace(b": 7", b": -0")
    with pytest.raises(InvalidContent, match=r"spawn_depth: expected an integer, got -0\.0"):
        document(raw)


# -- identity (rule 9) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "location", "field"),
    [
        (make_document("s1"), ROOT, None),
        (make_document("other"), ROOT, "id"),
        (make_document("", root_session_id="s1"), ROOT, "id"),
        (make_document("s1", kind="child"), ROOT, "kind"),
        (make_document("s1", root_session_id="other"), ROOT, "root_session_id"),
        (make_document("s1", root_session_id=""), ROOT, None),
        (child_document("s1", "r"), CHILD, None),
        (child_document("s1", "r", "nested"), CHILD, None),
        (child_document("s1", "other"), CHILD, "root_session_id"),
        (child_document("other", "r"), CHILD, "id"),
        (child_document("s1", "r", kind="root"), CHILD, "kind"),
        (child_document("s1", "r", parent_session_id=""), CHILD, "parent_session_id"),
        (child_document("s1", "r", parent_session_id=None), CHILD, "parent_session_id"),
    ],
)
def test_document_that_contradicts_its_path_is_rejected(raw: bytes, location: Location, field: str | None) -> None:
    """Rule 9: the error names the first such member, with its position."""
    problem = identity_problem(document(raw), location)
    assert (problem.field if problem else None) == field
    assert problem is None or problem.line is not None


def test_identity_members_may_be_absent_from_an_old_root() -> None:
    """A root without kind and root_session_id predates them; a child always has them."""
    old = {"id": "s1", "messages": [], "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS}
    assert identity_problem(document(json.dumps(old).encode()), ROOT) is None
    problem = identity_problem(document(json.dumps({**old, "parent_session_id": "r"}).encode()), CHILD)
    assert problem is not None
    assert problem.field == "kind"


# -- forks (rule 5) -------------------------------------------------------------------------------------------

IDENTITY = {"id", "kind", "root_session_id", "parent_session_id", "spawn_depth"}


def forked(raw: bytes, location: Location) -> dict[str, Any]:
    """The members of the fork, after checking that its identity is right and all other members are unchanged."""
    result = document(fork_document(document(raw), location))
    assert identity_problem(result, location) is None
    old, new = ({m.key: d[m.start : m.end] for m in json_text.members(d)} for d in (raw, result.raw))
    for key in old.keys() - IDENTITY - {"task_list", "todo_list", "messages"}:
        assert new[key] == old[key]
    assert new.keys() - old.keys() <= IDENTITY
    assert [k for k in new if k in old] == [k for k in old if k in new]
    return result.data


def identity(data: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(data.get(k) for k in ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth"))


def test_fork_of_a_root_to_a_root() -> None:
    """Only id and root_session_id change; no member is added."""
    data = forked(make_document("s1"), Location("s2"))
    assert identity(data) == ("s2", "root", "s2", None, None)
    raw = make_document("s1")
    assert fork_document(document(raw), Location("s2")) == raw.replace(b'"s1"', b'"s2"')


def test_fork_of_a_root_to_a_child() -> None:
    """Directly below the root of its new tree."""
    assert identity(forked(make_document("s1"), Location("r", "c"))) == ("c", "child", "r", "r", 1)


def test_fork_of_a_child_to_a_root() -> None:
    """It has no parent and depth 0."""
    assert identity(forked(child_document("c1", "r1"), Location("s2"))) == ("s2", "root", "s2", None, 0)


def test_fork_of_a_child_to_another_tree() -> None:
    """A direct child of the old root is a direct child of the new one."""
    assert identity(forked(child_document("c1", "r1"), Location("r2", "c1"))) == ("c1", "child", "r2", "r2", 1)


def test_fork_of_a_nested_child_keeps_its_parent() -> None:
    """Its parent is copied too: `cp -r` keeps the shape of a tree."""
    raw = child_document("c2", "r1", "c1", spawn_depth=2)
    assert identity(forked(raw, Location("r2", "c2"))) == ("c2", "child", "r2", "c1", 2)


@pytest.mark.parametrize("parent", ["", None])
def test_fork_of_a_child_without_parent_gets_the_root(parent: str | None) -> None:
    """The fork must be loadable."""
    raw = child_document("c1", "r1", parent_session_id=parent)
    assert identity(forked(raw, Location("r2", "c2"))) == ("c2", "child", "r2", "r2", 1)


def test_fork_is_never_its_own_parent() -> None:
    """A child copied to the name of its parent becomes a child of the root."""
    raw = child_document("c2", "r1", "c1", spawn_depth=2)
    assert identity(forked(raw, Location("r1", "c1"))) == ("c1", "child", "r1", "r1", 1)


TASKS = {"session_id": "s1", "title": "T", "items": [], "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS}


@pytest.mark.parametrize("name", ["task_list", "todo_list"])
def test_fork_updates_the_task_list(name: str) -> None:
    """Under either spelling; its other members are unchanged."""
    members: dict[str, Any] = {name: {**TASKS, "x": 1.50}}
    raw = make_document("s1", **members)
    result = fork_document(document(raw), Location("s2"))
    assert result == raw.replace(b'"s1"', b'"s2"')


def message_with(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"id": "m", "role": "user", "content": f"see {url}", "created_at": NINE_DIGITS, "content_parts": [part]}


def test_fork_updates_references_to_its_own_attachments() -> None:
    """References to other sessions, and ids with the same prefix, are unchanged."""
    own, others = "bamboo-attachment://s1/a1", ["bamboo-attachment://s10/a1", "bamboo-attachment://s/s1/"]
    raw = make_document("s1", messages=[message_with(u) for u in (own, *others)], note="s1/ and //s1/")
    result = fork_document(document(raw), Location("s2"))
    assert result == raw.replace(b'"s1"', b'"s2"').replace(b"://s1/", b"://s2/")


@pytest.mark.parametrize("spelling", ["ascii", "slashes", "letters"])
def test_fork_updates_escaped_references(spelling: str) -> None:
    """JSON has many ways to write the same string."""
    raw = make_document("日本", messages=[message_with("bamboo-attachment://日本/a1")])
    if spelling == "ascii":
        raw = json.dumps(json.loads(raw), indent=1).encode()
    elif spelling == "slashes":
        raw = raw.replace(b"://", b":\\/\\/")
    else:
        raw = raw.replace(b"bamboo", b"\\u0062amboo")
    data = forked(raw, Location('q"é'))
    url = 'bamboo-attachment://q"é/a1'
    assert data["messages"][0]["content_parts"][0]["image_url"]["url"] == url
    assert data["messages"][0]["content"] == f"see {url}"


def test_fork_with_the_same_id_keeps_its_references() -> None:
    """Byte for byte."""
    raw = child_document("c1", "r1", messages=[message_with("bamboo-attachment://c1/a1")])
    raw = raw.replace(b"://", b":\\/\\/")
    assert fork_document(document(raw), Location("r2", "c1")) == raw.replace(b'"r1"', b'"r2"')


def test_escaped_backslash_does_not_start_an_escape() -> None:
    r"""`\\u0062` is a backslash and a u, not a letter."""
    text = "\\u0062amboo-attachment://s1/x \\\\/ \\n"
    raw = make_document("s1", note=text)
    assert forked(raw, Location("s2"))["note"] == text


@given(
    indent=st.sampled_from([None, 0, 1, 2, 4]),
    ids=st.lists(st.text("abcé日\"'$ -", min_size=1, max_size=4), min_size=3, max_size=3),
    extra=st.dictionaries(st.text('xyz\\n"', min_size=1), st.integers() | st.text() | st.lists(st.none()), max_size=3),
    nested=st.booleans(),
)
@settings(max_examples=60)
def test_fork_changes_only_the_identity(
    indent: int | None, ids: list[str], extra: dict[str, Any], nested: bool
) -> None:
    """For any ids, layout and unknown members."""
    extra = {f"u{k}": v if not isinstance(v, int) else v % 2**63 for k, v in extra.items()}
    extra = json.loads(json.dumps(extra).encode("utf-8", "replace"))
    one, two, three = ids
    sources = [make_document(one, indent=indent, **extra)]
    sources += [child_document(one, two, "p" if nested else None, indent=indent, **extra)]
    for raw in sources:
        for location in (Location(three), Location(three, "x"), Location("x", three)):
            data = forked(raw, location)
            before = json.loads(raw)
            assert {k: v for k, v in data.items() if k not in IDENTITY} == {
                k: v for k, v in before.items() if k not in IDENTITY
            }


def test_fork_drops_the_authority_header() -> None:
    """It is valid only for the original session."""
    assert "_bamboo_main_authority" not in forked_sealed()


def forked_sealed() -> dict[str, Any]:
    return document(fork_document(document(sealed()), Location("s2"))).data


# -- Bamboo's sealed header ----------------------------------------------------------------------


def payload_of(**changes: Any) -> dict[str, Any]:
    payload = {
        "id": "s1",
        "created_at": NINE_DIGITS,
        "kind": "root",
        "root_session_id": "s1",
        "spawn_depth": 0,
        "metadata_version": 0,
        "title_label": "A title",
    }
    return {**payload, **changes}


def sealed(payload: dict[str, Any] | None = None, *, length: int | None = None, **members: Any) -> bytes:
    """A session.json with Bamboo's header in front, framed like Bamboo does it."""
    text = json.dumps(payload or payload_of(), ensure_ascii=False, separators=(",", ":")).encode()
    size = len(text) if length is None else length
    head = b'{"_bamboo_main_authority":{"version":1,"payload_bytes":"%010d","payload":%s},' % (size, text)
    return head + make_document("s1", **members)[1:]


def test_valid_authority_header_is_accepted() -> None:
    """Byte for byte as framed by Bamboo, and consistent with the document."""
    check_authority(document(sealed()), "sessions/s1/session.json")
    check_authority(document(make_document()), "sessions/s1/session.json")
    label = "x" * 160
    check_authority(document(sealed(payload_of(title_label=label), title=f"\x07{label}y")), "session.json")


def rejection(raw: bytes, name: str = "sessions/s1/session.json") -> str:
    with pytest.raises(InvalidContent) as caught:
        check_authority(document(raw), name)
    problem = caught.value.problem
    assert problem.field == "_bamboo_main_authority"
    assert problem.line is not None
    assert "delete the member" in problem.reason
    return problem.reason


def test_authority_header_in_a_sidecar_is_rejected() -> None:
    assert "session.json only" in rejection(sealed(), "sessions/s1/runtime.json")


def test_moved_or_reformatted_authority_header_is_rejected() -> None:
    """Bamboo rejects it, so a commit must not succeed (rule 6)."""
    moved = json.loads(sealed())
    moved["_bamboo_main_authority"] = moved.pop("_bamboo_main_authority")
    for raw in (
        json.dumps(json.loads(sealed()), indent=2).encode(),
        json.dumps(moved, separators=(",", ":")).encode(),
        b" " + sealed(),
        sealed().replace(b'"version":1', b'"version":2', 1),
        make_document("s1", _bamboo_main_authority=None),
    ):
        assert "moved or re-formatted" in rejection(raw)


@pytest.mark.parametrize("off_by", [-1, 1, -10, 10, 10**6])
def test_authority_header_of_wrong_length_is_rejected(off_by: int) -> None:
    """The ten digits are the length of the payload in bytes."""
    right = len(json.dumps(payload_of(), separators=(",", ":")).encode())
    assert "payload_bytes is not the length" in rejection(sealed(length=right + off_by))


def test_too_long_authority_header_is_rejected() -> None:
    """Bamboo reads at most 512 KiB."""
    assert "over the limit of 524288 bytes" in rejection(sealed(payload_of(x="y" * 524_288)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "other"),
        ("created_at", "2026-06-20T08:15:30.123Z"),
        ("kind", "child"),
        ("parent_session_id", "x"),
        ("root_session_id", "other"),
        ("spawn_depth", 1),
        ("metadata_version", 7),
        ("title_label", "Another title"),
    ],
)
def test_authority_header_that_contradicts_the_document_is_rejected(field: str, value: Any) -> None:
    """Its members must equal those of the document."""
    assert f"{field} differs from" in rejection(sealed(payload_of(**{field: value})))
