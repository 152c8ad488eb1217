"""A stand-in for Slack: its Web API over real HTTP, its limits, its way of refusing, and the requests it sends.

What the real one would refuse is refused the same way and noted in `problems`. It signs and reads with code of its own,
so that a mistake on our side is not made twice."""

import hmac
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

from tests.support.rest_stand_in import Asked, RestStandIn, Said

TOKEN = "xoxb-1-2-do-not-show-this"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
BOT_USER, BOT_ID, TEAM = "U0BOT", "B0BOT", "T0TEAM"

# Methods that read no JSON.
_FORMS = ("conversations.history", "conversations.replies", "files.getUploadURLExternal")
_NEEDED = {
    "chat.postMessage": ("channel",),
    "chat.update": ("channel", "ts"),
    "chat.postEphemeral": ("channel", "user", "text"),
    "reactions.add": ("channel", "timestamp", "name"),
    "conversations.open": ("users",),
    "conversations.history": ("channel",),
    "conversations.replies": ("channel", "ts"),
    "files.getUploadURLExternal": ("filename", "length"),
    "files.completeUploadExternal": ("files", "channel_id"),
    "assistant.threads.setStatus": ("channel_id", "thread_ts", "status"),
}
_LINK = re.compile(r"<(?:https?://|mailto:|@|#)[^<>]*>")


@dataclass
class File:
    name: str
    length: int
    data: bytes = b""
    title: str = ""


