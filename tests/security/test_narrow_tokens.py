"""A token that may only talk decides nothing, answers nothing and schedules nothing, in whichever form it is tried; its
bearer's standing does not matter."""

from typing import Any

import pytest

from adapters.errors import AdapterError
from models import Approval, MessageIn, PendingQuestion
from models.tokens import Scope
from tests.support.api_callers import Caller, caller
from tests.support.cards import SCRIPT as LAUNCH
from tests.support.console_session import sign_in_user
from tests.support.open_gateway import Gateway, wire
from workers.consent.requests import code_of

pytestmark = [pytest.mark.spec("G2", "C5"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]

ASK = """- when: hello
  play:
  - tool: ask_user_question
    with: {title: Paint, question: 'Which colour?', options: [red, blue]}
  - answer: 'so: {result}'
- play: [{answer: 'heard: {texts}'}]
"""
OFFER = """- when: hello
  play:
  - tool: send_card
    with: {card: {title: Menu, actions: [{label: Tea, value: tea}]}}
  - answer: there
- play: [{answer: 'heard: {texts}'}]
"""


async def crm(gateway: Gateway, script: str, *scopes: Scope) -> Caller:
    """An admin of the agent, whose direct chat it answers in."""
    group = await gateway.fleet.add_group(script=script)
    await wire(gateway.fleet, group, "web", "crm")
    return await caller(gateway, "crm", "admin", group, scopes=scopes)


async def say(who: Caller, text: str) -> Any:
    return await who.post("/web/crm/messages", {"text": text}, expected=202)


async def begin(gateway: Gateway, who: Caller) -> str:
    """Something is said, and a card comes; returns the token of its first button."""
    await say(who, "hello")
    await gateway.fleet.settle_down()
    shown = (await who.get("/web/crm/messages"))["messages"]
    button = [one for one in shown if one.get("buttons")][-1]["buttons"][0]
    return str(button["token"])


async def approval(gateway: Gateway) -> Any:
    [row] = await gateway.fleet.rows(Approval)
    return row


async def question(gateway: Gateway) -> Any:
    [row] = await gateway.fleet.rows(PendingQuestion)
    return row


async def test_a_press_approves_only_with_the_scope_for_it(gateway: Gateway) -> None:
    narrow = await crm(gateway, LAUNCH, "send")
    token = await begin(gateway, narrow)
    refused = await narrow.ask("POST", "/web/presses", {"token": token})
    assert (refused.status_code, "'decide'" in refused.json()["detail"]) == (403, True)
    assert (await approval(gateway)).status == "pending"
    able = await caller(gateway, "crm", scopes=["send", "decide"])
    assert "approved" in (await able.post("/web/presses", {"token": token}))["text"]
    assert (await approval(gateway)).status == "approved"


async def test_words_approve_only_with_the_scope_for_it(gateway: Gateway) -> None:
    narrow = await crm(gateway, LAUNCH, "send")
    await begin(gateway, narrow)
    code = code_of((await approval(gateway)).id)
    assert (await say(narrow, f"approve {code}"))["handled"] == "answer"
    await gateway.fleet.settle_down()
    assert "'decide'" in (await narrow.get("/web/crm/messages"))["messages"][-1]["text"]
    assert (await approval(gateway)).status == "pending"
    able = await caller(gateway, "crm", scopes=["send", "decide"])
    await say(able, f"approve {code}")
    assert (await approval(gateway)).status == "approved"


@pytest.mark.parametrize("words", ["red", "1", "whatever you like"])
async def test_words_answer_a_question_only_with_the_scope_for_it(gateway: Gateway, words: str) -> None:
    """Without it they are a message like any other, and wait behind the question."""
    narrow = await crm(gateway, ASK, "send")
    token = await begin(gateway, narrow)
    refused = await narrow.ask("POST", "/web/presses", {"token": token})
    assert (refused.status_code, "'decide'" in refused.json()["detail"]) == (403, True)
    said = await say(narrow, words)
    handed_in = {"agent_group": "demo", "channel_type": "web", "platform_id": "crm", "text": words}
    also = await narrow.post("/v1/messages", handed_in, expected=202)
    beside = await narrow.post(f"/v1/sessions/{said['session']}/messages", {"text": words}, expected=202)
    for taken in (said, also, beside):
        assert (taken.get("handled"), taken.get("answered_turn")) == (None, None)
    assert (await question(gateway)).status == "pending"
    able = await caller(gateway, "crm", scopes=["send", "decide"])
    await say(able, words)
    assert (await question(gateway)).status == "answered"


async def test_what_an_agent_offers_is_said_with_the_scope_to_talk(gateway: Gateway) -> None:
    narrow = await crm(gateway, OFFER, "send")
    token = await begin(gateway, narrow)
    assert (await narrow.post("/web/presses", {"token": token}))["text"] == "Tea"


async def test_a_browser_that_may_only_talk_decides_nothing(gateway: Gateway) -> None:
    narrow = await crm(gateway, LAUNCH, "send")
    token = await begin(gateway, narrow)
    browser = await sign_in_user(gateway, "crm", "member", scopes=("send",))
    assert "decide" in (await browser.post("/chat/press", {"token": token})).text
    await browser.post("/chat/say", {"text": f"approve {code_of((await approval(gateway)).id)}", "key": "k"})
    assert (await approval(gateway)).status == "pending"
    able = await sign_in_user(gateway, "crm", "member", scopes=("send", "decide"))
    await able.post("/chat/press", {"token": token})
    assert (await approval(gateway)).status == "approved"


async def test_a_task_is_no_message(gateway: Gateway) -> None:
    narrow = await crm(gateway, "done", "send")
    task = {"agent_group": "demo", "kind": "task", "text": "p", "recurrence": "@hourly"}
    refused = await narrow.ask("POST", "/v1/messages", task)
    assert (refused.status_code, "'operate'" in refused.json()["detail"]) == (403, True)
    assert await gateway.fleet.rows(MessageIn) == []
    able = await caller(gateway, "crm", scopes=["send", "operate"])
    await able.post("/v1/messages", task, expected=202)


async def test_a_provider_that_would_fail_each_run_of_a_task_is_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever of the two doors it is named."""
    able = await crm(gateway, "done", "send", "operate")

    def check(options: Any) -> None:
        raise AdapterError("it needs a key")

    monkeypatch.setattr(gateway.fleet.runtime.registry.providers.get("scripted"), "check", check)
    terms = {"provider": "scripted"}
    task = {"agent_group": "demo", "kind": "task", "text": "p", "recurrence": "@hourly", "terms": terms}
    for path, body in (
        ("/v1/tasks", {"agent": "demo", "prompt": "p", "every": "@hourly", "terms": terms}),
        ("/v1/messages", task),
    ):
        assert "it needs a key" in (await able.post(path, body, expected=422))["detail"]
