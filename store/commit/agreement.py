"""Agreement: the consent of a grove to a commit, as the rest of the store sees it.

The journal asks for it after the new files are synced and before its journal entry is written.
`Alone` is the agreement of a home that belongs to no grove: it consents to everything. Everything
else is in `store.grove`, which this package does not know.

`repeats` marks the operations that a home of a grove may have to run again: another host was faster,
its version has been pulled, and the operation now sees it as it would see another writer here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from store.commit.commit import AgreedVersion, Commit
from store.disk.file import Stamp
from store.errors import Conflict
from store.layout import Location

P = ParamSpec("P")
T = TypeVar("T")


class Stale(Conflict):
    """Another host committed first. `location` is to be pulled, with its whole tree if that is set."""

    def __init__(self, location: Location, *, whole_tree: bool = False) -> None:
        self.location = location
        self.whole_tree = whole_tree
        super().__init__(f"{location} was changed on another host; nothing was changed here, try again")


class PastText(NamedTuple):
    """A text that a file had in the agreed history."""

    number: int
    at_ns: int
    text: bytes


class Agreement(Protocol):
    """Thread-safe. All methods but `check` and `is_joined` are called with the commit's lock held."""

    @property
    def is_joined(self) -> bool:
        """Whether the home belongs to a grove."""
        ...

    def check(self) -> None:
        """Raise ReadOnly or Unreachable if nothing can be agreed to now. Never waits for the database."""
        ...

    def agree(self, commit: Commit, temps: Sequence[str], meanwhile: Callable[[], None]) -> list[AgreedVersion]:
        """Agree to a commit whose new files are at `temps`. Empty: it is a local one.

        `meanwhile` is called while the database works, so it must not raise; maybe several times, or not at all.

        Raises Stale, Unreachable, LocalOnly, Busy or ReadOnly if the grove did not agree, and Unsure
        if that is not known.
        """
        ...

    def record(self, agreed: Sequence[AgreedVersion], stamps: Mapping[str, Stamp | None]) -> None:
        """Remember versions whose files are in place. Never raises: the log repeats them.

        `stamps` are those of files that have the agreed content, by path. Others are compared later.
        """
        ...

    def fall_behind(self, agreed: Sequence[AgreedVersion], why: str) -> None:
        """Remember that agreed versions are not in place here, for the log to bring. Never raises."""
        ...

    def repeat(self, work: Callable[[], T]) -> T:
        """Run an operation, and again after each Stale, with the newest version pulled."""
        ...

    def refresh(self, location: Location) -> None:
        """Pull what other hosts did to a location, if the database answers. The caller holds no lock of it."""
        ...

    def past_texts(self, path: str, said_ns: int) -> Sequence[PastText]:
        """The agreed versions of a document with this updated_at. Empty if the database does not answer."""
        ...

    def fill_history(self, path: str) -> int:
        """Add older versions of a path to the history, from the log of the grove; returns how many.

        The numbers of the versions that are there grow by that. 0 too if the database does not answer.
        """
        ...

    def fill_history_between(self, since_ns: int, until_ns: int) -> None:
        """The same for all paths that hosts changed within a span of time."""
        ...

    @property
    def host_name(self) -> str:
        """The name of this host in its grove; "" without one."""
        ...

    def note_change(self, location: Location) -> None:
        """Files of a location may have been changed by another program. Returns at once."""
        ...

    def is_claimed_elsewhere(self, path: str) -> bool:
        """Whether a message in a mailbox's cur/ was claimed by another host."""
        ...

    def unsure_claims(self, location: Location) -> Sequence[str]:
        """Messages in cur/ of a mailbox that an operation may have claimed without learning of it."""
        ...

    def forget_unsure(self, location: Location, paths: Sequence[str]) -> None:
        """These messages have been returned to a consumer."""
        ...

    def close(self) -> None: ...


class Alone:
    """The agreement of a home that belongs to no grove."""

    is_joined = False
    host_name = ""

    def check(self) -> None:
        pass

    def agree(self, commit: Commit, temps: Sequence[str], meanwhile: Callable[[], None]) -> list[AgreedVersion]:
        return []

    def record(self, agreed: Sequence[AgreedVersion], stamps: Mapping[str, Stamp | None]) -> None:
        pass

    def fall_behind(self, agreed: Sequence[AgreedVersion], why: str) -> None:
        pass

    def repeat(self, work: Callable[[], T]) -> T:
        return work()

    def refresh(self, location: Location) -> None:
        pass

    def past_texts(self, path: str, said_ns: int) -> Sequence[PastText]:
        return ()

    def fill_history(self, path: str) -> int:
        return 0

    def fill_history_between(self, since_ns: int, until_ns: int) -> None:
        pass

    def note_change(self, location: Location) -> None:
        pass

    def is_claimed_elsewhere(self, path: str) -> bool:
        return False

    def unsure_claims(self, location: Location) -> Sequence[str]:
        return ()

    def forget_unsure(self, location: Location, paths: Sequence[str]) -> None:
        pass

    def close(self) -> None:
        pass


class _HasCore(Protocol):
    @property
    def core(self) -> Any: ...


S = TypeVar("S", bound=_HasCore)


def repeats(method: Callable[Concatenate[S, P], T], /) -> Callable[Concatenate[S, P], T]:
    """Decorator of an operation that may run several times: it must not use up its arguments."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        agreement: Agreement = self.core.agreement
        if not agreement.is_joined:
            return method(self, *args, **kwargs)
        return agreement.repeat(lambda: method(self, *args, **kwargs))

    return run
