"""The policy of pages: it allows the page's own script and style, images, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from fusefs.views.html import conversation, session_list, stats_page
from fusefs.views.html.shell import Shell


@pytest.mark.parametrize("shell", [conversation.SHELL, session_list.SHELL, stats_page.SHELL])
def test_policy_allows_exactly_the_style_and_script_of_the_page(shell: Shell) -> None:
    page = (shell.head("x") + shell.script).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "'self' file: data:"
    assert rules["require-trusted-types-for"] == "'script'"
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL) or [""]
    assert rules["style-src"] == f"'sha256-{digest(styles[0])}'"
    assert rules["script-src"] == f"'sha256-{digest(scripts[0])}'"
    assert (len(styles), len(scripts)) == (1, 1)


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_title_is_one_escaped_line() -> None:
    assert b"<title>a &lt;b&gt; c</title>" in conversation.SHELL.head("a\n<b>\tc")
    assert b"<title>Untitled</title>" in conversation.SHELL.head(" ")
