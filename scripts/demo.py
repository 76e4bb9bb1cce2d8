"""Create the demo home: a dozen varied sessions of the last two weeks, written through the store's API.

Ids, texts and time offsets are the same in every run; only message ids and the current time differ.
"""

from __future__ import annotations

import argparse
import struct
import time
import zlib

import orjson

from store import (
    AgentRuntimeState,
    InboxMessage,
    Message,
    PendingQuestion,
    Session,
    Store,
    Timestamp,
    ToolCall,
    TrajectoryStep,
)
from store.model.message import FunctionCall, ImageUrl, MessagePart

OAK, BIRCH = "oak-large", "birch-mini"
DAY_S = 86_400
MIDNIGHT_S = time.time_ns() // 10**9 // DAY_S * DAY_S  # the start of today, UTC
# Looks like a GitHub token but is not valid. Split in two, to keep secret scanners from reporting this file.
LEAKED = "ghp_" + "0Grove1Demo2" * 3
LATENCIES_MS = (61, 70, 66, 142, 180, 171, 69), (58, 61, 60, 63, 59, 62, 57)  # one week before, one after


def moment(days_ago: int, clock: str) -> int:
    """The Unix time of `hh:mm` UTC some days ago."""
    hours, minutes = map(int, clock.split(":"))
    return MIDNIGHT_S - days_ago * DAY_S + hours * 3600 + minutes * 60


def stamp(second: int) -> Timestamp:
    return Timestamp.from_ns(second * 10**9)


class Talk:
    """Builds a conversation; each message is half a minute later than the previous one."""

    def __init__(self, session: Session, title: str, started_s: int, status: str | None = "completed") -> None:
        self.session = session
        self.at_s = started_s
        self.steps: list[TrajectoryStep] = []
        session.title = title
        session.created_at = stamp(started_s)
        if status is not None:
            session.last_run_status = status
        self.add(Message.system("You are a careful engineer."))

    def add(self, message: Message) -> Message:
        message.created_at = stamp(self.at_s)
        self.session.messages.append(message)
        self.session.updated_at = stamp(self.at_s)
        self.at_s += 30
        return message

    def say(self, *turns: str) -> Talk:
        """Add messages, alternating between user and assistant."""
        for text in turns:
            is_users = self.session.messages[-1].role != "user"
            self.add(Message.user(text) if is_users else Message.assistant(text))
        return self

    def answer(self, text: str) -> Talk:
        self.add(Message.assistant(text))
        return self

    def use(self, tool: str, arguments: dict[str, str], output: str, *, success: bool = True) -> Talk:
        """Add a tool call and its result, also to the trajectory."""
        call = ToolCall(
            id=f"call_{len(self.session.messages)}",
            type="function",
            function=FunctionCall(name=tool, arguments=orjson.dumps(arguments).decode()),
        )
        self.steps.append(
            TrajectoryStep(
                tool_name=tool,
                tool_args=arguments,
                output_summary=output.splitlines()[0],
                duration_ms=40 + 7 * len(output),
                is_error=not success,
                tool_call_id=call.id,
                timestamp=stamp(self.at_s),
            )
        )
        self.add(Message.assistant("", [call]))
        self.add(Message.tool_result(call.id, output, success))
        return self

    def save(self, store: Store, *, usage: bool = True) -> Session:
        store.save(self.session)
        if self.steps:
            store.trajectory.append(self.session.id, self.steps)
        if usage:
            self._use_tokens(store)
        return self.session

    def _use_tokens(self, store: Store) -> None:
        """Write one usage record per answer; earlier messages count as cached input."""
        cached = 0
        for message in self.session.messages:
            fresh = 40 + len(message.content) // 4
            if message.role == "assistant":
                record = {
                    "ts": message.created_at,
                    "session_id": self.session.id,
                    "model": self.session.model,
                    "cache_read_input_tokens": cached,
                    "input_tokens": 900,
                    "output_tokens": fresh,
                    "total_tokens": cached + 900 + fresh,
                }
                store.usage.append(self.session.id, record)
            cached += fresh


