"""The `github` channel over its real wire: the contract, and what only GitHub has."""

import copy
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channel_port import Channel, Destination, InboundMessage, InboundRequest, OutboundMessage
from adapters.channels import http
from adapters.channels.conformance import CHECKS, FAULTS, Check, Fault, Forgery, run_check
from adapters.channels.github import GithubChannel
from adapters.channels.github.events import read_event
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError
from tests.support.channel_settings import complaint_about
from tests.support.github_api import LOGIN, REPOSITORY, SECRET, TOKEN, GithubApi
from tests.support.rest_stand_in import Said

EXCUSED = {
    "refuses_every_request",
    "shows_one_message_per_key",
    "shows_buttons_and_hears_them",
    "opens_a_direct_chat",
}
NAMES = {"message-1": "issues/comments/4242", "thread-9": "issues/9", "ada": "583231"}
PLACE = Destination(REPOSITORY, "issues/12")
ADA: dict[str, Any] = {"id": 583231, "login": "ada", "type": "User"}
OTHER: dict[str, Any] = {"id": 583232, "login": "eve", "type": "User"}
COMMENT: dict[str, Any] = {
    "action": "created",
    "issue": {"number": 12, "title": "It breaks", "body": "see title", "user": ADA},
    "comment": {"id": 4242, "body": "hi", "user": ADA},
    "repository": {"id": 1, "full_name": REPOSITORY},
    "sender": ADA,
}
PULL: dict[str, Any] = {
    "action": "opened",
    "number": 12,
    "pull_request": {
        "number": 12,
        "title": "Make it work",
        "body": "@octo-agent please look",
        "html_url": f"https://github.com/{REPOSITORY}/pull/12",
        "user": ADA,
        "draft": False,
        "head": {"ref": "fix", "sha": "a" * 40},
        "base": {"ref": "main", "sha": "b" * 40},
        "updated_at": "2026-01-31T09:00:00Z",
    },
    "repository": {"id": 1, "full_name": REPOSITORY},
    "sender": ADA,
}
REVIEW = COMMENT | {
    "pull_request": {"number": 12},
    "comment": {"id": 77, "body": "why?", "path": "a.py", "line": 3, "user": ADA},
}


class GithubHarness:
    destination = PLACE
    receives = True
    forgeries: Sequence[Forgery] = ("wrong", "missing", "non-ascii", "garbage")  # there is no time that could be old
    threads: Sequence[str | None] = ("thread-9",)  # everything is said in one
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = True

    def __init__(self, api: GithubApi) -> None:
        self.api = api
        self.channel: Channel = GithubChannel(
            token=TOKEN, secret=SECRET, api=api.url, login=LOGIN.lower(), agent="helper"
        )

    def named(self, ours: str) -> str:
        return NAMES[ours]

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        number = int(NAMES[thread].split("/")[1]) if thread else 12
        comment = {"id": int(NAMES[message_id].split("/")[-1]), "body": text, "user": ADA}
        return self.signed("issue_comment", COMMENT | {"issue": {"number": number}, "comment": comment})

    def press(self, label: str, sender: str) -> InboundRequest:
        raise NotImplementedError("GitHub has no buttons")

    def buttons(self) -> list[str]:
        return []

    def forged(self, forgery: Forgery) -> InboundRequest:
        body = json.dumps(COMMENT).encode()
        signed = self.api.signed("issue_comment", body)
        headers = {
            "wrong": self.api.signed("issue_comment", body + b" "),
            "missing": {"x-github-event": "issue_comment"},
            "non-ascii": signed | {"x-hub-signature-256": "sha256=ünïcödé"},
            "garbage": signed | {"x-hub-signature-256": "sha1=,,="},
        }
        return InboundRequest(headers=headers[forgery], body=body)

    def unreadable(self) -> Sequence[InboundRequest]:
        changes: list[dict[str, Any]] = [
            {"action": None}, {"action": 5}, {"issue": None}, {"issue": {}}, {"issue": {"number": "12"}},
            {"issue": {"number": 0}}, {"issue": {"number": 10**30}}, {"issue": {"number": 1.5}}, {"comment": []},
            {"comment": {"id": -1, "body": "x"}}, {"comment": {"id": 1, "body": 5}}, {"sender": None},
            {"sender": ADA | {"id": "583231"}}, {"sender": ADA | {"login": "a b"}}, {"repository": None},
            {"repository": {"full_name": "no-owner"}}, {"repository": {"full_name": "../.."}},
            {"repository": {"full_name": "a/b/c"}}, {"repository": {"full_name": "a/.."}},
            {"repository": {"full_name": "a/b?x"}}, {"comment": {"id": 1, "body": "\ud800"}},
        ]  # fmt: skip
        bodies = (b"", b"not json", b"\xff\xfe", b"[]", b"5", b"null", b"{}", b"payload=%7B%7D", b"[" * 5000)
        pulls: list[dict[str, Any]] = [
            {"pull_request": PULL["pull_request"] | {"head": {"ref": "fix", "sha": "../.."}}},
            {"pull_request": PULL["pull_request"] | {"updated_at": "now\nthen"}},
            {"pull_request": {"number": 12}},
        ]
        return [
            *(self.signed("issue_comment", COMMENT | change) for change in changes),
            *(self.signed("pull_request", PULL | change) for change in pulls),
            *(self.raw("issue_comment", body) for body in bodies),
            self.raw("", json.dumps(COMMENT).encode()),
            # The name of the event is not signed: another one does not turn a body into something else.
            self.signed("issues", PULL),
            self.signed("pull_request", COMMENT),
            self.signed("pull_request_review_comment", COMMENT),
        ]

    def unwanted(self) -> InboundMessage | None:
        return InboundMessage(REPOSITORY, "issues/comments/1", {"text": "mine"}, sender_id="1", sender_name=LOGIN)

    def shown(self) -> list[str]:
        assert self.api.problems == []
        return self.api.visible()

    def fail_next(self, fault: Fault) -> None:
        if fault == "away":
            self.api.close()
        else:
            self.api.fail_next(fault)

    def signed(self, event: str, payload: dict[str, Any]) -> InboundRequest:
        return self.raw(event, json.dumps(payload).encode())

    def raw(self, event: str, body: bytes) -> InboundRequest:
        return InboundRequest(headers=self.api.signed(event, body), body=body)


