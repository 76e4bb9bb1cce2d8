"""A call that is given the wrong thing says what it takes, and does nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import pytest

from store import MemoryStore, Message, Session, Store
from store.argument_checks import checked
from tests.builders import files_below, make_session

WRONG: dict[str, Callable[[Any], object]] = {
    "save() takes a Session for session; 'text' (str) was given": lambda s: s.save("text"),
    "load() takes a text (str) for session_id; 5 (int) was given": lambda s: s.load(5),
}
WRONG_ON_DISK: dict[str, Callable[[Any], object]] = {
    "append() takes a Session or a text (str) for target; None was given": lambda s: s.append(None, []),
    "append() takes a list for messages, also of one; 'hello' (str) was given": lambda s: s.append("s1", "hello"),
    "append() takes a list for messages, also of one; Message(": lambda s: s.append("s1", Message.user("hello")),
    "update() takes a function for change; 5 (int) was given": lambda s: s.update("s1", 5),
    "delete() takes True or False for force; 'no' (str) was given": lambda s: s.delete("s1", force="no"),
    "search() takes a text (str) for query; ['a'] (list) was given": lambda s: s.search(["a"]),
    "attach() takes bytes or a text (str) for data; 5 (int) was given": lambda s: s.attach("s1", 5),
    "backup() takes a text (str) or a path for dest; None was given": lambda s: s.backup(None),
}


@pytest.mark.parametrize("said", WRONG)
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_wrong_argument_is_told_of_before_anything_is_done(store: Store, kind: str, said: str) -> None:
    asked = store if kind == "disk" else MemoryStore()
    asked.save(make_session("s1"))
    before = files_below(store.home)
    with pytest.raises(TypeError) as raised:
        WRONG[said](asked)
    assert str(raised.value).startswith(said)
    assert files_below(store.home) == before


@pytest.mark.parametrize("said", WRONG_ON_DISK)
def test_so_are_those_that_only_a_home_takes(store: Store, said: str) -> None:
    store.save(make_session("s1"))
    with pytest.raises(TypeError) as raised:
        WRONG_ON_DISK[said](store)
    assert str(raised.value).startswith(said)


def test_a_choice_that_there_is_not_is_named_with_those_there_are(store: Store) -> None:
    with pytest.raises(ValueError, match="takes one of 'all', 'empty', 'children' for mode; 'bogus'"):
        store.plan_cleanup("bogus")  # type: ignore[arg-type]


@checked
class Sample:
    def take(self, a: int | None, *, b: Literal["x", "y"] = "x", c: float = 1, **more: Any) -> tuple[Any, ...]:
        """What it does."""
        return a, b, c, more

    def _private(self, a: int) -> int:
        return a


def test_what_fits_passes_unchanged() -> None:
    assert Sample().take(5, b="y", c=2, other="z") == (5, "y", 2, {"other": "z"})
    assert Sample().take(None) == (None, "x", 1, {})
    assert Sample()._private("anything") == "anything"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Sample().take()  # type: ignore[call-arg]


def test_a_method_still_tells_what_it_is() -> None:
    assert inspect.getdoc(Sample.take) == "What it does."
    assert list(inspect.signature(Store.append).parameters) == ["self", "target", "messages"]


def test_a_subclass_passes(store: Store) -> None:
    class Special(Session):
        pass

    store.save(Special.new("s1", "m"))
    assert store.exists("s1")
