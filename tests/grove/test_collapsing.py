"""Collapsing: rows of one unit become one whole row."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest

from store.grove.collapsing import collapse
from store.grove.wire import (
    BadRow,
    Claim,
    Gone,
    LogRow,
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

MAILBOX = "sessions/a/mailbox"


def row(version: int, *ops: Operation, unit: str = "sessions/a") -> LogRow:
    numbers = (3, version, unit, version, f"t{version}", f"t{version - 1}")
    return LogRow(*numbers, "h1", "one", "saved", "api", "agent", 0, None, encode_ops(ops))


def put(path: str, new: bytes, old: bytes | None = None) -> Put:
    step = steps.encode(old, new)
    base = sha256(old).digest() if old is not None and step.kind != steps.WHOLE else b""
    return Put(path, sha256(new).digest(), len(new), 0o600, 5, step.kind, step.data, base)


def texts(ops: Sequence[Operation]) -> dict[str, bytes]:
    return {op.path: inline_text(op, None) for op in ops if isinstance(op, Put)}


def test_the_last_text_of_each_file_is_whole() -> None:
    """Steps are replayed, removed files are left out, version and token are those of the last row."""
    old, new = b"a" * 500, b"a" * 499 + b"b"
    found = collapse(
        [
            row(4, Whole(), put("session.json", old), put("traces.json", b"[]")),
            row(5, put("session.json", new, old)),
            row(6, Remove("traces.json")),
        ]
    )
    ops = decode_ops(found.ops, found.unit)
    assert (found.version, found.token, ops[0]) == (6, "t6", Whole())
    assert texts(ops) == {"session.json": new}


def test_renamed_mail_is_claimed_by_its_host() -> None:
    """A message in cur/ keeps its owner, also if another host took it over."""
    rows = [
        row(1, put("new/1.json", b"{}"), put("new/2.json", b"{}"), unit=MAILBOX),
        row(2, Rename("new/1.json", "cur/1.json"), Rename("new/2.json", "cur/2.json"), unit=MAILBOX),
        row(3, Claim("cur/2.json", "h2"), unit=MAILBOX),
    ]
    found = collapse(rows)
    ops = decode_ops(found.ops, MAILBOX)
    assert texts(ops) == {"cur/1.json": b"{}", "cur/2.json": b"{}"}
    assert [op for op in ops if isinstance(op, Claim)] == [Claim("cur/1.json", "h1"), Claim("cur/2.json", "h2")]


def test_chunks_are_kept_as_they_are() -> None:
    chunked = Put("attachments/x.bin", b"\1" * 32, 3, 0o600, 5, chunks=(b"\2" * 32,))
    found = collapse([row(1, chunked)])
    assert decode_ops(found.ops, found.unit) == (Whole(), chunked)


def test_a_deletion_ends_everything_before_it() -> None:
    """And a unit that was brought back has only what came after."""
    first = row(1, put("session.json", b"{}"), put("traces.json", b"[]"))
    assert decode_ops(collapse([first, row(2, Gone())]).ops, first.unit) == (Gone(),)
    again = collapse([first, row(2, Gone()), row(3, Whole(), put("session.json", b"{1}"))])
    assert texts(decode_ops(again.ops, again.unit)) == {"session.json": b"{1}"}


def test_a_step_without_its_base_is_refused() -> None:
    old, new = b"a" * 500, b"a" * 499 + b"b"
    with pytest.raises(BadRow, match="needs another version"):
        collapse([row(5, put("session.json", new, old))])
