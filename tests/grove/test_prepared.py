"""Prepared statements: values arrive as they were, and the caller works while the server does."""

from __future__ import annotations

import time
import uuid
from typing import Any

import psycopg
import pytest

from store.grove.connection import DeadlineConnection, now_s, open_connection
from store.grove.prepared import PreparedStatement
from store.grove.statement import STATEMENT, STATEMENT_WITH_OWNER

ODD = ["", "NULL", 'a "quoted" \\ one', "{x, y}", "naïve 木", " "]


@pytest.fixture
def connection(url: str) -> Any:
    with open_connection(url, now_s() + 60) as connection:
        yield connection


def nothing() -> None:
    pass


def run(connection: DeadlineConnection, sql: str, **given: tuple[str, Any]) -> Any:
    """The answer to a statement whose parameters are given as type and value."""
    statement = PreparedStatement(f"s{uuid.uuid4().hex}", sql, {name: kind for name, (kind, _) in given.items()})
    return statement.run(connection, {name: value for name, (_, value) in given.items()}, nothing)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("text[]", ODD, repr(ODD)),
        ("text[]", [], "[]"),
        ("bigint[]", [1, None, -(1 << 62)], "[1, None, -4611686018427387904]"),
        ("bool[]", [True, False], "[True, False]"),
        ("bytea[]", [b"\x00\xff", b""], "[b'\\x00\\xff', b'']"),
        ("bytea[]", [], "[]"),
        ("uuid[]", [None, str(uuid.UUID(int=7))], f"[None, {uuid.UUID(int=7)!r}]"),
        ("uuid", str(uuid.UUID(int=7)), repr(uuid.UUID(int=7))),
        ("text", "a 'b' \\ 木", repr("a 'b' \\ 木")),
        ("bigint", None, "None"),
        ("int", 63, "63"),
        ("jsonb", '{"a": ["\\u0041"]}', "{'a': ['A']}"),
    ],
)
def test_a_value_arrives_as_it_was(connection: DeadlineConnection, kind: str, value: Any, shown: str) -> None:
    """As psycopg reads it back from a table."""
    connection.execute(f"CREATE TEMP TABLE kept (value {kind})")
    assert run(connection, "INSERT INTO kept VALUES (%(value)s) RETURNING 7", value=(kind, value)) == b"7"
    [row] = connection.execute("SELECT value FROM kept").fetchall()
    assert repr(row[0]) == shown


def test_a_nul_is_refused_and_not_cut_off(connection: DeadlineConnection) -> None:
    with pytest.raises(psycopg.DataError):
        run(connection, "SELECT %(value)s", value=("text", "a\0b"))
    assert run(connection, "SELECT %(value)s", value=("text", "next")) == b"next"


def test_an_error_of_the_server_is_raised_with_its_state(connection: DeadlineConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(connection, "SELECT 1 / %(value)s", value=("int", 0))
    assert run(connection, "SELECT 1 / %(value)s", value=("int", 1)) == b"1"


def test_no_row_is_none(connection: DeadlineConnection) -> None:
    assert run(connection, "SELECT 1 WHERE %(value)s > 1", value=("int", 0)) is None


def test_a_statement_that_the_server_forgot_is_prepared_again(connection: DeadlineConnection) -> None:
    """psycopg deallocates all statements of a connection after a rollback, and a pool may lead to another server."""
    statement = PreparedStatement("again", "SELECT %(value)s + 1", {"value": "int"})
    assert statement.run(connection, {"value": 1}, nothing) == b"2"
    connection.execute("DEALLOCATE ALL")
    assert statement.run(connection, {"value": 2}, nothing) == b"3"


def test_the_caller_works_while_the_server_does(connection: DeadlineConnection) -> None:
    """Its time does not count for the deadline: the answer of the server has arrived meanwhile."""
    statement = PreparedStatement("sleep", "SELECT pg_sleep(%(seconds)s)::text || 'x'", {"seconds": "int"})
    connection.deadline = now_s() + 3.0
    called: list[str] = []

    def work() -> None:
        called.append(connection.info.transaction_status.name)
        time.sleep(3.5)

    assert statement.run(connection, {"seconds": 1}, work) == b"x"
    assert called == ["ACTIVE"]
    connection.deadline = now_s() + 0.5
    with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
        statement.run(connection, {"seconds": 30}, nothing)


@pytest.mark.parametrize("sql", [STATEMENT, STATEMENT_WITH_OWNER])
def test_parameters_of_the_agreement_are_few(sql: str) -> None:
    """A name that is used several times is sent once."""
    assert sql.count("%(shard)s") > 1
    types = dict.fromkeys(_names(sql), "text")
    assert len(PreparedStatement("x", sql, types)._encoders) == len(types)


def _names(sql: str) -> set[str]:
    return {part.partition(")")[0] for part in sql.split("%(")[1:]}
