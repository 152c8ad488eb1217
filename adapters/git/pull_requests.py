"""Opening pull requests on GitHub, or on a server of one's own, over REST.

There is one open pull request for a branch and the branch it is to go into: whoever calls again after a crash is told
of the one that is there. Titles and bodies are written by agents, and give no orders to anybody's programs."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from adapters.channels.github.events import REPOSITORY
from adapters.channels.github.orders import visible
from adapters.channels.github.rest import GithubRest, server_of
from adapters.channels.http import Reply
from adapters.errors import DeliveryError, GitError
from adapters.git.names import check_branch
from adapters.git.refusals import one_line

MAX_TITLE: Final = 256  # characters, as GitHub counts them
MAX_BODY: Final = 65_536
_CUT: Final = "\n\n[… the rest is left out: it is longer than GitHub takes]"
_PAGE: Final = "10"  # there is one at most, beside those of forks of the same owner
_ADDRESS: Final = re.compile(r"https?://[!-~]{1,1000}")
_BY_SSH: Final = re.compile(r"(?:[^@/:]+@)?([A-Za-z0-9.-]+):(?!//)(.+)")  # git@github.com:owner/name.git
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True)
class PullRequest:
    """`existed`: it was there before it was asked for."""

    number: int
    url: str
    existed: bool


class GitHubPulls:
    """`base_url` is the address of the API. Both are taken from LONGSHORE_GITHUB_API and LONGSHORE_GITHUB_TOKEN when
    they are not given."""

    def __init__(self, base_url: str | None = None, token: str | None = None) -> None:
        self._rest = GithubRest(token=token, api=base_url)

    @property
    def api(self) -> str:
        return self._rest.api

    def repository_at(self, url: str) -> str | None:
        """owner/name, if a remote with this address is on the server that is asked here."""
        found, server = repository_of(url), urlsplit(server_of(self._rest.api))
        if found is None:
            return None
        # ssh has a port of its own, which says nothing about the server's.
        ours = (
            _host(server.scheme, server.netloc),
            *((server.hostname,) if not url.lower().startswith("http") else ()),
        )
        return found[1] if found[0] in ours else None

    async def open(
        self, repository: str, head: str, base: str, title: str, body: str, draft: bool = False
    ) -> PullRequest:
        """`head` and `base` are branches of `repository`. Raises DeliveryError; one that is retryable may have opened
        it all the same, and the next call finds it."""
        if not re.fullmatch(REPOSITORY, repository):
            raise DeliveryError(f"{repository[:200]!r} is no repository (owner/name)", retryable=False)
        try:
            check_branch(head)
            check_branch(base)
        except GitError as error:
            raise DeliveryError(str(error), retryable=False) from None
        if (found := await self._find(repository, head, base)) is not None:
            return found
        said = {
            "title": one_line(title, MAX_TITLE) or head,
            "head": head,
            "base": base,
            "body": _body(body),
            "draft": draft,
        }
        reply = await self._rest.ask("POST", f"{repository}/pulls", said)
        if reply.status == 422 and "pull request already exists" in _complaints(reply):
            if (found := await self._find(repository, head, base)) is not None:
                return found
            why = f"github says that {head!r} has a pull request already, but does not list it"
            raise DeliveryError(why, retryable=True)
        if not reply.ok:
            raise self._failure(reply, repository, head, base)
        made = _read(reply.json(), repository, head, base, existed=False)
        if made is None:
            why = "github took the pull request, but did not say which it is"
            raise DeliveryError(why, retryable=True, may_have_arrived=True)
        return made

    async def close(self) -> None:
        """The connection, not the pull request."""
        await self._rest.close()

    async def _find(self, repository: str, head: str, base: str) -> PullRequest | None:
        owner = repository.partition("/")[0]
        params = {"state": "open", "head": f"{owner}:{head}", "base": base, "per_page": _PAGE}
        reply = await self._rest.ask("GET", f"{repository}/pulls", params=params)
        if not reply.ok:
            raise self._failure(reply, repository, head, base)
        listed = reply.json()
        if not isinstance(listed, list):
            raise DeliveryError("github listed the pull requests in a way that cannot be read", retryable=True)
        found = (_read(pull, repository, head, base, existed=True) for pull in listed)
        return next((pull for pull in found if pull is not None), None)

    def _failure(self, reply: Reply, repository: str, head: str, base: str) -> DeliveryError:
        match reply.status:
            case 401:
                words = "it does not know the token: set LONGSHORE_GITHUB_TOKEN to a valid one"
            case 403:
                words = f"the token may not do that in {repository}: it needs pull requests (write) there"
            case 404:
                words = f"there is no repository {repository}, or the token may not see it"
            case 422:
                words = _complaints(reply)
                words = words.replace("head invalid", f"there is no branch {head!r}: push it first")
                words = words.replace("base invalid", f"there is no branch {base!r} to merge into")
            case _:
                words = ""
        return self._rest.failure(reply, words)


def repository_of(url: str) -> tuple[str, str] | None:
    """The host and owner/name that the address of a remote means, or None if it is of another kind. The host has its
    port where that is not the usual one; that of ssh is left out."""
    if (by_ssh := _BY_SSH.fullmatch(url)) is not None:
        host, path = by_ssh[1].lower(), by_ssh[2]
    else:
        try:
            parts = urlsplit(url)
            host, path = (parts.hostname or "").lower(), parts.path
            if parts.scheme not in ("https", "http", "ssh") or not host:
                return None
            if parts.scheme != "ssh":
                host = _host(parts.scheme, parts.netloc.rpartition("@")[2])
        except ValueError:
            return None
    name = path.strip("/").removesuffix(".git")
    # Where ssh's own port is closed, GitHub answers at another name.
    return ("github.com" if host == "ssh.github.com" else host, name) if re.fullmatch(REPOSITORY, name) else None


def _host(scheme: str, netloc: str) -> str:
    return netloc.lower().removesuffix(f":{_PORTS.get(scheme)}")


def _read(pull: Any, repository: str, head: str, base: str, *, existed: bool) -> PullRequest | None:
    """None if it is another one: a server that does not understand a filter lists everything."""
    match pull:
        case {
            "number": int(number),
            "html_url": str(url),
            "state": "open",
            "head": {"ref": str(from_branch), "repo": {"full_name": str(name)}},
            "base": {"ref": str(to_branch)},
        } if _ADDRESS.fullmatch(url):
            same = (from_branch, to_branch, name.lower()) == (head, base, repository.lower())
            return PullRequest(number, url, existed) if same else None
        case _:
            return None


def _complaints(reply: Reply) -> str:
    """What a 422 finds wrong, in GitHub's words: the message above them only says that something is."""
    said = reply.json()
    errors = said.get("errors") if isinstance(said, dict) else None
    words = []
    for error in errors if isinstance(errors, list) else ():
        match error:
            case {"message": str(message)}:
                words.append(message)
            case {"field": str(field), "code": str(code)}:
                words.append(f"{field} {code}")
            case str():
                words.append(error)
    return "; ".join(words) or (str(said.get("message") or "") if isinstance(said, dict) else "")


def _body(text: str) -> str:
    text = "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cs"))
    shown, keep = visible(text[: MAX_BODY + 1]), MAX_BODY + 1
    # Cut first and made harmless then: a cut can take the end of code away, and what was in it would count.
    while len(shown) > MAX_BODY:
        keep -= len(shown) - MAX_BODY
        shown = visible(text[:keep] + _CUT)
    return shown
