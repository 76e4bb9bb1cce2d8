"""ChatGPT exports: `conversations.json`, where each conversation is a tree of nodes with one current path.

The current path becomes the session. Every branch off it (a regenerated answer, an edited question) becomes a child
that starts where it diverges, and a branch of a branch a child of that child. Each message is in exactly one session.
If a later export has another current path, messages move accordingly, and a branch that became part of the path is
removed. Asset files of the export become attachments of the messages that refer to them, wherever in a message.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from typing import Any

import orjson

from store.documents import attachment_names
from store.errors import InvalidContent
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.formats.coerce import BadRecord, as_dict, as_list, as_str, make_id, make_title, parse, parse_time
from store.transfer.formats.conversation_tree import Chain, ConversationNodes
from store.transfer.formats.importer import Format, ImportProblem, SessionDraft, SessionTree, read_problem
from store.transfer.formats.json_array_stream import BrokenArray, Element, iter_elements
from store.transfer.formats.session_builder import SessionBuilder
from store.transfer.formats.source import Source

NAME = "chatgpt"
_FILE = re.compile(r"conversations(-\d+)?\.json")
_ASSET = re.compile(r"(file[-_][A-Za-z0-9]+)")
_ROLES = ("user", "assistant", "system", "tool")
_MIMES = mimetypes.MimeTypes()
# The member that holds the text, in content that is not a list of parts.
_TEXT_KEYS = ("text", "result", "content")
_INSTRUCTION_KEYS = ("user_profile", "user_instructions")


def _exports(source: Source) -> list[str]:
    names = [entry.name for entry in source.entries() if entry.is_file]
    return [name for name in names if _FILE.fullmatch(name) or name == source.name]


def recognise(source: Source) -> int | None:
    for name in _exports(source):
        head = source.head(name).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head.startswith((b"[", b"{")) and b'"mapping"' in head:
            return 95
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    assets = _find_assets(source)
    for name in _exports(source):
        path = source.display_path(name)
        try:
            for element in _iter_conversations(source, name):
                source.done_bytes += len(element.data)
                yield from _ChatConversation(source, path, element, assets).read()
        except BrokenArray as error:
            yield ImportProblem(path, error.line, f"{error}; the rest of the file is skipped")
        except OSError as error:
            yield read_problem(source, name, error)


def _iter_conversations(source: Source, name: str) -> Iterator[Element]:
    """The conversations of an export; a file with one conversation holds an object."""
    if source.head(name, 64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        yield Element(1, source.read(name).removeprefix(b"\xef\xbb\xbf"))
        return
    yield from iter_elements(source.iter_chunks(name))


def _find_assets(source: Source) -> dict[str, str]:
    """The asset files of the export, by the id that messages refer to."""
    found: dict[str, str] = {}
    for path in source.iter_files():
        match = _ASSET.match(path.rpartition("/")[2])
        if match:
            found.setdefault(match[1], path)
    return found


# -- one conversation -------------------------------------------------------------------------------------


class _ChatConversation:
    """One conversation of the export."""

    main: Chain

    def __init__(self, source: Source, path: str, element: Element, assets: dict[str, str]) -> None:
        self.source = source
        self.path = path
        self.element = element
        self.assets = assets
        self.problems: list[ImportProblem] = []
        self.empty: set[str] = set()  # ids of messages without content, which are kept as raw text

    def read(self) -> Iterator[SessionTree | ImportProblem]:
        try:
            record = parse(self.element.data).value
            if not isinstance(record, dict) or not isinstance(record.get("mapping"), dict):
                raise BadRecord("not a conversation: expected an object with a mapping")
            name = as_str(record.get("conversation_id")) or as_str(record.get("id"))
            if not name:
                raise BadRecord("the conversation has no id")
        except BadRecord as error:
            yield ImportProblem(self.path, self.element.line + (error.line or 1) - 1, f"{error}; skipped")
            return
        drafts = self._drafts(name, record)
        yield from self.problems
        yield SessionTree(drafts[0], drafts[1:], is_complete=True)

    def _drafts(self, name: str, record: dict[str, Any]) -> list[SessionDraft]:
        """The drafts of the main path and of all branches that have messages."""
        good = {key: node for key, node in record["mapping"].items() if isinstance(node, dict)}
        nodes = ConversationNodes(good)
        chains = nodes.chains(record.get("current_node"))
        self.main = chains[0]
        builders = {id(chain): self._builder(name, chain) for chain in chains}
        root = builders[id(self.main)]
        _apply_record(root, record)
        for key, node in record["mapping"].items():
            if key not in good:
                root.keep_raw(orjson.dumps({key: node}))
                self._report(f"node {key}: expected an object; kept as raw text in records.jsonl")
        for chain in chains:
            builder = builders[id(chain)]
            for node in chain.nodes:
                self._add_node(builder, node, nodes.nodes[node])
            if chain is not self.main:
                self._connect(builder, chain, builders)
        used = [builder for builder in builders.values() if builder.messages or builder is root]
        ids = frozenset(message["id"] for builder in used for message in builder.messages)
        at = parse_time(record.get("create_time")) or Timestamp.from_ns(0)
        return [builder.build(fallback=at, moved=ids | self.empty) for builder in used]

    def _report(self, text: str) -> None:
        self.problems.append(ImportProblem(self.path, self.element.line, text))

    def _builder(self, name: str, chain: Chain) -> SessionBuilder:
        root = make_id(NAME, name)
        if chain is self.main:
            return SessionBuilder(NAME, Location(root), self.path, name)
        branch = f"branch-{chain.nodes[0]}"
        return SessionBuilder(NAME, Location(root, make_id(NAME, branch, root)), self.path, f"{name}/{branch}")

    def _connect(self, builder: SessionBuilder, chain: Chain, builders: dict[int, SessionBuilder]) -> None:
        """Set the parent of a branch: the nearest chain above it that has messages."""
        above = chain.parent
        while above is not None and above.parent is not None and not builders[id(above)].messages:
            above = above.parent
        if above is not None:
            builder.parent = builders[id(above)].location.id
        builder.depth = chain.depth
        builder.model = builder.model or builders[id(self.main)].model

    # -- one node ------------------------------------------------------------------------------------------

    def _add_node(self, builder: SessionBuilder, key: str, node: dict[str, Any]) -> None:
        message = node.get("message")
        if message is None:
            return
        if not isinstance(message, dict) or not isinstance(message.get("content"), dict):
            builder.keep_raw(orjson.dumps({key: node}))
            self._report(f"node {key}: not a message; kept as raw text in records.jsonl")
            return
        author = as_dict(message.get("author"))
        role = author.get("role") if author.get("role") in _ROLES else "user"
        rest = {k: v for k, v in message.items() if k not in ("id", "create_time", "author", "content")}
        rest["author"] = {k: v for k, v in author.items() if not (k == "role" and v == role)}
        rest["parent"] = node.get("parent")
        content = _ChatContent(self, builder, message["content"])
        content.add_assets(self, builder, message)
        if role == "system" and not content.text and not content.has_files:
            builder.keep_raw(orjson.dumps({key: node}))  # an empty message would be an empty heading
            self.empty.add(as_str(message.get("id")) or key)
            return
        rest["content"] = content.unmapped
        at = parse_time(message.get("create_time"))
        if at is None:
            rest["create_time"] = message.get("create_time")
        builder.add_message(
            str(role),
            content.text,
            id=as_str(message.get("id")) or key,
            at=at,
            rest={k: v for k, v in rest.items() if v not in (None, {}, [])},
            reasoning=content.reasoning or None,
            content_parts=content.parts if content.has_files else None,
        )
        if role == "tool" and as_str(author.get("name")):
            builder.note(builder.messages[-1], "tool_name", author["name"])
        recipient = as_str(message.get("recipient"))
        if role == "assistant" and recipient not in ("", "all"):
            builder.note(builder.messages[-1], "recipient", recipient)
        model = as_str(as_dict(message.get("metadata")).get("model_slug"))
        builder.model = model or builder.model

    def store_asset(self, builder: SessionBuilder, pointer: str) -> dict[str, str] | None:
        """Attach the asset a pointer refers to and return its reference; None if the export lacks it.

        The type is stated for a file that is not an image.
        """
        match = _ASSET.match(pointer.rpartition("//")[2])
        path = self.assets.get(match[1]) if match else None
        if path is None:
            return None
        try:
            data = self.source.read(path)
        except (OSError, InvalidContent) as error:
            self.problems.append(ImportProblem(self.source.display_path(path), None, str(error)))
            return None
        mime = _MIMES.guess_type(path)[0] or _guess_mime(data)
        kind = {} if mime.startswith("image/") else {"mime": mime}
        return {"url": builder.attach(data, mime), **kind}


def _apply_record(builder: SessionBuilder, record: dict[str, Any]) -> None:
    builder.title = make_title(as_str(record.get("title")))
    builder.model = as_str(record.get("default_model_slug"))
    builder.add_time(parse_time(record.get("create_time")))
    builder.add_time(parse_time(record.get("update_time")))
    for key, value in record.items():
        if key not in ("mapping", "title", "create_time", "update_time") and value not in (None, [], {}, ""):
            builder.add_metadata(key, value)


class _ChatContent:
    """The text, images and reasoning of a message, and the unmapped members of its content."""

    def __init__(self, conversation: _ChatConversation, builder: SessionBuilder, content: dict[str, Any]) -> None:
        self.parts: list[dict[str, Any]] = []
        self._assets: set[str] = set()  # attached to this message
        self.reasoning = "\n\n".join(_render_thought(thought) for thought in as_list(content.get("thoughts")))
        self.unmapped = {
            k: v for k, v in content.items() if v is not None and not (k == "content_type" and v == "text")
        }
        if isinstance(content.get("parts"), list):
            mapped = [self._add_part(conversation, builder, part) for part in content["parts"]]
            if all(mapped):
                del self.unmapped["parts"]
            return
        for key in _TEXT_KEYS:
            if isinstance(content.get(key), str):
                self.parts.append({"type": "text", "text": content[key]})
                del self.unmapped[key]
                return
        for key in _INSTRUCTION_KEYS:  # custom instructions have one text each for the two questions asked
            if isinstance(content.get(key), str):
                self.parts.append({"type": "text", "text": content[key]})
                del self.unmapped[key]

    def _add_part(self, conversation: _ChatConversation, builder: SessionBuilder, part: Any) -> bool:
        """Add one part; True if it is mapped completely."""
        if isinstance(part, str):
            self.parts.append({"type": "text", "text": part})
            return True
        pointer = as_str(as_dict(part).get("asset_pointer"))
        if pointer:
            self._add_asset(pointer, conversation.store_asset(builder, pointer) or {"url": pointer})
        elif isinstance(as_dict(part).get("text"), str):
            self.parts.append({"type": "text", "text": part["text"]})
        return False

    def add_assets(self, conversation: _ChatConversation, builder: SessionBuilder, message: dict[str, Any]) -> None:
        """Attach the files of the export that any other member of the message names: uploads, voices, plots."""
        for pointer in _iter_strings(message):
            match = _ASSET.match(pointer.rpartition("//")[2])
            if match and match[1] in conversation.assets and match[1] not in self._assets:
                asset = conversation.store_asset(builder, pointer)
                if asset is not None:
                    self._add_asset(pointer, asset)

    def _add_asset(self, pointer: str, asset: dict[str, str]) -> None:
        match = _ASSET.match(pointer.rpartition("//")[2])
        if match:
            self._assets.add(match[1])
        self.parts.append({"type": "image_url", "image_url": asset})

    @property
    def text(self) -> str:
        return "\n\n".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def has_files(self) -> bool:
        return any(part["type"] != "text" for part in self.parts)


def _iter_strings(value: Any) -> Iterator[str]:
    """All strings in a value that may name an asset. The text of a message is long, and names none."""
    if isinstance(value, str):
        if len(value) < 200:
            yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _iter_strings(part)


def _render_thought(thought: Any) -> str:
    return "\n".join(filter(None, (as_str(as_dict(thought).get(key)) for key in ("summary", "content"))))


def _guess_mime(data: bytes) -> str:
    """The MIME type by magic bytes: newer exports name every file .dat."""
    signs = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return "audio/wav"
    signs[b"%PDF"] = "application/pdf"
    return next((mime for sign, mime in signs.items() if data.startswith(sign)), attachment_names.OCTET_STREAM)


FORMAT = Format(NAME, "an unpacked ChatGPT export, or its conversations.json", recognise, iter_records)
