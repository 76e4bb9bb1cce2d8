"""Operations of the log: they survive encoding, and rows of a broken or malicious host are refused."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.grove.wire import (
    BadRow,
    Claim,
    Gone,
    Operation,
    Put,
    Remove,
    Rename,
    Whole,
    decode_ops,
    encode_ops,
    inline_text,
)
from store.history import steps


def put_of(path: str, new: bytes, old: bytes = b"", **changes: Any) -> Put:
    step = steps.encode(old, new)
    base = sha256(old).digest() if step.kind != steps.WHOLE else b""
    members = {"path": path, "sha256": sha256(new).digest(), "size": len(new), "mode": 0o600, "mtime_ns": 5}
    return Put(**{**members, "kind": step.kind, "data": step.data, "base": base, **changes})


def test_every_operation_survives_encoding() -> None:
    unit = "sessions/r"
    ops: list[Operation] = [Whole(), put_of("session.json", b"{}"), Remove("traces.json")]
    assert decode_ops(encode_ops(ops), unit) == tuple(ops)
    mail: list[Operation] = [Rename("new/a.json", "cur/a.json"), Claim("cur/a.json", "h")]
    assert decode_ops(encode_ops(mail), "sessions/r/mailbox") == tuple(mail)
    assert decode_ops(encode_ops([Gone()]), unit) == (Gone(),)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_text_is_restored_from_its_step(old: bytes, new: bytes) -> None:
    assert inline_text(put_of("session.json", new, old), old) == new


def test_a_step_against_another_text_is_refused() -> None:
    put = put_of("session.json", b"one two three four!" * 9, b"one two three four?" * 9)
    assert put.base
    with pytest.raises(BadRow, match="another version"):
        inline_text(put, b"other")
    with pytest.raises(BadRow, match="another version"):
        inline_text(put, None)


def test_a_text_with_another_digest_is_refused() -> None:
    with pytest.raises(BadRow, match="digest"):
        inline_text(put_of("session.json", b"text", sha256=bytes(32)), None)


def test_decompression_is_bounded_by_the_size_of_the_row() -> None:
    """A few hundred bytes that expand to a hundred megabytes are refused without expanding them."""
    bomb = steps.whole(bytes(100 << 20))
    assert len(bomb.data) < 20_000
    with pytest.raises(BadRow, match="more than"):
        inline_text(put_of("session.json", b"x" * 1000, kind=bomb.kind, data=bomb.data), None)


@pytest.mark.parametrize(
    "path", ["../b/session.json", "/etc/passwd", "a\0b", "children/c/session.json", "notes.txt", "", ".", "x.jsonl"]
)
def test_a_path_outside_of_the_unit_is_refused(path: str) -> None:
    for operation in (put_of(path, b""), Remove(path), Rename(path, "session.json"), Rename("session.json", path)):
        with pytest.raises(BadRow, match="not a file of this unit"):
            decode_ops(encode_ops([operation]), "sessions/r")


def test_a_unit_that_is_none_is_refused() -> None:
    with pytest.raises(BadRow, match="not the name of a unit"):
        decode_ops(encode_ops([Gone()]), "sessions/../x")


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", encode_ops([Gone()])[:-1]])
def test_bytes_that_are_no_row_are_refused(raw: bytes) -> None:
    with pytest.raises(BadRow):
        decode_ops(raw, "sessions/r")


def test_another_format_is_refused() -> None:
    with pytest.raises(BadRow, match="format 2"):
        decode_ops(encode_ops([]).replace(b"\xa1v\x01", b"\xa1v\x02"), "sessions/r")


def test_special_permission_bits_are_removed() -> None:
    (put,) = decode_ops(encode_ops([put_of("session.json", b"", mode=0o6777)]), "sessions/r")
    assert isinstance(put, Put)
    assert put.mode == 0o666


@pytest.mark.parametrize("changes", [{"size": -1}, {"sha256": b"short"}, {"chunks": (bytes(32),)}, {"size": 1 << 60}])
def test_impossible_numbers_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadRow):
        decode_ops(encode_ops([put_of("session.json", b"text", **changes)]), "sessions/r")
