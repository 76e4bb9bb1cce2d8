"""Message: one message of a conversation, with its parts and tool calls.

A message loaded without `id` or `created_at` keeps them absent. Generating them on load would
give the message a different identity at every load. The constructors set both.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from store.model.record import I32, U8, Missing, NotNull, OmitEmpty, Opt, Record, is_empty
from store.model.timestamp import Timestamp

Role = Literal["system", "user", "assistant", "tool"]
Phase = Literal["commentary", "final_answer"]

# Tool output over the limit is truncated to its head and tail. All three are in UTF-8 bytes.
TOOL_OUTPUT_LIMIT_BYTES = 256 * 1024
TOOL_OUTPUT_HEAD_BYTES = 160 * 1024
TOOL_OUTPUT_TAIL_BYTES = 64 * 1024


class ImageUrl(Record):
    """`url` is an attachment reference, any other URL, or the image itself (`data:…;base64,…`)."""

    url: str
    detail: Opt[str] = None


class MessagePart(Record):
    """Text or an image. One record for both, because a union would put its tag into the path of an error."""

    type: Literal["text", "image_url"]
    text: Opt[str] = None
    image_url: Opt[ImageUrl] = None

    @model_validator(mode="after")
    def _check_type_member(self) -> Self:
        if (self.text if self.type == "text" else self.image_url) is None:
            raise PydanticCustomError(
                "message_part", "a part of type {type} requires the member {type}", {"type": self.type}
            )
        return self


class ImageOcrLine(Record):
    text: str
    left: I32
    top: I32
    width: I32
    height: I32


class ImageOcrResult(Record):
    image_url: str
    lines: OmitEmpty[list[ImageOcrLine]] = Field(default_factory=list)
    error: Opt[str] = None


class FunctionCall(Record):
    name: str
    arguments: str  # JSON text


class ToolCall(Record):
    id: str
    type: str
    function: FunctionCall


class Message(Record):
    id: Annotated[str | None, NotNull(), Field(exclude_if=is_empty)] = None
    role: Role
    content: str
    reasoning: Opt[str] = None
    reasoning_signature: Opt[str] = None
    content_parts: Opt[list[MessagePart]] = None
    image_ocr: Opt[list[ImageOcrResult]] = None
    phase: Opt[Phase] = None
    tool_calls: Opt[list[ToolCall]] = None
    tool_call_id: Opt[str] = None
    tool_success: Opt[bool] = None
    compressed: OmitEmpty[bool] = False
    compressed_by_event_id: Opt[str] = None
    never_compress: OmitEmpty[bool] = False
    compression_level: OmitEmpty[U8] = 0
    created_at: Missing[Timestamp] = None
    metadata: Opt[Any] = None

    @classmethod
    def _new(cls, role: Role, content: str, **members: Any) -> Self:
        return cls(id=str(uuid4()), role=role, content=content, created_at=Timestamp.now(), **members)

    @classmethod
    def user(cls, text: str) -> Self:
        return cls._new("user", text)

    @classmethod
    def system(cls, text: str) -> Self:
        return cls._new("system", text)

    @classmethod
    def assistant(cls, text: str, tool_calls: list[ToolCall] | None = None) -> Self:
        """An assistant message. Its phase is commentary if it has tool calls, else final_answer."""
        phase: Phase = "commentary" if tool_calls else "final_answer"
        return cls._new("assistant", text, phase=phase, tool_calls=tool_calls)

    @classmethod
    def tool_result(cls, tool_call_id: str, content: str, success: bool = True) -> Self:
        return cls._new("tool", content, tool_call_id=tool_call_id, tool_success=success)

    @classmethod
    def tool_result_with_images(
        cls, tool_call_id: str, content: str, images: Iterable[tuple[str, str]], success: bool = True
    ) -> Self:
        """`images` are pairs of MIME type and base64 string. Each becomes a part with a `data:` URL."""
        message = cls.tool_result(tool_call_id, content, success)
        urls = [f"data:{mime};base64,{data}" for mime, data in images]
        message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url)) for url in urls] or None
        return message


def truncate_tool_output(content: str) -> str:
    """`content`, or its head and tail around a line that states how much was omitted."""
    if len(content) * 4 <= TOOL_OUTPUT_LIMIT_BYTES:  # a character has at most four bytes
        return content
    # Lone surrogates pass here; they are rejected when the document is encoded.
    data = content.encode(errors="surrogatepass")
    if len(data) <= TOOL_OUTPUT_LIMIT_BYTES:
        return content
    head_end, tail_start = TOOL_OUTPUT_HEAD_BYTES, len(data) - TOOL_OUTPUT_TAIL_BYTES
    while _is_inside_character(data[head_end]):
        head_end -= 1
    while tail_start < len(data) and _is_inside_character(data[tail_start]):
        tail_start += 1
    kept = head_end + len(data) - tail_start
    return (
        data[:head_end].decode(errors="surrogatepass")
        + f"\n\n[... tool output truncated ...] original={len(data)} bytes"
        + f" omitted={len(data) - kept} bytes kept={kept} bytes\n\n"
        + data[tail_start:].decode(errors="surrogatepass")
    )


def _is_inside_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80