@pytest.fixture
def api() -> Iterator[GithubApi]:
    stand_in = GithubApi()
    yield stand_in
    stand_in.close()


@pytest.fixture
async def github(api: GithubApi) -> AsyncIterator[GithubHarness]:
    harness = GithubHarness(api)
    yield harness
    await harness.channel.close()


def message(text: str = "x", key: str = "key-1", where: Destination = PLACE) -> OutboundMessage:
    return OutboundMessage(where, {"text": text}, key)


def heard(github: GithubHarness, event: str, payload: dict[str, Any]) -> InboundMessage:
    request = github.signed(event, payload)
    github.channel.verify(request)
    [found] = github.channel.receive(request).messages
    return found


@pytest.mark.spec("C1", "C2", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_github_keeps_the_contract_over_http(check: Check, github: GithubHarness) -> None:
    outcome = await run_check(check, github)
    assert (outcome is None) == (check.name not in EXCUSED)


# --- In ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2")
@pytest.mark.parametrize("event", ["ping", "push", "star", "workflow_run"])
def test_a_ping_and_what_nobody_asked_for_bring_nothing(event: str, github: GithubHarness) -> None:
    received = github.channel.receive(github.signed(event, {"zen": "Keep it logically awesome.", "hook_id": 1}))
    assert (received.messages, received.presses, received.answer) == ((), (), None)


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("issue_comment", COMMENT | {"action": "edited"}),
        ("issue_comment", COMMENT | {"action": "deleted"}),
        ("issue_comment", COMMENT | {"comment": {"id": 1, "body": " \n"}}),
        ("issue_comment", COMMENT | {"comment": {"id": 1, "body": None}}),
        ("issue_comment", COMMENT | {"sender": {"id": 5, "login": "renovate[bot]", "type": "Bot"}}),
        ("issues", COMMENT | {"action": "closed"}),
        # What one person wrote is not said by another, who only brought it about.
        ("issues", COMMENT | {"action": "opened", "sender": OTHER}),
        ("issues", COMMENT | {"action": "opened", "issue": {"number": 12, "title": "of nobody", "user": None}}),
        ("issue_comment", COMMENT | {"sender": OTHER}),
        ("issue_comment", COMMENT | {"comment": {"id": 1, "body": "of nobody"}}),
        ("pull_request_review_comment", REVIEW | {"sender": OTHER}),
        ("pull_request_review_comment", REVIEW | {"action": "edited"}),
        ("pull_request", PULL | {"action": "labeled"}),
        ("pull_request", PULL | {"sender": {"id": 5, "login": "renovate[bot]", "type": "Bot"}}),
    ],
)
def test_changes_labels_empty_texts_and_bots_bring_nothing(
    event: str, payload: dict[str, Any], github: GithubHarness
) -> None:
    assert github.channel.receive(github.signed(event, payload)).messages == ()


