"""A workflow's pull request: whether one can be opened, asked while somebody is there to be told, and opening it."""

import os
from pathlib import Path
from typing import Final

from adapters.errors import ChannelError, DeliveryError, GitError, ToolError
from adapters.git.pull_requests import GitHubPulls, PullRequest
from adapters.git.pushing import push, remote_url
from workers.refusals import RefusedError
from workers.workflows.spec import Target

TOKEN: Final = "LONGSHORE_GITHUB_TOKEN"  # noqa: S105 - the variable's name
_NO_TOKEN: Final = (
    f"a pull request is opened with a token: set {TOKEN}, here and where the workers run, to one that may write "
    "contents and pull requests of the repository"
)


async def check_pull_request(repository: Path, remote: str) -> None:
    """RefusedError: there is no such remote, it is not on the GitHub server that is set, or there is no token."""
    if not os.environ.get(TOKEN):
        raise RefusedError(_NO_TOKEN)
    try:
        pulls = GitHubPulls()
        try:
            await _name_of(pulls, repository, remote)
        finally:
            await pulls.close()
    except (GitError, ChannelError) as error:
        raise RefusedError(str(error)) from None


async def _name_of(pulls: GitHubPulls, repository: Path, remote: str) -> str:
    url = await remote_url(repository, remote)
    name = pulls.repository_at(url)
    if name is None:
        raise GitError(f"the remote {remote!r} ({url}) is no repository of the GitHub server at {pulls.api}")
    return name


async def open_pull_request(repository: Path, target: Target, commit: str, title: str, body: str) -> PullRequest:
    """Push the branch, which is there already, and ask for it to be merged. ToolError: it may go through later."""
    assert target.into is not None
    pulls = GitHubPulls()
    try:
        name = await _name_of(pulls, repository, target.remote)
        await push(repository, target.remote, target.branch, commit, os.environ.get(TOKEN), api=pulls.api)
        return await pulls.open(name, target.branch, target.into, title, body)
    except DeliveryError as error:
        if error.retryable:
            raise ToolError(str(error)) from None
        raise GitError(str(error)) from None
    finally:
        await pulls.close()
