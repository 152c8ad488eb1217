"""`github`: comments of issues and pull requests, in by webhook, out over REST as a machine account.

GitHub keeps no idempotency keys: each comment ends with a hidden mark of its key, by which it is found again. Set
LONGSHORE_GITHUB_TOKEN, _SECRET, _LOGIN and, to register repositories by themselves, _AGENT."""

import hashlib
import hmac
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from adapters.channel_port import (
    Button,
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Rate,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.github.events import REPOSITORY, read_event
from adapters.channels.http import PlatformHttp, Reply, retry_after_of
from adapters.channels.signing import same
from adapters.channels.variables import ADDRESS, FOLDER, KEY, SECRET, variable
from adapters.errors import ChannelError, DeliveryError, SignatureError
from adapters.markup.emoji import emoji_of

API: Final = "https://api.github.com"
SIGNATURE: Final = "x-hub-signature-256"
MAX_COMMENT: Final = 65_536  # characters
_LOGIN: Final = (r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "the login of an account, without @")
_THREAD: Final = re.compile(r"issues/[1-9][0-9]{0,18}")
_COMMENT: Final = re.compile(r"issues/comments/[1-9][0-9]{0,18}")
_REACTABLE: Final = re.compile(r"(?:issues|issues/comments|pulls/comments)/[1-9][0-9]{0,18}")
# Long enough for any outage of a fleet that comes back; short enough that a thread of years is not read.
_DOUBT: Final = timedelta(days=7)
_PAGE, _PAGES = 30, 40  # small pages: a comment can be long, and of an answer only so much is read
_WINDOW_SECONDS: Final = 3600.0  # no limit lasts longer, whatever this machine's clock says
_SECONDARY_SECONDS: Final = 60.0  # what GitHub asks for when it does not say how long
# Accounts of programs that do what a comment tells them.
_BOTS: Final = "dependabot|renovate(?:-bot)?|mergify(?:io)?|github-actions|copilot|bors|k8s-ci-robot"
_REACTIONS: Final = {
    "👍": "+1", "👎": "-1", "😄": "laugh", "😕": "confused", "❤": "heart", "🎉": "hooray", "🚀": "rocket", "👀": "eyes",
}  # fmt: skip
# In what an agent writes: code, and outside of it what hides text or gives orders to programs that read comments.
_SPECIAL: Final = re.compile(
    r"(?P<code>```.*?```|~~~.*?~~~|`[^`\n]*`)|(?P<hidden><!--)|(?P<slash>^ {0,3})/"
    rf"|(?<![\w@.+-])@(?P<called>[\w-]+/[\w.-]+|[\w-]+\[bot\]|(?:{_BOTS})(?![\w-]))",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def _mark(key: str) -> str:
    return f"\n\n<!-- longshore:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:32]} -->"


class GithubChannel(PlainChannel):
    channel_type = "github"
    capabilities = ChannelCapabilities(
        idempotent=False,
        findable=True,
        edits=True,
        reactions=True,
        public=True,
        max_text=MAX_COMMENT - len(_mark("")),
        per_chat=Rate(20, 60.0),
        overall=Rate(80, 60.0),
    )

    def __init__(
        self,
        *,
        token: str | None = None,
        secret: str | None = None,
        api: str | None = None,
        login: str | None = None,
        agent: str | None = None,
    ) -> None:
        self._token = variable("LONGSHORE_GITHUB_TOKEN", token, KEY)
        self._secret = variable("LONGSHORE_GITHUB_SECRET", secret, SECRET)
        self._api = variable("LONGSHORE_GITHUB_API", api, ADDRESS, API).rstrip("/")
        self._login = variable("LONGSHORE_GITHUB_LOGIN", login, _LOGIN)
        self._agent = variable("LONGSHORE_GITHUB_AGENT", agent, FOLDER)
        self._http = PlatformHttp("github")

    # --- in ---

    @property
    def receives(self) -> bool:
        """Not without the login: it could not tell its own comments from others', and would answer itself."""
        return bool(self._secret and self._login)

    def verify(self, request: InboundRequest) -> None:
        """There is no time in the signature: a replay is caught by the ids in its body."""
        if not self.receives:
            raise SignatureError("LONGSHORE_GITHUB_SECRET and LONGSHORE_GITHUB_LOGIN are not both set")
        given = request.headers.get(SIGNATURE, "")
        if not given:
            raise SignatureError(f"the request has no {SIGNATURE} header: give the webhook the secret")
        expected = "sha256=" + hmac.new(self._secret.encode(), request.body, hashlib.sha256).hexdigest()
        if not same(given, expected):
            raise SignatureError("the signature does not fit the body: the webhook has another secret")

    def receive(self, request: InboundRequest) -> Received:
        return read_event(request, self._login)

    def accepts(self, message: InboundMessage) -> bool:
        return (message.sender_name or "").lower() != self._login.lower()

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        return self._agent or None if known and message.is_mention else None

    # --- out ---

    def length(self, text: str) -> int:
        return len(_visible(text))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        path = f"{_thread(message.destination)}/comments"
        body = _visible(str(message.content.get("text") or "")) + _mark(message.idempotency_key)
        said = (await self._call("POST", path, {"body": body})).json()
        number = said.get("id") if isinstance(said, dict) else None
        if not isinstance(number, int):
            why = "github took the comment, but did not say its id"
            raise DeliveryError(why, retryable=True, may_have_arrived=True)
        return Receipt(f"issues/comments/{number}")

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        if not _COMMENT.fullmatch(platform_message_id):
            raise DeliveryError(f"{platform_message_id[:80]!r} is no comment that can be edited", retryable=False)
        body = _visible(str(content.get("text") or ""))
        await self._call("PATCH", f"{_repository(destination)}/{platform_message_id}", {"body": body})

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        content = _REACTIONS.get(emoji_of(emoji))
        if content is None:
            raise ChannelError(f"GitHub has only the reactions 👍 👎 😄 😕 ❤️ 🎉 🚀 👀, not {emoji[:50]!r}")
        if not _REACTABLE.fullmatch(platform_message_id):
            raise ChannelError(f"{platform_message_id[:80]!r} is nothing one can react to")
        await self._call("POST", f"{_repository(destination)}/{platform_message_id}/reactions", {"content": content})

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        """Among the latest comments of the thread; DeliveryError if they cannot all be read, for nobody knows then."""
        path, mark = f"{_thread(destination)}/comments", _mark(idempotency_key).strip()
        since = (datetime.now(UTC) - _DOUBT).strftime("%Y-%m-%dT%H:%M:%SZ")
        for page in range(1, _PAGES + 1):
            params = {"since": since, "per_page": str(_PAGE), "page": str(page)}
            comments = (await self._call("GET", path, params=params)).json()
            if not isinstance(comments, list):
                raise DeliveryError("github listed the comments in a way that cannot be read", retryable=True)
            for comment in comments:
                if (number := self._marked(comment, mark)) is not None:
                    return Receipt(f"issues/comments/{number}")
            if len(comments) < _PAGE:
                return None
        raise DeliveryError(f"the thread has more than {_PAGE * _PAGES} new comments", retryable=False)

    async def close(self) -> None:
        await self._http.close()

    def _marked(self, comment: Any, mark: str) -> int | None:
        """The comment's id if it is ours and has the mark. At the end only: what an agent writes stands before it."""
        match comment:
            case {"id": int(number), "body": str(body), "user": {"login": str(login)}}:
                return number if login.lower() == self._login.lower() and body.rstrip().endswith(mark) else None
            case _:
                return None

    async def _call(self, method: str, path: str, said: dict[str, Any] | None = None, **what: Any) -> Reply:
        for name, value in (("TOKEN", self._token), ("LOGIN", self._login)):
            if not value:
                raise DeliveryError(f"LONGSHORE_GITHUB_{name} is not set", retryable=False)
        headers = {
            "authorization": f"Bearer {self._token}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            "user-agent": "longshore",
        }
        if said is not None:
            what["json"] = said
        reply = await self._http.call(method, f"{self._api}/repos/{path}", headers=headers, **what)
        if reply.ok:
            return reply
        raise self._failure(reply)

    def _failure(self, reply: Reply) -> DeliveryError:
        said = reply.json()
        words = str(said.get("message") or "").replace(self._token, "…") if isinstance(said, dict) else ""
        if reply.status in (301, 302, 307, 308):
            words = "the repository has another name now: wire that"
        wait = _limited(reply, words)
        if wait is None:
            return self._http.failure(reply, words)
        return DeliveryError(f"github answered {reply.status}: {words[:300]}", retryable=True, retry_after=wait)


def _limited(reply: Reply, words: str) -> float | None:
    """Seconds to wait if a limit was reached, which GitHub also says with 403; None if it is something else."""
    if reply.status not in (403, 429):
        return None
    if (asked := retry_after_of(reply)) is not None:
        return asked
    reset = reply.headers.get("x-ratelimit-reset", "")
    if reply.headers.get("x-ratelimit-remaining") == "0" and re.fullmatch(r"[0-9]{1,12}", reset):
        return min(max(0.0, int(reset) - time.time()), _WINDOW_SECONDS)
    return _SECONDARY_SECONDS if reply.status == 429 or "secondary rate limit" in words.lower() else None


def _visible(text: str) -> str:
    """Markdown as it is, but nothing hidden, and no orders: outside of code a comment of HTML is shown, a line does not
    begin with a slash, and teams and known bots are named without being called."""
    return _SPECIAL.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "hidden":
            return "&lt;!--"
        case "slash":
            return f"{found['slash']}\\/"
        case "called":
            return f"@\u200b{found['called']}"
        case _:
            return found[0]


def _repository(destination: Destination) -> str:
    """Names come from rows, and become a part of an address."""
    if not re.fullmatch(REPOSITORY, destination.platform_id):
        raise DeliveryError(f"{destination.platform_id[:80]!r} is no repository (owner/name)", retryable=False)
    return destination.platform_id


def _thread(destination: Destination) -> str:
    if destination.thread_id is None or not _THREAD.fullmatch(destination.thread_id):
        why = "GitHub messages go to an issue or a pull request: name one as the thread, for example issues/12"
        raise DeliveryError(why, retryable=False)
    return f"{_repository(destination)}/{destination.thread_id}"
