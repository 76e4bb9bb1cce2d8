"""What people call a session: its id, the beginning of it, or its title.

An id that is there is always meant as it stands. Anything else must lead to one session alone, or the error names
those it could be: who deletes by a few letters must not be guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from store.commit.core import Core
from store.errors import Ambiguous, InvalidName, NotFound
from store.layout import Location
from store.model.session import NEW_TITLE

_LAST = chr(0x10FFFF)  # in the order of UTF-8, behind whatever an id goes on with


@dataclass(frozen=True)
class NameResolver:
    core: Core

    def resolve(self, name: str) -> Location:
        """The session meant by an id, `root/child`, a unique beginning of either, or a title in any case."""
        if not name.strip():
            raise InvalidName("a session is named by its id, the beginning of it, or its title; this is blank")
        exact = self._exact(name)
        if exact is not None:
            return exact
        found = {*self._by_beginning(name), *self._by_title(name)}
        if not found:
            raise NotFound(f"there is no session {name!r}; `grovefs ls` lists them")
        if len(found) > 1:
            raise Ambiguous(name, map(str, found))
        return found.pop()

    def _exact(self, name: str) -> Location | None:
        try:
            return self.core.locate(name)
        except Ambiguous:
            raise
        except InvalidName:  # no id; a title may say what it likes
            return None

    def _by_beginning(self, name: str) -> Iterator[Location]:
        """Of an id; of `root/child`, both may be shortened."""
        root, slash, child = name.partition("/")
        where = "root >= ?1 AND root < ?2 AND child >= ?3 AND child < ?4 AND child > ''" if slash else None
        values = (root, root + _LAST, child, child + _LAST) if slash else (name, name + _LAST)
        by_id = where or "id >= ?1 AND id < ?2"
        by_name = where or "iif(child = '', root, child) >= ?1 AND iif(child = '', root, child) < ?2"
        with suppress(UnicodeEncodeError):  # bytes of the command line that are no text: nothing begins so
            yield from self._located(f"SELECT root, child FROM sessions WHERE {by_id}", values)
            yield from self._located(f"SELECT root, child FROM damaged WHERE {by_name}", values)

    def _located(self, query: str, values: tuple[str, ...]) -> list[Location]:
        return [Location(root, child or None) for root, child in self.core.db.reader.execute(query, values)]

    def _by_title(self, title: str) -> Iterator[Location]:
        """Its own, or the one made from the user's first words, as lists show it."""
        wanted = _folded(title)
        for root, child, own, opening in self.core.db.reader.execute(
            "SELECT root, child, title, opening FROM sessions"
        ):
            shown = opening if opening is not None and own.strip() in ("", NEW_TITLE) else own
            if _folded(shown) == wanted:
                yield Location(root, child or None)


def _folded(title: str) -> str:
    return " ".join(title.split()).casefold()
