"""A workflow's pull request: whether one can be opened, asked while somebody is there to be told, and opening it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from adapters.channels.github.rest import API, API_VARIABLE, TOKEN_VARIABLE
from adapters.errors import DeliveryError, GitError, ToolError
from adapters.git.pull_requests import GitHubPulls, PullRequest
from adapters.git.pushing import push, remote_url
from workers.refusals import RefusedError
from workers.workflows.spec import Target

_NO_TOKEN: Final = (
    f"a pull request is opened with a token: set {TOKEN_VARIABLE} (here and where the workers run) to one that may write "
    "contents and pull requests of the repository"
)


@asynccontextmanager
async def _github() -> AsyncIterator[GitHubPulls]:
    pulls = GitHubPulls()
    try:
        yield pulls
    finally:
        await pulls.close()


async def check_pull_request(repository: Path, remote: str) -> None:
    """RefusedError: there is no such remote, it is not on the GitHub server that is set, or there is no token."""
    if not os.environ.get(TOKEN_VARIABLE):
        raise RefusedError(_NO_TOKEN)
    try:
        await _name_of(repository, remote)
    except GitError as error:
        raise RefusedError(str(error)) from None


async def _name_of(repository: Path, remote: str) -> str:
    url = await remote_url(repository, remote)
    async with _github() as pulls:
        name = pulls.repository_at(url)
    if name is None:
        server = os.environ.get(API_VARIABLE) or API
        raise GitError(f"the remote {remote!r} ({url}) is no repository of the GitHub server at {server}")
    return name


async def open_pull_request(
    repository: Path, target: Target, commit: str, title: str, body: str
) -> PullRequest:
    """Push the branch, which is there already, and ask for it to be merged. ToolError: it may go through later."""
    assert target.into is not None
    name = await _name_of(repository, target.remote)
    api = os.environ.get(API_VARIABLE) or API
    await push(repository, target.remote, target.branch, commit, os.environ.get(TOKEN_VARIABLE), api=api)
    try:
        async with _github() as pulls:
            return await pulls.open(name, target.branch, target.into, title, body)
    except DeliveryError as error:
        if error.retryable:
            raise ToolError(str(error)) from None
        raise GitError(str(error)) from None
