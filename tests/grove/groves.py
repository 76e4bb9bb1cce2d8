"""Homes of one grove, for tests: joined by name, compared byte by byte."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store import Store
from store.grove import administration

DEADLINE_S = 60.0


def create(url: str) -> str:
    administration.create(url)
    return url


def join(home: Path, url: str, name: str = "") -> None:
    administration.join(home, url, name or home.name)


@contextmanager
def hosts(directory: Path, url: str, *names: str) -> Iterator[list[Store]]:
    """Homes that have joined the grove, open, each with a follower."""
    stores: list[Store] = []
    try:
        for name in names:
            join(directory / name, url)
            stores.append(Store.open(directory / name, author=f"agent-{name}"))
        yield stores
    finally:
        for store in stores:
            store.close()


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, "not so within the deadline"
        time.sleep(0.01)


def files(home: Path) -> dict[str, bytes]:
    """Every shared file of a home."""
    found = [path for top in ("sessions", "state") for path in (home / top).rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(found)}


def wait_equal(*stores: Store) -> None:
    """Wait until all homes have the same files."""

    def are_equal() -> bool:
        try:
            return all(files(store.home) == files(stores[0].home) for store in stores)
        except FileNotFoundError:  # renamed while it was looked for
            return False

    wait_until(are_equal)


def assert_clean(*stores: Store) -> None:
    for store in stores:
        report = store.check()
        assert report.is_clean, "\n".join(map(str, report.findings))