def root(id: str, title: str, days_ago: int, clock: str, *, model: str = OAK, status: str | None = "completed") -> Talk:
    return Talk(Session.new(id, model), title, moment(days_ago, clock), status)


def child(id: str, parent: Session, kind: str, title: str, started_s: int) -> Talk:
    session = Session.new_child_of(id, parent, BIRCH, title)
    session.subagent_type = kind
    return Talk(session, title, started_s)


def bar_chart_png(values: tuple[int, ...], bar: int = 40, gap: int = 16) -> bytes:
    """A bar chart as an RGB image."""
    width, height = gap + len(values) * (bar + gap), max(values) + 2 * gap
    white, green = b"\xff\xff\xff", b"\x3a\x7d\x44"
    rows = []
    for y in range(height):
        columns = [green if height - gap - value <= y < height - gap else white for value in values]
        rows.append(b"\0" + white * gap + b"".join(column * bar + white * gap for column in columns))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits per channel, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, data) for kind, data in chunks)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# -- the sessions ----------------------------------------------------------------------------------------


def fix_login(store: Store) -> None:
    """A root with two children and a grandchild, in a project, with a trajectory."""
    talk = root("fix-login", "Fix the blank login page", 1, "09:12")
    talk.session.workspace_path, talk.session.project_id = "/home/me/src/shop", "shop"
    talk.say("The login page is blank since Tuesday. Can you find out why?", "I'll look at the page first.")
    talk.use("Read", {"path": "src/login.tsx"}, "export function Login() { return <Form onSubmit={redirect}/> }\n")
    talk.use("Bash", {"command": "git log --oneline -3"}, "4f1c2aa Redirect before the cookie is set\n9be01d7 Tidy\n")
    talk.answer("There is a race condition between the session cookie and the redirect: if the redirect is first, the")
    talk.session.messages[-1].content += " page stays blank. Commit 4f1c2aa introduced it."
    talk.say("Please fix it, and have it reviewed.")
    login = talk.save(store)
    child("login-plan", login, "plan", "Plan the fix", talk.at_s).say(
        "Plan the fix.", "1. Wait for the cookie. 2. Redirect. 3. Add a test with a slow network."
    ).save(store)
    review = child("login-review", login, "review", "Review the patch", talk.at_s + 600)
    review.say("Review the patch.", "It waits for the cookie now. Running the tests.").save(store)
    tests = child("login-review-tests", review.session, "test", "Run the tests", talk.at_s + 900)
    tests.use("Bash", {"command": "npm test"}, "42 passed, 0 failed\n").answer("All 42 pass.").save(store)


def draw_chart(store: Store) -> None:
    """Images in attachments/, linked from the transcript."""
    talk = root("draw-chart", "Draw the latency chart 📈", 3, "14:30").say(
        "Plot the latencies of last week and of this week."
    )
    drawn = [store.attach(talk.session, bar_chart_png(values), "image/png") for values in LATENCIES_MS]
    reply = talk.add(Message.assistant("Here they are: before the fix and after it."))
    reply.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=one.url)) for one in drawn]
    talk.save(store)


def flaky_deploy(store: Store) -> None:
    """A run that failed."""
    talk = root("flaky-deploy", "Deploy to staging", 1, "16:40", status="error")
    talk.session.project_id = "shop"
    talk.say("Deploy the branch to staging.", "Starting.")
    talk.use("Bash", {"command": "make deploy"}, "make: *** [deploy] Error 2: staging is full\n", success=False)
    talk.session.last_run_error = "make: *** [deploy] Error 2: staging is full"
    talk.save(store)


def wire_up_ci(store: Store) -> None:
    """A pasted token, which `grovefs check --secrets` finds."""
    talk = root("wire-up-ci", "Wire up the nightly build", 5, "11:05", model=BIRCH)
    talk.say("Here is the token for the build: " + LEAKED, "Thank you. I'll store it in the vault, not in a file.")
    talk.use("Bash", {"command": "vault put ci token=" + LEAKED}, "stored\n").save(store)


