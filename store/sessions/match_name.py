"""Names users give for a session: its id, a unique prefix of the id, or its title. Pure.

An exact id always wins. Anything else must match one session only: guessing is not acceptable
when the name selects what to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from store.errors import Ambiguous, InvalidName

Candidate = TypeVar("Candidate")


def match_one(
    name: str,
    candidates: Iterable[Candidate],
    path: Callable[[Candidate], str],
    title: Callable[[Candidate], str],
) -> Candidate | None:
    """The first candidate that `match_name` finds.

    Raises Ambiguous if they have different paths.
    """
    if not name.strip():
        raise InvalidName("the session name is blank: expected an id, a unique prefix of an id, or a title")
    found = match_name(name, candidates, path, title)
    paths = {path(candidate) for candidate in found}
    if len(paths) > 1:
        raise Ambiguous(name, paths)
    return found[0] if found else None


def match_name(
    name: str,
    candidates: Iterable[Candidate],
    path: Callable[[Candidate], str],
    title: Callable[[Candidate], str],
) -> list[Candidate]:
    """All candidates that a name may mean.

    `path` returns `root` or `root/child`. The first rule that matches anything decides: the exact
    path, the exact id, or a prefix of the id (of both parts of `root/child`) or the title. Titles
    are compared without regard to case and white space.
    """
    known = list(candidates)
    wanted = fold_title(name)
    rules: list[Callable[[Candidate], bool]] = [
        lambda candidate: path(candidate) == name,
        lambda candidate: path(candidate).rpartition("/")[2] == name,
        lambda candidate: _is_prefix(name, path(candidate)) or fold_title(title(candidate)) == wanted,
    ]
    for rule in rules if wanted else []:
        if found := [candidate for candidate in known if rule(candidate)]:
            return found
    return []


def _is_prefix(name: str, path: str) -> bool:
    parts, wanted = path.split("/"), name.split("/")
    compared = parts if len(wanted) > 1 else parts[-1:]
    return len(compared) == len(wanted) and all(map(str.startswith, compared, wanted))


def fold_title(title: str) -> str:
    return " ".join(title.split()).casefold()
