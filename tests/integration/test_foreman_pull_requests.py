"""A foreman's pull request, over GitHub's wire and git's: opened once, whatever breaks on the way, and not before it
was approved."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import MakeFleet
from tests.support.foreman_setup import begin, foreman, make_repository, say, seen
from tests.support.github_api import TOKEN
from tests.support.github_server import GithubServer
from tests.support.repositories import git
from tests.support.rest_stand_in import Asked, Said
from tests.support.servers import private_folder
from workers.refusals import RefusedError

pytestmark = [pytest.mark.spec("O1"), pytest.mark.parametrize("database_kind", ["sqlite"])]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    (folder / "server").mkdir()
    server = GithubServer(folder / "server")
    monkeypatch.setenv("LONGSHORE_GITHUB_API", server.url)
    monkeypatch.setenv("LONGSHORE_GITHUB_TOKEN", TOKEN)
    yield server
    server.close()


@pytest.fixture
def repository(folder: Path, server: GithubServer) -> Path:
    made = make_repository(folder / "repo")
    git(made, "remote", "add", "origin", server.remote)
    git(made, "push", "-q", str(server.repository), "main")
    return made


async def test_the_branch_is_pushed_and_a_pull_request_opened_with_the_summary(
    make_fleet: MakeFleet, folder: Path, repository: Path, server: GithubServer
) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository, pull_request=True)
    await fleet.settle_down()
    assert server.pulls == []
    assert server.pushes() == 0, "nothing leaves before somebody says so"
    await say(fleet, approve=True)
    view = await seen(fleet, started)
    assert view.row.status == "completed", view.row.outcome
    [pull] = server.pulls
    assert view.row.outcome == f"pull request {pull['html_url']}"
    assert (pull["title"], pull["base"]["ref"]) == ("Mend add", "main")
    assert "built by smith, reviewed by critic" in pull["body"]
    assert server.branch(started.spec.target.branch) == view.row.result["commit"]
    assert TOKEN not in str(await fleet.events())


async def test_a_server_that_breaks_in_the_middle_gets_one_pull_request_and_nobody_is_asked_again(
    make_fleet: MakeFleet, folder: Path, repository: Path, server: GithubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await foreman(make_fleet, folder)
    started = await begin(fleet, repository, pull_request=True)
    await fleet.settle_down()
    server.fail_next("broken")
    opens = server._open_pull

    def opens_without_a_word(asked: Asked) -> Said:
        monkeypatch.setattr(server, "_open_pull", opens)
        opens(asked)
        return Said(502, {"message": "bad gateway"})

    monkeypatch.setattr(server, "_open_pull", opens_without_a_word)
    await say(fleet, approve=True)
    async with asyncio.timeout(60):
        while (await seen(fleet, started)).row.status == "running":
            await fleet.sweep()
            await fleet.settle_down()
    view = await seen(fleet, started)
    assert view.row.status == "completed", view.row.outcome
    assert len(server.pulls) == 1
    assert len([ask for stage in view.stages for ask in stage.asks]) == 1


async def test_a_remote_that_is_not_on_the_server_is_refused_before_anything_begins(
    make_fleet: MakeFleet, folder: Path, repository: Path
) -> None:
    fleet = await foreman(make_fleet, folder)
    git(repository, "remote", "add", "elsewhere", "https://example.org/a/b.git")
    with pytest.raises(RefusedError, match="is no repository of the GitHub server at"):
        await begin(fleet, repository, pull_request=True, remote="elsewhere")
    with pytest.raises(RefusedError, match="has no remote 'nowhere'"):
        await begin(fleet, repository, pull_request=True, remote="nowhere")
