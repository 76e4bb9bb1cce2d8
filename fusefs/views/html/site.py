"""A static site: the pages of html/ as files, with the attachments that they show and relative links.

    DEST/index.html  DEST/<root>.html  DEST/<root>/<child>.html  DEST/<root>.images/  DEST/files/<root>/…
    DEST/<root>.log.html  DEST/<root>.diff-5.html                on request: its versions

Each file is replaced atomically; a page is written after the images it shows. Links lead only to sessions of the site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusefs.views.html import conversation
from fusefs.views.html.history_pages import iter_history
from fusefs.views.html.names import FILES, INDEX, STATS, path_of
from fusefs.views.html.rendered import images_of
from fusefs.views.html.session_list import render_list
from fusefs.views.html.stats_page import render_stats
from store import Busy, Corrupt, Location, NotFound, Store, layout
from store.disk.file_io import replace_file
from store.documents.secrets import redact_text
from store.documents.transcript import quote_name, quote_path
from store.search.page_facts import PageFacts
from store.transfer.formats.importer import ImportProblem


def write_site(
    store: Store,
    locations: Sequence[Location],
    dest: Path,
    *,
    with_stats: bool,
    with_history: bool = False,
    redact: bool = False,
) -> Iterator[Path | ImportProblem]:
    """Write the pages of some sessions, then the list. A damaged session is yielded as a problem and skipped.

    `redact` replaces keys in texts and titles of the present version; old versions are not redacted.
    """
    site = Site(store, dest, frozenset(locations), with_history=with_history, redact=redact)
    written: set[Location] = set()
    for location in locations:
        try:
            path = site.write(location)
        except (Busy, Corrupt, NotFound) as error:
            yield ImportProblem(location.path(layout.SESSION), None, f"{error}; not exported")
        else:
            written.add(location)
            yield path
    if with_stats:
        _write(dest / STATS, render_stats(store))
    listed = [one for one in store.pages.iter_sessions() if one.location in written]
    shown = [one._replace(title=site.shown(one.title)) for one in listed]
    _write(dest / INDEX, render_list(shown, has_stats=with_stats))


@dataclass(frozen=True)
class Site:
    """A directory of pages that is being written."""

    store: Store
    dest: Path
    locations: frozenset[Location]  # sessions that have a page
    with_history: bool
    redact: bool

    def shown(self, text: str) -> str:
        return redact_text(text) if self.redact else text

    def write(self, location: Location) -> Path:
        """Write the page of a session and the images that it shows."""
        facts = self._facts(location)
        text = self.store.exports.render_markdown(
            location, lambda url: self._copy(location, url), marked=True, redact=self.redact
        )
        for name, data in images_of(self.store, location).items():
            _write(self.dest / path_of(location, "images") / name, data)
        has_log = self.with_history and self._write_history(location)
        path = self.dest / path_of(location)
        _write(path, conversation.render_head(facts, has_log=has_log) + text)
        return path

    def _write_history(self, location: Location) -> bool:
        """Write the log and the differences; False if no version is kept."""
        pages = [*iter_history(self.store, location)]
        for name, data in reversed(pages):  # the log last: it links to the others
            _write(self.dest / name, data)
        return bool(pages)

    def _facts(self, location: Location) -> PageFacts:
        facts = self.store.pages.find(location)
        if facts is None:
            raise NotFound(f"session {location} cannot be read")
        return facts.only(lambda link: link.location in self.locations).with_titles(self.shown)

    def _copy(self, location: Location, url: str) -> str:
        """Copy an attachment and return the address of the copy; the reference itself if there is none."""
        found = self.store.exports.find_attachment(url)
        file = self.store.attachments.resolve(url) if found else None
        if found is None or file is None:
            return quote_path(url)
        name = f"{FILES}/{found.removeprefix(f'{layout.SESSIONS}/')}"
        _write(self.dest / name, file[0])
        return ("" if location.child is None else "../") + quote_name(name)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
