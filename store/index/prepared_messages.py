"""Messages prepared for the index: all that it stores about them, so that a long session can be freed before a save.

A program that makes a session.json message by message prepares each one as it is rendered. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from store.index.fulltext import PreparedRow
from store.model.preview import Preview


class PreparedMessages:
    """The rows of the messages of a session, in order."""

    def __init__(self) -> None:
        self.rows: list[PreparedRow] = []
        self.preview = Preview()

    def add(self, messages: Iterable[dict[str, Any]]) -> None:
        """Prepare valid messages that follow those added before."""
        for message in messages:
            self.rows.append(PreparedRow(message, len(self.rows)))
            self.preview = self.preview.with_messages([message])
