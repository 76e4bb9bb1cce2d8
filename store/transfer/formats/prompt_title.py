"""Titles of imported sessions: the first words a person typed. Pure.

Agents put generated text into user messages: environment blocks, project instructions, notices of an interruption. None
of it is a title. A prompt that only announces a plan gets the plan's first line.
"""

from __future__ import annotations

import re

from store.transfer.formats.coerce import make_title

_BLOCK = re.compile(r"\s*<([A-Za-z][\w-]*)\b[^>]*?(?:/>|>.*?</\1>)", re.DOTALL)
_COMMAND = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)
_GENERATED = (
    "[Request interrupted",
    "# AGENTS.md instructions",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
    "Base directory for this skill:",
)
_ANNOUNCEMENTS = ("Implement the following plan:",)
_SCANNED_CHARS = 20_000


def title_of_prompt(text: str) -> str:
    """The title for a prompt; "" if nothing in it was typed by a person."""
    text = text[:_SCANNED_CHARS]
    while (block := _BLOCK.match(text)) is not None:
        text = text[block.end() :]
    text = text.strip()
    if not text or text.startswith("<") or text.startswith(_GENERATED):
        return ""
    for announcement in _ANNOUNCEMENTS:
        if text.startswith(announcement) and text.removeprefix(announcement).strip():
            text = text.removeprefix(announcement).strip().lstrip("#").strip()
    return make_title(text)


def title_of_command(text: str) -> str:
    """The title for a slash command: its name and arguments; "" for any other text."""
    name, arguments = _COMMAND.search(text[:_SCANNED_CHARS]), _ARGUMENTS.search(text[:_SCANNED_CHARS])
    if name is None:
        return ""
    return make_title(f"{name[1]} {arguments[1] if arguments else ''}".strip())
