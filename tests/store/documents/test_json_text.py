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


def flaw_of(raw: bytes, **options: Any) -> Problem:
    with pytest.raises(InvalidContent) as caught:
        json_text.parse(raw, "session.json", **options)
    assert str(caught.value).startswith("session.json:")
    return caught.value.problem


@given(st.data())
def test_parse_reads_every_way_to_write_an_object(data: st.DataObject) -> None:
    """White space, escapes and layout make no difference to what is read."""
    value = data.draw(st.dictionaries(TEXTS, VALUES, max_size=5))
    assert same(json_text.parse(data.draw(texts_of(value)), "x"), value)


def nested(levels: int) -> bytes:
    """An object that holds arrays, `levels` containers in all."""
    return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_depth_of_127_containers_is_the_last_accepted() -> None:
    """serde_json gives up at the 128th bracket, and so do we."""
    json_text.parse(nested(127), "x")
    assert flaw_of(nested(128)) == Problem("nested deeper than 127 levels", 1, 6 + 127)


@pytest.mark.parametrize("levels", [129, 1024, 1025, 5000, 200_000])
def test_any_depth_is_refused_at_the_128th_bracket(levels: int) -> None:
    """Neither a parser's own limit nor the stack decides where the fault is."""
    assert flaw_of(nested(levels)) == Problem("nested deeper than 127 levels", 1, 6 + 127)


def test_depth_is_counted_by_lines_too_and_not_inside_strings() -> None:
    """Brackets in a text open nothing; the position is that of the bracket that is too many."""
    json_text.parse(json.dumps({"a": "[" * 500 + '"\\{' * 500, "[[": [[]] * 300}).encode(), "x")
    text = b'{"x": "[[[[\\"[[",\n "a":\n' + b"[\n" * 130 + b"]" * 130 + b"}"
    assert flaw_of(text) == Problem("nested deeper than 127 levels", 3 + 126, 1)


@pytest.mark.parametrize("levels", [1, 14, 15, 16, 17, 100, 126, 127])
def test_depth_is_that_of_the_deepest_among_others(levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    text = b'{"x":[' + b",".join([b"[]", b"{}", deep, b"[[],[[]]]"] * 100) + b"]}"
    if levels > 125:
        assert flaw_of(text).reason == "nested deeper than 127 levels"
    else:
        json_text.parse(text, "x")


def test_siblings_do_not_add_to_the_depth() -> None:
    """Ten thousand objects side by side are two levels deep."""
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
]


@pytest.mark.parametrize(("raw", "path", "line", "column"), DUPLICATES)
def test_a_repeated_key_is_refused_with_path_and_place(raw: bytes, path: str, line: int, column: int) -> None:
    """At any depth and in any spelling: serde would refuse it, or silently keep only one."""
    assert flaw_of(raw) == Problem("duplicate key", line, column, path)


@given(st.data())
def test_a_key_repeated_anywhere_is_found(data: st.DataObject) -> None:
    """However the text is written, the second of two equal keys is what is pointed at."""
    how = random.Random(data.draw(SEEDS))
    key, value = data.draw(KEYS), data.draw(ALIKE)
    first, second = write_randomly(key, how), write_randomly(key, how)
    inner = f"{{{first}: {write_randomly(value, how)},\n{second}: 1}}"
    flaw = flaw_of(f'{{"top": [0, {inner}]}}'.encode())
    assert (flaw.reason, flaw.field) == ("duplicate key", json_text.render_path(("top", 1, key)))
    assert flaw.column == 1


