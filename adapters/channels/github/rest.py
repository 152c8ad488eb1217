"""GitHub's REST API, for whatever speaks to it as the machine account: the channel, and pull requests.

Set LONGSHORE_GITHUB_TOKEN and, for a server of one's own, LONGSHORE_GITHUB_API. The token goes to that address only,
and into no error's text."""

import re
import time
from typing import Any, Final
from urllib.parse import urlsplit

from adapters.channels.http import PlatformHttp, Reply, retry_after_of
from adapters.channels.variables import ADDRESS, KEY, variable
from adapters.errors import DeliveryError

API: Final = "https://api.github.com"
_WINDOW_SECONDS: Final = 3600.0  # no limit lasts longer, whatever this machine's clock says
_SECONDARY_SECONDS: Final = 60.0  # what GitHub asks for when it does not say how long
# The API has a host of its own there, beside the one that git and people ask.
_OWN_HOST: Final = re.compile(r"api\.(github\.com|[a-z0-9-]+\.ghe\.com)")


def server_of(api: str) -> str:
    """Where git and people find the server whose API that is: https://github.com."""
    url = urlsplit(api.lower())
    found = _OWN_HOST.fullmatch(url.netloc)
    return f"{url.scheme}://{found[1] if found else url.netloc}"


class GithubRest:
    """`api` and `token` are taken from the environment when they are not given."""

    def __init__(self, *, token: str | None = None, api: str | None = None) -> None:
        self._token = variable("LONGSHORE_GITHUB_TOKEN", token, KEY)
        self.api = variable("LONGSHORE_GITHUB_API", api, ADDRESS, API).rstrip("/")
        self._http = PlatformHttp("github")

    async def call(self, method: str, path: str, said: dict[str, Any] | None = None, **what: Any) -> Reply:
        """The answer, if it is a success; else DeliveryError."""
        reply = await self.ask(method, path, said, **what)
        if reply.ok:
            return reply
        raise self.failure(reply)

    async def ask(self, method: str, path: str, said: dict[str, Any] | None = None, **what: Any) -> Reply:
        """Any answer. `path` is below /repos, and its parts are the caller's to check."""
        if not self._token:
            raise DeliveryError("LONGSHORE_GITHUB_TOKEN is not set", retryable=False)
        headers = {
            "authorization": f"Bearer {self._token}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            "user-agent": "longshore",
        }
        if said is not None:
            what["json"] = said
        return await self._http.call(method, f"{self.api}/repos/{path}", headers=headers, **what)

    def failure(self, reply: Reply, words: str = "") -> DeliveryError:
        """`words` say what is wrong and what to do; without them, or for a limit, GitHub's own do."""
        said = reply.json()
        own = str(said.get("message") or "").replace(self._token, "…") if isinstance(said, dict) else ""
        if reply.status in (301, 302, 307, 308):
            own = "the repository has another name now: use that"
        wait = _limited(reply, own)
        if wait is None:
            return self._http.failure(reply, words.replace(self._token, "…") or own)
        return DeliveryError(f"github answered {reply.status}: {own[:300]}", retryable=True, retry_after=wait)

    async def close(self) -> None:
        await self._http.close()


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
