"""Pushing one commit to one branch of a remote, on the host, in the repository that the operator has named.

Never forces. git sees no secret of the worker's but the token of the GitHub server, and that only if the remote is on
it: as a setting for this one address, in no argument and in no error's text. It asks nobody anything and runs no hooks
of the repository."""

import base64
import ipaddress
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from adapters.channels.github.rest import API, server_of
from adapters.errors import GitError, SandboxError
from adapters.git.names import check_branch, check_commit
from adapters.git.refusals import refusal
from adapters.redaction import Redactor
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.running import Finished, run

PUSH_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 30.0
_OUTPUT_BYTES: Final = 1 << 20
_REMOTE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
_PLAIN: Final = re.compile(r"[!-\[\]-~]+")  # ASCII without a backslash: every program reads such an address alike
_OFF: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "push.followTags=false", "push.gpgSign=false"),
    *("push.recurseSubmodules=no", "gc.auto=0", "maintenance.auto=false", "safe.directory=*"),
    # git would send the token along to wherever it is led.
    "http.followRedirects=false",
)
_ENV: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",  # set and empty: no program of the settings is asked either
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
}


async def push(
    repository: Path,
    remote: str,
    branch: str,
    commit: str,
    token: str | None,
    *,
    api: str = API,
    seconds: float = PUSH_SECONDS,
) -> None:
    """Raises GitError if that branch of the remote is not at `commit` afterwards. What is there already is not pushed
    again; a branch that holds commits which `commit` does not is left alone.

    `token` is for the GitHub server whose API is at `api`. For other remotes, and without one, git uses what it finds
    by itself: the keys of ssh, the operator's credential helper. `repository` is an absolute path."""
    ref = f"refs/heads/{check_branch(branch)}"
    env = await _by_ssh(repository) | _with_token(await _address(repository, remote), token, api)
    # Written so, it can be no branch whose name looks like the commit.
    what = ("--porcelain", "--no-verify", "--", remote, f"{check_commit(commit)}^{{commit}}:{ref}")
    finished = await _git(repository, "push", *what, env=env, seconds=seconds)
    if finished.exit_code:
        hide = Redactor([token, _basic(token)] if token else ()).text
        authorised = "GIT_CONFIG_COUNT" in env
        raise refusal(finished.stdout, finished.stderr, remote, branch, hide=hide, authorised=authorised)


async def remote_url(repository: Path, remote: str) -> str:
    """Where git would push to, without the user and password that may stand in it."""
    return re.sub(r"^([a-z]+://)[^/?#]*@", r"\1", await _address(repository, remote), flags=re.IGNORECASE)


async def _address(repository: Path, remote: str) -> str:
    # git push would take an address or a folder for a remote as well: only a name is one.
    if not _REMOTE.fullmatch(remote):
        raise GitError(f"{remote[:200]!r} is no name for a remote")
    _check_owner(repository)
    found = await _git(repository, "remote", "get-url", "--push", "--all", remote)
    if "No such remote" in found.stderr:
        raise GitError(f"{repository} has no remote {remote!r}: add it with `git remote add`, or name another")
    if found.exit_code:
        raise refusal("", found.stderr, remote, "", hide=Redactor().text)
    if len(addresses := found.stdout.splitlines()) != 1:
        raise GitError(f"the remote {remote!r} has {len(addresses)} addresses to push to, and must have one")
    return addresses[0]


def _check_owner(repository: Path) -> None:
    """git obeys the repository's settings here, which name programs: as root it would run what another user wrote."""
    try:
        owner = repository.stat().st_uid
    except OSError as error:
        raise GitError(f"{repository} cannot be looked at: {error.strerror}") from error
    if os.geteuid() == 0 and owner != 0:
        raise GitError(
            f"{repository} belongs to user {owner}, and this runs as root: pushing would run that user's settings as "
            "root. Run the workers as that user, or push the branch by hand"
        )


async def _by_ssh(repository: Path) -> dict[str, str]:
    """The operator's way to call ssh, but without questions."""
    found = await _git(repository, "config", "--get", "core.sshCommand")
    return {"GIT_SSH_COMMAND": f"{found.stdout.strip() or 'ssh'} -o BatchMode=yes -o ConnectTimeout=20"}


def _with_token(address: str, token: str | None, api: str) -> dict[str, str]:
    """Settings by which git shows the token at this address; none if it is not on the token's server, or anybody on
    the way could read it."""
    origin = _origin(address)
    if not token or origin is None or origin != _origin(server_of(api)):
        return {}
    scheme, host, port = origin
    if scheme != "https" and not _is_loopback(host):
        return {}
    written = f"[{host}]" if ":" in host else host
    here = f"http.{scheme}://{written}:{port}{urlsplit(address).path}"
    settings = [
        (f"{here}.extraHeader", ""),  # only ours: two of them are refused
        (f"{here}.extraHeader", f"Authorization: Basic {_basic(token)}"),
        ("credential.helper", ""),  # when the token is refused, nobody else is to be pushed as
    ]
    if scheme == "http":
        settings.append((f"{here}.proxy", ""))
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(settings)}
    values = {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(settings)}
    return {"GIT_CONFIG_COUNT": str(len(settings)), **keys, **values}


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


def _origin(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an address of the web."""
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port or {"https": 443, "http": 80}.get(url.scheme)
    except ValueError:
        return None
    return (url.scheme, host, port) if _PLAIN.fullmatch(address) and host and port else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _git(
    repository: Path, *words: str, env: Mapping[str, str] | None = None, seconds: float = LOOK_SECONDS
) -> Finished:
    """On the host: it is the operator's own git in the operator's own repository. The empty folder is what its limits
    are watched over; a repository may be of any size."""
    options = [part for setting in _OFF for part in ("-c", setting)]
    own = {name: os.environ[name] for name in ("HOME", "SSH_AUTH_SOCK") if name in os.environ}
    limits = SandboxLimits(seconds, 8 << 30, _OUTPUT_BYTES, processes=256, file_bytes=1 << 40)
    with tempfile.TemporaryDirectory(prefix="longshore-push-", ignore_cleanup_errors=True) as folder:
        argv = ("git", "-C", str(repository), "--no-pager", *options, *words)
        command = Command(argv, Path(folder), env={**own, **_ENV, **(env or {})}, limits=limits)
        try:
            # All of it is kept: where something is left out, half a token could stand.
            finished = await run(Unconfined(), command, keep=4 * _OUTPUT_BYTES)
        except SandboxError as error:
            raise GitError(f"git could not be started: {error}", retryable=True) from error
    if finished.ended != "exited":
        raise GitError(f"git {words[0]}: {finished.words}", retryable=finished.ended == "time")
    if finished.exit_code == 127:
        raise GitError("git is not installed, or not on the worker's PATH")
    return finished
