"""Ada on every platform: she writes to an agent, reads what it says, and decides what it may do, over the platform's
real wire protocol. What she does reaches the fleet as the platform would bring it."""

import json
import re
import time
import urllib.request
from email.message import EmailMessage
from typing import Any, Protocol

from adapters.channels.signing import HEADER, sign
from adapters.channels.webhook import ENDPOINT_HEADER
from tests.support import github_api, telegram_api
from tests.support.discord_api import DiscordApi
from tests.support.github_api import GithubApi
from tests.support.mail_server import ADDRESS, MailServer
from tests.support.slack_api import SlackServer
from tests.support.telegram_api import TelegramApi
from tests.support.webhook_server import WebhookServer


class Gate:
    """The gateway's door, as platforms knock on it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def post(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            said = response.read()
        return json.loads(said) if said else None


class NotAskedError(Exception):
    """She has not been asked yet."""


class Person(Protocol):
    user: str  # as the fleet knows her
    place: tuple[str, str]  # where she writes: channel type and platform id

    def say(self, text: str) -> None: ...

    def approve(self) -> None:
        """Press the button, or write what the text says one may write. NotAskedError: there is none yet."""

    def reads(self) -> list[str]: ...


def code_in(texts: list[str]) -> str:
    """The newest code that a card without buttons shows."""
    codes = re.findall(r"\bapprove ([0-9a-f]{8})\b", "\n".join(texts))
    if not codes:
        raise NotAskedError
    return str(codes[-1])


class OnTelegram:
    user = f"telegram:{telegram_api.PERSON}"
    place = ("telegram", str(telegram_api.PERSON))

    def __init__(self, api: TelegramApi) -> None:
        self.api = api

    def say(self, text: str) -> None:
        self.api.queue(self.api.says(text))

    def approve(self) -> None:
        if not any(message.keys for message in self.api.messages):
            raise NotAskedError
        self.api.queue(self.api.presses("Approve"))

    def reads(self) -> list[str]:
        return [message.text for message in self.api.messages]


class OnSlack:
    user = "slack:U1ADA"
    place = ("slack", "D1")

    def __init__(self, api: SlackServer, gate: Gate) -> None:
        self.api, self.gate = api, gate

    def say(self, text: str) -> None:
        headers, body = self.api.event(channel="D1", channel_type="im", text=text, ts=f"{time.time():.6f}")
        self.gate.post("/channels/slack", headers, body)

    def approve(self) -> None:
        if not self.api.buttons():
            raise NotAskedError
        headers, body = self.api.press("Approve", "U1ADA")
        self.gate.post("/channels/slack", headers, body)

    def reads(self) -> list[str]:
        return self.api.shown()


class OnDiscord:
    ada = "1080000000000000042"
    user = f"discord:{ada}"

    def __init__(self, api: DiscordApi, gate: Gate) -> None:
        self.api, self.gate = api, gate
        self.chat = "1090000000000000777"  # her direct chat with the bot
        api.direct[self.ada] = self.chat
        self.place = ("discord", self.chat)

    def say(self, text: str) -> None:
        options = [{"name": "text", "type": 3, "value": text}]
        person = {"user": {"id": self.ada, "username": "ada"}}
        where = {"channel_id": self.chat, "channel": {"id": self.chat, "type": 1}, "context": 1}
        said = self.api.interaction(2, self.ada, {"name": "ask", "type": 1, "options": options}, **where)
        del said["guild_id"], said["member"]
        self._post(said | person)

    def approve(self) -> None:
        if not any(shown.buttons for shown in self.api.messages.values()):
            raise NotAskedError
        self._post(self.api.pressed("Approve", self.ada))

    def reads(self) -> list[str]:
        return [str(shown.said.get("content")) for shown in self.api.messages.values()]

    def _post(self, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.gate.post("/channels/discord", self.api.signed(body), body)


class OnGithub:
    """Anybody may read what is written there, so she decides on Telegram."""

    user = "github:583231"
    place = ("github", github_api.REPOSITORY)

    def __init__(self, api: GithubApi, gate: Gate, elsewhere: OnTelegram) -> None:
        self.api, self.gate, self.elsewhere = api, gate, elsewhere

    def say(self, text: str) -> None:
        ada = {"id": 583231, "login": "ada", "type": "User"}
        comment = self.api.add_comment(text, login="ada")
        said = {
            "action": "created",
            "issue": {"number": 12},
            "comment": {"id": comment["id"], "body": text, "user": ada},
        }
        body = json.dumps(said | {"repository": {"id": 1, "full_name": github_api.REPOSITORY}, "sender": ada}).encode()
        self.gate.post("/channels/github", self.api.signed("issue_comment", body), body)

    def approve(self) -> None:
        self.elsewhere.approve()

    def reads(self) -> list[str]:
        return self.api.visible()


class OnEmail:
    user = "email:ada@example.org"
    place = ("email", "ada@example.org")

    def __init__(self, server: MailServer) -> None:
        self.server = server
        self._written = 0

    def say(self, text: str) -> None:
        self._written += 1
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = "Ada <ada@example.org>", ADDRESS, "The release"
        mail["Message-ID"] = f"<{self._written}.{time.time_ns()}@example.org>"
        mail["Authentication-Results"] = "mx.longshore.example; dmarc=pass header.from=example.org"
        if self.server.sent:  # an answer to the last one
            mail["In-Reply-To"] = self.server.sent[-1]["Message-ID"]
            mail["References"] = self.server.sent[-1]["References"] or self.server.sent[-1]["Message-ID"]
        mail.set_content(text)
        self.server.mailbox.add(mail.as_bytes())

    def approve(self) -> None:
        self.say(f"approve {code_in(self.reads())}")

    def reads(self) -> list[str]:
        plain = [mail.get_body(("plain",)) for mail in list(self.server.sent)]
        return [part.get_content() for part in plain if part is not None]


class OnWebhook:
    """A service that lets Ada's people talk to the agent."""

    user = "webhook:crm/ada"
    place = ("webhook", "crm")

    def __init__(self, server: WebhookServer, gate: Gate, secret: str) -> None:
        self.server, self.gate, self.secret = server, gate, secret

    def say(self, text: str) -> None:
        body = json.dumps({"id": f"order-{time.time_ns()}", "text": text, "sender": "ada"}).encode()
        headers = {ENDPOINT_HEADER: "crm", HEADER: sign(self.secret, body), "content-type": "application/json"}
        self.gate.post("/channels/webhook", headers, body)

    def approve(self) -> None:
        self.say(f"approve {code_in(self.reads())}")

    def reads(self) -> list[str]:
        return [str(message["content"]["text"]) for message in self.server.shown.values()]


class OnTheWeb:
    """In the direct chat that is called like her."""

    def __init__(self, gate: Gate, name: str, token: str) -> None:
        self.gate, self.user, self.place = gate, f"web:{name}", ("web", name)
        self.messages = f"/web/{name}/messages"
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def say(self, text: str) -> None:
        self.gate.post(self.messages, self.headers, json.dumps({"text": text}).encode())

    def approve(self) -> None:
        tokens = [b["token"] for m in self._messages() for b in m.get("buttons", ()) if b["label"] == "Approve"]
        if not tokens:
            raise NotAskedError
        [token] = tokens
        self.gate.post("/web/presses", self.headers, json.dumps({"token": token}).encode())

    def reads(self) -> list[str]:
        return [str(message["text"]) for message in self._messages()]

    def _messages(self) -> list[dict[str, Any]]:
        request = urllib.request.Request(self.gate.url + self.messages, headers=self.headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            found: list[dict[str, Any]] = json.loads(response.read())["messages"]
        return found
