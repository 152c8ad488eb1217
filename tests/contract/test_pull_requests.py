"""Pull requests over GitHub's wire: opened once, found again, and harmless whatever an agent writes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channels import http
from adapters.errors import ChannelError, DeliveryError
from adapters.git.pull_requests import MAX_BODY, GitHubPulls, PullRequest, _body
from adapters.git.pushing import push
from tests.support.github_api import REPOSITORY, TOKEN
from tests.support.github_server import GithubServer
from tests.support.repositories import git
from tests.support.rest_stand_in import Asked, Said

pytestmark = pytest.mark.spec("O1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GithubServer]:
    """Its repository has `main`, and `fix` one commit ahead of it."""
    stand_in = GithubServer(tmp_path)
    empty = git(stand_in.repository, "hash-object", "-w", "-t", "tree", "/dev/null")
    first = git(stand_in.repository, "commit-tree", empty, "-m", "first")
    second = git(stand_in.repository, "commit-tree", empty, "-p", first, "-m", "second")
    git(stand_in.repository, "update-ref", "refs/heads/main", first)
    git(stand_in.repository, "update-ref", "refs/heads/fix", second)
    yield stand_in
    stand_in.close()


@pytest.fixture
async def pulls(server: GithubServer) -> AsyncIterator[GitHubPulls]:
    opener = GitHubPulls(server.url, TOKEN)
    yield opener
    await opener.close()


async def opened(pulls: GitHubPulls, **what: Any) -> PullRequest:
    given: dict[str, Any] = {
        "repository": REPOSITORY,
        "head": "fix",
        "base": "main",
        "title": "Fix it",
        "body": "Done.",
    }
    return await pulls.open(**given | what)


async def refused(pulls: GitHubPulls, **what: Any) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        await opened(pulls, **what)
    assert TOKEN not in str(caught.value)
    return caught.value


def posted(server: GithubServer) -> int:
    return sum(asked.method == "POST" for asked in server.asked)


async def test_a_pull_request_is_opened_with_what_was_said(server: GithubServer, pulls: GitHubPulls) -> None:
    found = await opened(pulls, body="# Why\n\n- it broke", draft=True)
    [pull] = server.pulls
    assert found == PullRequest(pull["number"], f"{server.origin}/{REPOSITORY}/pull/{pull['number']}", existed=False)
    assert (pull["title"], pull["body"], pull["draft"]) == ("Fix it", "# Why\n\n- it broke", True)
    assert (pull["head"]["ref"], pull["base"]["ref"]) == ("fix", "main")
    assert server.problems == []


async def test_a_branch_is_pushed_and_its_pull_request_opened_at_one_address(
    server: GithubServer, pulls: GitHubPulls, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(server.repository), "own")
    own = tmp_path / "own"
    git(own, "commit", "-q", "--allow-empty", "-m", "third")
    git(own, "remote", "set-url", "origin", server.remote)
    await push(own, "origin", "longshore/third", git(own, "rev-parse", "HEAD"), TOKEN, api=server.url)
    assert pulls.repository_at(server.remote) == REPOSITORY
    assert not (await opened(pulls, head="longshore/third")).existed


async def test_a_second_call_finds_the_first_ones(server: GithubServer, pulls: GitHubPulls) -> None:
    first = await opened(pulls)
    again = await opened(pulls, title="Another title", repository=REPOSITORY.lower())
    assert again == PullRequest(first.number, first.url, existed=True)
    assert (len(server.pulls), posted(server)) == (1, 1)


@pytest.mark.parametrize("fault", ["lost", "spoiled", "garbled"])
async def test_one_whose_answer_never_came_is_found_by_the_next_worker(
    fault: Any, server: GithubServer, pulls: GitHubPulls
) -> None:
    """The worker died, or the line did, between the request and its record."""
    original = server.respond

    def respond(asked: Asked) -> Said | None:
        if asked.method == "POST":
            server.fail_next(fault)
        return original(asked)

    server.respond = respond  # type: ignore[method-assign]
    error = await refused(pulls)
    assert (error.retryable, error.may_have_arrived) == (True, True)
    other = GitHubPulls(server.url, TOKEN)
    found = await opened(other)
    await other.close()
    assert (found.existed, found.number) == (True, server.pulls[0]["number"])
    assert (len(server.pulls), posted(server)) == (1, 1)


async def test_of_two_at_once_one_opens_it_and_both_are_told(server: GithubServer, pulls: GitHubPulls) -> None:
    server.scripted += [Said(200, []), Said(200, [])]  # neither sees the other's
    found = await asyncio.gather(opened(pulls), opened(pulls))
    assert {pull.number for pull in found} == {server.pulls[0]["number"]}
    assert (len(server.pulls), posted(server)) == (1, 2)


async def test_one_that_exists_but_is_not_listed_yet_is_asked_for_later(
    server: GithubServer, pulls: GitHubPulls
) -> None:
    exists = {"errors": [{"code": "custom", "message": "A pull request already exists for Octo-Org:fix."}]}
    server.scripted += [Said(200, []), Said(422, exists), Said(200, [])]
    assert (await refused(pulls)).retryable


async def test_only_the_open_one_of_this_branch_into_this_base_counts(server: GithubServer, pulls: GitHubPulls) -> None:
    git(server.repository, "update-ref", "refs/heads/other", "refs/heads/main")
    server.add_pull("fix", "main")["state"] = "closed"
    server.add_pull("fix", "other")
    server.add_pull("other", "main")
    server.add_pull("fix", "main", of="Octo-Org/a-fork")
    assert not (await opened(pulls)).existed
    # A server that takes no notice of the filter.
    server.scripted.append(Said(200, server.pulls))
    assert (await opened(pulls)).number == server.pulls[-1]["number"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Said(401, {"message": "Bad credentials"}), "401: it does not know the token"),
        (Said(403, {"message": "Resource not accessible"}), f"403: the token may not do that in {REPOSITORY}"),
        (Said(404, {"message": "Not Found"}), f"404: there is no repository {REPOSITORY}, or the token may not see it"),
        (Said(301, {"message": "Moved"}, {"location": "/repositories/1"}), "the repository has another name now"),
        (Said(422, {"message": f"no {TOKEN}"}), "422: no …"),
        (Said(422, [TOKEN]), "422"),
    ],
)
async def test_a_refusal_says_what_to_do_and_is_not_repeated(
    said: Said, words: str, server: GithubServer, pulls: GitHubPulls
) -> None:
    server.scripted.append(said)
    error = await refused(pulls)
    assert words in str(error)
    assert not error.retryable


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"head": "gone"}, "422: there is no branch 'gone': push it first"),
        ({"base": "gone"}, "422: there is no branch 'gone' to merge into"),
        ({"head": "main"}, "422: No commits between main and main"),
    ],
)
async def test_branches_that_do_not_fit_are_named(what: dict[str, str], words: str, pulls: GitHubPulls) -> None:
    error = await refused(pulls, **what)
    assert words in str(error)
    assert not error.retryable


async def test_a_limit_says_how_long_to_wait(
    server: GithubServer, pulls: GitHubPulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fail_next("busy")
    assert ((error := await refused(pulls)).retryable, error.retry_after) == (True, 7.0)
    spent = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 300)}
    server.scripted += [Said(200, []), Said(403, {"message": "API rate limit exceeded"}, spent)]
    error = await refused(pulls)
    assert error.retryable
    assert error.retry_after is not None
    assert 290 < error.retry_after <= 300
    server.fail_next("broken")
    assert (await refused(pulls)).retryable
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.1)
    server.fail_next("slow")
    assert (await refused(pulls)).retryable


async def test_a_server_that_is_away_may_come_back(server: GithubServer, pulls: GitHubPulls) -> None:
    server.close()
    assert (await refused(pulls)).retryable


@pytest.mark.parametrize(
    "answer",
    [b"<html>", {"message": "what?"}, [None, 5, {"number": "1"}, {"number": 1, "html_url": "javascript:1"}]],
)
async def test_a_list_that_cannot_be_read_opens_nothing_twice(
    answer: Any, server: GithubServer, pulls: GitHubPulls
) -> None:
    first = await opened(pulls)
    if isinstance(answer, list):
        answer = [server.pulls[0] | one if isinstance(one, dict) else one for one in answer]
    server.scripted.append(Said(200, answer))
    if isinstance(answer, list):  # nothing in it is ours: GitHub itself says that there is one
        assert await opened(pulls) == PullRequest(first.number, first.url, existed=True)
    else:
        assert (await refused(pulls)).retryable
    assert len(server.pulls) == 1


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Fix\r\nit\x00\x1b[31m now", "Fix it [31m now"),
        ("evil\u202etxt", "evil txt"),
        ("\ud800half", "half"),
        (" \n ", "fix"),
        ("", "fix"),
        ("t" * 300, "t" * 255 + "…"),
        ('"}, "base": "other', '"}, "base": "other'),
    ],
)
async def test_a_title_is_one_short_line(title: str, shown: str, server: GithubServer, pulls: GitHubPulls) -> None:
    await opened(pulls, title=title)
    assert server.pulls[0]["title"] == shown
    assert server.problems == []


async def test_a_body_hides_nothing_and_gives_no_orders(server: GithubServer, pulls: GitHubPulls) -> None:
    await opened(pulls, body="<!-- hidden -->\n/merge\n@dependabot merge\n@org/team `<!-- code -->`\x00\ud800")
    said = "&lt;!-- hidden -->\n\\/merge\n@\u200bdependabot merge\n@\u200borg/team `<!-- code -->`"
    assert server.pulls[0]["body"] == said


@pytest.mark.parametrize("part", ["x", "🫖", "<!--", "/\n", "`<!-- a` "])
async def test_a_long_body_is_cut_and_says_so(part: str, server: GithubServer, pulls: GitHubPulls) -> None:
    await opened(pulls, body=part * 70_000)
    body = server.pulls[0]["body"]
    assert len(body) <= MAX_BODY
    assert body.endswith("[… the rest is left out: it is longer than GitHub takes]")
    assert "<!--" not in body.replace("`<!-- a`", "").replace("&lt;!--", "")


@given(st.text(alphabet="<!-/`~@ab\n\x00 ", max_size=300).map(lambda text: text * 400))
def test_a_body_of_any_kind_fits(text: str) -> None:
    assert len(_body(text)) <= MAX_BODY


@pytest.mark.parametrize("repository", ["", "a", "a/b/c", "../..", "a/..", "a/b?x", "a/b#", "a b/c", "a/b\n"])
async def test_a_name_that_is_no_repository_is_not_asked_for(
    repository: str, server: GithubServer, pulls: GitHubPulls
) -> None:
    assert "is no repository" in str(await refused(pulls, repository=repository))
    assert server.asked == []


@pytest.mark.parametrize("branch", ["", "mallory:fix", "a b", "a\nb", "-x", "x" * 300])
async def test_a_name_that_is_no_branch_is_not_asked_for(branch: str, server: GithubServer, pulls: GitHubPulls) -> None:
    for what in ({"head": branch}, {"base": branch}):
        assert "is no name for a branch" in str(await refused(pulls, **what))
    assert server.asked == []


async def test_without_a_token_nothing_is_asked(server: GithubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGSHORE_GITHUB_TOKEN", raising=False)
    assert "LONGSHORE_GITHUB_TOKEN is not set" in str(await refused(GitHubPulls(server.url)))
    assert server.asked == []


async def test_settings_come_from_the_variables_of_the_channel(
    server: GithubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("LONGSHORE_GITHUB_API", server.url)
    pulls = GitHubPulls()
    assert not (await opened(pulls)).existed
    await pulls.close()
    monkeypatch.setenv("LONGSHORE_GITHUB_TOKEN", "a secret with spaces")
    with pytest.raises(ChannelError, match="LONGSHORE_GITHUB_TOKEN is not") as caught:
        GitHubPulls()
    assert "spaces" not in str(caught.value).replace("without spaces", "")
