"""A ChatGPT export: `conversations.json`, each conversation a tree of nodes with one path through it that counts.

That path becomes the session. Every branch off it (an answer asked for again, a question put differently)
becomes a child that begins where it leaves, and a branch off a branch is the child's child: each message is
in exactly one session. Where a later export has moved the path, messages move with it. Files that came with
the export become attachments of the messages that show them.
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
# Where the text of a kind of content stands that is not a list of parts.
_TEXT_KEYS = ("text", "result", "content")


def _exports(source: Source) -> list[str]:
    names = [entry.name for entry in source.entries() if entry.is_file]
    return [name for name in names if _FILE.fullmatch(name) or name == source.name]


def recognise(source: Source) -> int | None:
    for name in _exports(source):
        head = source.head(name).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head.startswith(b"[") and b'"mapping"' in head:
            return 95
    return None


def iter_records(source: Source) -> Iterator[SessionTree | ImportProblem]:
    assets = _find_assets(source)
    for name in _exports(source):
        shown = source.display_path(name)
        try:
            for element in iter_elements(source.iter_chunks(name)):
                source.done_bytes += len(element.data)
                yield from _ChatConversation(source, shown, element, assets).read()
        except BrokenArray as error:
            yield ImportProblem(shown, error.line, f"{error}; what comes after is skipped")
        except OSError as error:
            yield read_problem(source, name, error)


def _find_assets(source: Source) -> dict[str, str]:
    """The files that came along, by the id that messages call them by."""
    found: dict[str, str] = {}
    for path in source.iter_files():
        match = _ASSET.match(path.rpartition("/")[2])
        if match:
            found.setdefault(match[1], path)
    return found


# -- one conversation -------------------------------------------------------------------------------------


class _ChatConversation:
    """One element of the export."""

    main: Chain

    def __init__(self, source: Source, shown: str, element: Element, assets: dict[str, str]) -> None:
        self.source = source
        self.shown = shown
        self.element = element
        self.assets = assets
        self.problems: list[ImportProblem] = []

    def read(self) -> Iterator[SessionTree | ImportProblem]:
        try:
            record = parse(self.element.data).value
            if not isinstance(record, dict) or not isinstance(record.get("mapping"), dict):
                raise BadRecord("no conversation: an object with a mapping is expected")
            name = as_str(record.get("conversation_id")) or as_str(record.get("id"))
            if not name:
                raise BadRecord("the conversation has no id")
        except BadRecord as error:
            yield ImportProblem(self.shown, self.element.line + (error.line or 1) - 1, f"{error}; skipped")
            return
        drafts = self._drafts(name, record)
        yield from self.problems
        yield SessionTree(drafts[0], drafts[1:])

    def _drafts(self, name: str, record: dict[str, Any]) -> list[SessionDraft]:
        """The path that counts, then the branches that say something."""
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
                self._report(f"node {key}: an object is expected; skipped, and kept in records.jsonl")
        for chain in chains:
            builder = builders[id(chain)]
            for node in chain.nodes:
                self._add_node(builder, node, nodes.nodes[node])
            if chain is not self.main:
                self._connect(builder, chain, builders)
        used = [builder for builder in builders.values() if builder.messages or builder is root]
        ids = frozenset(message["id"] for builder in used for message in builder.messages)
        at = parse_time(record.get("create_time")) or Timestamp.from_ns(0)
        return [builder.build(fallback=at, moved=ids) for builder in used]

    def _report(self, text: str) -> None:
        self.problems.append(ImportProblem(self.shown, self.element.line, text))

    def _builder(self, name: str, chain: Chain) -> SessionBuilder:
        root = make_id(NAME, name)
        if chain is self.main:
            return SessionBuilder(NAME, Location(root), self.shown, name)
        branch = f"branch-{chain.nodes[0]}"
        return SessionBuilder(NAME, Location(root, make_id(NAME, branch)), self.shown, f"{name}/{branch}")

    def _connect(self, builder: SessionBuilder, chain: Chain, builders: dict[int, SessionBuilder]) -> None:
        """A branch's parent: the nearest chain above it that says something."""
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
            self._report(f"node {key}: no message; skipped, and kept in records.jsonl")
            return
        author = as_dict(message.get("author"))
        role = author.get("role") if author.get("role") in _ROLES else "user"
        rest = {k: v for k, v in message.items() if k not in ("id", "create_time", "author", "content")}
        rest["author"] = {k: v for k, v in author.items() if not (k == "role" and v == role)}
        rest["parent"] = node.get("parent")
        content = _ChatContent(self, builder, message["content"])
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
            content_parts=content.parts if any(part["type"] != "text" for part in content.parts) else None,
        )
        model = as_str(as_dict(message.get("metadata")).get("model_slug"))
        builder.model = model or builder.model

    def store_asset(self, builder: SessionBuilder, pointer: str) -> str | None:
        """An attachment for what a pointer points to; None if it did not come with the export."""
        match = _ASSET.match(pointer.rpartition("//")[2])
        path = self.assets.get(match[1]) if match else None
        if path is None:
            return None
        try:
            data = self.source.read(path)
        except (OSError, InvalidContent) as error:
            self.problems.append(ImportProblem(self.source.display_path(path), None, str(error)))
            return None
        return builder.attach(data, _MIMES.guess_type(path)[0] or _guess_mime(data))


