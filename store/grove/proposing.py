"""Proposals: what a commit changes in each unit, as operations of the log.

Paths outside of all units are local and left out: logs, foreign files, the trash. A commit that
other hosts could not follow raises LocalOnly, before anything is changed. Nothing is written here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from store import layout
from store.commit.commit import Commit
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.errors import LocalOnly, StoreError
from store.grove.prefix_digests import MIN_BYTES, PrefixDigests
from store.grove.replica import AgreedFile, AgreedUnit, Replica
from store.grove.units import escape_path, location_of, unit_of
from store.grove.wire import CHUNK_BYTES, MAX_INLINE_BYTES, Claim, Gone, Operation, Put, Remove, Rename, Whole
from store.history import steps
from store.history.texts import said_ns_of
from store.history.versions import KnownChange

_READ_BYTES = 64 << 20  # longer files are read in pieces and sent as chunks
_PARSED_BYTES = 1 << 20


class EditedOutside(StoreError):
    """A commit replaces a file that another program has edited or removed on disk. That has to be settled first."""

    def __init__(self, unit: str, *, is_missing: bool = False) -> None:
        self.unit = unit
        self.is_missing = is_missing
        super().__init__(f"{unit} was edited on disk; nothing was changed, try again")


class ChunkSource(NamedTuple):
    """Where the bytes of a chunk are."""

    path: str
    offset: int


class KnownSession(NamedTuple):
    """A session as this home knows it."""

    unit: str
    known: AgreedUnit


@dataclass
class Proposal:
    """One version of one unit that the grove is asked to agree to."""

    unit: str
    known: AgreedUnit | None  # the version that this home has
    operations: list[Operation] = field(default_factory=list)
    digests: dict[str, str | None] = field(default_factory=dict)  # by path below the unit; None: removed
    claims: dict[str, str | None] = field(default_factory=dict)
    chunks: dict[bytes, ChunkSource] = field(default_factory=dict)
    said_ns: int | None = None
    is_gone: bool = False
    session: KnownSession | None = None  # of a new mailbox: the session it belongs to, unless the commit has that too

    @property
    def is_new(self) -> bool:
        """Whether the grove does not have the unit: it was never there, or it was deleted."""
        return self.known is None or self.known.is_gone

    @property
    def is_root(self) -> bool:
        """Whether it is a root session, whose deletion deletes a tree."""
        place = location_of(self.unit)
        return place.is_session and place.child is None

    def path(self, name: str) -> str:
        return f"{self.unit}/{name}"


class Proposals:
    """Collects the proposals of one commit, whose new files are at `temps`."""

    def __init__(
        self,
        disk: Disk,
        replica: Replica,
        host: str,
        commit: Commit,
        temps: Sequence[str],
        prefixes: PrefixDigests | None = None,
    ) -> None:
        self._disk = disk
        self._prefixes = prefixes or PrefixDigests()
        self._replica = replica
        self._host = host
        self._commit = commit
        self._found: dict[str, Proposal] = {}
        self._agreed_files: dict[str, dict[str, AgreedFile]] = {}
        for file, temp in zip(commit.files, temps, strict=True):
            self._add_file(file, temp)
        for source, target in commit.moves:
            self._add_move(source, target)
        for proposal in self._found.values():
            if proposal.is_new and not proposal.is_gone:
                self._complete(proposal)
        for proposal in self._found.values():
            if _is_mailbox(proposal.unit) and proposal.is_new:
                self._find_session(proposal)

    def result(self) -> list[Proposal]:
        """The proposals, in the order of their units, without those that change nothing."""
        found = [p for p in self._found.values() if p.operations and not (p.is_gone and p.is_new)]
        roots = {location_of(proposal.unit).root for proposal in found}
        if len(roots) > 1:
            raise LocalOnly(f"this changes {' and '.join(sorted(roots)[:3])} together, which a grove cannot do yet")
        return sorted(found, key=lambda proposal: proposal.unit)

    def _find_session(self, proposal: Proposal) -> None:
        """Name the session of a new mailbox. As long as the grove does not have the session, its mail is local too."""
        unit = proposal.unit.rpartition("/")[0]
        known = self._replica.find_unit(unit)
        if unit in self._found:
            return
        if known is None or known.is_gone:
            proposal.operations = []
        else:
            proposal.session = KnownSession(unit, known)

    def _proposal(self, unit: str) -> Proposal:
        if unit not in self._found:
            self._found[unit] = Proposal(unit, self._replica.find_unit(unit))
        return self._found[unit]

    def _files_of(self, unit: str) -> dict[str, AgreedFile]:
        if unit not in self._agreed_files:
            self._agreed_files[unit] = self._replica.files(unit)
        return self._agreed_files[unit]

    # -- new files ---------------------------------------------------------------------------------

    def _add_file(self, file: NewFile, temp: str) -> None:
        unit = _unit_for(file.path)
        if unit is None:
            return
        proposal = self._proposal(unit)
        name = file.path[len(unit) + 1 :]
        old, agreed = file.like, self._files_of(unit).get(name)
        base: tuple[bytes, bytes] | None = None
        is_read = old is not None and (old.data or old.stamp.size == 0)  # attachments are not
        if old is not None and is_read and agreed is not None and not proposal.is_new:
            if agreed.stamp != old.stamp and sha256(old.data).digest() != agreed.sha256:
                raise EditedOutside(unit)  # what it replaces was never agreed to
            base = (old.data, agreed.sha256)
        self._put(proposal, name, temp, base, self._commit.known.get(file.path))

    def _put(
        self,
        proposal: Proposal,
        name: str,
        source: str,
        base: tuple[bytes, bytes] | None = None,
        known: KnownChange | None = None,
    ) -> None:
        """Add a Put of the file at `source`, as a step from `base` (text and digest) if it has one."""
        if base is None:
            self._require_not_missing(proposal, name)
        fd = self._disk.open_to_read(source)
        try:
            info = os.fstat(fd)
            members = (info.st_size, stat.S_IMODE(info.st_mode) & 0o666, info.st_mtime_ns)
            spliced = self._spliced(proposal, name, fd, members, base, known)
            if spliced is not None:
                put = spliced
            elif info.st_size > _READ_BYTES:
                put = self._cut(proposal, name, source, fd, members)
            else:
                text = _read(fd, info.st_size)
                put = self._inline(proposal, name, source, text, members, base, known)
        finally:
            os.close(fd)
        proposal.operations = [o for o in proposal.operations if not (isinstance(o, Put) and o.path == put.path)]
        proposal.operations.append(put)
        proposal.digests[name] = put.sha256.hex()

    def _require_not_missing(self, proposal: Proposal, name: str) -> None:
        """What another program removed still exists in the grove: it is fetched before anything takes its name."""
        is_shared = not proposal.is_new and name in self._files_of(proposal.unit)
        if is_shared and self._disk.stat(proposal.path(name)) is None:
            raise EditedOutside(proposal.unit, is_missing=True)

    def _spliced(
        self,
        proposal: Proposal,
        name: str,
        fd: int,
        members: tuple[int, int, int],
        base: tuple[bytes, bytes] | None,
        known: KnownChange | None,
    ) -> Put | None:
        """A Put of a long text of which only a known part has changed, without reading the rest."""
        size = members[0]
        if base is None or known is None or not known.splices or size < MIN_BYTES:
            return None
        step = steps.encode_splices(base[0], known.splices)
        if step.kind == steps.WHOLE or len(step.data) > MAX_INLINE_BYTES:
            return None
        start = min(known.splices[0].start, size)
        path = proposal.path(name)
        digest = self._prefixes.digest(path, base[1], start, size, lambda at, count: os.pread(fd, count, at))
        if name == layout.SESSION:
            proposal.said_ns = known.said_ns
        return Put(escape_path(name), digest, *members, kind=step.kind, data=step.data, base=base[1])

    def _inline(
        self,
        proposal: Proposal,
        name: str,
        source: str,
        text: bytes,
        members: tuple[int, int, int],
        base: tuple[bytes, bytes] | None,
        known: KnownChange | None,
    ) -> Put:
        if name == layout.SESSION:
            proposal.said_ns = known.said_ns if known else said_ns_of(text) if len(text) < _PARSED_BYTES else None
        digest = sha256(text).digest()
        if base is not None and known is not None and known.splices is not None:
            step = steps.encode_splices(base[0], known.splices)
        else:
            step = steps.encode(base[0] if base else None, text)
        if len(step.data) > MAX_INLINE_BYTES:
            return self._chunked(proposal, name, source, digest, members, _pieces(text))
        base_digest = base[1] if base is not None and step.kind != steps.WHOLE else b""
        return Put(escape_path(name), digest, *members, kind=step.kind, data=step.data, base=base_digest)

    def _cut(self, proposal: Proposal, name: str, source: str, fd: int, members: tuple[int, int, int]) -> Put:
        """Read a long file twice: for its digest, and for those of its chunks."""
        whole = sha256()
        for piece in _iter_pieces(fd):
            whole.update(piece)
        return self._chunked(proposal, name, source, whole.digest(), members, _iter_pieces(fd))

    def _chunked(
        self,
        proposal: Proposal,
        name: str,
        source: str,
        digest: bytes,
        members: tuple[int, int, int],
        pieces: Iterator[bytes],
    ) -> Put:
        digests: list[bytes] = []
        for number, piece in enumerate(pieces):
            digests.append(sha256(piece).digest())
            proposal.chunks[digests[-1]] = ChunkSource(source, number * CHUNK_BYTES)
        return Put(escape_path(name), digest, *members, chunks=tuple(digests))

    # -- moves -------------------------------------------------------------------------------------

    def _add_move(self, source: str, target: str) -> None:
        comes, goes = not _is_private(target), not _is_private(source)
        if comes and goes:
            self._add_rename(source, target)
        elif goes:
            self._add_removal(source)
        elif comes:
            self._add_arrival(source, target)

    def _add_rename(self, source: str, target: str) -> None:
        """A file gets another name in its unit. Anything else does not cross yet."""
        unit, other = _unit_for(source), _unit_for(target)
        if unit is None and other is None and not self._is_shared_dir(source):
            return
        if unit is None or unit != other:
            if unit is not None and f"{layout.MAILBOX}/{layout.MAIL_CORRUPT}/" in target:
                return self._add_removal(source)  # an unreadable message stays with the host that found it
            advice = "nothing was changed" if self._is_shared_dir(source) else "copy and delete it"
            raise LocalOnly(f"{source} cannot be renamed to {target}: a grove cannot do that yet; {advice}")
        proposal = self._proposal(unit)
        old, new = source[len(unit) + 1 :], target[len(unit) + 1 :]
        agreed = self._files_of(unit).get(old)
        if agreed is None or proposal.is_new:  # not agreed to: it arrives as a new file
            return self._put(proposal, new, source)
        proposal.operations.append(Rename(escape_path(old), escape_path(new)))
        proposal.digests |= {old: None, new: agreed.sha256.hex()}
        if new.startswith(f"{layout.MAIL_CUR}/"):
            proposal.claims[new] = self._host
        if old.startswith(f"{layout.MAIL_CUR}/"):
            proposal.claims[old] = None

    def _is_shared_dir(self, path: str) -> bool:
        info = self._disk.stat(path)
        return info is not None and stat.S_ISDIR(info.st_mode) and any(map(_unit_for, self._files_below(path)))

    def _add_removal(self, source: str) -> None:
        """A file, or a directory with all its units, goes to the trash."""
        _refuse_projects(source)
        for unit, known in self._replica.units().items() if self._is_directory(source) else ():
            if (unit == source or unit.startswith(f"{source}/")) and not known.is_gone:
                self._require_files(unit)
                proposal = self._proposal(unit)
                proposal.is_gone = True
                proposal.operations, proposal.digests, proposal.claims = [Gone()], {}, {}
        unit_above = _unit_for(source) or _unit_for(f"{source}/x")
        if unit_above is None or unit_above == source:
            return
        proposal = self._proposal(unit_above)
        if proposal.is_new or proposal.is_gone:
            return
        name = source[len(unit_above) + 1 :]
        for path in self._files_of(unit_above):
            if path == name or path.startswith(f"{name}/"):
                self._remove(proposal, path)

    def _require_files(self, unit: str) -> None:
        """A file that another program removed is fetched first: restored from the trash, the unit has to be whole."""
        if any(self._disk.stat(f"{unit}/{name}") is None for name in self._files_of(unit)):
            raise EditedOutside(unit, is_missing=True)

    def _remove(self, proposal: Proposal, name: str) -> None:
        proposal.operations.append(Remove(escape_path(name)))
        proposal.digests[name] = None
        if name.startswith(f"{layout.MAIL_CUR}/"):
            proposal.claims[name] = None

    def _add_arrival(self, source: str, target: str) -> None:
        """A file, or a directory with all its units, comes from the trash or from tmp/."""
        _refuse_projects(target)
        files = [f"{target}{path[len(source) :]}" for path in self._files_below(source)]
        for path in files if self._is_directory(source) else [target]:
            unit = _unit_for(path)
            if unit is not None:
                self._put(self._proposal(unit), path[len(unit) + 1 :], f"{source}{path[len(target) :]}")

    def _is_directory(self, path: str) -> bool:
        info = self._disk.stat(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def _files_below(self, path: str) -> Iterator[str]:
        for entry in self._disk.entries(path) if self._is_directory(path) else ():
            if entry.is_file:
                yield f"{path}/{entry.name}"
            elif entry.is_dir:
                yield from self._files_below(f"{path}/{entry.name}")

    # -- whole versions ----------------------------------------------------------------------------

    def _complete(self, proposal: Proposal) -> None:
        """Make the first version of a unit whole: it also has the files that are there already."""
        taken = {source for source, _ in self._commit.moves}
        for path in self._unit_files(proposal.unit):
            name = path[len(proposal.unit) + 1 :]
            if name not in proposal.digests and path not in taken:
                self._put(proposal, name, path)
        claims = [Claim(escape_path(path), host) for path, host in proposal.claims.items() if host is not None]
        proposal.operations = [Whole(), *proposal.operations, *claims]

    def _unit_files(self, unit: str) -> list[str]:
        """Files of a unit on disk. Of a session, children are left out: they are units themselves."""
        skipped = f"{unit}/{layout.CHILDREN}/"
        return [p for p in self._files_below(unit) if not p.startswith(skipped) and _unit_for(p) == unit]


def _unit_for(path: str) -> str | None:
    _refuse_projects(path)
    return None if _is_private(path) else unit_of(path)


def _is_mailbox(unit: str) -> bool:
    place = location_of(unit)
    return place != place.owner


def _refuse_projects(path: str) -> None:
    if path.startswith(f"{layout.PROJECTS}/"):
        raise LocalOnly(f"{path}: projects are not shared by a grove yet, so they cannot be changed in this home")


def _is_private(path: str) -> bool:
    return path.startswith(f"{layout.PRIVATE}/")


def _read(fd: int, size: int) -> bytes:
    return b"".join(_iter_pieces(fd)) if size else b""


def _iter_pieces(fd: int) -> Iterator[bytes]:
    offset = 0
    while piece := os.pread(fd, CHUNK_BYTES, offset):
        offset += len(piece)
        yield piece


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[at : at + CHUNK_BYTES] for at in range(0, len(text), CHUNK_BYTES))
