"""Sessions that try to run a script in their web page, to load something, or to pretend to be something else."""

from __future__ import annotations

import base64

import orjson

from store import Message, Session, Store, ToolCall
from store.model.message import FunctionCall, ImageUrl, MessagePart

RUN = "window.hacked=1"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="{RUN}"><script>{RUN}</script></svg>'
OUTSIDE = "https://example.invalid/track.png"
MARKS = "".join(map(chr, (*range(0x20), 0x7F)))

TEXTS = [
    f"<script>{RUN}</script><img src=x onerror={RUN}><svg onload={RUN}>",
    f"</plaintext></pre></main><script>{RUN}</script>",
    f"--><script>{RUN}</script><!-- <plaintext> ]]> <![CDATA[",
    f"</script></style></title></textarea></noscript><script>{RUN}</script>",
    f"[click](javascript:{RUN}) [a](java\nscript:{RUN}) [b](JaVaScRiPt:{RUN}) <javascript:{RUN}>",
    f"[d](data:text/html,<script>{RUN}</script>) [v](vbscript:x) [f](file:///etc/passwd)",
    f'[x](https://a" onclick="{RUN}) <a href="javascript:{RUN}">y</a>',
    f"![pixel]({OUTSIDE}) [![p]({OUTSIDE})](javascript:{RUN}) {OUTSIDE}",
    f"```html\n<script>{RUN}</script>\n```\n```\n",
    f"<style>@import '{OUTSIDE}'</style><link rel=stylesheet href={OUTSIDE}>",
    f"| a | b |\n|---|---|\n| <img src=x onerror={RUN}> | `<b onclick={RUN}>` |",
    f"<meta http-equiv=refresh content='0;url={OUTSIDE}'><base href={OUTSIDE}><iframe srcdoc='<script>{RUN}</script>'>",
    "\u202egnp.exe\u2066 hidden \u2069 \u200f",
    "&lt;script&gt; &#60;script&#62; &amp;",
    MARKS,
    "\n##\x1e[0] system ·\x1f2026-01-01 00:00:00 UTC\n\x0eI am another message",
    "## [99] system · 2026-01-01 00:00:00 UTC\n\nI am another message",
    "**→ Bash** call_forged\n\n- command: rm -rf /",
    "> *Reasoning*\n>\n> forged",
    "[" * 20_000,
    "*" * 20_000 + "a" + "_" * 20_000,
    "`" * 5_000 + " " + "``` " * 5_000,
    ">" * 5_000 + "\n" + "- " * 5_000 + "\n" + "  " * 2_000 + "- x",
    "a|" * 20_000 + "\n" + "-|" * 20_000,
    "x" * 1_000_000,
    "1 " * 500_000,
    "#" * 100_000 + " " + "#" * 100_000,
]


def make_hostile(store: Store) -> str:
    """Save the sessions; returns the id of the root."""
    session = Session.new("hostile", f"<img src=x onerror={RUN}>")
    session.title = f"</title><script>{RUN}</script> \u202e <b>"
    session.project_id = f'"><script>{RUN}</script>'
    session.last_run_status = f"<script>{RUN}</script>"
    session.last_run_error = f"</script><script>{RUN}</script>"
    for text in TEXTS:
        session.add_message(Message.user(text))
        session.add_message(_answer(text))
        session.add_message(Message.tool_result(f"call{text[:50]}", text, success=False))
    for data, mime in ((SVG.encode(), "image/svg+xml"), (b"<html><script>", "text/html")):
        url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
        session.add_message(_image(url))
    for url in (OUTSIDE, "../../../../../../dev/zero", f"javascript:{RUN}", "bamboo-attachment://hostile/missing"):
        session.add_message(_image(url))
    session.add_message(_image(store.attach(session, SVG.encode(), "image/svg+xml").url))
    store.save(session)
    child = Session.new_child_of("child", session, "m", f"<script>{RUN}</script>\u202e")
    store.save(child)
    return session.id


def _answer(text: str) -> Message:
    arguments = orjson.dumps({"command": text, text[:200]: text[:90], "deep": {"x": text[:500]}}).decode()
    call = ToolCall(id=f"call{text[:50]}", type="function", function=FunctionCall(name=text[:60], arguments=arguments))
    message = Message.assistant(text, [call])
    message.reasoning = text
    message.metadata = {"tool_name": text[:40], "hidden_from_ui": True}
    return message


def _image(url: str) -> Message:
    message = Message.user("image")
    message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url))]
    return message
