"""Flower as the Procfile runs it: behind a password, on this machine, and showing nothing of what people write."""

import base64
import urllib.error
import urllib.request

import pytest

from gateway.embedded import free_port
from tests.support.processes import EVERYTHING, Operator, procfile
from tests.support.producer import ingest, status

MARKER = "nobody-s-business-9217"


@pytest.mark.spec("G5")
def test_flower_asks_for_a_password_and_shows_no_message(operator: Operator) -> None:
    operator.add_group(script="- play:\n  - answer: 'You said: {texts}'")
    port = free_port()
    command = procfile()["flower"]
    assert "--host 127.0.0.1" in command
    flower = operator.start_anew(command.replace("5555", str(port)), "flower", ready=False)

    def get(path: str, password: str | None) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        if password is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"longshore:{password}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    operator.wait_for(lambda: get("/healthcheck", None)[0] == 200, "Flower to answer", 40)
    file = operator.folder / "home" / "flower.password"
    assert oct(file.stat().st_mode)[-3:] == "600"
    password = file.read_text().strip()
    with open(f"/proc/{flower.pid}/cmdline", "rb") as arguments:
        assert password.encode() not in arguments.read()
    for path in ("/", "/tasks", "/workers", "/api/tasks", "/api/workers", "/broker"):
        assert [get(path, None)[0], get(path, "wrong")[0], get(path, password)[0]] == [401, 401, 200], path

    operator.worker(EVERYTHING)
    sent = ingest(operator, text=MARKER)
    operator.wait_for(lambda: status(operator, sent) == "completed", "the message to be answered")
    operator.wait_for(lambda: '"agent.wake"' in get("/api/tasks", password)[1], "Flower to hear of it")
    seen = [get(path, password)[1] for path in ("/api/tasks", f"/task/{sent}", "/api/workers?refresh=1", "/tasks")]
    assert sent in seen[0]
    assert "messages.ingest" in seen[1]
    assert not [page for page in seen if MARKER in page]
    assert MARKER not in operator.logs(1000)


@pytest.mark.spec("G5")
def test_flower_does_not_start_for_everybody_without_a_password(operator: Operator) -> None:
    refused = operator.cli("flower", "--host", "0.0.0.0", check=False)
    assert refused.returncode == 2
    assert "set FLOWER_BASIC_AUTH=user:password before Flower listens on 0.0.0.0" in refused.stderr
