"""JSON text: parsing as strict as serde_json, positions of errors, rendering."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.documents import json_text
from store.documents.json_splice import same
from store.errors import InvalidContent, Problem, TooLarge
from tests.store.documents.json_samples import ALIKE, KEYS, OBJECTS, SEEDS, TEXTS, VALUES, texts_of, write_randomly


def problem_of(raw: bytes, **options: Any) -> Problem:
    with pytest.raises(InvalidContent) as caught:
        json_text.parse(raw, "session.json", **options)
    assert str(caught.value).startswith("session.json:")
    return caught.value.problem


@given(st.data())
def test_parse_accepts_every_form_of_an_object(data: st.DataObject) -> None:
    """White space, escapes and layout do not change the value."""
    value = data.draw(st.dictionaries(TEXTS, VALUES, max_size=5))
    assert same(json_text.parse(data.draw(texts_of(value)), "x"), value)


def nested(levels: int) -> bytes:
    """An object that contains arrays, `levels` containers in all."""
    return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_maximum_depth_is_127_containers() -> None:
    """serde_json fails at the 128th bracket."""
    json_text.parse(nested(127), "x")
    assert problem_of(nested(128)) == Problem("nested deeper than 127 levels", 1, 6 + 127)


@pytest.mark.parametrize("levels", [129, 1024, 1025, 5000, 200_000])
def test_error_position_is_the_128th_bracket(levels: int) -> None:
    """At any depth: neither a parser's own limit nor the stack decides the position."""
    assert problem_of(nested(levels)) == Problem("nested deeper than 127 levels", 1, 6 + 127)


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    """The position is that of the bracket that exceeds the limit, also on another line."""
    json_text.parse(json.dumps({"a": "[" * 500 + '"\\{' * 500, "[[": [[]] * 300}).encode(), "x")
    text = b'{"x": "[[[[\\"[[",\n "a":\n' + b"[\n" * 130 + b"]" * 130 + b"}"
    assert problem_of(text) == Problem("nested deeper than 127 levels", 3 + 126, 1)


