"""Parts of the Gemini API, as Gemini CLI and Qwen Code store them: text, thoughts, calls and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from store.transfer.formats.anthropic_blocks import make_call
from store.transfer.formats.call_logs import TokenCounts, count_of
from store.transfer.formats.coerce import as_dict, as_str, to_text
from store.transfer.formats.session_builder import SessionBuilder


@dataclass
class GeminiContent:
    """The content of one message, sorted by kind; `unknown` has all other parts."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)

    def members(self) -> dict[str, Any]:
        parts = [{"type": "text", "text": text} for text in self.texts]
        return {
            "reasoning": "\n\n".join(self.thoughts) or None,
            "content_parts": [*parts, *self.images] if self.images else None,
            "tool_calls": self.calls or None,
        }


def read_parts(content: Any, builder: SessionBuilder) -> GeminiContent:
    found = GeminiContent()
    for part in content if isinstance(content, list) else [content]:
        if not _add_part(found, part, builder):
            found.unknown.append(part)
    return found


def _add_part(found: GeminiContent, part: Any, builder: SessionBuilder) -> bool:
    """Add one part; False if it has anything that no message can hold."""
    if isinstance(part, str):
        found.texts.append(part)
        return True
    part = as_dict(part)
    if isinstance(part.get("text"), str):
        (found.thoughts if part.get("thought") is True else found.texts).append(part["text"])
        return set(part) <= {"text", "thought"}
    call, result, image = (as_dict(part.get(key)) for key in ("functionCall", "functionResponse", "inlineData"))
    if isinstance(call.get("name"), str):
        id = as_str(call.get("id")) or f"{call['name']}-{len(builder.messages)}-{len(found.calls)}"
        found.calls.append(make_call(id, call["name"], call.get("args", {})))
        return set(part) == {"functionCall"}
    if isinstance(result.get("id"), str):
        found.results.append(result)
        return set(part) == {"functionResponse"}
    url = builder.attach_base64(image.get("data"), image.get("mimeType")) if image else None
    if url is not None:
        found.images.append({"type": "image_url", "image_url": {"url": url}})
    return url is not None


def result_text(result: dict[str, Any]) -> str:
    response = as_dict(result.get("response"))
    for key in ("output", "error"):
        if isinstance(response.get(key), str):
            return str(response[key])
    return to_text(response)


def token_counts(tokens: dict[str, Any], *keys: str) -> TokenCounts:
    """Counts by the names of input, output, cached and thought tokens. Cached ones are part of the input."""
    input, output, cached, thoughts = (count_of(tokens.get(key)) for key in keys)
    return TokenCounts(input=max(0, input - cached), output=output + thoughts, cache_read=cached, reasoning=thoughts)