@pytest.mark.spec("C2")
def test_a_form_is_refused_with_the_setting_to_change(github: GithubHarness) -> None:
    with pytest.raises(MalformedError, match="content type to application/json"):
        github.channel.receive(github.raw("ping", b"payload=%7B%22zen%22%3A1%7D"))


@pytest.mark.spec("C2")
def test_a_new_issue_is_its_title_and_text(github: GithubHarness) -> None:
    issue = {"number": 12, "title": "It breaks", "body": "ask @OCTO-agent", "user": ADA}
    found = heard(github, "issues", COMMENT | {"action": "opened", "issue": issue})
    assert found.content == {"text": "It breaks\n\nask @OCTO-agent"}
    assert (found.platform_id, found.thread_id) == (REPOSITORY, "issues/12")
    assert found.platform_message_id == "issues/12"
    assert (found.sender_id, found.sender_name) == ("583231", "ada")
    assert found.is_mention
    assert not found.is_direct


@pytest.mark.spec("C2")
def test_a_comment_on_a_line_says_which_line(github: GithubHarness) -> None:
    found = heard(github, "pull_request_review_comment", REVIEW)
    assert found.content == {"text": "On a.py, line 3:\n\nwhy?"}
    assert (found.thread_id, found.platform_message_id) == ("issues/12", "pulls/comments/77")


@pytest.mark.spec("C2")
def test_what_happens_to_a_pull_request_is_in_the_thread_of_its_comments(github: GithubHarness) -> None:
    found = heard(github, "pull_request", PULL)
    assert found.kind == "webhook"
    assert found.thread_id == heard(github, "issue_comment", COMMENT).thread_id
    payload = found.content["payload"]
    assert (found.content["source"], found.content["event"]) == ("github", "pull_request")
    assert payload == {
        "action": "opened",
        "number": 12,
        "title": "Make it work",
        "body": "@octo-agent please look",
        "user": "ada",
        "html_url": f"https://github.com/{REPOSITORY}/pull/12",
        "head": {"ref": "fix", "sha": "a" * 40},
        "base": {"ref": "main", "sha": "b" * 40},
        "draft": False,
    }


@pytest.mark.spec("C2")
def test_only_the_opening_of_a_pull_request_mentions_whom_its_text_names(github: GithubHarness) -> None:
    found = {
        action: heard(github, "pull_request", PULL | {"action": action}).is_mention
        for action in ("opened", "reopened", "synchronize", "ready_for_review")
    }
    assert found == {"opened": True, "reopened": False, "synchronize": False, "ready_for_review": False}


@pytest.mark.spec("C2")
def test_of_a_long_pull_request_a_bounded_part_is_taken(github: GithubHarness) -> None:
    pull = PULL["pull_request"] | {"body": "🫖" * 65_536, "title": "t" * 500, "user": None}
    payload = heard(github, "pull_request", PULL | {"pull_request": pull}).content["payload"]
    assert (len(payload["body"]), len(payload["title"]), payload["user"]) == (20_004, 304, None)


@pytest.mark.spec("C8")
def test_a_delivery_that_is_repeated_has_its_id_and_another_push_another(github: GithubHarness) -> None:
    """Also with another delivery id: that is in a header, and not signed."""
    pushed = copy.deepcopy(PULL) | {"action": "synchronize"}
    ids = {heard(github, "pull_request", pushed).platform_message_id for _ in range(2)}
    assert len(ids) == 1
    pushed["pull_request"]["head"]["sha"] = "c" * 40
    assert heard(github, "pull_request", pushed).platform_message_id not in ids
    assert all(len(found) <= 255 for found in ids)


@pytest.mark.spec("C8")
def test_a_body_that_was_written_anew_is_refused(github: GithubHarness) -> None:
    signed = github.api.signed("issue_comment", json.dumps(COMMENT).encode())
    with pytest.raises(SignatureError, match="does not fit the body"):
        github.channel.verify(InboundRequest(headers=signed, body=json.dumps(COMMENT, indent=1).encode()))


