"""The drawing of the error classes in store/errors.py."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from store import errors

ROOT = Path(__file__).parents[2]


def import_all() -> None:
    for top in ("store", "fusefs"):
        for path in (ROOT / top).rglob("*.py"):
            if path.stem not in ("__init__", "__main__"):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def drawn() -> dict[str, tuple[str, str]]:
    """Each class in the drawing: its parent, and the file that declares it."""
    found: dict[str, tuple[str, str]] = {}
    parents = {0: "StoreError"}
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ([│ ]*)[├└]── (\w+) +(\S.*)", line)
        if match:
            depth = len(match[1]) // 4
            file = re.search(r": ([\w/]+\.py)$", match[3])
            parents[depth + 1] = match[2]
            found[match[2]] = parents[depth], file[1] if file else "store/errors.py"
    return found


def test_every_error_class_is_drawn_with_its_parent_and_file() -> None:
    import_all()
    declared = {
        kind.__name__: (kind.__bases__[0].__name__, f"{kind.__module__.replace('.', '/')}.py")
        for kind in subclasses(errors.StoreError)
        if kind.__module__.split(".")[0] in ("store", "fusefs")
    }
    assert drawn() == declared
