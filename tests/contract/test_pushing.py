"""Pushing over real HTTP into a real repository, by the real git: what arrives, what is refused, and who sees what."""

import asyncio
import base64
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from adapters.errors import GitError
from adapters.git.pushing import push, remote_url
from tests.support.certificates import Authority
from tests.support.github_api import REPOSITORY, TOKEN
from tests.support.github_server import GithubServer
from tests.support.repositories import git
from tests.support.rest_stand_in import Asked, RestStandIn, Said

pytestmark = pytest.mark.spec("O1")

BASIC = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


class Elsewhere(RestStandIn):
    """Another server, which takes nothing."""

    def answer(self, asked: Asked) -> Said:
        return Said(401, None, {"www-authenticate": 'Basic realm="elsewhere"'})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's own settings, and an environment that has a secret."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LONGSHORE_GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GithubServer]:
    (tmp_path / "served").mkdir()
    stand_in = GithubServer(tmp_path / "served")
    yield stand_in
    stand_in.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    stand_in = Elsewhere()
    yield stand_in
    stand_in.close()


@pytest.fixture
def repository(tmp_path: Path, server: GithubServer) -> Path:
    """The operator's, with the server as `origin`; `main` is there already, `fix` is one commit ahead."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, "first")
    git(path, "push", "-q", str(server.repository), "main")
    git(path, "switch", "-q", "-c", "fix")
    commit(path, "second")
    git(path, "remote", "add", "origin", server.remote)
    return path


def commit(repository: Path, name: str, content: str = "x") -> str:
    (repository / name).write_text(content)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", name)
    return git(repository, "rev-parse", "HEAD")


async def pushed(server: GithubServer, repository: Path, branch: str = "fix", token: str | None = TOKEN) -> str:
    tip = git(repository, "rev-parse", "fix")
    await push(repository, "origin", branch, tip, token, api=server.url)
    return tip


async def refused(server: GithubServer, repository: Path, branch: str = "fix", token: str | None = TOKEN) -> GitError:
    with pytest.raises(GitError) as caught:
        await pushed(server, repository, branch, token)
    for secret in (TOKEN, BASIC, token or TOKEN):
        assert secret not in str(caught.value)
    return caught.value


async def test_a_new_branch_arrives_and_is_not_sent_twice(server: GithubServer, repository: Path) -> None:
    tip = await pushed(server, repository)
    assert server.branch("fix") == tip
    sent = server.pushes()
    assert sent
    await pushed(server, repository)
    assert (server.branch("fix"), server.pushes()) == (tip, sent)


async def test_root_does_not_run_what_another_users_settings_name(
    server: GithubServer, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = git(repository, "rev-parse", "fix")
    if os.geteuid() == 0:
        os.chown(repository, 1234, 1234)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(GitError, match="Run the workers as that user"):
        await push(repository, "origin", "fix", tip, TOKEN, api=server.url)
    assert server.pushes() == 0


async def test_exactly_the_commit_is_pushed_and_nothing_beside_it(server: GithubServer, repository: Path) -> None:
    """Neither what was committed since, nor tags, nor a branch whose name looks like the commit."""
    tip = git(repository, "rev-parse", "fix")
    later = commit(repository, "third")
    git(repository, "tag", "-a", "v1", "-m", "v1", tip)
    git(repository, "branch", tip, later)
    git(repository, "config", "push.followTags", "true")
    await push(repository, "origin", "longshore/fix", tip, TOKEN, api=server.url)
    refs = git(server.repository, "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/longshore/fix", "refs/heads/main"]
    assert server.branch("longshore/fix") == tip


async def test_a_branch_that_is_behind_is_moved_forward(server: GithubServer, repository: Path) -> None:
    first = await pushed(server, repository)
    commit(repository, "third", "y" * (3 << 20))  # more than git sends in one piece
    assert await pushed(server, repository) == server.branch("fix") != first


@pytest.mark.parametrize("known", [True, False], ids=["known here", "unknown here"])
async def test_what_somebody_else_has_written_is_left_alone(
    known: bool, server: GithubServer, repository: Path, tmp_path: Path
) -> None:
    await pushed(server, repository)
    git(tmp_path, "clone", "-q", "-b", "fix", str(server.repository), "theirs")
    theirs = commit(tmp_path / "theirs", "theirs")
    git(tmp_path / "theirs", "push", "-q", "origin", "fix")
    if known:
        git(repository, "fetch", "-q", str(server.repository), "fix")
    commit(repository, "ours")
    git(repository, "config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
    error = await refused(server, repository)
    assert "somebody else has written to 'fix' of 'origin'" in str(error)
    assert not error.retryable
    assert server.branch("fix") == theirs


async def test_over_tls_the_token_is_shown_to_whom_the_certificate_names(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    server = GithubServer(tmp_path / "safe", Authority(tmp_path).server("localhost"))
    try:
        git(repository, "remote", "set-url", "origin", server.remote)
        assert "certificate" in str(await refused(server, repository))
        assert server.asked == []
        git(repository, "config", "http.sslCAInfo", str(tmp_path / "authority.pem"))
        assert await pushed(server, repository) == server.branch("fix")
    finally:
        server.close()


async def test_a_wrong_token_is_refused_without_being_shown(server: GithubServer, repository: Path) -> None:
    error = await refused(server, repository, token="github_pat_wrong-and-secret")
    assert "does not take the token" in str(error)
    assert not error.retryable


async def test_a_server_that_repeats_the_token_does_not_bring_it_into_the_error(
    server: GithubServer, repository: Path
) -> None:
    for word in (TOKEN, BASIC):
        server.scripted.append(Said(403, f"fatal: returned error: 403 {word}".encode(), {"content-type": "text/plain"}))
        assert "does not take the token" in str(await refused(server, repository))
    hook(server, f"echo 'fatal: {TOKEN}' >&2; exit 1")
    assert "hook declined" in str(await refused(server, repository))
    plain = "a word that nobody takes for a secret"
    for word in (plain, base64.b64encode(f"x-access-token:{plain}".encode()).decode()):
        text = f"ERR you said {word} to me"
        kind = {"content-type": "application/x-git-receive-pack-advertisement"}
        server.scripted.append(Said(200, f"{len(text) + 4:04x}{text}".encode(), kind))
        error = await refused(server, repository, token=plain)
        assert "remote error: you said" in str(error)
        assert word not in str(error)


async def test_without_a_token_nobody_is_asked_for_one(server: GithubServer, repository: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    git(repository, "config", "core.askPass", script(tmp_path, f"touch {asked}"))
    error = await refused(server, repository, token=None)
    assert "set LONGSHORE_GITHUB_TOKEN if it is on that server" in str(error)
    assert not asked.exists()


async def test_a_server_that_is_away_may_come_back(server: GithubServer, repository: Path) -> None:
    server.close()
    error = await refused(server, repository)
    assert "cannot be reached" in str(error)
    assert error.retryable


@pytest.mark.parametrize(
    ("said", "words", "retryable"),
    [
        (Said(503), "cannot be reached", True),
        (Said(429), "cannot be reached", True),
        (Said(403), "does not take the token", False),
        (Said(404), "there is no repository at its address", False),
        (Said(200, b"<html>"), "origin", False),
    ],
)
async def test_what_the_server_answers_is_told_in_words(
    said: Said, words: str, retryable: bool, server: GithubServer, repository: Path
) -> None:
    server.scripted.append(said)
    error = await refused(server, repository)
    assert words in str(error)
    assert error.retryable == retryable


@pytest.mark.parametrize("fault", ["lost", "spoiled"])
async def test_a_push_whose_answer_was_lost_is_simply_repeated(
    fault: str, server: GithubServer, repository: Path
) -> None:
    """The server has it, but did not say so."""
    original = server.respond

    def respond(asked: Asked) -> Said | None:
        if asked.path.endswith("/git-receive-pack") and server.pushes() == 0:
            server.fail_next("lost" if fault == "lost" else "spoiled")
        return original(asked)

    server.respond = respond  # type: ignore[method-assign]
    error = await refused(server, repository)
    assert error.retryable
    tip = server.branch("fix")
    assert tip is not None
    assert await pushed(server, repository) == tip
    assert server.pushes() == 1


async def test_a_rule_of_the_server_refuses_in_its_own_words(server: GithubServer, repository: Path) -> None:
    hook(server, "echo 'GH006: Protected branch update failed' >&2; exit 1")
    error = await refused(server, repository)
    assert "'fix' of 'origin' may not be written: pre-receive hook declined" in str(error)
    assert (error.retryable, server.branch("fix")) == (False, None)


async def test_the_token_is_not_shown_to_another_server(
    server: GithubServer, elsewhere: Elsewhere, repository: Path
) -> None:
    git(repository, "remote", "set-url", "origin", f"{elsewhere.url}/{REPOSITORY}.git")
    assert "does not let us in" in str(await refused(server, repository))
    git(repository, "remote", "set-url", "origin", server.remote)
    git(repository, "config", f"url.{elsewhere.url}/.pushInsteadOf", f"{server.origin}/")
    assert "does not let us in" in str(await refused(server, repository))
    assert elsewhere.asked
    assert not any("authorization" in asked.headers for asked in elsewhere.asked)
    assert server.asked == []


async def test_the_token_does_not_follow_a_redirect(
    server: GithubServer, elsewhere: Elsewhere, repository: Path
) -> None:
    server.scripted.append(Said(302, None, {"location": f"{elsewhere.url}/info/refs?service=git-receive-pack"}))
    assert "its address leads elsewhere" in str(await refused(server, repository))
    assert elsewhere.asked == []


async def test_the_token_is_not_shown_to_a_proxy(server: GithubServer, elsewhere: Elsewhere, repository: Path) -> None:
    git(repository, "config", "http.proxy", elsewhere.url)
    await pushed(server, repository)
    assert elsewhere.asked == []


async def test_only_the_token_is_shown_whatever_the_settings_say(
    server: GithubServer, repository: Path, tmp_path: Path
) -> None:
    """Two of these headers are refused, and a helper's account is another one."""
    asked = tmp_path / "asked"
    git(repository, "config", f"http.{server.remote}.extraHeader", "Authorization: Basic eDp5")
    git(repository, "config", "credential.helper", f"!touch {asked};")
    assert await pushed(server, repository) == server.branch("fix")
    await refused(server, repository, token="github_pat_wrong-and-secret")
    assert not asked.exists()