@pytest.mark.spec("C2", "M2")
@pytest.mark.parametrize(
    ("text", "mention"),
    [
        ("@octo-agent help", True),
        ("please (@Octo-Agent), look", True),
        ("ask @OCTO-AGENT.", True),
        ("octo-agent", False),
        ("@octo-agent-2 help", False),
        ("@octo-agents", False),
        ("mail me@octo-agent", False),
        ("@@octo-agent", False),
        ("@octo", False),
    ],
)
def test_a_mention_is_the_whole_name_with_its_sign(text: str, mention: bool, github: GithubHarness) -> None:
    found = heard(github, "issue_comment", COMMENT | {"comment": {"id": 1, "body": text, "user": ADA}})
    assert found.is_mention == mention


@pytest.mark.spec("M16", "C6")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@octo-agent /clear", "/clear"),
        (" @Octo-Agent: approve 1a2b3c4d", "approve 1a2b3c4d"),
        ("@octo-agent", "@octo-agent"),
        ("@octo-agent @octo-agent hi", "@octo-agent hi"),
        ("@octo-agent-2 hi @octo-agent", "@octo-agent-2 hi @octo-agent"),
        ("ask @octo-agent", "ask @octo-agent"),
    ],
)
def test_the_mention_before_what_is_said_is_not_part_of_it(text: str, said: str, github: GithubHarness) -> None:
    found = heard(github, "issue_comment", COMMENT | {"comment": {"id": 1, "body": text, "user": ADA}})
    assert (found.content["text"], found.is_mention) == (said, True)


@pytest.mark.spec("C2", "C4")
def test_its_own_comments_come_back_and_are_dropped(github: GithubHarness) -> None:
    us = {"id": 9, "login": LOGIN.upper(), "type": "User"}
    own = heard(github, "issue_comment", COMMENT | {"sender": us, "comment": COMMENT["comment"] | {"user": us}})
    assert not github.channel.accepts(own)
    assert github.channel.accepts(heard(github, "issue_comment", COMMENT))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_EVENTS = {"issues": COMMENT | {"action": "opened"}, "issue_comment": COMMENT, "pull_request": PULL}


@pytest.mark.spec("C2", "C8")
@given(
    event=st.sampled_from(sorted({*_EVENTS, "pull_request_review_comment"})),
    path=st.lists(st.sampled_from(["pull_request", "comment", "issue", "head", "user", "id", "body"]), max_size=3),
    field=st.sampled_from(["action", "issue", "comment", "sender", "repository", "pull_request", "number", "sha"]),
    value=_JSON,
)
def test_a_field_of_any_shape_is_read_or_refused_as_malformed(
    event: str, path: list[str], field: str, value: Any
) -> None:
    whole = copy.deepcopy(_EVENTS.get(event, REVIEW))
    at = whole
    for name in path:
        at = at[name] if isinstance(at.get(name), dict) else at
    at[field] = value
    with suppress(MalformedError):
        request = InboundRequest(headers={"x-github-event": event}, body=json.dumps(whole).encode())
        for found in read_event(request, LOGIN).messages:
            assert found.thread_id is not None
            assert found.thread_id.startswith("issues/")


# --- Out ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "M12")
async def test_a_comment_carries_its_key_where_people_do_not_see_it(github: GithubHarness) -> None:
    await github.channel.deliver(message("# Done\n\n- it works"))
    [comment] = github.api.comments
    assert comment["body"].startswith("# Done\n\n- it works\n\n<!-- longshore:")
    assert "key-1" not in comment["body"]
    assert github.shown() == ["# Done\n\n- it works"]


@pytest.mark.spec("M12")
@pytest.mark.parametrize("fault", ["spoiled", "lost", "garbled"])
async def test_a_doubtful_comment_is_found_by_its_key(fault: Any, github: GithubHarness) -> None:
    github.api.fail_next(fault)
    with pytest.raises(DeliveryError) as caught:
        await github.channel.deliver(message())
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)
    found = await github.channel.find_receipt(PLACE, "key-1")
    assert found is not None
    assert found.platform_message_id == f"issues/comments/{github.api.comments[0]['id']}"
    assert await github.channel.find_receipt(Destination(REPOSITORY, "issues/9"), "key-1") is None


