"""The constant part of every page: policy, style and script, assembled from the files next to this module.

The Content Security Policy is the guarantee, the scripts' care comes second. `default-src 'none'` lets a page
request nothing but images, and only from files, from the server of an exported site or from `data:`. A script runs
only if its SHA-256 is in the policy, so no script tag, event handler or javascript: link in a page can ever run.
`require-trusted-types-for 'script'` without any policy makes assigning a string to innerHTML an error: even a bug
in our own script cannot turn text into markup.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

_FILES = Path(__file__).parent
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src 'self' file: data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


class Shell(NamedTuple):
    """The constant bytes of one kind of page: title and content go between them."""

    start: bytes  # up to the title
    script: bytes  # a script element, or nothing
    digest: str  # of both

    def head(self, title: str) -> bytes:
        """Everything up to the start of the body."""
        shown = escape(" ".join(title.split()) or "Untitled").encode(errors="replace")
        return self.start + b"<title>" + shown + b"</title>\n</head>\n<body>\n"


@cache
def load_shell(*names: str) -> Shell:
    """The shell made of the named style (.css) and script (.js) files, in this order."""
    style = "".join((_FILES / name).read_text() for name in names if name.endswith(".css"))
    code = "".join((_FILES / name).read_text() for name in names if name.endswith(".js"))
    script = f"(() => {{\n{code}}})();\n" if code else ""
    policy = _POLICY.format(script=_sha256(script), style=_sha256(style))
    start = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        '<meta name="generator" content="GroveFS">\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n"
    ).encode()
    element = f"<script>{script}</script>\n".encode() if script else b""
    return Shell(start, element, hashlib.sha256(start + element).hexdigest()[:16])


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
