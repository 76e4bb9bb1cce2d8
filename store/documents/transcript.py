"""Transcript: a session rendered as Markdown, for reading and grep. Pure.

A transcript consists of a header, an optional summary and one piece per message. The header depends
only on the index entry, a piece only on its message and index. So the size of a transcript is the
sum of stored sizes and is known without rendering. Only the targets of attachment links are not
part of the stored size (`PieceSize`). Every change to the rendered text must increase
RENDERER_VERSION.

A web page needs to know where a message, a tool call or the reasoning begins, and the text of a message
can imitate all of them. `marked=True` therefore puts control characters where the parts meet, in place of
one space or newline each. `_clean` replaces control characters in everything that comes from a session, so
no message can contain a mark, and a marked transcript has exactly as many bytes as a plain one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

import orjson

from store.documents import attachment_names

if TYPE_CHECKING:
    from store.model.index_entry import IndexEntry

RENDERER_VERSION = 4

Message = Mapping[str, Any]  # as parsed from session.json, and validated
Target = Callable[[str], str]  # reference of an attachment → target of its link; see `quote_path`

# Control characters are made visible, so printing a transcript cannot control a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROL_BYTES = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n")
_LATE_CONTROL = re.compile(r"[\x80-\x9f]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_BACKTICKS = re.compile(r"`{3,}")
_MAX_TRIED_FENCE = 8  # backticks
_MAX_LINE_CHARS = 100  # of an argument on the same line as its name

BlockKind = Literal["prose", "reasoning", "image", "embedded", "link", "file", "ocr", "call", "result"]
# Marks of a marked transcript: before the number of a message, before a part of its heading, and before a block.
PIECE_MARK, FACT_MARK = "\x1e", "\x1f"
BLOCK_MARKS: dict[BlockKind, str] = {
    "prose": "\x0e",
    "reasoning": "\x0f",
    "image": "\x10",  # an attachment
    "embedded": "\x11",  # an image inside the message
    "link": "\x12",  # an image elsewhere
    "ocr": "\x13",
    "call": "\x14",
    "result": "\x15",
    "file": "\x16",  # an attachment that is not an image
}


class Block(NamedTuple):
    """A paragraph of a piece."""

    kind: BlockKind
    text: str


class PieceSize(NamedTuple):
    """Size of a piece: its bytes without link targets, and the number of occurrences of each link."""

    size_bytes: int
    links: Mapping[str, int]


def render(
    entry: IndexEntry, summary: str, messages: Sequence[Message], target: Target, *, marked: bool = False
) -> str:
    """The whole transcript."""
    pieces = (render_message(message, index, target, marked=marked) for index, message in enumerate(messages))
    return render_header(entry) + render_summary(summary, marked=marked) + "".join(pieces)


def measure(message: Message, index: int) -> PieceSize:
    """The size of a message's piece."""
    urls: list[str] = []

    def without_target(url: str) -> str:
        urls.append(url)
        return ""

    # The same as the length of `render_message`, without the copy that joins the parts.
    size_bytes = 2 + length(_heading(message, index, marked=False))
    for _, text in _blocks(message, without_target):
        size_bytes += 2 + length(text)
    return PieceSize(size_bytes, Counter(urls) if urls else {})


def length(text: str) -> int:
    """Length in bytes of the encoded text."""
    return len(text) if text.isascii() else len(encode(text))


def encode(text: str) -> bytes:
    # Validation rejects lone surrogates; here they must not prevent a document from being indexed.
    return text.encode(errors="replace")


# -- the header --------------------------------------------------------------------------------------


def render_header(entry: IndexEntry) -> str:
    """Title, model, times and other properties of the session."""
    lines = [f"# {_line(entry.title) or 'Untitled'}", "", *_facts(entry)]
    return "\n".join(lines) + "\n"


def _facts(entry: IndexEntry) -> Iterator[str]:
    yield f"- session: {_line(entry.id)}"
    if entry.kind == "child":
        yield f"- child of: {_line(entry.parent_session_id or entry.root_session_id)}"
        yield f"- root: {_line(entry.root_session_id)}"
    model = f"{entry.model_ref.provider}/{entry.model_ref.model}" if entry.model_ref else entry.model
    yield f"- model: {_line(model) or 'none'}"
    yield f"- created: {_time(entry.created_at)}"
    yield f"- updated: {_time(entry.updated_at)}"
    yield f"- messages: {entry.message_count}"
    for name, value in _optional_facts(entry):
        if value:
            yield f"- {name}: {_line(value)}"


