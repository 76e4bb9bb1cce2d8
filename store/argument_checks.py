"""What a call was given is what it takes, or the caller is told so before anything is done.

Python finds a wrong argument out somewhere deep inside, if at all, and says there what an attribute is called that
something does not have. `checked` reads a class's annotations instead, of each method when it is first called, and
compares what can be told at a glance: the class of a value, the choices of a Literal. What it cannot tell passes.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SPOKEN: dict[type, str] = {
    str: "a text (str)",
    bytes: "bytes",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    dict: "a dict",
    types.NoneType: "None",
    Callable: "a function",  # type: ignore[dict-item]
    Iterable: "a list",
    os.PathLike: "a path",
}
_LONGEST_SHOWN = 40  # characters of what was given


class _Expected(NamedTuple):
    """What a parameter takes; an empty tuple of classes: anything."""

    name: str
    classes: tuple[type, ...]
    choices: tuple[object, ...]
    is_collection: bool  # several of something


def checked(cls: type[T]) -> type[T]:
    """Have the public methods of a class look at their arguments first."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            setattr(cls, name, _looking_first(method))
    return cls


def _looking_first(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def look_and_call(self: Any, *args: Any, **named: Any) -> Any:
        expected = _expected_by(method)
        for value, wanted in zip(args, expected, strict=False):
            _look(method, value, wanted)
        if named:
            by_name = {wanted.name: wanted for wanted in expected}
            for name, value in named.items():
                if name in by_name:
                    _look(method, value, by_name[name])
        return method(self, *args, **named)

    return look_and_call


def _look(method: Callable[..., Any], value: Any, wanted: _Expected) -> None:
    if wanted.is_collection and _is_single(value):
        raise TypeError(f"{_call(method)} takes a list for {wanted.name}, also of one; {_shown(value)} was given")
    if not wanted.classes or isinstance(value, wanted.classes):
        if wanted.choices and isinstance(value, str) and value not in wanted.choices:
            choices = ", ".join(map(repr, wanted.choices))
            raise ValueError(f"{_call(method)} takes one of {choices} for {wanted.name}; {_shown(value)} was given")
        return
    kinds = " or ".join(dict.fromkeys(map(_spoken, wanted.classes)))
    raise TypeError(f"{_call(method)} takes {kinds} for {wanted.name}; {_shown(value)} was given, and nothing was done")


def _is_single(value: object) -> bool:
    """Whether it is one thing, though it can be gone through: a text by its letters, a record by its members."""
    return isinstance(value, str | bytes | Mapping) or hasattr(value, "model_dump")


def _call(method: Callable[..., Any]) -> str:
    return f"{method.__name__}()"


def _spoken(cls: type) -> str:
    return _SPOKEN.get(cls) or f"{'an' if cls.__name__[0] in 'AEIO' else 'a'} {cls.__name__}"


def _shown(value: object) -> str:
    text = repr(value)
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return f"{shown} ({type(value).__name__})" if value is not None else "None"


@cache
def _expected_by(method: Callable[..., Any]) -> tuple[_Expected, ...]:
    """Of each parameter behind self, in order; `*args` and `**options` are their own methods' affair."""
    hints = get_type_hints(method)
    usual = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = [p for p in list(signature(method).parameters.values())[1:] if p.kind in usual]
    return tuple(_expected(parameter.name, hints.get(parameter.name, Any)) for parameter in parameters)


def _expected(name: str, hint: Any) -> _Expected:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices = tuple(choice for part in parts if get_origin(part) is Literal for choice in get_args(part))
    found = [_classes(part) for part in parts]
    classes = tuple(cls for group in found if group is not None for cls in group) if None not in found else ()
    is_collection = any(get_origin(part) is Iterable for part in parts) and str not in classes
    return _Expected(name, classes, choices, is_collection)


def _classes(hint: Any) -> tuple[type, ...] | None:
    """The classes that a value of this type is of; None if that cannot be told."""
    origin = get_origin(hint)
    if hint is None or hint is types.NoneType:
        return (types.NoneType,)
    if origin is Literal:
        return tuple(dict.fromkeys(map(type, get_args(hint))))
    if hint is float:
        return (float, int)
    kind = origin or hint
    return (kind,) if isinstance(kind, type) and kind is not object else None
