"""A stand-in for a GitHub server with repositories: pull requests beside the comments, and git over HTTP.

Both are at one address, as on a server of one's own. What is pushed goes through git's own `http-backend` into a real
bare repository, and a pull request needs its branches there, as GitHub documents it."""

import base64
import json
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.github_api import LOGIN, REPOSITORY, TOKEN, GithubApi
from tests.support.repositories import git
from tests.support.rest_stand_in import Asked, Said

_BASIC = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
_FIELDS = {"title", "head", "base", "body", "draft"}


class GithubServer(GithubApi):
    """`repository` is REPOSITORY, bare. Behaviours of `fail_next` and `scripted` are for git's requests too."""

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.origin = self.url.removesuffix(self.base)
        self.folder = folder
        self.repository = folder / f"{REPOSITORY}.git"
        self.remote = f"{self.origin}/{REPOSITORY}.git"
        self.pulls: list[dict[str, Any]] = []
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.repository))

    def branch(self, name: str) -> str | None:
        """The commit it is at."""
        return git(self.repository, "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}") or None

    def pushes(self) -> int:
        """How often something was sent to be stored."""
        return sum(asked.method == "POST" and asked.path.endswith("/git-receive-pack") for asked in self.asked)

    def answer(self, asked: Asked) -> Said:
        if asked.path.startswith(f"/{REPOSITORY}.git/"):
            return self._git(asked)
        # Names are found whatever their case is.
        if (
            asked.path.lower() == f"/repos/{REPOSITORY}/pulls".lower()
            and asked.headers.get("authorization") == f"Bearer {TOKEN}"
        ):
            return self._list_pulls(asked) if asked.method == "GET" else self._open_pull(asked)
        return super().answer(asked)

    def _git(self, asked: Asked) -> Said:
        given = asked.headers.get("authorization")
        if given != _BASIC:
            words = b"Invalid username or token." if given else b"No anonymous write access."
            return Said(401, words, {"www-authenticate": 'Basic realm="GitHub"', "content-type": "text/plain"})
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH_INFO": asked.path,
            "QUERY_STRING": urlencode(asked.query),
            "REQUEST_METHOD": asked.method,
            "CONTENT_TYPE": asked.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(asked.body)),
            "HTTP_CONTENT_ENCODING": asked.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": asked.headers.get("git-protocol", ""),
            "REMOTE_USER": LOGIN,
        }
        done = subprocess.run(["git", "http-backend"], input=asked.body, env=env, capture_output=True, check=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Said(int(headers.pop("Status", "200").split()[0]), body, headers)

    def _list_pulls(self, asked: Asked) -> Said:
        if set(asked.query) - {"state", "head", "base", "per_page", "page"}:
            return self.problem(422, "pull requests cannot be listed by that")
        state, head, base = (asked.query.get(name) for name in ("state", "head", "base"))
        found = [
            pull
            for pull in reversed(self.pulls)
            if state in ("all", pull["state"])
            and base in (None, pull["base"]["ref"])
            # A head that does not name its owner is no filter at all.
            and (head is None or ":" not in head or head.lower() == pull["head"]["label"].lower())
        ]
        return Said(200, found[: int(asked.query.get("per_page", 30))])

    def _open_pull(self, asked: Asked) -> Said:
        said = json.loads(asked.body)
        if complaint := self._complaint(said):
            self.problems.append(str(complaint))
            return Said(422, {"message": "Validation Failed", "errors": [{"resource": "PullRequest", **complaint}]})
        pull = self.add_pull(said["head"], said["base"], title=said["title"], body=said["body"], draft=said["draft"])
        return Said(201, pull)

    def _complaint(self, said: dict[str, Any]) -> dict[str, str] | None:
        assert set(said) == _FIELDS, said
        if not said["title"].strip():
            return {"code": "missing_field", "field": "title"}
        if len(said["title"]) > 256:
            return {"code": "custom", "field": "title", "message": "title is too long (maximum is 256 characters)"}
        if len(said["body"]) > 65_536:
            return {"code": "custom", "field": "body", "message": "body is too long (maximum is 65536 characters)"}
        for field in ("head", "base"):
            if self.branch(said[field]) is None:
                return {"code": "invalid", "field": field}
        if self.branch(said["head"]) == self.branch(said["base"]):
            return {"code": "custom", "message": f"No commits between {said['base']} and {said['head']}"}
        label = f"{REPOSITORY.partition('/')[0]}:{said['head']}"
        for pull in self.pulls:
            ends = (pull["head"]["ref"], pull["head"]["repo"]["full_name"], pull["base"]["ref"], pull["state"])
            if ends == (said["head"], REPOSITORY, said["base"], "open"):
                return {"code": "custom", "message": f"A pull request already exists for {label}."}
        return None

    def add_pull(
        self, head: str, base: str, *, title: str = "", body: str = "", draft: bool = False, of: str = REPOSITORY
    ) -> dict[str, Any]:
        """As if somebody had opened it; `of` is the repository its branch is in."""
        number = 40 + len(self.pulls)
        pull: dict[str, Any] = {
            "number": number,
            "html_url": f"{self.origin}/{REPOSITORY}/pull/{number}",
            "state": "open",
            "title": title,
            "body": body,
            "draft": draft,
            "user": {"login": LOGIN},
            "head": {"ref": head, "label": f"{of.partition('/')[0]}:{head}", "repo": {"full_name": of}},
            "base": {"ref": base, "repo": {"full_name": REPOSITORY}},
        }
        self.pulls.append(pull)
        return pull