@pytest.mark.parametrize("levels", [1, 14, 15, 16, 17, 100, 126, 127])
def test_depth_is_the_maximum_over_all_containers(levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    text = b'{"x":[' + b",".join([b"[]", b"{}", deep, b"[[],[[]]]"] * 100) + b"]}"
    if levels > 125:
        assert problem_of(text).reason == "nested deeper than 127 levels"
    else:
        json_text.parse(text, "x")


def test_siblings_do_not_add_to_the_depth() -> None:
    """An array of ten thousand objects has two levels."""
    json_text.parse(json.dumps({"a": [{}] * 10_000}).encode(), "x")


DUPLICATES = [
    (b'{"a": 1, "a": 1}', "a", 1, 10),
    (b'{"a": 1, "\\u0061": 2}', "a", 1, 10),
    (b'{"\\u0061": 1,\n "a": 2}', "a", 2, 2),
    (b'{"x": {"y": [1, {"k": 1,\n"k": 2}]}}', "x.y[1].k", 2, 1),
    ('{"日本": 1, "\\u65e5\\u672c": 2}'.encode(), "日本", 1, 11),
    (b'{"\\ud83c\\udf33": 1, "\xf0\x9f\x8c\xb3": 2}', "🌳", 1, 21),
    (b'{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}], "a" : 2}', "a", 1, 51),
    (b'{"q\\"": 1, "q\\u0022": 2}', 'q"', 1, 12),
    (b'{"": 1, "": 2}', "", 1, 9),
    (b'{"a": "\\\\", "b:": "x:\\"y", "a": ":"}', "a", 1, 28),
    (b'{"a": 1, "a": 2, "b": "\\u003a"}', "a", 1, 10),  # the escaped colon makes up for the one of the lost key
]


@pytest.mark.parametrize(("raw", "path", "line", "column"), DUPLICATES)
def test_duplicate_key_is_rejected_with_path_and_position(raw: bytes, path: str, line: int, column: int) -> None:
    """At any depth and in any spelling: serde would reject it, or silently keep only one."""
    assert problem_of(raw) == Problem("duplicate key", line, column, path)


@given(st.data())
def test_duplicate_key_is_found_in_any_form(data: st.DataObject) -> None:
    """The position is that of the second key."""
    how = random.Random(data.draw(SEEDS))
    key, value = data.draw(KEYS), data.draw(ALIKE)
    first, second = write_randomly(key, how), write_randomly(key, how)
    inner = f"{{{first}: {write_randomly(value, how)},\n{second}: 1}}"
    problem = problem_of(f'{{"top": [0, {inner}]}}'.encode())
    assert (problem.reason, problem.field) == ("duplicate key", json_text.render_path(("top", 1, key)))
    assert problem.column == 1


@pytest.mark.parametrize("indent", [None, 2])
def test_duplicate_key_is_found_in_a_text_that_is_rendered_like_ours(indent: int | None) -> None:
    """Only the repeated member differs from the text of a valid document, which is accepted without exact checks."""
    separators = (",", ":") if indent is None else None
    text = json.dumps({"a": 1, "b": {"c": "x", "d": [0, 1]}}, indent=indent, separators=separators)
    assert json_text.parse(text.encode(), "x") == {"a": 1, "b": {"c": "x", "d": [0, 1]}}
    repeated = text.replace('"d"', '"c"')
    assert problem_of(repeated.encode()).reason == "duplicate key"
    assert problem_of(repeated.encode()).field == "b.c"
    minus_zero = json_text.parse(text.replace("0", "-0", 1).encode(), "x")
    assert same(minus_zero, {"a": 1, "b": {"c": "x", "d": [-0.0, 1]}})


INVALID = [
    (b'{"a": NaN}', 1, 7),
    (b'{"a": Infinity}', 1, 7),
    (b'{"a": -Infinity}', 1, 8),
    (b'{"a":\n 1e999}', 2, 2),
    (b'{"a": -1e999}', 1, 7),
    (b'{"a": 01}', 1, 7),
    (b'{"a": +1}', 1, 7),
    (b'{"a": .5}', 1, 7),
    (b'{"a": 1.}', 1, 9),
    (b'{"a": 0x10}', 1, 8),
    (b'{"a": 1,}', 1, 8),
    (b'{"a": [1,]}', 1, 9),
    (b"{'a': 1}", 1, 2),
    (b"{a: 1}", 1, 2),
    (b'{"a" 1}', 1, 6),
    (b'{"a": 1 "b": 2}', 1, 9),
    (b'{"a": True}', 1, 7),
    (b'{"a": "x\ny"}', 1, 9),
    (b'{"a": "\x00"}', 1, 8),
    (b'{"a": "\\x41"}', 1, 8),
    (b'{"a": "\\ud800"}', 1, 8),
    (b'{"a": "\\udc00\\ud800"}', 1, 8),
    (b'{"\\ud800": 1}', 1, 3),
    (b'{"a": 1} x', 1, 10),
    (b"{}{}", 1, 3),
    (b"{}\x00", 1, 3),
    (b"// c\n{}", 1, 1),
    (b"\x0c{}", 1, 1),
    ('{"é": "日本", x}'.encode(), 1, 13),
    (b"", 1, 1),
    (b" \n ", 1, 1),
    (b"\xef\xbb\xbf{}", 1, 1),
    (b"[]", 1, 1),
    (b'[{"a": 1}]', 1, 1),
    (b"1", 1, 1),
    (b"null", 1, 1),
    (b'"{}"', 1, 1),
]


@pytest.mark.parametrize(("raw", "line", "column"), INVALID)
def test_invalid_json_is_rejected_with_its_position(raw: bytes, line: int, column: int) -> None:
    """What serde rejects. Lines and columns start at 1; a column is a character."""
    problem = problem_of(raw)
    assert (problem.line, problem.column) == (line, column), problem


@pytest.mark.parametrize(
    ("raw", "line", "column"),
    [
        (b'{"a": "\xff"}', 1, 8),
        (b'{"a":\n "\xc3\xa9\xc3"}', 2, 4),
        (b'{"a": "\xed\xa0\x80"}', 1, 8),  # a surrogate in UTF-8
        (b'{"a": "\xf4\x90\x80\x80"}', 1, 8),  # beyond Unicode
        (b'{"a": "\xc0\xaf"}', 1, 8),  # an overlong slash
        (b"\xff\xfe{\x00}\x00", 1, 1),
        (b"{}\xff", 1, 3),
    ],
)
def test_invalid_utf8_is_rejected_with_its_position(raw: bytes, line: int, column: int) -> None:
    """The position of the first invalid byte."""
    assert problem_of(raw) == Problem("invalid UTF-8", line, column)


def test_truncated_text_is_rejected_with_its_position() -> None:
    """At any byte, also inside a character, a number or an escape."""
    raw = '{"é": [1, -2.5e+3, true, null, "\\ud83c\\udf33 🌳\\n"],\n "b": {"c": {}, "d": false}}'.encode()
    json_text.parse(raw, "x")
    for length in range(len(raw)):
        problem = problem_of(raw[:length])
        assert problem.line in (1, 2)
        assert problem.column is not None
        assert problem.column >= 1


@given(st.binary(max_size=40) | st.text('{}[]":,\\u0eE-+.1tfn \n', max_size=40).map(str.encode))
def test_parse_raises_only_invalid_content(raw: bytes) -> None:
    """Any bytes are an object, or InvalidContent with a position."""
    parse_or_report(raw)


def parse_or_report(raw: bytes) -> None:
    problem = None
    try:
        assert isinstance(json_text.parse(raw, "x"), dict)
    except InvalidContent as error:
        problem = error.problem
    assert problem is None or (problem.line is not None and problem.column is not None)


@given(st.data())
def test_damaged_text_raises_only_invalid_content(data: st.DataObject) -> None:
    """A valid text with one byte changed, removed or added."""
    raw = data.draw(texts_of(data.draw(OBJECTS)))
    at = data.draw(st.integers(0, len(raw)))
    end = at + data.draw(st.integers(0, 1))
    parse_or_report(raw[:at] + data.draw(st.binary(max_size=1)) + raw[end:])


def test_size_limit_is_inclusive() -> None:
    """One byte more raises TooLarge before parsing."""
    assert json_text.parse(b'{"a":1}', "x", limit=7) == {"a": 1}
    with pytest.raises(TooLarge, match="size is 7 bytes, over the limit of 6 bytes"):
        json_text.parse(b"garbage", "x", limit=6)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -(2.0**63)),
        ("-0", -0.0),
        ("-0.0", -0.0),
        ("0", 0),
        ("1E+2", 100.0),
        ("1e-05", 1e-5),
        ("1e-0", 1.0),
        ("1e-999", 0.0),
        ("0e999", 0.0),
    ],
)
def test_numbers_are_read_like_serde(text: str, value: float) -> None:
    """What does not fit into 64 bits is a float, and so is -0, which no integer field accepts."""
    found = json_text.parse(f'{{"s -0": "-0", "a": {text}, "b": [{text}]}}'.encode(), "x")
    assert same(found, {"s -0": "-0", "a": value, "b": [value]})


