"""A demo home: a dozen varied sessions, made through the store's own API."""

from __future__ import annotations

import math
import struct
import sys
import zlib

from store import AgentRuntimeState, Message, PendingQuestion, Session, Store, ToolCall
from store.models import FunctionCall, ImageUrl, MessagePart


def picture(width: int = 160, height: int = 100, hue: float = 0.0) -> bytes:
    """A small PNG with rings in it."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            ring = math.sin(math.hypot(x - width / 2, y - height / 2) / 6 + hue)
            rows += bytes((int(128 + 100 * ring), int(128 + 100 * math.sin(x / 20 + hue)), int(255 * y / height)))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    )


def conversation(session: Session, *turns: str) -> Session:
    """Turns of user and assistant, one after the other."""
    session.add_message(Message.system("You are a careful engineer."))
    for number, text in enumerate(turns):
        session.add_message(Message.assistant(text) if number % 2 else Message.user(text))
    return session


def root(id: str, title: str, *turns: str, status: str = "completed") -> Session:
    session = conversation(Session.new(id, "demo-model"), *turns)
    session.title = title
    session.last_run_status = status
    return session


def use_tool(session: Session, name: str, arguments: str, output: str, *, success: bool = True) -> None:
    call = ToolCall(
        id=f"call_{len(session.messages)}", type="function", function=FunctionCall(name=name, arguments=arguments)
    )
    session.add_message(Message.assistant("", [call]))
    session.add_message(Message.tool_result(call.id, output, success))


def fill(store: Store) -> None:
    login = root(
        "fix-login", "Fix the blank login page", "The login page is blank since Tuesday.", "I'll look at the bundle."
    )
    use_tool(login, "Read", '{"path":"src/login.tsx"}', "export function Login() { return <Form/> }")
    login.add_message(Message.assistant("There is a race condition between the session cookie and the redirect."))
    login.workspace_path = "/home/me/src/shop"
    store.save(login)
    for kind, task in (("plan", "Plan the fix"), ("review", "Review the patch")):
        child = conversation(
            Session.new_child_of(f"login-{kind}", login, "demo-model", task), task, "Done; see the notes."
        )
        child.subagent_type = kind
        store.save(child)
    reviewer = store.load("login-review")
    assert reviewer is not None
    tests = conversation(
        Session.new_child_of("login-review-tests", reviewer, "demo-model", "Run the tests"), "Run them.", "42 passed."
    )
    store.save(tests)

    chart = root("draw-chart", "Draw the latency chart", "Plot last week's latencies.")
    pictures = [store.attach(chart, picture(hue=hue), "image/png") for hue in (0.0, 2.0)]
    reply = Message.assistant("Here are both versions.")
    reply.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=p.url)) for p in pictures]
    chart.add_message(reply)
    store.save(chart)

    failed = root("flaky-deploy", "Deploy to staging", "Deploy the branch.", "Starting.", status="error")
    use_tool(failed, "Bash", '{"command":"make deploy"}', "make: *** [deploy] Error 2", success=False)
    failed.last_run_error = "make: *** [deploy] Error 2"
    store.save(failed)

    pinned = root(
        "house-rules", "House rules for this project", "How do we name branches?", "topic/short-words, always."
    )
    pinned.pinned = True
    store.save(pinned)

    store.save(
        root(
            "nihongo", "日本語の質問", "吾輩は猫である。続きは？", "名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
        )
    )
    store.save(root("zhongwen", "解释竞态条件", "什么是竞态条件？", "两个进程以不可预知的顺序访问同一数据。"))
    code = "def fib(n: int) -> int:\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
    store.save(root("fib-in-python", "Fibonacci, quickly", "Write fib in Python.", f"```python\n{code}```"))

    waiting = root("which-database", "Choose a database", "Which database shall we take?", status="suspended")
    question = PendingQuestion(
        tool_call_id="q1", question="PostgreSQL or SQLite?", options=["PostgreSQL", "SQLite"], allow_custom=True
    )
    waiting.set_pending_question(question)
    store.save(waiting)

    running = root("nightly-triage", "Triage the new issues", "Go through them.", status="running")
    running.agent_runtime_state = AgentRuntimeState.new("run-7")
    store.save(running)
    for number in range(5):
        usage = {"model": "demo-model", "input_tokens": 1200 + 300 * number, "output_tokens": 90, "total_tokens": 1290}
        store.append_token_usage("nightly-triage", usage)

    long = root("port-the-parser", "Port the parser to Rust", "Let's go file by file.")
    for number in range(1500):
        long.add_message(Message.user(f"Next file: src/parser/part_{number:04}.c"))
        long.add_message(Message.assistant(f"Ported part {number}. " + "The borrow checker is content. " * 20))
    store.save(long)
    store.save(Session.new("empty-thought", "demo-model"))


if __name__ == "__main__":
    with Store.open(sys.argv[1]) as opened:
        fill(opened)
        print(f"made {opened.count()} sessions in {sys.argv[1]}")