def _apply_record(builder: SessionBuilder, record: dict[str, Any]) -> None:
    builder.title = make_title(as_str(record.get("title")))
    builder.model = as_str(record.get("default_model_slug"))
    builder.add_time(parse_time(record.get("create_time")))
    builder.add_time(parse_time(record.get("update_time")))
    for key, value in record.items():
        if key not in ("mapping", "title", "create_time", "update_time") and value not in (None, [], {}, ""):
            builder.add_metadata(key, value)


class _ChatContent:
    """What a message says: its text, its pictures, its thoughts; and of the rest whatever is not in those."""

    def __init__(self, conversation: _ChatConversation, builder: SessionBuilder, content: dict[str, Any]) -> None:
        self.parts: list[dict[str, Any]] = []
        self.reasoning = "\n\n".join(_render_thought(thought) for thought in as_list(content.get("thoughts")))
        self.unmapped = {
            k: v for k, v in content.items() if v is not None and not (k == "content_type" and v == "text")
        }
        if isinstance(content.get("parts"), list):
            whole = [self._add_part(conversation, builder, part) for part in content["parts"]]
            if all(whole):
                del self.unmapped["parts"]
            return
        for key in _TEXT_KEYS:
            if isinstance(content.get(key), str):
                self.parts.append({"type": "text", "text": content[key]})
                del self.unmapped[key]
                return

    def _add_part(self, conversation: _ChatConversation, builder: SessionBuilder, part: Any) -> bool:
        """One part; True if nothing of it is left to keep."""
        if isinstance(part, str):
            self.parts.append({"type": "text", "text": part})
            return True
        pointer = as_str(as_dict(part).get("asset_pointer"))
        if pointer:
            url = conversation.store_asset(builder, pointer) or pointer
            self.parts.append({"type": "image_url", "image_url": {"url": url}})
        elif isinstance(as_dict(part).get("text"), str):
            self.parts.append({"type": "text", "text": part["text"]})
        return False

    @property
    def text(self) -> str:
        return "\n\n".join(part["text"] for part in self.parts if part["type"] == "text")


def _render_thought(thought: Any) -> str:
    return "\n".join(filter(None, (as_str(as_dict(thought).get(key)) for key in ("summary", "content"))))


def _guess_mime(data: bytes) -> str:
    """Newer exports call every file .dat."""
    signs = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
    return next((mime for sign, mime in signs.items() if data.startswith(sign)), attachment_names.OCTETS)


FORMAT = Format(NAME, "an unpacked ChatGPT export, or its conversations.json", recognise, iter_records)