@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_position_counts_lines_and_characters(text: str, data: st.DataObject) -> None:
    """For any text and offset."""
    at = data.draw(st.integers(0, len(text)))
    line, column = json_text.position(text.encode(), len(text[:at].encode()))
    assert line == text[:at].count("\n") + 1
    assert column == at - text[:at].rfind("\n")


LOCATED = b'{\n  "id": "x",\n  "messages": [\n    {"role": "user"},\n    {"\\u0072ole":\t7}\n  ]\n}'


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("id",), (2, 9)),
        (("messages",), (3, 15)),
        (("messages", 1), (5, 5)),
        (("messages", 1, "role"), (5, 19)),
        (("messages", 1, "content"), (5, 5)),
        (("messages", 7), (3, 15)),
        (("messages", 0, "role", "deeper"), (4, 14)),
        (("messages", "role"), (3, 15)),
        (("nothing", 3), (1, 1)),
    ],
)
def test_locate_finds_the_value_or_its_container(path: json_text.Path, place: tuple[int, int]) -> None:
    """A missing member is reported at its container."""
    assert json_text.locate(LOCATED, path) == place


def test_locate_skips_leading_white_space() -> None:
    """The document starts at its bracket."""
    assert json_text.locate(b'\n\n  {"a": 1}\n', ()) == (3, 3)
    assert json_text.locate(b'\n\n  {"a": 1}\n', ("a",)) == (3, 9)


