"""Find the sessions of all known agents: in the places where they keep them, or anywhere below a directory.

A directory that one format recognises belongs to that format. Other directories are searched, hidden ones too, but not
the home that is imported into. Logs of an unknown kind are listed, and never taken for those of a known agent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from store.errors import NotFound
from store.transfer import remote_source
from store.transfer.formats import registry
from store.transfer.formats.importer import Format, Place
from store.transfer.formats.source import Source
from store.transfer.remote_source import RemoteSource

_MAX_LEVELS = 8
_NOT_SEARCHED = {"node_modules", ".git", ".cache", "__pycache__", ".venv", "venv", "site-packages", ".npm", ".cargo"}
_LOGS = (".jsonl",)


class FoundSource(NamedTuple):
    """The sessions of one agent in one place."""

    format: str
    path: str
    files: int
    size_bytes: int
    host: str = ""  # the machine it was copied from; "" for this one


@dataclass
class Discovery:
    found: list[FoundSource] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)  # directory → number of logs of an unknown kind
    files: dict[str, set[str]] = field(default_factory=dict)  # by format: what is read of the sources found


def find_agents(environment: Mapping[str, str], agent: str | None = None) -> Discovery:
    """The sessions in the places where the known agents keep them."""
    discovery = Discovery()
    for format in _formats(agent):
        for path in _candidates(format, environment):
            if path.is_dir():
                with Source(path) as source:
                    if format.recognise(source) is not None:
                        discovery.found.append(_measure(format, source))
    return discovery


def _formats(agent: str | None) -> Iterable[Format]:
    return [registry.get_format(agent)] if agent else registry.FORMATS


def _resolve(place: Place, environment: Mapping[str, str]) -> Path:
    base = environment.get(place.variable, "") if place.variable else ""
    home = environment.get("HOME", "~")
    path = Path(base or place.default.replace("~", home, 1)).expanduser()
    return path / place.below if place.below else path


def _candidates(format: Format, environment: Mapping[str, str]) -> list[Path]:
    """Where an agent keeps its sessions. Its directory of sessions may be a link, for example to another disk:
    links in a source are not followed, but the path of a source may be one."""
    places = dict.fromkeys(_resolve(place, environment) for place in format.places)
    linked = [place / format.base for place in places if format.base and (place / format.base).is_symlink()]
    return [*places, *linked]


def find_below(path: str, agent: str | None = None, home: Path | None = None) -> Discovery:
    """The sessions at or below a path, without those in `home`. Raises NotFound if there are none."""
    discovery = Discovery()
    home = home.resolve() if home is not None else None
    with Source(path) as source:
        shown = source.display_path(source.name or "")
        if source.name is not None:
            discovery.found.append(
                _measure(registry.get_format(agent) if agent else registry.recognise(source), source)
            )
            return discovery
        root = source.root
    if root == home:
        raise NotFound(f"{shown} is the home that sessions are imported into; nothing was changed")
    _search(root, _MAX_LEVELS, [*_formats(agent)], discovery, home)
    if agent:
        discovery.unknown.clear()  # logs of other agents, which were not asked for
    if not discovery.found:
        raise NotFound(registry.unrecognised(shown))
    return discovery


def find_remote(remote: RemoteSource, environment: Mapping[str, str], agent: str | None = None) -> Discovery:
    """The sessions on another machine, after copying what has changed there. Raises NotFound if there are none."""
    places = [(place, format.base) for format in _formats(agent) for place in format.places]
    wanted = [path for place, base in places for path in _remote_paths(place, base)]
    copy = remote_source.fetch(remote, wanted, environment)
    discovery = find_below(os.fspath(copy), agent)
    discovery.found = [found._replace(host=remote.host) for found in discovery.found]
    return discovery


def _remote_paths(place: Place, base: str) -> list[str]:
    """What to copy of an agent, relative to the home directory: its sessions, and the names given to them."""
    directory = "/".join(part for part in (place.default.removeprefix("~/"), place.below) if part)
    names = (base, "archived_sessions", "session_index.jsonl") if base == "sessions" else (base,)
    return [f"{directory}/{name}" if name else directory for name in names]


def _search(
    directory: Path, levels: int, formats: list[Format], discovery: Discovery, home: Path | None = None
) -> None:
    if directory == home:
        return
    with Source(directory) as source:
        chosen = registry.best(source, formats)
        if chosen is not None:
            _add(chosen, source, discovery)
            if not chosen.is_scattered:
                return
        names = [name for name in source.directories() if name not in _NOT_SEARCHED]
        logs = sum(entry.is_file and entry.name.endswith(_LOGS) for entry in source.entries())
        if logs and chosen is None:
            discovery.unknown[source.display_path("")] = logs
    if levels > 1:
        for name in names:
            _search(directory / name, levels - 1, formats, discovery, home)


def _add(format: Format, source: Source, discovery: Discovery) -> None:
    """Add a source, unless all of it belongs to one of the same agent that was found above."""
    files = {source.display_path(path) for path in _files_of(format, source)}
    known = discovery.files.setdefault(format.name, set())
    if not files <= known:
        discovery.found.append(_measure(format, source))
        known |= files


def _files_of(format: Format, source: Source) -> set[str]:
    return {path for unit in format.units(source) for path in unit.files}


def _measure(format: Format, source: Source) -> FoundSource:
    files = _files_of(format, source)
    size = sum(source.size(path) for path in files)
    path = os.fspath(source.root / source.name) if source.name else os.fspath(source.root)
    return FoundSource(format.name, path, len(files), size)


def iter_names() -> Iterator[str]:
    """The names of all formats."""
    return (format.name for format in registry.FORMATS)
