"""Generated documents: valid ones, and variants as accidents, tools and attackers produce them. Pure.

Everything is drawn from a `random.Random`; the same seed gives the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.builders import NINE_DIGITS, make_document
from tests.records import make_artifact, make_check, make_event, make_report

LATER = "2026-06-21T08:15:30Z"

# JSON values that parsers, databases and terminals often handle wrongly.
TOKENS = [
    *("0", "-0", "-0.0", "1e999", "-1E+400", "1e-400", "0.1e1", "18446744073709551615", "18446744073709551616"),
    *("-9223372036854775809", "9" * 400, "0." + "1" * 400, "1e0000000000000000000001", "4294967296", "NaN", "Infinity"),
    *("01", "+1", ".5", "1.", "0x10", "true", "false", "null", "True", "''", "{}", "[]", '{"":""}', '{"a":1,"a":2}'),
    *('""', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\x41"', '"\\', '"\t"', '"\x7f"'),
    *('"\u202e\u2066"', '"\ufeff"', '"\ufffe"', '"e\u0301"', '"é"', '"\U0010ffff"', '"\\u001b[2J"', '"```"', '"<!--"'),
    *('"; DROP TABLE sessions; --"', '"\\" OR \\"\\""', '"NEAR(a b)"', '"*"', '"../../etc/passwd"', '"%s%n"', '"a:b"'),
    *('"bamboo-attachment://s1/a1"', '"bamboo-attachment://../x"', '"data:image/png;base64,AAAA"', '"user"', '"tool"'),
    *(f'"{NINE_DIGITS}"', '"9999-12-31T23:59:60Z"', '"0000-01-01T00:00:00-23:59"', '"2026-02-30T00:00:00Z"', '"now"'),
    *(",", ":", "[", "]", "{", "}", '"', "\\", "/*", "//", "\n", "\r", "\t", "\0", "\u2028"),
]
_BAD_BYTES = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xef\xbb\xbf", b"\0"]

_MESSAGES: list[dict[str, Any]] = [
    {"id": "m1", "role": "user", "content": "hello world", "created_at": NINE_DIGITS},
    {
        "id": "m2",
        "role": "assistant",
        "content": "",
        "reasoning": "thinking 漢字 about it",
        "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/"}'}}],
        "created_at": NINE_DIGITS,
    },
    {"id": "m3", "role": "tool", "content": "out\u0000put\u001b[31m", "tool_call_id": "t1", "tool_success": True},
    {
        "id": "m4",
        "role": "user",
        "content": "look",
        "content_parts": [
            {"type": "text", "text": "look ```"},
            {"type": "image_url", "image_url": {"url": "bamboo-attachment://s1/a1", "detail": "high"}},
        ],
        "created_at": NINE_DIGITS,
    },
    {"id": "m5", "role": "system", "content": "be brief", "unknown": {"deep": [1, 2.5, None, {"x": "y"}]}},
]
_PLANE: dict[str, Any] = {
    "model": "m",
    "pinned": False,
    "metadata": {"a": "1", "b": "two"},
    "runtime_metadata": {"project_id": "p", "last_run_status": "completed", "extra": [1]},
    "conversation_summary": {
        "content": "a summary",
        "created_at": NINE_DIGITS,
        "updated_at": NINE_DIGITS,
        "message_count": 2,
        "token_count": 10,
    },
    "task_list": {
        "session_id": "s1",
        "title": "tasks",
        "items": [{"id": "i1", "description": "do", "status": "pending"}],
        "created_at": NINE_DIGITS,
        "updated_at": NINE_DIGITS,
    },
    "unknown_member": {"kept": [True, None, "x"]},
}


def _session(id: str, **more: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(make_document(id))
    return {**data, **more}


VALID: dict[str, list[dict[str, Any]]] = {
    "session": [
        _session("s1"),
        _session("s1", messages=[]),
        _session("s1", messages=_MESSAGES),
        _session("s1", messages=_MESSAGES * 4, updated_at=LATER, **_PLANE),
        _session("s1", title="naïve \u202e title", metadata={str(n): "x" for n in range(40)}),
    ],
    "sidecar": [_session("s1", messages=[], **_PLANE), _session("s1", messages=[], title="other", updated_at=LATER)],
    "message": [
        {"id": "l1", "from": {"session_id": "s1"}, "kind": "task", "body": {"x": [1]}, "created_at": NINE_DIGITS}
    ],
    "artifacts": [{"version": 1, "artifacts": [json.loads(make_artifact().model_dump_json())]}],
    "traces": [{"version": 1, "events": [json.loads(make_event().model_dump_json())]}],
    "verification": [
        {"version": 1, "reports": [json.loads(make_report("p", make_check()).model_dump_json())]},
    ],
    "payload": [{"id": "p", "title": "A project's session", "updated_at": NINE_DIGITS, "anything": [1, {"x": None}]}],
    "state": [{"facts": ["one", 2, None]}],
}


def render(value: Any, draw: random.Random) -> bytes:
    """Serialise it in one of several JSON styles."""
    indent = draw.choice([None, None, 1, 2, 4, "\t"])
    separators = draw.choice([None, (",", ":"), (" , ", " : ")])
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw.random() < 0.3).encode(
        errors="surrogatepass"
    )


# -- bytes ---------------------------------------------------------------------------------------------------


def truncated(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw) + 1)] if draw.random() < 0.8 else raw[draw.randrange(len(raw) + 1) :]


def flipped(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def repeated(raw: bytes, draw: random.Random) -> bytes:
    """Repeat a slice, as a torn write or a bad merge leaves it."""
    start = draw.randrange(len(raw) + 1)
    end = min(len(raw), start + draw.randrange(1, 400))
    return raw[:end] + raw[start:end] + raw[end:]


def cut_out(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw) + 1)
    return raw[:start] + raw[start + draw.randrange(1, 200) :]


def bad_bytes(raw: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + draw.choice(_BAD_BYTES) + raw[at:]


def token_put_in(raw: bytes, draw: random.Random) -> bytes:
    """Insert a token, in place of a value or anywhere."""
    token = draw.choice(TOKENS).encode(errors="surrogatepass")
    places = [n for n, byte in enumerate(raw) if byte in b":[," and n < len(raw) - 1]
    if not places or draw.random() < 0.2:
        at = draw.randrange(len(raw) + 1)
        return raw[:at] + token + raw[at:]
    at = draw.choice(places) + 1
    end = next((n for n in range(at, len(raw)) if raw[n] in b",]}\n"), len(raw))
    return raw[:at] + token + raw[end:]


def key_again(raw: bytes, draw: random.Random) -> bytes:
    """Duplicate a key, as it is or spelled with an escape."""
    key = draw.choice([b'"id"', b'"title"', b'"messages"', b'"\\u0069d"', b'"role"', b'"x"', b'"updated_at"'])
    brackets = [n for n, byte in enumerate(raw) if byte in b"{"]
    if not brackets:
        return raw
    at = draw.choice(brackets) + 1
    return raw[:at] + key + b": 1, " + (key + b": 2, " if draw.random() < 0.5 else b"") + raw[at:]


def spliced(raw: bytes, draw: random.Random) -> bytes:
    """Join the beginning of one document to the end of another."""
    other = render(draw.choice(VALID["session"]), draw)
    return raw[: draw.randrange(len(raw) + 1)] + other[draw.randrange(len(other) + 1) :]


def padded(raw: bytes, draw: random.Random) -> bytes:
    before, after = (draw.choice([b"", b" ", b"\n\n", b"\t\r\n", b"\xef\xbb\xbf", b"\x1e", b"\0"]) for _ in range(2))
    return before + raw + after


# -- values --------------------------------------------------------------------------------------------------


def deep(levels: int, draw: random.Random) -> str:
    opening, closing = draw.choice([("[", "]"), ('{"a":', "}")])
    return opening * levels + draw.choice(["1", "[]", "{}"]) + closing * levels


def _walk(value: Any, found: list[tuple[Any, Any]]) -> None:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _walk(value[key], found)


def altered(value: dict[str, Any], draw: random.Random) -> bytes:
    """Remove, rename or replace a few members; the result is usually still JSON."""
    value = json.loads(json.dumps(value))
    places: dict[str, str] = {}
    for number in range(draw.choice([1, 1, 2, 5])):
        found: list[tuple[Any, Any]] = []
        _walk(value, found)
        if not found:
            break
        container, key = draw.choice(found)
        deed = draw.random()
        if deed < 0.2:
            del container[key]
        elif deed < 0.3 and isinstance(container, dict):
            container[draw.choice(["", "x", "\ud800", "e\u0301", "a" * 300, "task_list", "todo_list"])] = 1
        elif deed < 0.4:
            container[key] = [container[key]] * draw.choice([0, 2, 3])
        else:
            places[f"@{number}@"] = (
                deep(draw.choice([5, 120, 126, 127, 128, 500]), draw) if deed < 0.5 else _token(draw)
            )
            container[key] = f"@{number}@"
    raw = render(value, draw)
    for mark, token in places.items():
        raw = raw.replace(json.dumps(mark).encode(), token.encode(errors="surrogatepass"))
    return raw


def _token(draw: random.Random) -> str:
    return draw.choice(TOKENS) if draw.random() < 0.9 else json.dumps(draw.choice('x漢\n\\"') * draw.randrange(70_000))


_BYTE_DEEDS: list[Callable[[bytes, random.Random], bytes]] = [
    *(truncated, flipped, repeated, cut_out, bad_bytes, token_put_in, key_again, spliced, padded),
]


def document(kind: str, draw: random.Random) -> bytes:
    """One document of a kind: valid, altered or malformed."""
    value = draw.choice(VALID[kind])
    fate = draw.random()
    if fate < 0.06:
        return render(value, draw)
    raw = altered(value, draw) if fate < 0.5 else render(value, draw)
    for _ in range(0 if fate < 0.45 else draw.choice([1, 1, 2])):
        raw = draw.choice(_BYTE_DEEDS)(raw, draw)
    return raw


# -- giants: documents that expose superlinear costs -------------------------------------------------------------

MANY = 100_000


def _many(text: str, count: int = MANY) -> str:
    return ",".join(text.replace("#", str(n)) for n in range(count))


def _with(member: str, text: str, **more: Any) -> bytes:
    raw = json.dumps({**VALID["session"][0], **more, member: "@"})
    return raw.replace('"@"', text, 1).encode()


def giants() -> dict[str, Callable[[], bytes]]:
    """Generators by name; each runs when its turn comes."""
    message = '{"id":"m#","role":"user","content":"message number #"}'
    return {
        "messages": lambda: _with("messages", f"[{_many(message)}]"),
        "messages-without-role": lambda: _with("messages", f"[{_many('{}')}]"),
        "messages-that-are-numbers": lambda: _with("messages", f"[{_many('#')}]"),
        "metadata": lambda: _with("metadata", "{" + _many('"k#":"v"') + "}", updated_at=LATER),
        "metadata-of-numbers": lambda: _with("metadata", "{" + _many('"k#":#') + "}"),
        "unknown-members": lambda: _with("x", '1,"y":{' + _many('"k#":#') + "}", updated_at=LATER),
        "members-at-the-top": lambda: _with("x", "1," + _many('"k#":#'), updated_at=LATER),
        "repeated-keys": lambda: _with("x", "{" + _many('"k":1') + "}"),
        "one-repeated-key": lambda: _with("x", "{" + _many('"k#":1') + ',"k0":1}'),
        "nested-arrays": lambda: _with("x", "[" * 1_000_000),
        "nested-objects": lambda: _with("x", '{"a":' * 500_000),
        "closing-brackets": lambda: _with("x", "]" * 1_000_000),
        "wide-and-deep": lambda: _with("x", "[" + _many("[" * 120 + "]" * 120, 2_000) + "]"),
        "quotes": lambda: _with("x", '"' + '\\"' * 2_000_000 + '"'),
        "backslashes": lambda: _with("x", '"' + "\\\\" * 2_000_000),
        "open-string": lambda: _with("x", '"' + "a" * 10_000_000),
        "long-title": lambda: _with("title", '"' + "word " * 1_000_000 + '"'),
        "one-long-word": lambda: _with("title", '"' + "a" * 8_000_000 + '"'),
        "cjk": lambda: _with("messages", '[{"role":"user","content":"' + "漢字仮名" * 300_000 + '"}]'),
        "backticks": lambda: _with("messages", '[{"role":"user","content":"' + "```\\n~~~\\n" * 200_000 + '"}]'),
        "escapes": lambda: _with("messages", '[{"role":"user","content":"' + "\\u001b[31m\\u0000" * 200_000 + '"}]'),
        "digits": lambda: _with("x", "9" * 2_000_000),
        "fraction": lambda: _with("x", "0." + "1" * 2_000_000),
        "exponent": lambda: _with("x", "1e" + "0" * 1_000_000 + "1"),
        "white-space": lambda: b" \n\t" * 3_000_000 + _with("x", "1"),
        "minus-zeros": lambda: _with("x", f"[{_many('-0')}]"),
        "colons": lambda: _with("x", '"' + ":" * 2_000_000 + '" , "\\u0061" : 1'),
        "timestamp": lambda: _with("updated_at", '"2026-06-20T08:15:30.' + "1" * 2_000_000 + 'Z"'),
        "tool-calls": lambda: _with(
            "messages",
            '[{"role":"assistant","content":"","tool_calls":['
            + _many('{"id":"t#","type":"function","function":{"name":"f","arguments":"{}"}}', 50_000)
            + "]}]",
        ),
        "references": lambda: _with(
            "messages",
            '[{"role":"user","content":"","content_parts":['
            + _many('{"type":"image_url","image_url":{"url":"bamboo-attachment://s1/a#"}}', 20_000)
            + "]}]",
        ),
    }