class SlackServer(RestStandIn):
    """Give `LONGSHORE_SLACK_API` its `url`. `close()` makes Slack unreachable."""

    def __init__(self) -> None:
        self.channels = ["C1", "D1"]
        self.messages: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, File] = {}
        self.reactions: list[tuple[str, str]] = []  # of a message, and its name
        self.told: list[dict[str, Any]] = []  # what only one person sees
        self.status: dict[str, str] = {}  # by thread
        self.elsewhere = 0  # requests that a followed redirect makes
        self.page_messages = 100
        self.instead: dict[str, Said] = {}  # by path: what is said there once, and nothing done
        self.afterwards: dict[str, Said] = {}  # by path: what is said there once, after doing it
        super().__init__()
        self.host = self.url
        self.url = f"{self.host}/api"

    # --- What people see and do -----------------------------------------------------------------------------------

    def shown(self) -> list[str]:
        """The texts of all messages, as people read them."""
        return [_readable(_source(message)) for message in self.messages]

    def buttons(self) -> list[str]:
        return [button["text"]["text"] for message in self.messages for button in _buttons(message)]

    def press(self, label: str, user: str) -> tuple[dict[str, str], bytes]:
        """The request Slack makes when somebody presses the button of that label."""
        several = [(m, b) for m in self.messages for b in _buttons(m) if b["text"]["text"] == label]
        [(message, button)] = several
        payload = {
            "type": "block_actions",
            "team": {"id": TEAM, "domain": "harbour"},
            "user": {"id": user, "username": user.lower(), "team_id": TEAM},
            "channel": {"id": message["channel"], "name": "general"},
            "container": {"type": "message", "message_ts": message["ts"], "channel_id": message["channel"]},
            "message": {name: message[name] for name in ("ts", "thread_ts", "text") if name in message},
            "response_url": f"{self.host}/response/{user}",
            "trigger_id": "1.2.3",
            "actions": [{"type": "button", "action_ts": "1.2", **button}],
        }
        return self.form({"payload": json.dumps(payload)})

    def event(self, **event: Any) -> tuple[dict[str, str], bytes]:
        """A request of the Events API for a message; `event` is what is particular about it."""
        said = {
            "type": "message",
            "channel": "C1",
            "channel_type": "channel",
            "user": "U1ADA",
            "ts": "1700000000.000100",
        }
        body = {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": "A1",
            "event": said | event,
            "event_id": "Ev1",
            "event_time": 1700000000,
            "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        }
        return self.signed(json.dumps(body).encode())

    def command(self, **fields: str) -> tuple[dict[str, str], bytes]:
        usual = {"command": "/longshore", "text": "", "user_id": "U1ADA", "user_name": "ada", "channel_id": "C1"}
        return self.form(usual | {"team_id": TEAM, "trigger_id": "13345224609.738474920.8088930838d88f008e0"} | fields)

    def form(self, fields: dict[str, str]) -> tuple[dict[str, str], bytes]:
        return self.signed(urlencode(fields).encode(), "application/x-www-form-urlencoded")

    def signed(
        self, body: bytes, media_type: str = "application/json", at: float | None = None
    ) -> tuple[dict[str, str], bytes]:
        stamp = str(int(time.time() if at is None else at))
        digest = hmac.digest(SECRET.encode(), f"v0:{stamp}:".encode() + body, "sha256").hex()
        headers = {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}", "content-type": media_type}
        return headers, body

    # --- What it does ---------------------------------------------------------------------------------------------

    def misbehave(self, behaviour: Literal["busy", "refused"]) -> Said:
        if behaviour == "busy":
            return Said(429, _no("ratelimited"), {"Retry-After": "7"})
        return Said(200, _no("channel_not_found"))

    def answer(self, asked: Asked) -> Said:
        if asked.path in self.instead:
            return self.instead.pop(asked.path)
        return self.afterwards.pop(asked.path, self._done(asked))

    def _done(self, asked: Asked) -> Said:
        kind, _, name = asked.path.strip("/").partition("/")
        match asked.method, kind:
            case "POST", "api":
                return Said(200, self._call(name, asked))
            case "POST", "upload":
                self._keep_from(asked, "an upload")
                return Said(200) if self._uploaded(name, asked.body) else Said(404)
            case "POST", "response":
                self._keep_from(asked, "a response_url")
                self.told.append({"user": name} | json.loads(asked.body))
                return Said(200, b"ok")
            case "GET", "files" if asked.headers.get("authorization") == f"Bearer {TOKEN}":
                return Said(200, self.files[name].data) if name in self.files else Said(404)
            case "GET", "files":  # to the page where people sign in
                return Said(302, headers={"Location": "/elsewhere"})
            case _, "elsewhere":
                self.elsewhere += 1
        return Said(404)

    def _keep_from(self, asked: Asked, what: str) -> None:
        if "authorization" in asked.headers:
            self.problems.append(f"the token was sent with {what}")

    def _call(self, method: str, asked: Asked) -> dict[str, Any]:
        """What Slack says to a call, after doing it."""
        authorization = asked.headers.get("authorization", "")
        if authorization != f"Bearer {TOKEN}":
            return _no("invalid_auth" if authorization else "not_authed")
        if method not in _NEEDED:
            return _no("unknown_method")
        is_json = asked.headers.get("content-type", "").startswith("application/json") and method not in _FORMS
        said = json.loads(asked.body) if is_json else dict(parse_qsl(asked.body.decode(), keep_blank_values=True))
        self.calls.append((method, said))
        if complaint := self._complaint(method, said):
            self.problems.append(f"{method}: {complaint}")
            return _no(complaint.partition(" ")[0])
        return getattr(self, "_" + method.replace(".", "_"))(said)  # type: ignore[no-any-return]

    def _complaint(self, method: str, said: dict[str, Any]) -> str | None:
        if missing := [name for name in _NEEDED[method] if name not in said]:
            return f"invalid_arguments without {missing}"
        text, blocks = said.get("text", ""), said.get("blocks", [])
        if not isinstance(text, str) or not isinstance(blocks, list):
            return "invalid_arguments of another type"
        if len(text) > 40_000 or (method == "chat.update" and len(text) > 4_000):
            return "msg_too_long"
        if method == "chat.postMessage" and not text and not blocks:
            return "no_text"
        if wrong := _wrong_blocks(blocks):
            return f"invalid_blocks {wrong}"
        texts = [text, *(block["text"]["text"] for block in blocks if block["type"] == "section")]
        if any(_badly_escaped(one) for one in texts):
            return f"badly_escaped {texts}"
        return None

    def _chat_postMessage(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if said["channel"] not in self.channels:
            return _no("channel_not_found")
        return {"ok": True, "channel": said["channel"], "ts": self._show(said)["ts"]}

    def _chat_update(self, said: dict[str, Any]) -> dict[str, Any]:
        found = [one for one in self.messages if (one["channel"], one["ts"]) == (said["channel"], said["ts"])]
        if not found:
            return _no("message_not_found")
        # What is not mentioned stays.
        found[0].update({name: said[name] for name in ("text", "blocks") if name in said})
        return {"ok": True, "ts": said["ts"]}

    def _chat_postEphemeral(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self.told.append(said)
        return {"ok": True, "message_ts": "1.2"}

    def _reactions_add(self, said: dict[str, Any]) -> dict[str, Any]:
        if not re.fullmatch(r"[a-z0-9_+-]+(::skin-tone-[2-6])?", said["name"]):
            return _no("invalid_name")
        if said["timestamp"] not in [message["ts"] for message in self.messages]:
            return _no("message_not_found")
        if (said["timestamp"], said["name"]) in self.reactions:
            return _no("already_reacted")
        self.reactions.append((said["timestamp"], said["name"]))
        return {"ok": True}

    def _conversations_open(self, said: dict[str, Any]) -> dict[str, Any]:
        if not re.fullmatch(r"[UW][A-Z0-9]+", said["users"]):
            return _no("user_not_found")
        return {"ok": True, "channel": {"id": f"D{said['users'][1:]}"}}

    def _conversations_history(self, said: dict[str, Any]) -> dict[str, Any]:
        top = [one for one in self.messages if one["channel"] == said["channel"] and "thread_ts" not in one]
        return self._page(top[::-1], said)

    def _conversations_replies(self, said: dict[str, Any]) -> dict[str, Any]:
        place = (said["channel"], said["ts"])
        return self._page([one for one in self.messages if (one["channel"], one.get("thread_ts")) == place], said)

    def _page(self, several: list[dict[str, Any]], said: dict[str, Any]) -> dict[str, Any]:
        if said["channel"] not in self.channels:
            return _no("channel_not_found")
        since = [one for one in several if float(one["ts"]) > float(said.get("oldest", 0))]
        start, size = int(said.get("cursor") or 0), min(int(said.get("limit", 100)), self.page_messages)
        hidden = () if said.get("include_all_metadata") == "true" else ("metadata",)
        page = [{name: one[name] for name in one if name not in hidden} for one in since[start : start + size]]
        following = str(start + size) if start + size < len(since) else ""
        return {"ok": True, "messages": page, "response_metadata": {"next_cursor": following}}

    def _files_getUploadURLExternal(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        file_id = f"F{len(self.files) + 1}"
        self.files[file_id] = File(said["filename"], int(said["length"]))
        return {"ok": True, "file_id": file_id, "upload_url": f"{self.host}/upload/{file_id}"}

    def _files_completeUploadExternal(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        several = {one["id"]: self.files[one["id"]] for one in said["files"]}
        if said["channel_id"] not in self.channels:
            return _no("channel_not_found")
        if half := [file.name for file in several.values() if len(file.data) != file.length]:
            self.problems.append(f"{half} were not uploaded whole")
            return _no("file_upload_incomplete")
        self._show(said | {"channel": said["channel_id"], "files": list(several), "text": ""})
        # The message is made a little later: the answer does not say which.
        return {"ok": True, "files": [{"id": one, "permalink": f"https://t.slack.com/files/{one}"} for one in several]}

    def _assistant_threads_setStatus(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self.status[said["thread_ts"]] = said["status"]
        return {"ok": True}

    def _show(self, said: dict[str, Any]) -> dict[str, Any]:
        kept = ("channel", "thread_ts", "text", "blocks", "metadata", "files")
        made = {
            "type": "message",
            "user": BOT_USER,
            "bot_id": BOT_ID,
            "ts": f"{int(time.time())}.{len(self.messages):06}",
        }
        self.messages.append(made | {name: said[name] for name in kept if name in said})
        return self.messages[-1]

    def _uploaded(self, file_id: str, data: bytes) -> bool:
        file = self.files.get(file_id)
        if file is None or len(data) != file.length:
            self.problems.append(f"{file_id}: {len(data)} bytes were uploaded")
            return False
        file.data = data
        return True


def _no(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}


def _source(message: dict[str, Any]) -> str:
    """Where there are blocks, they are shown, and the text is for notifications only."""
    sections = [block["text"]["text"] for block in message.get("blocks", []) if block["type"] == "section"]
    return "".join(sections) if sections else str(message["text"])


def _buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for block in message.get("blocks", []) if block["type"] == "actions" for one in block["elements"]]


def _readable(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _badly_escaped(text: str) -> bool:
    """Marks that Slack would read as something: a mention of everybody is never what an agent may make."""
    rest = re.sub(r"^>+ ?", "", _LINK.sub("", text), flags=re.M)
    return bool(re.search(r"[<>]|&(?!amp;|lt;|gt;)", rest))


def _wrong_blocks(blocks: list[dict[str, Any]]) -> str | None:
    if len(blocks) > 50:
        return "more than 50"
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(set(ids)) < len(ids) or any(not 0 < len(one) <= 255 for one in ids):
        return "their ids"
    for block in blocks:
        match block["type"]:
            case "section":
                if block["text"]["type"] != "mrkdwn" or not 0 < _units(block["text"]["text"]) <= 3000:
                    return "a section's text"
            case "actions":
                if wrong := _wrong_elements(block["elements"]):
                    return wrong
            case other:
                return f"a {other}"
    return None


def _wrong_elements(elements: list[dict[str, Any]]) -> str | None:
    if not 0 < len(elements) <= 25 or len({one["action_id"] for one in elements}) < len(elements):
        return "the number or the ids of elements"
    for one in elements:
        if one["type"] != "button" or one["text"]["type"] != "plain_text" or not 0 < len(one["text"]["text"]) <= 75:
            return "a button's text"
        if len(one.get("value", "")) > 2000 or one.get("style", "primary") not in ("primary", "danger"):
            return "a button's value or style"
        if ("url" in one) == ("value" in one):
            return "a button that does nothing, or two things"
    return None


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
