"""Slack's Web API: calling it, what its refusals mean, and files. The token goes to Slack's own hosts, nowhere else."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx2

from adapters.channel_port import OutboundFile
from adapters.channels.http import MAX_ANSWER_BYTES, PlatformHttp, Reply, retry_after_of
from adapters.errors import ChannelError, DeliveryError

FILE_HOSTS: Final = ("files.slack.com", "files.slack-gov.com")
RESPONSE_HOSTS: Final = ("hooks.slack.com", "hooks.slack-gov.com")

# Slack has not begun.
_BUSY: Final = ("ratelimited", "rate_limited", "service_unavailable", "request_timeout", "team_added_to_org")
# Slack broke off: "some aspect of the operation" may have succeeded.
_BROKEN: Final = ("fatal_error", "internal_error")
_WHAT_TO_DO: Final = {
    "account_inactive": "the app was removed from the workspace, or its token replaced: install it again",
    "cant_update_message": "only messages of this app can be changed",
    "channel_not_found": "there is no such channel for the app: invite it there, if the channel is private",
    "invalid_auth": "LONGSHORE_SLACK_TOKEN is not valid: copy the bot token from the app's page",
    "is_archived": "the channel is archived: somebody has to bring it back",
    "message_not_found": "that message is no longer there",
    "missing_scope": "add the scope to the app and install it again",
    "msg_too_long": "the text is too long for Slack",
    "no_permission": "the app may not do that: look at its scopes and install it again",
    "not_authed": "LONGSHORE_SLACK_TOKEN is not valid: copy the bot token from the app's page",
    "not_in_channel": "invite the bot to the channel: /invite @name-of-the-bot",
    "restricted_action": "the workspace does not let apps post there: ask its admins",
    "token_expired": "LONGSHORE_SLACK_TOKEN has run out: install the app again, without token rotation",
    "token_revoked": "LONGSHORE_SLACK_TOKEN was revoked: install the app again",
}
_WORD: Final = re.compile(r"[a-z0-9_:.,-]{1,100}")


class SlackApi:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self._http = PlatformHttp("slack")

    async def call(
        self,
        method: str,
        payload: Mapping[str, Any],
        *,
        form: bool = False,
        fine: tuple[str, ...] = (),
        limit: int = MAX_ANSWER_BYTES,
    ) -> dict[str, Any]:
        """What Slack answers. `form`: the older methods do not read JSON. `fine`: refusals that are an answer too."""
        headers = self._authorization()
        body: dict[str, Any] = {"data" if form else "json": payload}
        if not form:
            headers["content-type"] = "application/json; charset=utf-8"
        reply = await self._http.call("POST", f"{self._url}/{method}", headers=headers, limit=limit, **body)
        said = reply.json()
        if not isinstance(said, dict):
            said = {}
        if not reply.ok:
            raise self._http.failure(reply, _word(said.get("error")))
        if said.get("ok") is True or said.get("error") in fine:
            return said
        raise _refusal(said, reply)

    async def upload(self, file: OutboundFile) -> str:
        """Put a file on Slack's servers, where nobody sees it until it is shared; returns its id."""
        data = await asyncio.to_thread(file.path.read_bytes)
        with _nothing_shown():
            given = await self.call(
                "files.getUploadURLExternal", {"filename": file.name, "length": len(data)}, form=True
            )
            url, file_id = given.get("upload_url"), given.get("file_id")
            if not isinstance(url, str) or not isinstance(file_id, str) or not self.owns(url, FILE_HOSTS):
                raise DeliveryError("slack gave no address for the file", retryable=False)
            # The address is the permission: the token is not for it.
            headers = {"content-type": "application/octet-stream"}
            reply = await self._http.call("POST", url, content=data, headers=headers)
            if not reply.ok:
                raise self._http.failure(reply)
        return file_id

    async def download(self, url: str, limit: int) -> bytes:
        if not self.owns(url, FILE_HOSTS):
            raise ChannelError("the file is not on Slack's servers: it is not fetched")
        reply = await self._http.call("GET", url, headers=self._authorization(), limit=limit + 1)
        if not reply.ok:
            raise ChannelError(
                f"slack answered {reply.status} for the file: is it gone, or the scope files:read missing?"
            )
        if len(reply.body) > limit:
            raise ChannelError(f"the file is larger than {limit} bytes")
        return reply.body

    async def respond(self, url: str, payload: Mapping[str, Any]) -> None:
        """Post to an address Slack gave for one answer. It is a permission in itself: never shown, no token needed."""
        reply = await self._http.call("POST", url, json=payload)
        if not reply.ok:
            raise self._http.failure(reply)

    def owns(self, url: str, hosts: tuple[str, ...]) -> bool:
        """Whether an address leads to one of these hosts of Slack's, or to where the API is."""
        try:
            # As the client reads it: another reader could see another host in the same text.
            there, api = httpx2.URL(url), httpx2.URL(self._url)
        except (httpx2.InvalidURL, ValueError, TypeError):
            return False
        if there.userinfo:
            return False
        if (there.scheme, there.host, there.port) == (api.scheme, api.host, api.port):
            return True
        return there.scheme == "https" and there.port is None and there.host in hosts

    async def close(self) -> None:
        await self._http.close()

    def _authorization(self) -> dict[str, str]:
        if not self._token:
            raise DeliveryError("LONGSHORE_SLACK_TOKEN is not set", retryable=False)
        return {"authorization": f"Bearer {self._token}"}


@contextmanager
def _nothing_shown() -> Iterator[None]:
    """However these steps end, people have seen nothing of them: they can be repeated."""
    try:
        yield
    except DeliveryError as error:
        raise DeliveryError(str(error), retryable=error.retryable, retry_after=error.retry_after) from error


def _refusal(said: Mapping[str, Any], reply: Reply) -> DeliveryError:
    name = _word(said.get("error"))
    if not name:
        return DeliveryError("slack answered in no form it is known for", retryable=True, may_have_arrived=True)
    advice = _WHAT_TO_DO.get(name, "")
    needed = _word(said.get("needed")) if name == "missing_scope" else ""
    words = f"slack: {name}" + (f" ({needed})" if needed else "") + (f": {advice}" if advice else "")
    return DeliveryError(
        words,
        retryable=name in _BUSY or name in _BROKEN,
        retry_after=retry_after_of(reply),
        may_have_arrived=name in _BROKEN,
    )


def _word(value: Any) -> str:
    """A name Slack gave, if it is one: whatever else it says may hold anything."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""
