"""Operations in the log of a grove: what one version of a unit changes, as bytes. Pure.

A row is MessagePack, `{"v": 1, "ops": [...]}`, with the operations in the order in which they are
applied. Paths are relative to the unit, with bytes that are not UTF-8 escaped. `decode_ops` takes
rows of other hosts, which may be broken or malicious: it returns only operations on files of the
unit. A text is inline as a step (`store.history.steps`), or it is cut into chunks. The reader of a
Put compares the result with its sha256.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from store.errors import StoreError
from store.grove.units import is_unit, unescape_path, unit_of
from store.history import steps

FORMAT = 1
CHUNK_BYTES = 1 << 20
MAX_INLINE_BYTES = 256 << 10  # of a step; longer texts are cut into chunks
MAX_FILE_BYTES = 16 << 30
_MODES = 0o666  # the permission bits that another host may set


class BadRow(StoreError):
    """A row of the log that this host cannot apply."""


class Put(msgspec.Struct, frozen=True, tag="put", omit_defaults=True):
    """A file gets new content: a step from the text with sha256 `base`, or chunks."""

    path: str
    sha256: bytes
    size: int
    mode: int
    mtime_ns: int
    kind: int = steps.WHOLE
    data: bytes = b""
    base: bytes = b""  # b"": the step needs no older text
    chunks: tuple[bytes, ...] = ()  # sha256 of each; `data` is then empty


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """A file is removed."""

    path: str


class Rename(msgspec.Struct, frozen=True, tag="rename"):
    """A file gets another name. Into a mailbox's cur/: the row's host has claimed the message."""

    source: str
    target: str


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """A message in cur/ belongs to a host: it takes it over, or a whole version says whose it is."""

    path: str
    host: str


class Whole(msgspec.Struct, frozen=True, tag="whole"):
    """First operation of a whole version: files that it does not put do not exist."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Only operation of a deleted unit. Its version counts on."""


Operation = Put | Remove | Rename | Claim | Whole | Gone


class _OperationList(msgspec.Struct, frozen=True):
    v: int
    ops: tuple[Operation, ...]


class LogRow(NamedTuple):
    """One row of the log, as `store.grove.queries` returns it."""

    shard: int
    seq: int
    unit: str
    version: int
    token: str  # uuid of the attempt that made this version
    previous: str  # token of the version before; "" for the first
    host: str  # uuid of the home that made it
    host_name: str
    what: str
    via: str  # of the author
    program: str
    at_ns: int  # by the clock of the database
    generation: int | None  # of the tree, if units were created or deleted
    ops: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_OperationList)


def encode_ops(ops: Sequence[Operation]) -> bytes:
    return _encoder.encode(_OperationList(FORMAT, tuple(ops)))


DELETED = encode_ops([Gone()])  # the operations of every row that deletes a unit


def decode_ops(raw: bytes, unit: str) -> tuple[Operation, ...]:
    """The operations of a row of this unit. Raises BadRow if it must not be applied."""
    if not is_unit(unit):
        raise BadRow(f"{unit!r} is not the name of a unit")
    try:
        row = _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise BadRow(f"{unit}: a row of the log cannot be decoded: {error}") from None
    if row.v != FORMAT:
        raise BadRow(f"{unit}: the row has format {row.v}; this GroveFS reads format {FORMAT}")
    return tuple(_checked(operation, unit) for operation in row.ops)


def _checked(operation: Operation, unit: str) -> Operation:
    match operation:
        case Put():
            _check_path(operation.path, unit)
            return _checked_put(operation, unit)
        case Remove() | Claim():
            _check_path(operation.path, unit)
        case Rename():
            _check_path(operation.source, unit)
            _check_path(operation.target, unit)
    return operation


def _check_path(path: str, unit: str) -> None:
    name = unescape_path(path)
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")) or unit_of(f"{unit}/{name}") != unit:
        raise BadRow(f"{unit}: the row changes {name!r}, which is not a file of this unit")


def _checked_put(put: Put, unit: str) -> Put:
    if not 0 <= put.size <= MAX_FILE_BYTES or len(put.sha256) != 32 or any(len(c) != 32 for c in put.chunks):
        raise BadRow(f"{unit}: the row has an impossible size or digest of {put.path!r}")
    if put.chunks and (put.data or put.base or len(put.chunks) != -(-put.size // CHUNK_BYTES)):
        raise BadRow(f"{unit}: the chunks of {put.path!r} do not match its size")
    return msgspec.structs.replace(put, mode=put.mode & _MODES)


def inline_text(put: Put, old: bytes | None) -> bytes:
    """The text of a Put without chunks. `old` is the text that the file has now.

    Raises BadRow if `old` is not the base, or the result is not the text that was agreed to.
    """
    if put.base and (old is None or sha256(old).digest() != put.base):
        raise BadRow(f"{put.path!r}: the row needs another version of the file than the present one")
    text = bytearray(old or b"") if put.base else bytearray()
    try:
        steps.apply(text, steps.Step(put.kind, put.data), max_bytes=put.size)
    except (steps.Error, ValueError) as error:
        raise BadRow(f"{put.path!r}: the row cannot be decoded: {error}") from None
    if len(text) != put.size or sha256(text).digest() != put.sha256:
        raise BadRow(f"{put.path!r}: the text of the row does not have the agreed digest")
    return bytes(text)
