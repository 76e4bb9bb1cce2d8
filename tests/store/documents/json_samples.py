"""Random JSON values, and random ways to write them as text."""

import json
import random
from typing import Any

from hypothesis import strategies as st

from store.documents import json_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ['"', "\\", "a/b", "\n", "日本", "🌳", "é", "{", "]", ",", ": ", "\x7f", "\u2028", "\x00"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["a", "b", "c", "d", "é", 'q"', "日本", "x\ny", ""])
SMALL = st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, 2, "", "x", "é\n"])
# Few keys and few values, so that two random objects have much in common.
ALIKE = st.recursive(
    SMALL, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=10
)
OBJECTS = st.dictionaries(KEYS, ALIKE, max_size=5)
SEEDS = st.integers(0, 2**32)


def write_randomly(value: Any, how: random.Random) -> str:
    """The value as JSON, with white space and escapes wherever they are allowed."""

    def space() -> str:
        return "".join(how.choice(" \t\r\n") for _ in range(how.choice([0, 0, 1, 1, 3])))

    def text(value: str) -> str:
        if how.random() < 0.3:
            return '"' + "".join(_escaped(c) if how.random() < 0.5 else json.dumps(c)[1:-1] for c in value) + '"'
        return json.dumps(value, ensure_ascii=how.random() < 0.3)

    if isinstance(value, dict):
        parts = [f"{space()}{text(k)}{space()}:{space()}{write_randomly(v, how)}{space()}" for k, v in value.items()]
        return "{" + (",".join(parts) or space()) + "}"
    if isinstance(value, list):
        parts = [f"{space()}{write_randomly(v, how)}{space()}" for v in value]
        return "[" + (",".join(parts) or space()) + "]"
    return text(value) if isinstance(value, str) else json.dumps(value)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


LAYOUTS: list[dict[str, Any]] = [
    {"indent": None},
    {"indent": None, "separators": (",", ":")},
    {"indent": 0},
    {"indent": 1},
    {"indent": 2},
    {"indent": 4},
    {"indent": "\t"},
]


@st.composite
def texts_of(draw: st.DrawFn, value: Any) -> bytes:
    """One of the ways to write a value as JSON."""
    layout = draw(st.integers(0, len(LAYOUTS)))
    if layout == len(LAYOUTS):
        how = random.Random(draw(SEEDS))
        return (how.choice(["", " ", "\n\t"]) + write_randomly(value, how) + how.choice(["", "\n", " \r\n"])).encode()
    ascii_only = draw(st.booleans())
    return json.dumps(value, ensure_ascii=ascii_only, **LAYOUTS[layout]).encode() + draw(st.sampled_from([b"", b"\n"]))


def member_values(raw: bytes) -> dict[str, bytes]:
    """The exact bytes of each member's value."""
    start = len(raw) - len(raw.lstrip())
    return {m.key: raw[m.start : m.end] for m in json_text.members(raw, start, len(raw.rstrip()))}


def keys_as_written(raw: bytes) -> dict[str, bytes]:
    start = len(raw) - len(raw.lstrip())
    return {m.key: raw[m.chunk_start : m.start] for m in json_text.members(raw, start, len(raw.rstrip()))}