@pytest.mark.spec("M12")
async def test_a_comment_is_found_behind_many_others(github: GithubHarness) -> None:
    for number in range(95):
        github.api.add_comment(f"comment {number}", login="ada")
    sent = await github.channel.deliver(message())
    assert await github.channel.find_receipt(PLACE, "key-1") == sent
    assert await github.channel.find_receipt(PLACE, "key-2") is None
    assert github.api.problems == []


@pytest.mark.spec("M12")
async def test_a_mark_counts_only_at_the_end_of_our_own_comment(github: GithubHarness) -> None:
    """Somebody may copy one, and an agent may write one."""
    await github.channel.deliver(message("first"))
    mark = github.api.comments[0]["body"].removeprefix("first").strip()
    github.api.comments.clear()
    github.api.add_comment(f"copied\n\n{mark}", login="mallory")
    await github.channel.deliver(message(f"`{mark}`", "key-2"))
    await github.channel.deliver(message(mark, "key-3"))
    assert await github.channel.find_receipt(PLACE, "key-1") is None


@pytest.mark.spec("M12")
@pytest.mark.parametrize("said", [Said(200, b"[{"), Said(200, {"message": "?"}), Said(500), Said(404)])
async def test_comments_that_cannot_be_read_are_not_taken_for_none(said: Said, github: GithubHarness) -> None:
    await github.channel.deliver(message())
    github.api.scripted.append(said)
    with pytest.raises(DeliveryError):
        await github.channel.find_receipt(PLACE, "key-1")


@pytest.mark.spec("M12")
async def test_odd_comments_in_the_list_are_passed_over(github: GithubHarness) -> None:
    odd: list[Any] = [
        None,
        5,
        {},
        {"id": "1", "body": None, "user": None},
        {"id": 1, "body": 5, "user": {"login": LOGIN}},
    ]
    github.api.scripted.append(Said(200, odd))
    assert await github.channel.find_receipt(PLACE, "key-1") is None


@pytest.mark.spec("M12")
async def test_a_thread_that_never_ends_is_not_read_for_ever(github: GithubHarness) -> None:
    page: list[Any] = [{}] * 30
    github.api.scripted += [Said(200, page)] * 50
    with pytest.raises(DeliveryError, match="more than 1200 new comments"):
        await github.channel.find_receipt(PLACE, "key-1")
    assert len(github.api.asked) == 40


@pytest.mark.spec("C2", "C3")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <!-- hidden --> b", "a &lt;!-- hidden --> b"),
        ("a <!-- never closed", "a &lt;!-- never closed"),
        ("in code: `<!-- x -->` and <!-- y", "in code: `<!-- x -->` and &lt;!-- y"),
        ("```html\n<!-- x -->\n```", "```html\n<!-- x -->\n```"),
        # Programs that read comments take orders from lines like these, and from mentions of themselves.
        ("see:\n/approve\n  /merge `x`/y a/b", "see:\n\\/approve\n  \\/merge `x`/y a/b"),
        ("```\n/etc/hosts @renovate[bot]\n```", "```\n/etc/hosts @renovate[bot]\n```"),
        ("@Dependabot rebase, @x[bot]", "@\u200bDependabot rebase, @\u200bx[bot]"),
        ("@octo-org/everybody look", "@\u200bocto-org/everybody look"),
        ("@ada, a@dependabot.com, @dependabots", "@ada, a@dependabot.com, @dependabots"),
    ],
)
async def test_what_an_agent_writes_is_all_visible_and_orders_nobody_and_code_stays_as_it_is(
    text: str, shown: str, github: GithubHarness
) -> None:
    receipt = await github.channel.deliver(message(text))
    assert github.shown() == [shown]
    assert github.channel.length(text) == len(shown)
    assert receipt.platform_message_id is not None
    await github.channel.edit(PLACE, receipt.platform_message_id, {"text": f"changed: {text}"})
    assert github.shown() == [f"changed: {shown}"]


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "thread", [None, "", "12", "issues/0", "issues/12/../13", "issues/12\n", "pulls/12", "issues/٣"]
)
async def test_a_message_without_an_issue_has_nowhere_to_go(thread: str | None, github: GithubHarness) -> None:
    where = Destination(REPOSITORY, thread)
    with pytest.raises(DeliveryError, match="GitHub messages go to an issue or a pull request") as caught:
        await github.channel.deliver(message(where=where))
    assert not caught.value.retryable
    with pytest.raises(DeliveryError, match="GitHub messages go to an issue"):
        await github.channel.find_receipt(where, "key-1")
    assert github.api.asked == []


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize(
    "name", ["", "hello", "a/b/c", "../..", "a/..", "a/.", "a/b?x=", "a/b#", "a b/c", "a/b\n", "@a/b"]
)
async def test_what_is_no_repository_never_becomes_a_part_of_an_address(name: str, github: GithubHarness) -> None:
    where = Destination(name, "issues/12")
    acts = [
        github.channel.deliver(message(where=where)),
        github.channel.edit(where, "issues/comments/1", {"text": "x"}),
        github.channel.react(where, "issues/comments/1", "👍"),
    ]
    for act in acts:
        with pytest.raises(DeliveryError, match=r"is no repository \(owner/name\)") as caught:
            await act
        assert not caught.value.retryable
    assert github.api.asked == []


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize(
    "target", ["", "1", "issues/comments/x", "issues/comments/1/../2", "../user", "pulls/12/opened/a/b"]
)
async def test_what_is_no_comment_never_becomes_a_part_of_an_address(target: str, github: GithubHarness) -> None:
    with pytest.raises(ChannelError, match="is no comment that can be edited"):
        await github.channel.edit(PLACE, target, {"text": "x"})
    with pytest.raises(ChannelError, match="is nothing one can react to"):
        await github.channel.react(PLACE, target, "👍")
    assert github.api.asked == []


