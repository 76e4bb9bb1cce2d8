"""The attributes of a Store that group operations, such as `store.trash` and `store.mail`.

They are looked up on first use, so that opening a store imports only what is used.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from store.home.open_home import OpenHome

if TYPE_CHECKING:
    from store.groups import AttachmentReader, Maintenance, PastVersions, Prune, TokenUsage, Trash
    from store.namespace.moves import Moves
    from store.namespace.namespace import Namespace
    from store.search.browse import SessionBrowser
    from store.search.grep.maintenance import TrigramIndex
    from store.search.page_facts import SessionPages
    from store.search.summaries import Summaries
    from store.search.transcripts import Transcripts
    from store.sessions.logs import Trajectory
    from store.sessions.records import Records
    from store.transfer.exports import Exports
    from store.transfer.imports import Imports
    from store.workspace.mailbox import Mailboxes
    from store.workspace.projects import Projects
    from store.workspace.state import State


class Grouped:
    """The base class of Store. The docstring of Store says what the attributes are for."""

    _home: OpenHome

    # -- groups of methods of their own ------------------------------------------------------------------

    @cached_property
    def trash(self) -> Trash:
        from store.groups import Trash

        return Trash(self._home)

    @cached_property
    def prune(self) -> Prune:
        from store.groups import Prune

        return Prune(self._home)

    @cached_property
    def history(self) -> PastVersions:
        from store.groups import PastVersions

        return PastVersions(self._home)

    @cached_property
    def attachments(self) -> AttachmentReader:
        from store.groups import AttachmentReader

        return AttachmentReader(self._home)

    @cached_property
    def usage(self) -> TokenUsage:
        from store.groups import TokenUsage

        return TokenUsage(self._home)

    @cached_property
    def maintenance(self) -> Maintenance:
        from store.groups import Maintenance

        return Maintenance(self._home)

    # -- services of the home ----------------------------------------------------------------------------

    @cached_property
    def summaries(self) -> Summaries:
        return self._home.services.summaries

    @cached_property
    def records(self) -> Records:
        return self._home.services.records

    @cached_property
    def trajectory(self) -> Trajectory:
        return self._home.services.trajectory

    @cached_property
    def mail(self) -> Mailboxes:
        return self._home.services.mail

    @cached_property
    def state(self) -> State:
        return self._home.services.state

    @cached_property
    def projects(self) -> Projects:
        return self._home.services.projects

    @cached_property
    def imports(self) -> Imports:
        return self._home.services.imports

    @cached_property
    def exports(self) -> Exports:
        return self._home.services.exports

    @cached_property
    def transcripts(self) -> Transcripts:
        return self._home.services.transcripts

    @cached_property
    def pages(self) -> SessionPages:
        return self._home.services.pages

    @cached_property
    def browser(self) -> SessionBrowser:
        return self._home.services.browser

    @cached_property
    def names(self) -> Namespace:
        return self._home.services.names

    @cached_property
    def moves(self) -> Moves:
        return self._home.services.moves

    @cached_property
    def trigrams(self) -> TrigramIndex:
        return self._home.services.trigrams