def _optional_facts(entry: IndexEntry) -> Iterator[tuple[str, str | None]]:
    yield "pinned", "yes" if entry.pinned else None
    yield "status", entry.last_run_status
    yield "error", entry.last_run_error
    yield "project", entry.project_id
    yield "workspace", entry.workspace_path
    yield "sub-agent", entry.subagent_type


def render_summary(summary: str, *, marked: bool = False) -> str:
    if not summary.strip():
        return ""
    return _piece("## Summary", [Block("prose", _prose(summary))], marked=marked)


# -- messages ----------------------------------------------------------------------------------------


def render_message(message: Message, index: int, target: Target, *, marked: bool = False) -> str:
    """One piece: a heading, and one paragraph for each part of the message."""
    return _piece(_heading(message, index, marked=marked), _blocks(message, target), marked=marked)


def _piece(heading: str, blocks: Iterable[Block], *, marked: bool) -> str:
    if not marked:
        return "\n" + "\n\n".join([heading, *(text for _, text in blocks)]) + "\n"
    parts = [f"\n{BLOCK_MARKS[kind]}{text}" for kind, text in blocks]
    return f"\n{heading.replace(' ', PIECE_MARK, 1)}{''.join(parts)}\n"


def _heading(message: Message, index: int, *, marked: bool) -> str:
    """The heading of a message. Its number is the index in `messages`, as in search results and jq."""
    parts = [f"## [{index}] {message['role']}"]
    if message.get("created_at"):
        parts.append(_time(message["created_at"]))
    metadata = message.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    if message["role"] == "tool":
        if isinstance(known.get("tool_name"), str):
            parts.append(_line(known["tool_name"]))
        if message.get("tool_call_id"):
            parts.append(f"answers {_line(message['tool_call_id'])}")
        if message.get("tool_success") is False:
            parts.append("failed")
    if isinstance(known.get("recipient"), str):  # a tool, in conversations that have no other record of its call
        parts.append(f"to {_line(known['recipient'])}")
    if known.get("abandoned") is True:
        parts.append("abandoned")
    if known.get("hidden_from_ui") is True:
        parts.append("hidden")
    if message.get("compressed"):
        parts.append("compressed")
    return (f" ·{FACT_MARK}" if marked else " · ").join([part for part in parts if part])


def _blocks(message: Message, target: Target) -> Iterator[Block]:
    content = message["content"]
    if message.get("reasoning"):
        yield Block("reasoning", _quoted("Reasoning", message["reasoning"]))
    if message["role"] == "tool":
        yield Block("result", _result(content))
    elif content.strip():
        yield Block("prose", _prose(content))
    parts = message.get("content_parts") or ()
    is_joined = bool(parts) and _repeats_parts(content, parts)
    for part in parts:
        text, image = part.get("text"), part.get("image_url")
        if text and text.strip() and text != content and not is_joined:
            yield Block("prose", _prose(text))
        if image:
            mime = image.get("mime")  # of an imported file that is not an image
            yield _image(image["url"], target, is_image=not isinstance(mime, str) or mime.startswith("image/"))
    for read in message.get("image_ocr") or ():
        lines = [line["text"] for line in read.get("lines") or ()]
        if lines:
            yield Block("ocr", _quoted("Text in the image", "\n".join(lines)))
    for call in message.get("tool_calls") or ():
        yield Block("call", _call(call))


def _repeats_parts(content: str, parts: Sequence[Message]) -> bool:
    """Whether the content of a message is that of its parts, joined."""
    texts = [part["text"] for part in parts if part.get("text")]
    return content in ("\n\n".join(texts), "\n".join(texts), "".join(texts))


def _image(url: str, target: Target, *, is_image: bool) -> Block:
    if url[:5].lower() == "data:":
        header, _, payload = url[5:].partition(",")
        shown = f"*embedded image: {_line(header.partition(';')[0])}, {len(payload) * 3 // 4} bytes*"
        return Block("embedded", shown)
    reference = attachment_names.parse_reference(url)
    if reference is None:
        return Block("link", f"![image]({quote_path(url)})")
    shown = f"[{_line(reference[1])}]({target(url)})"
    return Block("image", f"!{shown}") if is_image else Block("file", shown)


