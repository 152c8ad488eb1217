"""A stand-in for Discord: its REST API as far as messages go, and the interactions it would post, signed.

It checks token, fields, types and limits as Discord documents them, and notes what it refused in `problems`."""

import email
import email.policy
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.rest_stand_in import Asked, RestStandIn, Said

TOKEN = "MTA5.discord-bot-token.do-not-show-this"
APPLICATION = "1090000000000000001"
CHANNEL = "1090000000000000002"
THREAD = "1090000000000000003"  # hangs on CHANNEL
GUILD = "1090000000000000004"
_MESSAGES = re.compile(r"/channels/([0-9]+)/messages(?:/([0-9]+))?(?:/reactions/([^/]+)/@me)?")
_FIELDS = {"content", "nonce", "enforce_nonce", "allowed_mentions", "components"}


@dataclass
class Shown:
    """A message that people see."""

    id: str
    channel: str
    said: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    reactions: list[str] = field(default_factory=list)

    @property
    def buttons(self) -> list[dict[str, Any]]:
        return [button for row in self.said.get("components", []) for button in row["components"]]


class DiscordApi(RestStandIn):
    base = "/api/v10"

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, Shown] = {}
        self.typing: list[str] = []
        self.told: list[tuple[str, str]] = []  # whose press, what only they see
        self.channels = {CHANNEL, THREAD}
        self.direct: dict[str, str] = {}  # by user
        self.no_direct: set[str] = set()  # users nobody can write to
        self.tokens: dict[str, str] = {}  # of interactions: who can be told something by it
        self._nonces: dict[str, str] = {}
        self._key = Ed25519PrivateKey.generate()
        self._last = 2000000000000000000

    @property
    def public_key(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def signed(self, body: bytes, at: int | None = None) -> dict[str, str]:
        stamp = str(int(time.time()) if at is None else at)
        return {
            "x-signature-ed25519": self._key.sign(stamp.encode() + body).hex(),
            "x-signature-timestamp": stamp,
            "content-type": "application/json",
        }

    def interaction(self, kind: int, user: str, data: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """What Discord posts about somebody in CHANNEL."""
        token = f"aW50ZXJhY3Rpb246_{len(self.tokens)}-x="
        self.tokens[token] = user
        return {
            "id": self._new_id(),
            "application_id": APPLICATION,
            "type": kind,
            "version": 1,
            "token": token,
            "data": dict(data),
            "guild_id": GUILD,
            "channel_id": CHANNEL,
            "channel": {"id": CHANNEL, "type": 0, "name": "general"},
            "context": 0,
            "member": {"user": {"id": user, "username": f"user{user}", "global_name": None}, "nick": None},
        } | more

    def pressed(self, label: str, user: str) -> dict[str, Any]:
        [(shown, button)] = [(m, b) for m in self.messages.values() for b in m.buttons if b["label"] == label]
        data = {"component_type": 2, "custom_id": button["custom_id"]}
        return self.interaction(3, user, data, channel_id=shown.channel, message={"id": shown.id})

    def misbehave(self, behaviour: Literal["busy", "refused"]) -> Said:
        if behaviour == "busy":
            said = {"message": "You are being rate limited.", "retry_after": 7.0, "global": False}
            return Said(429, said, {"retry-after": "8", "x-ratelimit-scope": "user"})
        return Said(403, {"message": "Missing Permissions", "code": 50013})

    def answer(self, asked: Asked) -> Said:
        if not asked.headers.get("user-agent", "").startswith("DiscordBot ("):
            return self.problem(403, "the user agent is no DiscordBot")
        if told := re.fullmatch(r"/webhooks/([0-9]+)/([^/]+)", asked.path):
            return self._tell(told[1], told[2], asked)
        if asked.headers.get("authorization") != f"Bot {TOKEN}":
            return self.problem(401, "401: Unauthorized")
        if typing := re.fullmatch(r"/channels/([0-9]+)/typing", asked.path):
            self.typing.append(typing[1])
            return Said(204)
        if asked.path == "/users/@me/channels" and asked.method == "POST":
            return self._open(json.loads(asked.body))
        found = _MESSAGES.fullmatch(asked.path)
        if found is None:
            return self.problem(404, f"404: {asked.method} {asked.path}")
        channel, message, emoji = found.groups()
        if channel not in {*self.channels, *self.direct.values()}:
            return self.problem(404, "Unknown Channel")
        if message is None:
            return self._post(channel, asked)
        if message not in self.messages or self.messages[message].channel != channel:
            return self.problem(404, "Unknown Message")
        return self._react(message, emoji, asked) if emoji else self._edit(message, asked)

    def _post(self, channel: str, asked: Asked) -> Said:
        said, files = _read(asked)
        if asked.method != "POST" or (complaint := _complaint(said, files)):
            return self.problem(400, f"Invalid Form Body: {complaint}")
        nonce = said.get("nonce")
        if said.get("enforce_nonce") and nonce in self._nonces:
            return Said(200, self._public(self._nonces[nonce]))
        shown = Shown(self._new_id(), channel, said, files)
        self.messages[shown.id] = shown
        if nonce is not None:
            self._nonces[nonce] = shown.id
        return Said(200, self._public(shown.id))

    def _edit(self, message: str, asked: Asked) -> Said:
        said, files = _read(asked)
        if asked.method != "PATCH" or (complaint := _complaint(said, files)):
            return self.problem(400, f"Invalid Form Body: {complaint}")
        self.messages[message].said |= said
        return Said(200, self._public(message))

    def _react(self, message: str, emoji: str, asked: Asked) -> Said:
        if asked.method != "PUT" or (emoji.isascii() and ":" not in emoji) or asked.body:
            return self.problem(400, "Unknown Emoji")
        self.messages[message].reactions.append(emoji)
        return Said(204)

    def _open(self, said: dict[str, Any]) -> Said:
        user = said.get("recipient_id")
        if not isinstance(user, str) or not user.isdigit():
            return self.problem(400, "recipient_id: not a snowflake")
        if user in self.no_direct:
            return Said(400, {"message": "Invalid Recipient(s)", "code": 50033})
        if user not in self.direct:
            self.direct[user] = self._new_id()
        return Said(200, {"id": self.direct[user], "type": 1})

    def _tell(self, application: str, token: str, asked: Asked) -> Said:
        said = json.loads(asked.body)
        if application != APPLICATION or token not in self.tokens:
            return Said(404, {"message": "Unknown Webhook", "code": 10015})
        if "authorization" in asked.headers or not 0 < len(said["content"]) <= 2000 or said.get("flags") != 64:
            return self.problem(400, "a reply to a press is short, only for whoever pressed, and needs no token")
        self.told.append((self.tokens[token], said["content"]))
        return Said(200, {"id": self._new_id()})

    def _public(self, message: str) -> dict[str, Any]:
        shown = self.messages[message]
        return {"id": shown.id, "channel_id": shown.channel, "content": shown.said["content"]}

    def _new_id(self) -> str:
        self._last += 1
        return str(self._last)


def _read(asked: Asked) -> tuple[dict[str, Any], dict[str, bytes]]:
    kind = asked.headers.get("content-type", "")
    if kind == "application/json":
        return json.loads(asked.body), {}
    whole = f"content-type: {kind}\r\n\r\n".encode() + asked.body
    parts = list(email.message_from_bytes(whole, policy=email.policy.HTTP).iter_parts())
    said, files = {}, {}
    for part in parts:
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if name == "payload_json":
            said = json.loads(content)
        elif re.fullmatch(r"files\[[0-9]\]", str(name)):
            files[str(part.get_filename())] = content
    return said, files


def _complaint(said: dict[str, Any], files: Mapping[str, bytes]) -> str | None:
    content = said.get("content")
    if unknown := set(said) - _FIELDS:
        return f"unknown fields {unknown}"
    if not isinstance(content, str) or len(content) > 2000 or not (content or files):
        return "content: 1 to 2000 characters, or a file"
    if "nonce" in said and not (isinstance(said["nonce"], str) and 0 < len(said["nonce"]) <= 25):
        return "nonce: at most 25 characters"
    if said.get("allowed_mentions") != {"parse": []}:
        return "allowed_mentions: this would ping people"  # which Discord would do, but no agent may
    rows = said.get("components", [])
    if len(rows) > 5 or any(row["type"] != 1 or not 0 < len(row["components"]) <= 5 for row in rows):
        return "components: at most 5 rows of 1 to 5"
    buttons = [button for row in rows for button in row["components"]]
    for button in buttons:
        link = button["style"] == 5
        if button["type"] != 2 or button["style"] not in (1, 2, 3, 4, 5) or not 0 < len(button["label"]) <= 80:
            return "button: type, style or label"
        if link != ("url" in button) or link == ("custom_id" in button):
            return "button: links have a url, others a custom_id"
        if not link and not 0 < len(button["custom_id"]) <= 100:
            return "button: custom_id has 1 to 100 characters"
    ids = [button["custom_id"] for button in buttons if "custom_id" in button]
    return "button: custom_id is taken" if len(ids) != len(set(ids)) else None
