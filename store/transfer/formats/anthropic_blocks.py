"""Content blocks of the Anthropic API, as Claude Code and A3S store them.

The kinds are text, thinking, image, tool_use and tool_result. A record becomes one message, plus one for each tool
result in it.
"""

from __future__ import annotations

from typing import Any

from store.documents import attachment_names, json_text
from store.model.timestamp import Timestamp
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import as_dict, as_str
from store.transfer.formats.session_builder import SessionBuilder

# The usual order of blocks in a message; only another order is recorded.
_DEFAULT_ORDER = ("thinking", "text", "image", "tool_use")
UNMAPPED = "?"  # in the order of blocks: one that no member of a message has a place for


class BlockContent:
    """The blocks of one message, sorted by kind; `unknown` holds blocks of other kinds by position."""

    __slots__ = ("calls", "order", "parts", "results", "signatures", "texts", "thinking", "unknown")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parts: list[dict[str, Any]] = []
        self.thinking: list[str] = []
        self.signatures: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.unknown: dict[str, Any] = {}
        self.order: list[str] = []

    @property
    def content(self) -> str:
        return "\n\n".join(self.texts)

    def members(self) -> dict[str, Any]:
        """The members of a message other than its content; None where empty."""
        plain = not self.parts or (len(self.parts) == 1 and self.parts[0]["type"] == "text")
        return {
            "reasoning": "\n\n".join(self.thinking) or None,
            "reasoning_signature": self.signatures[0] if len(self.signatures) == 1 else None,
            "content_parts": None if plain else self.parts,
            "tool_calls": self.calls or None,
        }

    def unmapped(self) -> dict[str, Any]:
        rest: dict[str, Any] = {}
        if self.unknown:
            rest["blocks"] = self.unknown
        if len(self.signatures) > 1:
            rest["signatures"] = self.signatures
        if len(self.order) > 1 and not _is_in_default_order(self.order):
            rest["order"] = self.order
        return rest


def _is_in_default_order(order: list[str]) -> bool:
    ranks = [_DEFAULT_ORDER.index(kind) for kind in order if kind in _DEFAULT_ORDER]
    return ranks == sorted(ranks)


def read_blocks(content: Any, builder: SessionBuilder) -> BlockContent:
    """Sort the content of a message by kind of block. Images become attachments of the session."""
    blocks = BlockContent()
    if isinstance(content, str):
        blocks.texts.append(content)
        return blocks
    if not isinstance(content, list):
        blocks.unknown["content"] = content
        return blocks
    for position, block in enumerate(content):
        kind = as_str(as_dict(block).get("type"))
        is_whole = _add_block(blocks, kind, block, builder)
        if not is_whole:
            blocks.unknown[str(position)] = block
        blocks.order.append(UNMAPPED if is_whole is None else kind)
    return blocks


def _add_block(blocks: BlockContent, kind: str, block: Any, builder: SessionBuilder) -> bool | None:
    """Add a block. False if it has members without a place in a message, None if nothing of it has one."""
    if kind == "text" and isinstance(block.get("text"), str):
        blocks.texts.append(block["text"])
        blocks.parts.append({"type": "text", "text": block["text"]})
        return set(block) == {"type", "text"}
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        blocks.thinking.append(block["thinking"])
        if isinstance(block.get("signature"), str):
            blocks.signatures.append(block["signature"])
        return set(block) <= {"type", "thinking", "signature"}
    if kind == "tool_use" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
        blocks.calls.append(make_call(block["id"], block["name"], block.get("input", {})))
        return set(block) <= {"type", "id", "name", "input"}
    if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
        blocks.results.append(block)
        return True
    if kind == "image":
        return _add_image(blocks, block, builder)
    return None


def _add_image(blocks: BlockContent, block: dict[str, Any], builder: SessionBuilder) -> bool | None:
    source = as_dict(block.get("source"))
    url: str | None = None
    if source.get("type") == "base64":
        url = builder.attach_base64(source.get("data"), source.get("media_type"))
    elif source.get("type") == "url" and isinstance(source.get("url"), str):
        url = source["url"]
    if url is None:
        return None
    blocks.parts.append({"type": "image_url", "image_url": {"url": url}} | _media_type(source))
    return set(block) <= {"type", "source"}


def _media_type(source: dict[str, Any]) -> dict[str, str]:
    """The type of an image, if the extension of its attachment does not tell it."""
    mime = as_str(source.get("media_type"))
    known = attachment_names.extension_to_mime(attachment_names.mime_to_extension(mime) or "")
    return {"media_type": mime} if mime and mime != known else {}


def token_counts(usage: dict[str, Any]) -> TokenCounts:
    """The usage member of an API answer."""
    return TokenCounts(
        input=count_of(usage.get("input_tokens")),
        output=count_of(usage.get("output_tokens")),
        cache_read=count_of(usage.get("cache_read_input_tokens")),
        cache_write=count_of(usage.get("cache_creation_input_tokens")),
        reasoning=count_of(as_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def make_call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json_text.render_compact(arguments).decode()
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def add_results(
    builder: SessionBuilder, blocks: BlockContent, id: str, at: Timestamp | None, *, rest: dict[str, Any], raw: bytes
) -> None:
    """Add each tool result as a separate message; the first gets the unmapped members of the record."""
    for number, block in enumerate(blocks.results):
        inner = read_blocks(block.get("content", ""), builder)
        left = {key: value for key, value in block.items() if key not in ("type", "tool_use_id", "content")}
        failed = left.pop("is_error", None)
        if not isinstance(failed, bool | None):
            left["is_error"] = failed
        own = {**inner.unmapped(), **left, **({} if number else rest)}
        builder.add_message(
            "tool",
            inner.content,
            id=f"{id}:{number}" if number else id,
            at=at,
            rest=own,
            raw=raw,
            tool_call_id=block["tool_use_id"],
            tool_success=failed is not True,
            content_parts=inner.members()["content_parts"],
        )
