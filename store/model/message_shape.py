"""Message shape: a quick check that messages are of the usual kind.

`Message` builds a record of each message, which takes most of the time of validating a long session. The structs here
have the same members and are stricter: what they accept, `Message` accepts. What they reject may still be valid. Pure.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

# A time that is valid whatever the month is.
_Time = Annotated[
    str,
    msgspec.Meta(
        pattern=r"(?a)^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?[Zz]\Z"
    ),
]


class _UsualUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class _UsualText(msgspec.Struct, tag_field="type", tag="text"):
    text: str
    image_url: _UsualUrl | None = None


class _UsualImage(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: _UsualUrl
    text: str | None = None


class _UsualFunction(msgspec.Struct):
    name: str
    arguments: str


class _UsualCall(msgspec.Struct):
    id: str
    type: str
    function: _UsualFunction


class _UsualMessage(msgspec.Struct):
    """The members of `Message`; an unknown one may have any value. `image_ocr` is rare: it is left to `Message`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    id: str = ""
    reasoning: str | None = None
    reasoning_signature: str | None = None
    content_parts: list[_UsualText | _UsualImage] | None = None
    image_ocr: None = None
    phase: Literal["commentary", "final_answer"] | None = None
    tool_calls: list[_UsualCall] | None = None
    tool_call_id: str | None = None
    tool_success: bool | None = None
    compressed: bool = False
    compressed_by_event_id: str | None = None
    never_compress: bool = False
    compression_level: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    created_at: _Time = ""
    metadata: Any = None


def is_usual(message: Any) -> bool:
    """Whether `Message` is known to accept a message. If not, ask it."""
    try:
        msgspec.convert(message, _UsualMessage, strict=True)
    except msgspec.ValidationError:
        return False
    return True
