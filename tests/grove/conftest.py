"""Fixtures of the grove: a real PostgreSQL server per worker, and a database per test.

A missing server is a failure, never a skip: scripts/setup installs it.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from store.grove.private_server import PrivateServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateServer]:
    """One server for all tests of this process."""
    yield from started()


@pytest.fixture
def own_server() -> Iterator[PrivateServer]:
    """A server that the test may kill."""
    yield from started()


def started() -> Iterator[PrivateServer]:
    """A server, ended and removed afterwards. Not below pytest's directory, which is closed to other users."""
    directory = Path(tempfile.mkdtemp(prefix="grovefs-pg-"))
    running = PrivateServer(directory)
    try:
        running.create()
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory)


@pytest.fixture
def url(server: PrivateServer) -> str:
    """The URL of an empty database."""
    return new_database(server)


def new_database(server: PrivateServer) -> str:
    name = f"grove{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type, unused-ignore]
    return server.url(name)