@given(st.data())
def test_locate_finds_every_value(data: st.DataObject) -> None:
    """The text at the reported position is that of the value."""
    value = data.draw(OBJECTS)
    raw = data.draw(texts_of(value))
    lines = raw.decode().split("\n")
    for path, expected in walk(value):
        line, column = json_text.locate(raw, path)
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert same(json.JSONDecoder().raw_decode(rest)[0], expected)


def walk(value: Any, path: json_text.Path = ()) -> list[tuple[json_text.Path, Any]]:
    found: list[tuple[json_text.Path, Any]] = [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        found += walk(inner, (*path, step))
    return found


def test_render_path() -> None:
    """Names separated by dots, indices in brackets."""
    assert json_text.render_path(("messages", 3, "tool_calls", 0, "id")) == "messages[3].tool_calls[0].id"
    assert json_text.render_path((2, "a")) == "[2].a"
    assert json_text.render_path(()) == ""


WITHOUT_FLOATS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(WITHOUT_FLOATS)
def test_render_equals_python_json_with_two_spaces(value: Any) -> None:
    """Which is also serde's format, except for floats."""
    assert json_text.render(value).decode() == json.dumps(value, indent=2, ensure_ascii=False)
    assert json_text.render_compact(value).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (50.0, "50.0"),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e16"),
        (-2.5e20, "-2.5e20"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_are_written_like_serde(value: float, text: str) -> None:
    """Also inside containers; strings that look like floats are unchanged."""
    assert json_text.render_compact(value).decode() == text
    looks = json_text.render_compact({"1e+16": ["1e+16", '"1e+16', value], "b": value}).decode()
    assert looks == f'{{"1e+16":["1e+16","\\"1e+16",{text}],"b":{text}}}'


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["Ze+9", "9e+9", " 9e+9", "+e+"]))
def test_exponents_are_written_like_serde_between_strings_like_them(value: float, text: str) -> None:
    """A long text is searched for exponents only where "e+" follows a number."""
    for found in ([text, value], [value, text], {text: value}, {"a": {"b": [value]}, "c": text}):
        for rendered in (json_text.render(found), json_text.render_compact(found)):
            outside = json_text.STRING.sub(b"", rendered)
            assert b"e+" not in outside
            assert json.loads(rendered) == found


@given(VALUES)
def test_rendered_values_parse_to_the_same_value(value: Any) -> None:
    """Floats to the last bit."""
    for raw in (
        json_text.render({"v": value}),
        json_text.render_compact({"v": value}),
        json_text.render_indented({"v": value}, b"\t"),
    ):
        assert same(json_text.parse(raw, "x"), {"v": value})


def test_render_indented_indents_every_line_but_the_first() -> None:
    """So a value can be inserted at any depth."""
    assert json_text.render_indented({"a": ["x\ny"]}, b"\t") == b'{\n\t  "a": [\n\t    "x\\ny"\n\t  ]\n\t}'
    assert json_text.render_indented({"a": [1]}, None) == b'{"a":[1]}'


@pytest.mark.parametrize("raw", [b"[]", b"[1, {}]", b'"text"', b"null", b" 5 ", b"-0.0"])
def test_parse_value_accepts_any_json_value(raw: bytes) -> None:
    """Only a document must be an object."""
    assert json_text.parse_value(raw, "x") == json.loads(raw)
    with pytest.raises(InvalidContent, match="expected an object, got "):
        json_text.parse(raw, "x")


@pytest.mark.parametrize(
    ("raw", "where"),
    [(b'[1,\n {"a": 1, "a": 2}]', "x:2:11: [1].a"), (b"[" * 128 + b"]" * 128, "x:1:128: "), (b"[NaN]", "x:1:2: ")],
)
def test_parse_value_rejects_what_parse_rejects(raw: bytes, where: str) -> None:
    """With the position, also inside an array."""
    with pytest.raises(InvalidContent) as refused:
        json_text.parse_value(raw, "x")
    assert str(refused.value).startswith(where)


@given(st.data())
def test_a_known_text_is_read_like_a_new_one(data: st.DataObject) -> None:
    """Without its checks. That includes -0, which serde reads as a float."""
    value = data.draw(ALIKE)
    raw = b'{"a": -0, "b": "-0", "c": %b}' % write_randomly(value, random.Random(data.draw(SEEDS))).encode()
    assert repr(json_text.parse_known(raw)) == repr(json_text.parse(raw, "x"))