def small_ones(store: Store) -> None:
    rules = root("house-rules", "House rules for this project", 12, "08:00", model=BIRCH)
    rules.session.pinned = True
    rules.say(
        "How do we name branches?",
        "topic/short-words, always.",
        "And commits?",
        "Imperative, at most fifty characters.",
    )
    rules.save(store)
    root("nihongo", "日本語の質問", 8, "19:20").say(
        "吾輩は猫である。続きは？", "名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
    ).save(store)
    root("zhongwen", "解释竞态条件", 6, "10:10").say(
        "什么是竞态条件？", "两个进程以不可预知的顺序访问同一数据，结果取决于谁先到。"
    ).save(store)
    fib = "def fib(n: int) -> int:\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
    root("fib-in-python", "Fibonacci, quickly", 4, "21:45", model=BIRCH).say(
        "Write fib in Python, without recursion.", f"```python\n{fib}```\n\nIt takes n additions."
    ).save(store)
    empty = Session.new("empty-thought", BIRCH)
    empty.created_at = empty.updated_at = stamp(moment(9, "23:59"))
    store.save(empty)


def which_database(store: Store) -> None:
    """A session that is waiting for an answer."""
    talk = root("which-database", "Choose a database", 2, "13:15", status="suspended")
    talk.say("Which database should we use for the orders?")
    question = "PostgreSQL or SQLite?"
    options = ["PostgreSQL", "SQLite"]
    talk.use("AskUser", {"question": question}, "waiting for the user\n")
    talk.session.pending_question = PendingQuestion(
        tool_call_id="call_2", tool_name="AskUser", question=question, options=options, allow_custom=True
    )
    talk.save(store)


def nightly_triage(store: Store) -> None:
    """A running session, for `grovefs tail -f nightly-triage`, with a message in its mailbox."""
    talk = root("nightly-triage", "Triage the new issues", 0, "00:00", status="running")
    talk.session.agent_runtime_state = AgentRuntimeState.new("run-7")
    talk.say("Go through the new issues and label them.")
    for number, title in enumerate(("Crash on empty input", "Typo in the manual", "Slow on Mondays"), 311):
        talk.use("Issue", {"number": str(number)}, f"{title}\n")
    talk.answer("311 is a bug, 312 is about the manual, 313 needs a profile. Continuing with 314.")
    talk.save(store)
    store.mail.at("nightly-triage").deliver(InboxMessage.new("house-rules", "steer", {"text": "label typos as docs"}))


def port_the_parser(store: Store) -> None:
    """A long session of a few MB."""
    talk = root("port-the-parser", "Port the parser to Rust", 10, "07:30")
    talk.say("Let's port the parser, file by file.", "I am ready.")
    talk.at_s -= 60
    for number in range(2_400):
        name = f"part_{number:04}"
        body = "".join(f"    let token_{n} = lexer.next_{n % 7}()?; // line {n} of {name}.c\n" for n in range(10))
        talk.say(f"Next file: src/parser/{name}.c", f"```rust\npub fn {name}(lexer: &mut Lexer) {{\n{body}}}\n```")
        talk.at_s -= 50
    talk.save(store, usage=False)


def documents(store: Store) -> None:
    """State documents: an agent's memory and a user's notes."""
    store.state.save_json("memory/facts", "style", {"prefers": "short answers", "language": "en"})
    store.state.save_markdown("notes", "today", "# Today\n\n- ask about the database\n- look at the failed deploy\n")


def fill(store: Store) -> None:
    makers = (fix_login, draw_chart, flaky_deploy, wire_up_ci, small_ones, which_database, nightly_triage)
    for make in (*makers, port_the_parser, documents):
        make(store)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Create the demo home: a dozen varied agent sessions.")
    parser.add_argument("home", help="directory of the home; created if missing")
    with Store.open(parser.parse_args().home) as opened:
        fill(opened)
        print(f"created {opened.count()} demo sessions")
