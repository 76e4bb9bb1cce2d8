"""Messages of an imported session as they are saved: rendered, checked and prepared for the index, in one pass.

Each message is freed when that is done: a session is in memory as objects or as text, never as both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pydantic

from store.documents import json_text
from store.index.prepared_messages import PreparedMessages
from store.model.message import Message
from store.model.message_shape import is_usual
from store.transfer.formats.heap import return_freed_memory

_BATCH = 32  # messages rendered at once, which is faster than one by one
_RETURNED_BYTES = 8 * 1024 * 1024  # rendered between two returns of freed memory, each of which takes milliseconds
_INDENT = b"  "  # of an element in the text of an array, to become one of an array in an object


class BuiltMessages:
    """The messages of a session, without the messages themselves: the list they are taken from is emptied."""

    def __init__(self, messages: list[dict[str, Any]], out: BinaryIO) -> None:
        """Write the array to `out`, as `json_text.render` does in a document."""
        self.prepared = PreparedMessages()
        self.is_valid = True  # False: the text has a message that no agent could load
        separator, end = b"[", b"[]"
        next_return = out.tell() + _RETURNED_BYTES
        for batch in _batches(messages):
            # Without the brackets of the array and the last newline.
            out.write(separator + json_text.render(batch)[1:-2].replace(b"\n", b"\n" + _INDENT))
            separator, end = b",", b"\n" + _INDENT + b"]"
            self.is_valid = self.is_valid and all(map(_is_valid, batch))
            if self.is_valid:
                self.prepared.add(batch)
            if out.tell() > next_return:
                return_freed_memory()
                next_return = out.tell() + _RETURNED_BYTES
        out.write(end)
        if out.tell() > _RETURNED_BYTES:
            return_freed_memory()

    def digests(self) -> dict[str, str]:
        """The digests of the messages by id, as `import_receipts.digest_messages` makes them."""
        found = self.prepared.iter_columns()
        return {id: digest.to_bytes(8, signed=True).hex() for _, id, _, _, digest in found if id}


def _batches(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """All messages in order. The list is emptied."""
    messages.reverse()
    while messages:
        yield [messages.pop() for _ in range(min(_BATCH, len(messages)))]


def _is_valid(message: dict[str, Any]) -> bool:
    try:
        return is_usual(message) or bool(Message.model_validate(message))
    except pydantic.ValidationError:
        return False
