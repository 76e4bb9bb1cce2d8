"""Secrets: API keys in documents, and text that looks like a key. Pure.

`llm_config.api_key` and `metadata.api_key` are never written. An API save omits them, like the
agent that has these members does. A document from the mount that contains one is rejected. Keys
in the text of a conversation are not changed; `find_secrets` reports their positions, never
their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from store.documents import json_text
from store.documents.json_splice import splice
from store.errors import InvalidContent, Problem

KEY = "api_key"
HOLDERS = ("llm_config", "metadata")


class SecretRefused(InvalidContent):
    """A document that contains an API key. Its text must not be shown or stored."""


def find_api_key(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """The path of the first API key in a document, or None. An empty string is not a key."""
    for holder in HOLDERS:
        members = document.get(holder)
        if isinstance(members, dict) and members.get(KEY):
            return holder, KEY
    return None


def without_api_key_members(document: dict[str, Any]) -> dict[str, Any]:
    """The document without its API keys; the same object if there are none."""
    while (path := find_api_key(document)) is not None:
        holder = path[0]
        members = {name: value for name, value in document[holder].items() if name != KEY}
        document = {**document, holder: members}
        if holder == "metadata" and not members:  # empty metadata is not written
            document = {name: value for name, value in document.items() if name != holder}
    return document


def without_api_keys(raw: bytes, document: dict[str, Any]) -> bytes:
    """The text of a document without its API keys. All other bytes are kept."""
    clean = without_api_key_members(document)
    return raw if clean is document else splice(raw, document, clean)


def reject_api_keys(raw: bytes, document: Mapping[str, Any], name: str) -> None:
    """Raise SecretRefused, with the position, if the document contains an API key."""
    path = find_api_key(document)
    if path is not None:
        reason = "API keys are not stored in sessions; remove this member and configure the key elsewhere"
        raise SecretRefused(name, Problem(reason, *json_text.locate(raw, path), json_text.render_path(path)))


# -- patterns ----------------------------------------------------------------------------------------------


class Pattern(NamedTuple):
    name: str
    hints: tuple[str, ...]  # a text without any of them is not searched
    regex: re.Pattern[str]


class Secret(NamedTuple):
    """Text that looks like a key: its kind and its path in the value that was searched."""

    kind: str
    path: json_text.Path


def _pattern(name: str, regex: str, *hints: str) -> Pattern:
    # A key is a whole word: `task-proj-…` contains none. But in JSON inside a string, the n of `\n` is not a letter.
    # Since no word begins inside another, the search takes linear time.
    return Pattern(name, hints, re.compile(rf"(?:(?<![\w-])|(?<=\\[nrt])){regex}", re.ASCII))


PATTERNS = (
    _pattern("an Anthropic key", r"sk-ant-[a-z]{3,6}\d\d-[\w-]{20,}", "sk-ant-"),
    _pattern("an OpenRouter key", r"sk-or-v1-[0-9a-f]{32,}", "sk-or-"),
    _pattern("an OpenAI key", r"sk-(?:(?:proj|svcacct|admin)-[\w-]{20,}|[A-Za-z0-9]{32,})", "sk-"),
    _pattern("a Google API key", r"AIza[\w-]{35}", "AIza"),
    _pattern("a Google OAuth token", r"ya29\.[\w-]{20,}", "ya29."),
    _pattern("a Google client secret", r"GOCSPX-[\w-]{28}", "GOCSPX-"),
    _pattern("an AWS access key", r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])", "AKIA", "ASIA"),
    _pattern("an Azure storage key", r"AccountKey=[A-Za-z0-9+/]{80,}={0,2}", "AccountKey="),
    _pattern("a GitHub token", r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{60,})", "gh", "github_pat_"),
    _pattern("a GitLab token", r"gl(?:pat|dt|rt|ptt)-[\w-]{20,}", "gl"),
    _pattern("a Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", "xox"),
    _pattern("a Slack webhook", r"hooks\.slack\.com/services/T\w+/B\w+/\w{20,}", "hooks.slack.com"),
    _pattern("a Stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", "k_live_", "k_test_"),
    _pattern("a Hugging Face token", r"hf_[A-Za-z0-9]{30,}", "hf_"),
    _pattern("a Groq key", r"gsk_[A-Za-z0-9]{40,}", "gsk_"),
    _pattern("an xAI key", r"xai-[A-Za-z0-9]{60,}", "xai-"),
    _pattern("a Perplexity key", r"pplx-[A-Za-z0-9]{40,}", "pplx-"),
    _pattern("a Replicate token", r"r8_[A-Za-z0-9]{37}", "r8_"),
    _pattern("an npm token", r"npm_[A-Za-z0-9]{36}", "npm_"),
    _pattern("a PyPI token", r"pypi-[\w-]{60,}", "pypi-"),
    _pattern("a SendGrid key", r"SG\.[\w-]{22}\.[\w-]{43}", "SG."),
    _pattern("a DigitalOcean token", r"do[opr]_v1_[0-9a-f]{64}", "_v1_"),
    _pattern("a Telegram bot token", r"\d{8,10}:AA[\w-]{33}", ":AA"),
    _pattern("a JSON web token", r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", "eyJ"),
    _pattern("a private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----", "PRIVATE KEY"),
    _pattern("a bearer token", r"[Bb]earer +(?!eyJ)[\w.~+/-]{24,}=*", "earer "),
    _pattern("a password in a URL", r"[a-z][a-z0-9+.]{1,20}://[^\s/:@\"'<>]{1,64}:[^\s/@\"'<>{}$]{4,128}@", "://"),
    _pattern(
        "a key by its name",
        r"(?i:api_?key|apikey|api-key|secret_key|access_token|client_secret)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"'][\w.~+/-]{16,}",
        *("api", "Api", "API", "secret", "SECRET", "token", "TOKEN"),
    ),
)
# Example keys in documentation: `sk-xxxx…`, AKIAIOSFODNN7EXAMPLE, `user:password@`.
_PLACEHOLDER = re.compile(r"(?i)example|your[_-]|x{5,}|\*{3}|\.{3}|placeholder|redacted|dummy|:pass(?:word)?@|:secret@")
_MIN_DISTINCT_CHARS = 6  # no key has fewer distinct characters


def find_secrets(value: Any, path: json_text.Path = ()) -> Iterator[Secret]:
    """Everything in a JSON value that looks like a key; each kind once per string."""
    if isinstance(value, str):
        for kind in find_secret_kinds(value):
            yield Secret(kind, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from find_secrets(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from find_secrets(inner, (*path, number))


def find_secret_kinds(text: str) -> Iterator[str]:
    """The kinds of keys in a text, each once."""
    yield from dict.fromkeys(kind for kind, _ in iter_secrets(text))


def iter_secrets(text: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of every likely key. A match of one pattern is not matched by later patterns."""
    for kind, (start, end) in _find_spans(text):
        yield kind, text[start:end]


