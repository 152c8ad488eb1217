"""A stand-in for Telegram's Bot API: real HTTP, its checks in its words, and its bad days.

It keeps chats, messages with their keyboards, and updates, which are forgotten only when they are acknowledged. What
the real one would refuse is refused the same way and noted in `problems`."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

TOKEN = "987654321:AAFdo-not-show-this-token-to-anybody_35"
BOT_ID, USERNAME = 987654321, "longshore_test_bot"
PERSON, GROUP, TOPIC = 1001, -1002000000001, 9
RETRY_AFTER = 7
REACTIONS = ["👍", "👎", "❤", "🔥", "👏", "🤔", "🎉", "🙏", "👌", "💯", "🤣", "👀", "😢", "😁"]
ENTITIES = {
    "mention", "hashtag", "url", "email", "bold", "italic", "underline", "strikethrough", "spoiler", "blockquote",
    "expandable_blockquote", "code", "pre", "text_link", "text_mention",
}  # fmt: skip

# Asks to wait; is down and says so; refuses; takes it and then breaks, or hangs up; does not answer; answers nonsense.
Fault = Literal["busy", "broken", "refused", "blocked", "moved", "spoiled", "lost", "slow", "gibberish", "leaky"]
_SENT = {"chat_id", "message_thread_id", "reply_markup"}
_CAPTION = {"caption", "caption_entities"}
_FIELDS: dict[str, tuple[set[str], set[str]]] = {  # required, and allowed besides
    "sendMessage": ({"chat_id", "text"}, _SENT | {"entities"}),
    "sendDocument": ({"chat_id", "document"}, _SENT | _CAPTION),
    "sendPhoto": ({"chat_id", "photo"}, _SENT | _CAPTION),
    "editMessageText": ({"chat_id", "message_id", "text"}, {"entities", "reply_markup"}),
    "editMessageCaption": ({"chat_id", "message_id"}, {"reply_markup"} | _CAPTION),
    "setMessageReaction": ({"chat_id", "message_id", "reaction"}, set()),
    "sendChatAction": ({"chat_id", "action"}, {"message_thread_id"}),
    "answerCallbackQuery": ({"callback_query_id"}, {"text", "show_alert"}),
    "getUpdates": (set(), {"offset", "timeout", "allowed_updates"}),
    "getFile": ({"file_id"}, set()),
}


class RefusedError(Exception):
    """What Telegram says no to, with its code and words."""

    def __init__(self, words: str, code: int = 400, **parameters: int) -> None:
        super().__init__(words)
        self.answer = {"ok": False, "error_code": code, "description": words}
        self.answer |= {"parameters": parameters} if parameters else {}
        self.code = code


@dataclass
class Shown:
    """A message as people see it."""

    chat: int
    id: int
    text: str
    thread: int | None = None
    entities: list[dict[str, Any]] = field(default_factory=list)
    keys: list[list[dict[str, str]]] = field(default_factory=list)
    file: tuple[str, str, bytes] | None = None  # as what it was sent, its name, itself
    reaction: str | None = None


class TelegramApi:
    def __init__(self) -> None:
        self.chats: dict[int, tuple[str, set[int]]] = {PERSON: ("private", set()), GROUP: ("supergroup", {TOPIC})}
        self.messages: list[Shown] = []
        self.files: dict[str, tuple[str, bytes]] = {}  # by file_id: path and content
        self.updates: list[dict[str, Any]] = []  # those that nobody has acknowledged
        self.offsets: list[int | None] = []  # of all getUpdates
        self.toasts: dict[str, str | None] = {}  # by callback query: what whoever pressed was told
        self.typing: list[tuple[int, int | None]] = []
        self.problems: list[str] = []
        self.webhook = False
        self.waiting = threading.Event()  # a request is being answered slowly, or polls
        self.stopping = threading.Event()
        self.changed = threading.Condition()
        self._faults: list[Fault | None] = []
        self._polls = self._number = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stand_in = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="telegram-stand-in")
        self._thread.start()

    def close(self) -> None:
        """Also ends requests that wait."""
        if not self.stopping.is_set():
            with self.changed:
                self.stopping.set()
                self.changed.notify_all()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def fail_next(self, *faults: Fault | None) -> None:
        """For one request each; None: that one goes well."""
        with self.changed:
            self._faults += faults

    def next_fault(self) -> Fault | None:
        with self.changed:
            return self._faults.pop(0) if self._faults else None

    # --- what people do ---

    def says(self, text: str | None, *, chat: int = PERSON, sender: int = PERSON, **more: Any) -> dict[str, Any]:
        """An update for a message that somebody wrote; `more` are fields of the message."""
        with self.changed:
            self._number += 1
            message = {
                "message_id": 500 + self._number,
                "from": {"id": sender, "is_bot": False, "first_name": "Ada"},
                "chat": {"id": chat, "type": self.chats[chat][0]},
                "date": 1_790_000_000,
            }
            message |= {"text": text} if text is not None else {}
            return {"update_id": 70_000 + self._number, "message": message | more}

    def presses(self, label: str, sender: int = PERSON) -> dict[str, Any]:
        """An update for a button that somebody pressed."""
        with self.changed:
            [(shown, key)] = [(m, key) for m in self.messages for row in m.keys for key in row if key["text"] == label]
            self._number += 1
            query = f"query-{self._number}"
            self.toasts[query] = None
            message: dict[str, Any] = {"message_id": shown.id, "date": 0, "text": shown.text}
            message["chat"] = {"id": shown.chat, "type": self.chats[shown.chat][0]}
            if shown.thread is not None:
                message |= {"message_thread_id": shown.thread, "is_topic_message": True}
            callback = {"id": query, "from": {"id": sender, "is_bot": False, "first_name": "Ada"}, "message": message}
            return {"update_id": 70_000 + self._number, "callback_query": callback | {"data": key["callback_data"]}}

    def queue(self, *updates: dict[str, Any]) -> None:
        with self.changed:
            self.updates += updates
            self.changed.notify_all()

    # --- what the bot does ---

    def call(self, method: str, fields: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        with self.changed:
            try:
                return self._checked(method, fields, files)
            except RefusedError as refused:
                self.problems.append(f"{method}: {refused}")
                raise

    def _checked(self, method: str, fields: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        if method not in _FIELDS:
            raise RefusedError("Not Found", 404)
        required, allowed = _FIELDS[method]
        given = {*fields, *files}
        if required - given or given - required - allowed:
            raise RefusedError(f"Bad Request: fields {sorted(given)}; there must be {sorted(required)}")
        if "chat_id" in fields and fields["chat_id"] not in self.chats:
            raise RefusedError("Bad Request: chat not found")
        thread = fields.get("message_thread_id")
        if thread is not None and thread not in self.chats[fields["chat_id"]][1]:
            raise RefusedError("Bad Request: message thread not found")
        handle: Callable[..., Any] = getattr(
            self, "_" + re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", method)
        )
        return handle(fields, files) if files else handle(fields)

    def _send_message(self, fields: dict[str, Any]) -> Any:
        _check_text(fields["text"], fields.get("entities", []), 4096)
        return self._show(fields, fields["text"], fields.get("entities", []))

    def _send_document(
        self, fields: dict[str, Any], files: dict[str, tuple[str, bytes]], kind: str = "document"
    ) -> Any:
        caption, entities = fields.get("caption", ""), fields.get("caption_entities", [])
        if caption:
            _check_text(caption, entities, 1024, "Bad Request: message caption is too long")
        return self._show(fields, caption, entities, (kind, *files[kind]))

    def _send_photo(self, fields: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        if not files["photo"][1].startswith(b"\x89PNG"):
            raise RefusedError("Bad Request: IMAGE_PROCESS_FAILED")
        return self._send_document(fields, files, "photo")

    def _show(
        self,
        fields: dict[str, Any],
        text: str,
        entities: list[dict[str, Any]],
        file: tuple[str, str, bytes] | None = None,
    ) -> Any:
        self._number += 1
        keys = _keys(fields.get("reply_markup"))
        thread = fields.get("message_thread_id")
        self.messages.append(Shown(fields["chat_id"], 500 + self._number, text, thread, entities, keys, file))
        return {"message_id": 500 + self._number, "date": 0, "chat": {"id": fields["chat_id"]}}

    def _edit_message_text(self, fields: dict[str, Any]) -> Any:
        _check_text(fields["text"], fields.get("entities", []), 4096)
        return self._change(fields, "text", fields["text"], fields.get("entities", []))

    def _edit_message_caption(self, fields: dict[str, Any]) -> Any:
        _check_text(fields["caption"], fields.get("caption_entities", []), 1024)
        return self._change(fields, "caption", fields["caption"], fields.get("caption_entities", []))

    def _change(self, fields: dict[str, Any], kind: str, text: str, entities: list[dict[str, Any]]) -> Any:
        shown = self._message(fields, "message to edit not found")
        if (kind == "caption") != (shown.file is not None):
            raise RefusedError(f"Bad Request: there is no {kind} in the message to edit")
        keys = _keys(fields.get("reply_markup"))
        if (shown.text, shown.entities, shown.keys) == (text, entities, keys):
            raise RefusedError("Bad Request: message is not modified: specified new message content is the same")
        shown.text, shown.entities, shown.keys = text, entities, keys
        return {"message_id": shown.id}

    def _set_message_reaction(self, fields: dict[str, Any]) -> Any:
        [reaction] = fields["reaction"]
        if reaction.get("type") != "emoji" or reaction.get("emoji") not in REACTIONS:
            raise RefusedError("Bad Request: REACTION_INVALID")
        self._message(fields, "message to react not found").reaction = reaction["emoji"]
        return True

    def _message(self, fields: dict[str, Any], otherwise: str) -> Shown:
        found = [m for m in self.messages if (m.chat, m.id) == (fields["chat_id"], fields["message_id"])]
        if not found:
            raise RefusedError(f"Bad Request: {otherwise}")
        return found[0]

    def _send_chat_action(self, fields: dict[str, Any]) -> Any:
        if fields["action"] != "typing":
            raise RefusedError("Bad Request: wrong parameter action in request")
        self.typing.append((fields["chat_id"], fields.get("message_thread_id")))
        return True

    def _answer_callback_query(self, fields: dict[str, Any]) -> Any:
        query = fields["callback_query_id"]
        if len(fields.get("text", "")) > 200:
            raise RefusedError("Bad Request: MESSAGE_TOO_LONG")
        if self.toasts.get(query, "") is not None:  # unknown, or answered before
            raise RefusedError("Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.toasts[query] = fields.get("text", "")
        return True

    def _get_file(self, fields: dict[str, Any]) -> Any:
        if fields["file_id"] not in self.files:
            raise RefusedError("Bad Request: wrong file_id or the file is temporarily unavailable")
        path, data = self.files[fields["file_id"]]
        return {"file_id": fields["file_id"], "file_path": path, "file_size": len(data)}

    def _get_updates(self, fields: dict[str, Any]) -> Any:
        if self.webhook:
            words = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
            raise RefusedError(f"Conflict: {words}", 409)
        self._polls += 1
        mine, offset = self._polls, fields.get("offset")
        self.offsets.append(offset)
        self.updates = [update for update in self.updates if offset is None or update["update_id"] >= offset]
        self.changed.notify_all()
        self.waiting.set()
        self.changed.wait_for(
            lambda: self.updates or self._polls > mine or self.stopping.is_set(), fields.get("timeout", 0)
        )
        if self._polls > mine:
            raise RefusedError("Conflict: terminated by other getUpdates request", 409)
        wanted = fields["allowed_updates"]
        return [one for one in self.updates if any(kind in one for kind in wanted)][:100]


def _check_text(
    text: Any, entities: list[dict[str, Any]], most: int, otherwise: str = "Bad Request: message is too long"
) -> None:
    if not isinstance(text, str) or not text.strip():
        raise RefusedError("Bad Request: message text is empty")
    try:
        units = text.encode("utf-16-le")
    except UnicodeEncodeError:
        raise RefusedError("Bad Request: strings must be encoded in UTF-8") from None
    if len(units) // 2 > most:
        raise RefusedError(otherwise)
    for entity in entities:
        start, length = entity["offset"], entity["length"]
        if entity["type"] not in ENTITIES or start < 0 or length < 1 or 2 * (start + length) > len(units):
            raise RefusedError(f"Bad Request: can't parse entities: {entity}")
        for edge in (start, start + length):  # not in the middle of a character
            if units[2 * edge : 2 * edge + 2] and 0xDC <= units[2 * edge + 1] <= 0xDF:
                raise RefusedError(f"Bad Request: an entity begins or ends inside a character: {entity}")


def _keys(markup: Any) -> list[list[dict[str, str]]]:
    rows: list[list[dict[str, str]]] = markup["inline_keyboard"] if markup is not None else []
    for key in [key for row in rows for key in row]:
        if not key.get("text") or len({"callback_data", "url"} & set(key)) != 1:
            raise RefusedError("Bad Request: BUTTON_TYPE_INVALID")
        if "callback_data" in key and not 1 <= len(key["callback_data"].encode()) <= 64:
            raise RefusedError("Bad Request: BUTTON_DATA_INVALID")
        if "url" in key and not key["url"].startswith(("https://", "http://", "tg://")):
            raise RefusedError("Bad Request: BUTTON_URL_INVALID")
    if any(not 1 <= len(row) <= 8 for row in rows):
        raise RefusedError("Bad Request: reply markup is too long")
    return rows


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for every answer: no thread outlives its test
    stand_in: TelegramApi


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        stand_in = self.server.stand_in
        body = self.rfile.read(int(self.headers["content-length"]))
        _, bot, method = self.path.split("/", 2)
        if bot != f"bot{TOKEN}":
            return self._answer(401, RefusedError("Unauthorized", 401).answer)
        fault = stand_in.next_fault()
        if fault in ("spoiled", "lost"):
            stand_in.call(method, *self._read(body))
        match fault:
            case "busy":
                refused = RefusedError("Too Many Requests: retry after 7", 429, retry_after=RETRY_AFTER)
                return self._answer(429, refused.answer)
            case "broken":
                return self._answer(503, RefusedError("Service Unavailable", 503).answer)
            case "refused":
                return self._answer(400, RefusedError("Bad Request: chat not found").answer)
            case "blocked":
                return self._answer(403, RefusedError("Forbidden: bot was blocked by the user", 403).answer)
            case "moved":
                words = "Bad Request: group chat was upgraded to a supergroup chat"
                return self._answer(400, RefusedError(words, migrate_to_chat_id=GROUP).answer)
            case "spoiled":
                return self._answer(500, RefusedError("Internal Server Error", 500).answer)
            case "lost":
                return None  # and not a word
            case "gibberish":
                return self._answer(200, ["<html>"])
            case "leaky":
                return self._answer(400, RefusedError(f"Bad Request: cannot {self.path}").answer)
            case "slow":
                stand_in.waiting.set()
                stand_in.stopping.wait(30)
                return None
            case None:
                try:
                    return self._answer(200, {"ok": True, "result": stand_in.call(method, *self._read(body))})
                except RefusedError as refused:
                    return self._answer(refused.code, refused.answer)

    def do_GET(self) -> None:
        """A file that somebody has sent."""
        prefix = f"/file/bot{TOKEN}/"
        known = dict(self.server.stand_in.files.values())
        if not self.path.startswith(prefix) or self.path.removeprefix(prefix) not in known:
            return self._answer(404, RefusedError("Not Found", 404).answer)
        return self._send(200, known[self.path.removeprefix(prefix)], "application/octet-stream")

    def _read(self, body: bytes) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
        kind = self.headers["content-type"]
        if kind == "application/json":
            return json.loads(body), {}
        form = message_from_bytes(f"content-type: {kind}\r\n\r\n".encode() + body, policy=policy.HTTP)
        fields: dict[str, Any] = {}
        files: dict[str, tuple[str, bytes]] = {}
        for part in form.iter_parts():
            name, data = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            assert isinstance(name, str)
            assert isinstance(data, bytes)
            if (file_name := part.get_filename()) is not None:
                files[name] = (file_name, data)
            else:
                text = data.decode()
                fields[name] = text if name == "caption" else json.loads(text)
        return fields, files

    def _answer(self, status: int, answer: Any) -> None:
        self._send(status, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