def quote_path(path: str) -> str:
    """A path or URL for a link. Characters that would end the link or the line are percent-encoded."""
    return quote(path, safe="/:?&=#%+,;@!$*'~-._", errors="replace")


def quote_name(path: str) -> str:
    """Like `quote_path`, for a file path, in which `?`, `#` and `%` have no special meaning."""
    return quote(path, safe="/:&=+,;@!$*'~-._", errors="replace")


# -- tool calls and their results ----------------------------------------------------------------------


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    head = f"**→ {_line(function['name'])}** {_line(call['id'])}".rstrip()
    arguments = _clean(function["arguments"]).strip()
    values = _parsed(function["arguments"])
    if isinstance(values, dict):
        return f"{head}\n\n{_members(values)}" if values else head
    return f"{head}\n\n{_fenced(arguments)}" if arguments else head


def _result(content: str) -> str:
    """Tool output, unchanged. A JSON object on a single line is formatted, because it is hard to read."""
    if not content.strip():
        return "*(no output)*"
    values = _parsed(content) if content.lstrip()[:1] == "{" and "\n" not in content.strip() else None
    return _members(values) if isinstance(values, dict) and values else _fenced(_clean(content))


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None  # not JSON, or a number out of range: shown unchanged


def _members(values: Mapping[str, Any]) -> str:
    """One line per member. A long value follows below its name, unescaped."""
    return "\n".join(_member(_line(name), value) for name, value in values.items()).rstrip("\n")


def _member(name: str, value: Any) -> str:
    text = _clean(value if isinstance(value, str) else orjson.dumps(value).decode())
    if "\n" not in text.strip() and len(text) <= _MAX_LINE_CHARS:
        return f"- {name}: {text.strip()}"
    if isinstance(value, dict | list):
        text = _clean(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    return f"- {name}:\n\n{_fenced(text)}\n"


# -- text ------------------------------------------------------------------------------------------------


def _time(text: str) -> str:
    """The time to the second, in its original time zone."""
    zone = "UTC" if text[-1] in "Zz" else text[-6:]
    return f"{text[:10]} {text[11:19]} {zone}"


def _line(text: str) -> str:
    return " ".join((text if text.isprintable() else _clean(text)).split())


def _clean(text: str) -> str:
    """Without colours and control characters, with Unix line endings."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if _has_controls(text):
        text = _CONTROL.sub(_visible_control, _COLOUR.sub("", text))
    return text


def _has_controls(text: str) -> bool:
    """Much faster than a regular expression search, and almost always False."""
    raw = text.encode(errors="replace")
    if len(raw.translate(None, _CONTROL_BYTES)) != len(raw):
        return True
    return not text.isascii() and _LATE_CONTROL.search(text) is not None


def _visible_control(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"\\x{code:02x}"


def _prose(text: str) -> str:
    """Text written for reading, possibly Markdown. An open code block is closed: it would include what follows."""
    text = _clean(text).strip("\n")
    if "```" not in text and "~~~" not in text:
        return text
    is_open = ""
    for match in _FENCE.finditer(text):
        mark, rest = match[1], match[2].strip()
        if not is_open:
            is_open = "" if mark[0] == "`" and "`" in rest else mark
        elif mark[0] == is_open[0] and len(mark) >= len(is_open) and not rest:
            is_open = ""
    return f"{text}\n{is_open}" if is_open else text


def _quoted(label: str, text: str) -> str:
    lines = _clean(text).strip("\n").split("\n")
    return "\n".join([f"> *{label}*", ">", *(f"> {line}".rstrip() for line in lines)])


def _fenced(text: str) -> str:
    """A code block with a fence longer than any in the text."""
    fence = "```"
    while fence in text and len(fence) <= _MAX_TRIED_FENCE:  # much faster than a regular expression
        fence += "`"
    if len(fence) > _MAX_TRIED_FENCE:
        fence = "`" * (max(map(len, _BACKTICKS.findall(text)), default=0) + 1)
    return f"{fence}\n{text.strip(chr(10))}\n{fence}"