FAULTS = [
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


@pytest.mark.parametrize(("raw", "line", "column"), FAULTS)
def test_what_serde_refuses_is_refused_with_its_place(raw: bytes, line: int, column: int) -> None:
    """Line and column count from 1, and a column is a character."""
    flaw = flaw_of(raw)
    assert (flaw.line, flaw.column) == (line, column), flaw


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
def test_invalid_utf8_is_refused_with_its_place(raw: bytes, line: int, column: int) -> None:
    """The first byte that is none of UTF-8 is what is pointed at."""
    assert flaw_of(raw) == Problem("invalid UTF-8", line, column)


def test_a_text_cut_off_anywhere_is_refused_with_its_place() -> None:
    """Whatever byte it was cut at, also in the middle of a character, a number or an escape."""
    raw = '{"é": [1, -2.5e+3, true, null, "\\ud83c\\udf33 🌳\\n"],\n "b": {"c": {}, "d": false}}'.encode()
    json_text.parse(raw, "x")
    for length in range(len(raw)):
        flaw = flaw_of(raw[:length])
        assert flaw.line in (1, 2)
        assert flaw.column is not None
        assert flaw.column >= 1


@given(st.binary(max_size=40) | st.text('{}[]":,\\u0eE-+.1tfn \n', max_size=40).map(str.encode))
def test_parse_never_raises_anything_else(raw: bytes) -> None:
    """Any bytes are an object or InvalidContent with a place."""
    parse_or_place(raw)


def parse_or_place(raw: bytes) -> None:
    flaw = None
    try:
        assert isinstance(json_text.parse(raw, "x"), dict)
    except InvalidContent as error:
        flaw = error.problem
    assert flaw is None or (flaw.line is not None and flaw.column is not None)


@given(st.data())
def test_parse_never_raises_anything_else_on_damaged_text(data: st.DataObject) -> None:
    """A valid text with one byte changed, lost or added is read, or refused with a place."""
    raw = data.draw(texts_of(data.draw(OBJECTS)))
    at = data.draw(st.integers(0, len(raw)))
    end = at + data.draw(st.integers(0, 1))
    parse_or_place(raw[:at] + data.draw(st.binary(max_size=1)) + raw[end:])


def test_the_limit_is_the_last_size_accepted() -> None:
    """One byte more is TooLarge, and is not even parsed."""
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
def test_numbers_are_read_as_serde_reads_them(text: str, value: float) -> None:
    """What does not fit 64 bits is a float, and so is -0, which no integer field then takes."""
    found = json_text.parse(f'{{"s -0": "-0", "a": {text}, "b": [{text}]}}'.encode(), "x")
    assert same(found, {"s -0": "-0", "a": value, "b": [value]})


@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_position_counts_lines_and_characters(text: str, data: st.DataObject) -> None:
    """The place of a character is the number of newlines, and of characters since the last, before it."""
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
def test_locate_finds_the_value_or_what_would_hold_it(path: json_text.Path, place: tuple[int, int]) -> None:
    """A member that is missing is reported where it should have been."""
    assert json_text.locate(LOCATED, path) == place


def test_locate_starts_behind_leading_white_space() -> None:
    """The document begins where its bracket is."""
    assert json_text.locate(b'\n\n  {"a": 1}\n', ()) == (3, 3)
    assert json_text.locate(b'\n\n  {"a": 1}\n', ("a",)) == (3, 9)


@given(st.data())
def test_locate_finds_every_value(data: st.DataObject) -> None:
    """At the place of every member stands the text of its value."""
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


def test_render_path_reads_as_people_write_it() -> None:
    """Names with dots between, indices in brackets."""
    assert json_text.render_path(("messages", 3, "tool_calls", 0, "id")) == "messages[3].tool_calls[0].id"
    assert json_text.render_path((2, "a")) == "[2].a"
    assert json_text.render_path(()) == ""


WITHOUT_FLOATS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(WITHOUT_FLOATS)
def test_render_is_pythons_json_with_two_spaces(value: Any) -> None:
    """Which is what serde's pretty printer writes, but for floats."""
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
def test_floats_are_written_as_serde_writes_them(value: float, text: str) -> None:
    """Also inside containers, and without touching a string that looks like one."""
    assert json_text.render_compact(value).decode() == text
    looks = json_text.render_compact({"1e+16": ["1e+16", '"1e+16', value], "b": value}).decode()
    assert looks == f'{{"1e+16":["1e+16","\\"1e+16",{text}],"b":{text}}}'


@given(VALUES)
def test_what_is_rendered_reads_back(value: Any) -> None:
    """parse(render(x)) is x, floats to the last bit."""
    for raw in (
        json_text.render({"v": value}),
        json_text.render_compact({"v": value}),
        json_text.render_indented({"v": value}, b"\t"),
    ):
        assert same(json_text.parse(raw, "x"), {"v": value})


def test_render_indented_puts_every_line_but_the_first_behind_the_indent() -> None:
    """So a value can be set into a text at any depth."""
    assert json_text.render_indented({"a": ["x\ny"]}, b"\t") == b'{\n\t  "a": [\n\t    "x\\ny"\n\t  ]\n\t}'
    assert json_text.render_indented({"a": [1]}, None) == b'{"a":[1]}'


@pytest.mark.parametrize("raw", [b"[]", b"[1, {}]", b'"text"', b"null", b" 5 ", b"-0.0"])
def test_parse_value_takes_what_is_no_object(raw: bytes) -> None:
    """An array or a single value is JSON too; only a document has to be an object."""
    assert json_text.parse_value(raw, "x") == json.loads(raw)
    with pytest.raises(InvalidContent, match="expected an object, got "):
        json_text.parse(raw, "x")


@pytest.mark.parametrize(
    ("raw", "where"),
    [(b'[1,\n {"a": 1, "a": 2}]', "x:2:11: [1].a"), (b"[" * 128 + b"]" * 128, "x:1:128: "), (b"[NaN]", "x:1:2: ")],
)
def test_parse_value_refuses_what_parse_does(raw: bytes, where: str) -> None:
    """With the place, also inside an array."""
    with pytest.raises(InvalidContent) as refused:
        json_text.parse_value(raw, "x")
    assert str(refused.value).startswith(where)
