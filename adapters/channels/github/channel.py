"""`github`: comments of issues and pull requests, in by webhook, out over REST as a machine account.

GitHub keeps no idempotency keys: each comment ends with a hidden mark of its key, by which it is found again. Set
LONGSHORE_GITHUB_TOKEN, _SECRET, _LOGIN and, to register repositories by themselves, _AGENT."""

import hashlib
import hmac
import re
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
from adapters.channels.github.orders import visible
from adapters.channels.github.rest import GithubRest
from adapters.channels.http import Reply
from adapters.channels.signing import same
from adapters.channels.variables import FOLDER, SECRET, variable
from adapters.errors import ChannelError, DeliveryError, SignatureError
from adapters.markup.emoji import emoji_of

SIGNATURE: Final = "x-hub-signature-256"
MAX_COMMENT: Final = 65_536  # characters
_LOGIN: Final = (r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "the login of an account, without @")
_THREAD: Final = re.compile(r"issues/[1-9][0-9]{0,18}")
_COMMENT: Final = re.compile(r"issues/comments/[1-9][0-9]{0,18}")
_REACTABLE: Final = re.compile(r"(?:issues|issues/comments|pulls/comments)/[1-9][0-9]{0,18}")
# Long enough for any outage of a fleet that comes back; short enough that a thread of years is not read.
_DOUBT: Final = timedelta(days=7)
_PAGE, _PAGES = 30, 40  # small pages: a comment can be long, and of an answer only so much is read
_REACTIONS: Final = {
    "👍": "+1", "👎": "-1", "😄": "laugh", "😕": "confused", "❤": "heart", "🎉": "hooray", "🚀": "rocket", "👀": "eyes",
}  # fmt: skip


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
        self._rest = GithubRest(token=token, api=api)
        self._secret = variable("LONGSHORE_GITHUB_SECRET", secret, SECRET)
        self._login = variable("LONGSHORE_GITHUB_LOGIN", login, _LOGIN)
        self._agent = variable("LONGSHORE_GITHUB_AGENT", agent, FOLDER)

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
        return len(visible(text))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        path = f"{_thread(message.destination)}/comments"
        body = visible(str(message.content.get("text") or "")) + _mark(message.idempotency_key)
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
        body = visible(str(content.get("text") or ""))
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
        await self._rest.close()

    def _marked(self, comment: Any, mark: str) -> int | None:
        """The comment's id if it is ours and has the mark. At the end only: what an agent writes stands before it."""
        match comment:
            case {"id": int(number), "body": str(body), "user": {"login": str(login)}}:
                return number if login.lower() == self._login.lower() and body.rstrip().endswith(mark) else None
            case _:
                return None

    async def _call(self, method: str, path: str, said: dict[str, Any] | None = None, **what: Any) -> Reply:
        if not self._login:
            raise DeliveryError("LONGSHORE_GITHUB_LOGIN is not set", retryable=False)
        return await self._rest.call(method, path, said, **what)


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
