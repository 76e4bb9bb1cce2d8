"""Prepared statements, sent without waiting for their answer.

A commit of a host waits for the database, so it uses that time for work of its own: the statement is sent,
the caller goes on, and the answer is read afterwards. Parameters are encoded here, which takes a fraction
of the time that psycopg needs to find out their types. Only arrays of bytes and scalars that are not numbers are sent
in the binary format: of short arrays of numbers or names the text is shorter.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import generators

from store.grove.connection import DeadlineConnection, now_s

_PLACEHOLDER = re.compile(r"%\((\w+)\)[sb]")
_TEXT, _BINARY = 0, 1
_ARRAY = struct.Struct("!iiIii")  # dimensions, has NULLs, type of the elements, length, first index
_LENGTH = struct.Struct("!i")
_BYTEA = 17  # oid
_UNKNOWN_STATEMENT = b"26000"  # psycopg forgets all statements of a connection after a rollback; nothing was done

Encoded = tuple[bytes | None, int]  # a parameter and its format


class PreparedStatement:
    """A statement with parameters `%(name)s`, of the types that `types` names."""

    def __init__(self, name: str, sql: str, types: Mapping[str, str]) -> None:
        names = list(dict.fromkeys(_PLACEHOLDER.findall(sql)))
        numbered = _PLACEHOLDER.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
        self._name = name
        self._prepare = f"PREPARE {name} ({', '.join(types[each] for each in names)}) AS {numbered}"
        self._encoders = [(each, _ENCODERS[types[each]]) for each in names]

    def run(self, connection: DeadlineConnection, values: Mapping[str, Any], meanwhile: Callable[[], None]) -> Any:
        """The first value of the first row, as bytes or None. `meanwhile` is called while the server works.

        Raises psycopg.Error. The time that `meanwhile` takes does not count for the deadline.
        """
        sent = self._send(connection, values, meanwhile)
        if sent.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == _UNKNOWN_STATEMENT:
            connection.prepared.discard(self._name)
            sent = self._send(connection, values, meanwhile)
        if sent.status != psycopg.pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(sent)
        return sent.get_value(0, 0) if sent.ntuples else None

    def _send(self, connection: DeadlineConnection, values: Mapping[str, Any], meanwhile: Callable[[], None]) -> Any:
        if self._name not in connection.prepared:
            connection.execute(self._prepare, prepare=False)
            connection.prepared.add(self._name)
        parameters, formats = zip(*(encode(values[name]) for name, encode in self._encoders), strict=True)
        connection.pgconn.send_query_prepared(self._name.encode(), parameters, formats)
        if connection.pgconn.flush():  # it is long, and the server does not read fast enough
            connection.wait(generators.send(connection.pgconn))
        began = now_s()
        meanwhile()
        connection.deadline += now_s() - began
        return connection.wait(generators.fetch_many(connection.pgconn))[0]


def _text(value: str | None) -> Encoded:
    return (value.encode() if value is not None else None), _BINARY  # in the text format, a NUL would end it


def _number(value: int | None) -> Encoded:
    return (b"%d" % value if value is not None else None), _TEXT


def _uuid(value: str) -> Encoded:
    return bytes.fromhex(value.replace("-", "")), _BINARY


def _json(value: str) -> Encoded:
    return value.encode(), _TEXT


def _words(values: Sequence[object]) -> Encoded:
    """An array of numbers or uuids."""
    return f"{{{','.join('NULL' if value is None else str(value) for value in values)}}}".encode(), _TEXT


def _truths(values: Sequence[bool]) -> Encoded:
    return f"{{{','.join('t' if value else 'f' for value in values)}}}".encode(), _TEXT


def _texts(values: Sequence[str]) -> Encoded:
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return b"{%s}" % b",".join(b'"%s"' % value.encode() for value in quoted), _TEXT


def _byte_strings(values: Sequence[bytes]) -> Encoded:
    if not values:
        return b"{}", _TEXT
    parts = [_ARRAY.pack(1, 0, _BYTEA, len(values), 1)]
    for value in values:
        parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts), _BINARY


_ENCODERS: dict[str, Callable[[Any], Encoded]] = {
    "text": _text,
    "int": _number,
    "bigint": _number,
    "uuid": _uuid,
    "jsonb": _json,
    "text[]": _texts,
    "bigint[]": _words,
    "bool[]": _truths,
    "uuid[]": _words,
    "bytea[]": _byte_strings,
}