@pytest.mark.spec("C2", "C3")
@pytest.mark.parametrize(
    ("emoji", "content"),
    [
        ("👍", "+1"), ("👍🏽", "+1"), ("thumbs_up", "+1"), ("👎", "-1"), ("😄", "laugh"), ("😕", "confused"),
        ("❤️", "heart"), ("❤", "heart"), (":tada:", "hooray"), ("🚀", "rocket"), ("eyes", "eyes"),
    ],
)  # fmt: skip
async def test_each_of_github_s_reactions_can_be_given(emoji: str, content: str, github: GithubHarness) -> None:
    await github.channel.react(PLACE, "issues/comments/4242", emoji)
    assert github.api.reactions == [("issues/comments/4242", content)]


@pytest.mark.spec("C2", "C3")
async def test_all_that_was_heard_can_be_reacted_to(github: GithubHarness) -> None:
    heard_ones = [
        heard(github, "issue_comment", COMMENT),
        heard(github, "pull_request_review_comment", REVIEW),
        heard(github, "issues", COMMENT | {"action": "opened"}),
    ]
    for one in heard_ones:
        await github.channel.react(Destination(one.platform_id, one.thread_id), one.platform_message_id, "👀")
    assert github.api.reactions == [(one.platform_message_id, "eyes") for one in heard_ones]
    assert github.api.problems == []


@pytest.mark.spec("C2", "C3")
async def test_a_reaction_that_github_does_not_have_is_refused_before_it_is_asked(github: GithubHarness) -> None:
    with pytest.raises(ChannelError, match="GitHub has only the reactions"):
        await github.channel.react(PLACE, "issues/comments/1", "🫖")
    assert github.api.asked == []


@pytest.mark.spec("M12")
@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        (Said(429, {"message": "slow down"}, {"retry-after": "30"}), 30, 30),
        (Said(403, {"message": "You have exceeded a secondary rate limit"}), 60, 60),
        (Said(429, b"<html>"), 60, 60),
        (Said(403, {}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "@+1800"}), 1700, 1800),
        (Said(403, {}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "@-60"}), 0, 0),
        (Said(429, {}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "999999999999"}), 3600, 3600),
        (Said(429, {}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}), 60, 60),
    ],
)
async def test_a_limit_is_waited_for_as_long_as_github_says(
    said: Said, least: float, most: float, github: GithubHarness
) -> None:
    reset = said.headers.get("x-ratelimit-reset", "")
    at = str(int(time.time()) + int(reset[1:])) if reset.startswith("@") else reset
    github.api.scripted.append(
        Said(said.status, said.body, {**said.headers, **({"x-ratelimit-reset": at} if at else {})})
    )
    with pytest.raises(DeliveryError) as caught:
        await github.channel.deliver(message())
    assert caught.value.retryable
    assert not caught.value.may_have_arrived
    assert caught.value.retry_after is not None
    assert least <= caught.value.retry_after <= most


