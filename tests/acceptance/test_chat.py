"""`longshore chat` against a worker: through a pipe, and at a terminal somebody types on."""

import json
import os
import pty
import signal
from collections.abc import Iterator

import pytest

from tests.support import fork_server
from tests.support.processes import Operator
from tests.support.servers import wait_until

SCRIPT = """
- when: broken
  play:
    - fail: {class: auth, message: "the key is refused"}
- when: "ask"
  play:
    - tool: ask_user_question
      with: {title: Tea, question: "Now or later?", options: [Now, Later], timeout: 600}
    - answer: "So: {result}"
- play:
    - tool: clock
    - answer: "You said: {texts}"
"""


class Typist:
    """Somebody at a terminal."""

    def __init__(self, operator: Operator, *arguments: str) -> None:
        self._primary, secondary = pty.openpty()
        self.process = fork_server.start(
            ["longshore", *arguments], operator.env | {"TERM": "xterm", "COLUMNS": "100"}, operator.folder,
            stdin=secondary, stdout=secondary, stderr=secondary,
        )  # fmt: skip
        os.close(secondary)
        os.set_blocking(self._primary, False)
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._primary, keys.encode())

    def sees(self, text: str, seconds: float = 30) -> None:
        try:
            wait_until(lambda: text in self._look(), seconds, f"{text!r} on the terminal")
        except TimeoutError as error:
            raise AssertionError(f"{error}; it shows:\n{self.seen}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        os.close(self._primary)

    def _look(self) -> str:
        try:
            while chunk := os.read(self._primary, 65536):
                self.seen += chunk.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.seen


@pytest.fixture
def typists() -> Iterator[list[Typist]]:
    sat_down: list[Typist] = []
    yield sat_down
    for typist in sat_down:
        typist.close()


@pytest.mark.spec("G4", "M17", "C7")
def test_a_chat_through_a_pipe_and_one_at_a_terminal(operator: Operator, typists: list[Typist]) -> None:
    operator.add_group("helper", SCRIPT)
    operator.worker("messages,upkeep,delivery,agent.scripted")

    piped = operator.cli("chat", given="good morning\n\nask me\n2\n/quit\nnever sent\n").stdout
    for said in ("› good morning", "⚙ clock", "✓", "│ You said: good morning", "? Tea", "2 Later", "│ So: Later"):
        assert said in piped
    assert "never" not in piped
    failed = operator.cli("chat", "helper", "--chat", "elsewhere", given="broken\n", check=False)
    assert failed.returncode == 1
    assert "the key is refused" in failed.stdout

    typist = Typist(operator, "chat")
    typists.append(typist)
    typist.sees("So: Later")  # where they left off
    typist.type("\x1b[200~one\ntwo\x1b[201~")
    typist.sees("one⏎two")
    typist.type("\r")
    typist.sees("You said: one\r\ntwo")
    operator.cli("send", "helper", "from elsewhere", "--chat", "chat", "--no-wait")
    typist.sees("You said: from elsewhere")
    typist.type("/new\rfresh\r")
    typist.sees("You said: fresh")
    typist.type("\x04")
    assert typist.process.wait(20) == 0
    history = operator.folder / "home" / "chat_history"
    assert json.loads(history.read_text().splitlines()[0]) == "one\ntwo"

    used = json.loads(operator.cli("usage", "--by", "agent", "--json").stdout)
    assert used["rows"][0]["agent"] == "helper"
    assert used["rows"][0]["calls"] >= 4
    states = {row["id"]: row["state"] for row in json.loads(operator.cli("providers", "--json").stdout)}
    assert states["scripted"] == "ok"


@pytest.mark.spec("G4")
def test_a_chat_that_is_interrupted_says_that_the_message_stays(operator: Operator, typists: list[Typist]) -> None:
    operator.add_group("helper", SCRIPT)
    typist = Typist(operator, "chat")
    typists.append(typist)
    typist.sees("/help helps")
    typist.type("is anybody there?\r")
    typist.sees("no worker listens on agent.scripted")
    typist.process.send_signal(signal.SIGINT)
    typist.sees("your message stays")
    assert typist.process.wait(20) == 0
    assert operator.value("SELECT status FROM messages_in") == "pending"
