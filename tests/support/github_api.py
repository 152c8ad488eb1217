"""A stand-in for GitHub: comments and reactions of its REST API, and the webhooks it would post, signed.

It checks token, headers, fields and limits as GitHub documents them, and notes what it refused in `problems`."""

import hashlib
import hmac
import json
import re
import ssl
import uuid
from datetime import UTC, datetime
from typing import Any, Literal

from tests.support.rest_stand_in import Asked, RestStandIn, Said

TOKEN = "github_pat_11AAAA_do-not-show-this"
SECRET = "a secret of the webhook"
LOGIN = "Octo-Agent"
REPOSITORY = "Octo-Org/hello.world"
_REACTIONS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}


class GithubApi(RestStandIn):
    base = "/api/v3"  # as on a server of one's own

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.issues = {9, 12}  # numbers that exist
        self.comments: list[dict[str, Any]] = []
        self.reactions: list[tuple[str, str]] = []  # to what, which
        self._last = 2_500_000_000

    def visible(self) -> list[str]:
        """What people read: comments of HTML are not shown outside code."""
        return [_rendered(comment["body"]) for comment in self.comments if comment["user"]["login"] == LOGIN]

    def add_comment(self, body: str, *, login: str, number: int = 12, at: str | None = None) -> dict[str, Any]:
        self._last += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        comment = {
            "id": self._last,
            "body": body,
            "user": {"login": login, "type": "User"},
            "issue_url": f"{self.url}/repos/{REPOSITORY}/issues/{number}",
            "updated_at": at or now,
        }
        self.comments.append(comment)
        return comment

    def signed(self, event: str, body: bytes) -> dict[str, str]:
        return {
            "x-github-event": event,
            "x-github-delivery": str(uuid.uuid4()),
            "x-hub-signature-256": "sha256=" + hmac.digest(SECRET.encode(), body, hashlib.sha256).hex(),
            "content-type": "application/json",
        }

    def misbehave(self, behaviour: Literal["busy", "refused"]) -> Said:
        if behaviour == "busy":
            return Said(403, {"message": "You have exceeded a secondary rate limit."}, {"retry-after": "7"})
        return Said(403, {"message": "Resource not accessible by personal access token"})

    def answer(self, asked: Asked) -> Said:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.problem(401, "Bad credentials")
        if not asked.headers.get("user-agent"):
            return self.problem(403, "Request forbidden by administrative rules: there is no User-Agent")
        if asked.headers.get("accept") != "application/vnd.github+json":
            return self.problem(415, "Must accept 'application/json'")
        if asked.headers.get("x-github-api-version") != "2022-11-28":
            return self.problem(400, "no such version of the API")
        root = f"/repos/{REPOSITORY}/"
        if not asked.path.startswith(root):
            return self.problem(404, "Not Found")
        path = asked.path.removeprefix(root)
        if thread := re.fullmatch(r"issues/([0-9]+)/comments", path):
            if int(thread[1]) not in self.issues:
                return self.problem(404, "Not Found")
            return self._list(int(thread[1]), asked) if asked.method == "GET" else self._create(int(thread[1]), asked)
        if comment := re.fullmatch(r"issues/comments/([0-9]+)", path):
            return self._edit(int(comment[1]), asked)
        if reacted := re.fullmatch(r"((?:issues|issues/comments|pulls/comments)/[0-9]+)/reactions", path):
            return self._react(reacted[1], asked)
        return self.problem(404, "Not Found")

    def _create(self, number: int, asked: Asked) -> Said:
        said = _json(asked)
        if asked.method != "POST" or (complaint := _complaint(said)):
            return self.problem(422, f"Validation Failed: {complaint}")
        comment = self.add_comment(said["body"], login=LOGIN, number=number)
        return Said(201, comment, {"location": f"{self.url}/repos/{REPOSITORY}/issues/comments/{comment['id']}"})

    def _list(self, number: int, asked: Asked) -> Said:
        if unknown := set(asked.query) - {"since", "per_page", "page"}:
            return self.problem(422, f"one issue's comments cannot be listed by {unknown}")
        size, page = int(asked.query.get("per_page", 30)), int(asked.query.get("page", 1))
        since = asked.query.get("since", "")
        if not 1 <= size <= 100 or (since and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", since)):
            return self.problem(422, "per_page, since")
        own = [c for c in self.comments if c["issue_url"].endswith(f"/{number}") and c["updated_at"] >= since]
        return Said(200, own[(page - 1) * size : page * size])

    def _edit(self, number: int, asked: Asked) -> Said:
        said = _json(asked)
        if asked.method != "PATCH" or (complaint := _complaint(said)):
            return self.problem(422, f"Validation Failed: {complaint}")
        found = [comment for comment in self.comments if comment["id"] == number]
        if not found:
            return self.problem(404, "Not Found")
        found[0]["body"] = said["body"]
        return Said(200, found[0])

    def _react(self, target: str, asked: Asked) -> Said:
        said = _json(asked)
        if asked.method != "POST" or said.get("content") not in _REACTIONS:
            return self.problem(422, "Validation Failed: content")
        again = (target, said["content"]) in self.reactions
        self.reactions.append((target, said["content"]))
        return Said(200 if again else 201, {"id": 1, "content": said["content"]})


def _json(asked: Asked) -> dict[str, Any]:
    said = json.loads(asked.body)
    return said if isinstance(said, dict) and asked.headers.get("content-type") == "application/json" else {}


def _complaint(said: dict[str, Any]) -> str | None:
    body = said.get("body")
    if set(said) != {"body"} or not isinstance(body, str) or not body.strip():
        return "body can't be blank"
    return "body is too long (maximum is 65536 characters)" if len(body) > 65_536 else None


def _rendered(body: str) -> str:
    """Outside code, a comment of HTML hides all up to its end, or the whole rest if it has none."""
    parts = re.split(r"(```.*?```|`[^`\n]*`)", body, flags=re.DOTALL)
    shown = [part if n % 2 else re.sub(r"<!--.*?(?:-->|\Z)", "", part, flags=re.DOTALL) for n, part in enumerate(parts)]
    return "".join(shown).rstrip()