def _find_spans(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    taken: list[tuple[int, int]] = []
    for pattern in PATTERNS:
        if not any(hint in text for hint in pattern.hints):
            continue
        found = [m.span() for m in pattern.regex.finditer(text) if _is_likely(m[0]) and _is_free(m.span(), taken)]
        taken += found
        yield from ((pattern.name, span) for span in found)


_END_OF_KEY = re.compile(r"-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----")


def redact_text(text: str) -> str:
    """The text with everything that looks like a key replaced by its kind."""
    found = sorted(_find_spans(text), key=lambda pair: pair[1], reverse=True)
    for kind, (start, end) in found:
        if kind == "a private key":  # the pattern finds its first line
            last = _END_OF_KEY.search(text, end)
            end = last.end() if last else len(text)
        text = f"{text[:start]}[redacted: {kind}]{text[end:]}"
    return text


def redact_value(value: Any) -> Any:
    """A JSON value with all its strings redacted."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {name: redact_value(inner) for name, inner in value.items()}
    return [redact_value(inner) for inner in value] if isinstance(value, list) else value


def _is_likely(text: str) -> bool:
    return len(set(text)) >= _MIN_DISTINCT_CHARS and _PLACEHOLDER.search(text) is None


def _is_free(span: tuple[int, int], taken: list[tuple[int, int]]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in taken)