@pytest.mark.spec("M12")
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (Said(403, {"message": "Must have admin rights"}, {"x-ratelimit-remaining": "59"}), "403: Must have admin"),
        (Said(404, {"message": "Not Found"}), "404: Not Found"),
        (Said(410, {"message": "This issue was deleted"}), "410: This issue"),
        (Said(307, {"message": "Moved"}, {"location": "/repositories/1"}), "307: the repository has another name now"),
        (Said(422, ["odd"]), "422"),
    ],
)
async def test_what_github_refuses_for_good_is_given_up_with_its_reason(
    said: Said, complaint: str, github: GithubHarness
) -> None:
    github.api.scripted.append(said)
    with pytest.raises(DeliveryError, match=f"github answered {complaint}") as caught:
        await github.channel.deliver(message())
    assert not caught.value.retryable
    assert len(github.api.asked) == 1


@pytest.mark.spec("M12")
async def test_github_that_does_not_answer_in_time_is_in_doubt(
    github: GithubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.5)  # enough to connect on a busy machine
    github.api.fail_next("slow")
    with pytest.raises(DeliveryError, match="github: ReadTimeout") as caught:
        await github.channel.deliver(message())
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)


@pytest.mark.spec("F9", "C2")
async def test_no_error_shows_the_token_even_if_github_repeats_it(github: GithubHarness) -> None:
    github.api.scripted.append(Said(401, {"message": f"Bad credentials: {TOKEN}"}))
    with pytest.raises(DeliveryError, match="github answered 401: Bad credentials") as caught:
        await github.channel.deliver(message())
    assert TOKEN not in repr(caught.value)
    assert not caught.value.retryable


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("F9", "C2")
@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TOKEN", "hunter2 hunter2", "is not a key"),
        ("SECRET", "hunter2\n", "is not one line of text"),
        ("API", "ftp://hunter2", "is not an address"),
        ("LOGIN", "@hunter2", "is not the login of an account, without @"),
        ("AGENT", "a/hunter2", "is not the folder of an agent"),
    ],
)
def test_a_malformed_setting_is_named_and_not_shown(
    name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = complaint_about(f"LONGSHORE_GITHUB_{name}", value, GithubChannel, monkeypatch)
    assert said.startswith(f"LONGSHORE_GITHUB_{name} {complaint}")


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize(("secret", "login"), [("", LOGIN), (SECRET, ""), ("", "")])
async def test_without_secret_or_login_it_takes_no_requests(secret: str, login: str, github: GithubHarness) -> None:
    channel = GithubChannel(token=TOKEN, secret=secret, api=github.api.url, login=login, agent="helper")
    assert not channel.receives
    with pytest.raises(SignatureError, match="LONGSHORE_GITHUB_SECRET and LONGSHORE_GITHUB_LOGIN are not both set"):
        channel.verify(github.signed("issue_comment", COMMENT))


@pytest.mark.spec("C2")
@pytest.mark.parametrize(("token", "login", "missing"), [("", LOGIN, "TOKEN"), (TOKEN, "", "LOGIN")])
async def test_without_token_or_login_nothing_is_sent(token: str, login: str, missing: str, api: GithubApi) -> None:
    channel = GithubChannel(token=token, secret=SECRET, api=api.url, login=login, agent="")
    with pytest.raises(DeliveryError, match=f"LONGSHORE_GITHUB_{missing} is not set") as caught:
        await channel.deliver(message())
    assert not caught.value.retryable
    assert api.asked == []


@pytest.mark.spec("C2")
async def test_settings_come_from_the_environment(api: GithubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TOKEN": TOKEN, "SECRET": SECRET, "API": api.url + "/", "LOGIN": LOGIN}.items():
        monkeypatch.setenv(f"LONGSHORE_GITHUB_{name}", value)
    channel = GithubChannel()
    channel.verify(InboundRequest(headers=api.signed("ping", b"{}"), body=b"{}"))
    await channel.deliver(message())
    assert api.visible() == ["x"]
    await channel.close()


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    ("mention", "known", "agent"), [(True, True, "helper"), (False, True, None), (True, False, None)]
)
def test_a_repository_is_registered_only_by_a_mention_of_somebody_who_is_known(
    mention: bool, known: bool, agent: str | None, github: GithubHarness
) -> None:
    found = InboundMessage(REPOSITORY, "issues/comments/1", {"text": "hi"}, sender_id="1", is_mention=mention)
    assert github.channel.registers(found, known=known) == agent
