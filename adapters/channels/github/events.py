"""What GitHub posts to a webhook, as messages: comments, new issues, and what happens to pull requests.

Issues and pull requests share their numbers, and a comment below a pull request is a comment of the issue of that
number: both are the thread `issues/N`, so that what is said and what happens there are one conversation. A message's
id is its address below the repository where it has one. All ids come from the signed body, never from a header."""

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from adapters.channel_port import InboundMessage, InboundRequest, Received
from adapters.errors import MalformedError

EVENT: Final = "x-github-event"
REPOSITORY: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}"
_WEBHOOKS: Final = ("opened", "reopened", "synchronize", "ready_for_review")
_MAX_TITLE, _MAX_BODY = 300, 20_000  # characters that a webhook message carries

Id = Annotated[int, Field(ge=1, lt=2**63)]
ShortText = Annotated[str, StringConstraints(max_length=1000)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Account(_Part):
    id: Id
    login: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\[\]-]{1,100}$")]
    type: ShortText = "User"


class _Repository(_Part):
    full_name: Annotated[str, StringConstraints(max_length=201)]


class _Issue(_Part):
    number: Id
    title: ShortText = ""
    body: str | None = None
    user: _Account | None = None  # None: the account is gone


class _Comment(_Part):
    id: Id
    body: str | None = None
    user: _Account | None = None
    path: ShortText | None = None
    line: int | None = None


class _Branch(_Part):
    ref: ShortText = ""
    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]


class _Pull(_Issue):
    html_url: ShortText = ""
    draft: bool = False
    head: _Branch
    base: _Branch
    updated_at: Annotated[str, StringConstraints(pattern=r"^[0-9TZ:.+-]{1,40}$")]


class _Numbered(_Part):
    number: Id


class _Event(_Part):
    action: ShortText
    repository: _Repository
    sender: _Account


class _IssueEvent(_Event):
    issue: _Issue


class _CommentEvent(_Event):
    issue: _Numbered
    comment: _Comment


class _ReviewEvent(_Event):
    pull_request: _Numbered
    comment: _Comment


class _PullEvent(_Event):
    pull_request: _Pull


_KINDS: Final[dict[str, type[_Event]]] = {
    "issues": _IssueEvent,
    "issue_comment": _CommentEvent,
    "pull_request_review_comment": _ReviewEvent,
    "pull_request": _PullEvent,
}


def read_event(request: InboundRequest, login: str) -> Received:
    """`login`: whom a mention names."""
    if request.body.startswith(b"payload="):
        raise MalformedError("body: it is a form; set the webhook's content type to application/json")
    name = request.headers.get(EVENT, "")
    if not name:
        raise MalformedError(f"the request has no {EVENT} header")
    kind = _KINDS.get(name)
    if kind is None:  # a ping, or more than was asked for
        return Received()
    try:
        event = kind.model_validate_json(request.body)
    except ValidationError as error:
        first = error.errors()[0]
        raise MalformedError(f"{'.'.join(map(str, first['loc']))[:100] or 'body'}: {first['msg']}") from None
    if not re.fullmatch(REPOSITORY, event.repository.full_name):
        raise MalformedError("repository.full_name: it is not of the form owner/name")
    if event.sender.type == "Bot":  # two that answer each other never end
        return Received()
    message = _message(event, login)
    return Received((message,) if message is not None else ())


def _message(event: _Event, login: str) -> InboundMessage | None:
    match event:
        case _CommentEvent(action="created"):
            return _said(event, login, event.comment, event.issue.number, f"issues/comments/{event.comment.id}")
        case _ReviewEvent(action="created"):
            path, line = event.comment.path, event.comment.line
            above = f"On {path}{f', line {line}' if line else ''}:\n\n" if path and event.comment.body else ""
            message_id = f"pulls/comments/{event.comment.id}"
            return _said(event, login, event.comment, event.pull_request.number, message_id, above)
        case _IssueEvent(action="opened"):
            number, title = event.issue.number, event.issue.title
            return _said(event, login, event.issue, number, f"issues/{number}", f"{title}\n\n")
        case _PullEvent() if event.action in _WEBHOOKS:
            return _webhook(event, login)
        case _:
            return None


def _said(
    event: _Event, login: str, what: _Comment | _Issue, number: int, message_id: str, above: str = ""
) -> InboundMessage | None:
    """None: it says nothing, or whoever brought the event about did not write it (a moved issue, an imported one)."""
    text = (above + (what.body or "")).strip()
    if not text or what.user is None or what.user.id != event.sender.id:
        return None
    return InboundMessage(
        platform_id=event.repository.full_name,
        platform_message_id=message_id,
        content={"text": _without_call(text, login)},
        thread_id=f"issues/{number}",
        sender_id=str(event.sender.id),
        sender_name=event.sender.login,
        is_mention=mentions(text, login),
    )


def _webhook(event: _PullEvent, login: str) -> InboundMessage:
    pull = event.pull_request
    payload: dict[str, Any] = {
        "action": event.action,
        "number": pull.number,
        "title": _cut(pull.title, _MAX_TITLE),
        "body": _cut(pull.body or "", _MAX_BODY),
        "user": pull.user.login if pull.user is not None else None,
        "html_url": pull.html_url,
        "head": {"ref": pull.head.ref, "sha": pull.head.sha},
        "base": {"ref": pull.base.ref, "sha": pull.base.sha},
        "draft": pull.draft,
    }
    return InboundMessage(
        platform_id=event.repository.full_name,
        # The id of the delivery is in a header, which the signature does not cover: a replay could change it.
        platform_message_id=f"pulls/{pull.number}/{event.action}/{pull.head.sha}/{pull.updated_at}",
        content={"source": "github", "event": "pull_request", "payload": payload},
        thread_id=f"issues/{pull.number}",
        sender_id=str(event.sender.id),
        sender_name=event.sender.login,
        kind="webhook",
        # Once: each push would repeat a mention that stands in the description.
        is_mention=event.action == "opened" and mentions(f"{pull.title}\n{pull.body or ''}", login),
    )


def mentions(text: str, login: str) -> bool:
    """Whether @login stands in it, as a word of its own: not in a mail address, nor as the beginning of another."""
    return bool(re.search(rf"(?<![\w@.+-])@{re.escape(login)}(?![\w-])", text, re.IGNORECASE)) if login else False


def _without_call(text: str, login: str) -> str:
    """Without the mention it begins with, if more follows: `@us /clear` is `/clear`."""
    return re.sub(rf"\A@{re.escape(login)}(?![\w/-])[\s,:]*(?=\S)", "", text, flags=re.IGNORECASE) if login else text


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " […]"