async def test_no_hook_of_the_repository_runs(server: GithubServer, repository: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in (repository / ".git/hooks", tmp_path / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("pre-push", "reference-transaction"):
            (folder / name).write_text(f"#!/bin/sh\ntouch {run}\n")
            (folder / name).chmod(0o755)
    await pushed(server, repository)
    git(repository, "config", "core.hooksPath", str(tmp_path / "hooks"))
    commit_with_hooks_off(repository)
    await pushed(server, repository)
    assert not run.exists()


async def test_ssh_asks_nothing_and_sees_no_secret(
    server: GithubServer, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere/agent")
    seen = tmp_path / "seen"
    ssh = script(
        tmp_path, f'env > {seen}; echo "$@" >> {seen}\necho "git@host: Permission denied (publickey)." >&2; exit 255'
    )
    git(repository, "config", "core.sshCommand", f"{ssh} -i key")
    git(repository, "remote", "set-url", "origin", f"git@127.0.0.1:{REPOSITORY}.git")
    error = await refused(server, repository)
    assert "check the ssh key (git@host: Permission denied (publickey).)" in str(error)
    told = seen.read_text()
    assert "-i key -o BatchMode=yes" in told
    assert "SSH_AUTH_SOCK=/nowhere/agent" in told
    assert TOKEN not in told
    assert BASIC not in told
    names = {line.partition("=")[0] for line in told.splitlines()[:-1]}
    assert not {name for name in names if name.startswith("LONGSHORE")}


async def test_the_token_stands_in_no_argument(server: GithubServer, repository: Path) -> None:
    server.fail_next("slow")
    work = asyncio.ensure_future(pushed(server, repository))
    await asyncio.to_thread(server.waiting.wait, 30)
    words = [word for process in psutil.Process().children(recursive=True) for word in process.cmdline()]
    assert any("push" in word for word in words)
    assert not any(secret in word for secret in (TOKEN, BASIC) for word in words)
    work.cancel()
    await asyncio.wait([work])


async def test_a_push_that_is_cancelled_leaves_no_program_behind(server: GithubServer, repository: Path) -> None:
    server.fail_next("slow")
    before = psutil.Process().children(recursive=True)  # servers of other tests
    work = asyncio.ensure_future(pushed(server, repository))
    await asyncio.to_thread(server.waiting.wait, 30)
    started = set(psutil.Process().children(recursive=True)) - set(before)
    assert {"git-remote-http", "git"} & {process.name() for process in started}
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


async def test_a_push_that_takes_too_long_is_ended_and_may_be_repeated(server: GithubServer, repository: Path) -> None:
    server.fail_next("slow")
    tip = git(repository, "rev-parse", "fix")
    with pytest.raises(GitError, match="took longer than the 1 s it may") as caught:
        await push(repository, "origin", "fix", tip, TOKEN, api=server.url, seconds=1.0)
    assert caught.value.retryable


@pytest.mark.parametrize("remote", ["nowhere", "../served", "-q", "", "--receive-pack=touch x", "http://127.0.0.1/x"])
async def test_only_the_name_of_a_remote_is_one(remote: str, server: GithubServer, repository: Path) -> None:
    with pytest.raises(GitError, match=r"has no remote|is no name for a remote"):
        await push(repository, remote, "fix", git(repository, "rev-parse", "fix"), TOKEN, api=server.url)
    assert server.asked == []


@pytest.mark.parametrize(
    "branch", ["", "HEAD", "a b", "a..b", "a:b", "a\nb", "a\0b", "\ud800", "x.lock", "-", "-x", "@{-1}", "a/"]
)
async def test_a_name_that_is_none_is_no_branch(branch: str, server: GithubServer, repository: Path) -> None:
    with pytest.raises(GitError, match="is no name for a branch"):
        await push(repository, "origin", branch, git(repository, "rev-parse", "fix"), TOKEN, api=server.url)


@pytest.mark.parametrize(
    "commit", ["0" * 40, "0" * 64, "fix", "", "a" * 39, f"{'a' * 40}:refs/heads/x", f"{'a' * 40}\n"]
)
async def test_only_the_full_id_of_a_commit_is_pushed(commit: str, server: GithubServer, repository: Path) -> None:
    """All zeros would delete the branch."""
    with pytest.raises(GitError, match="no commit's whole id"):
        await push(repository, "origin", "main", commit, TOKEN, api=server.url)
    assert server.branch("main") is not None


async def test_what_the_repository_does_not_have_is_not_pushed(server: GithubServer, repository: Path) -> None:
    with pytest.raises(GitError, match="lacks this commit"):
        await push(repository, "origin", "fix", "a" * 40, TOKEN, api=server.url)


async def test_a_folder_without_a_repository_is_told_so(server: GithubServer, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="no git repository"):
        await push(tmp_path, "origin", "fix", "a" * 40, TOKEN, api=server.url)


async def test_a_program_that_an_address_names_is_not_run(
    server: GithubServer, repository: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    git(repository, "remote", "set-url", "origin", f"ext::touch {run}")
    assert "must begin with https:// or ssh://" in str(await refused(server, repository))
    assert not run.exists()


async def test_a_remote_can_be_a_folder(server: GithubServer, repository: Path) -> None:
    git(repository, "remote", "set-url", "origin", str(server.repository))
    assert await pushed(server, repository) == server.branch("fix")
    assert server.asked == []


async def test_a_remote_with_several_addresses_is_refused(server: GithubServer, repository: Path) -> None:
    git(repository, "remote", "set-url", "--add", "origin", str(server.repository))
    assert "has 2 addresses" in str(await refused(server, repository))


async def test_the_address_of_a_remote_is_told_without_its_password(server: GithubServer, repository: Path) -> None:
    git(repository, "remote", "set-url", "origin", server.remote.replace("://", "://ada:pass-word-1@"))
    assert await remote_url(repository, "origin") == server.remote
    server.close()
    assert "pass-word-1" not in str(await refused(server, repository))


def hook(server: GithubServer, body: str) -> None:
    path = server.repository / "hooks/pre-receive"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def script(folder: Path, body: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def commit_with_hooks_off(repository: Path) -> None:
    git(repository, "-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "third")
