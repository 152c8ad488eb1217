"""The provider contract on `omnara`, over HTTP against a stand-in of its API; and what only it does."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from adapters.contracts import Limits, QueryInput, ToolBox
from adapters.errors import ErrorClass
from adapters.events import ApprovalRequested, Failed, ProviderEvent, Result, SessionStarted, UsageReport
from adapters.providers.conformance import CHECKS, Check, NotApplicable, ProbeBox, Work, run_check
from adapters.providers.omnara import OmnaraProvider
from adapters.providers.omnara import query as omnara_query
from tests.support.omnara_api import CONFIG, KEY, ORG, PROJECT, OmnaraApi, allow

PLACE = {"org": ORG, "project": PROJECT, "config": CONFIG}


class OmnaraHarness:
    patience = 5.0
    failure_class = ErrorClass.RATE_LIMIT
    good_options: Mapping[str, Any] = PLACE
    bad_options: Mapping[str, tuple[Mapping[str, Any], str]] = {
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "an id of another kind": ({"config": ORG}, "acfg_"),
        "a way out of the address": ({"project": "proj_x/../y"}, "proj_"),
    }

    def __init__(self) -> None:
        self.provider = OmnaraProvider()

    def given(self, work: Work, tools: ToolBox) -> QueryInput:
        return asking(work, tools=tools)


def asking(text: str, **more: Any) -> QueryInput:
    return QueryInput(**{"prompt": text, "tools": ProbeBox(), "options": PLACE, **more})


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OmnaraApi]:
    monkeypatch.setattr(omnara_query, "RECONNECT_SECONDS", 0.0)
    async with OmnaraApi() as server:
        monkeypatch.setenv("OMNARA_API_KEY", KEY)
        monkeypatch.setenv("OMNARA_BASE_URL", server.url)
        yield server
        assert server.problems == []


async def played(given: QueryInput, provider: OmnaraProvider | None = None) -> list[ProviderEvent]:
    return [event async for event in (provider or OmnaraProvider()).query(given).events]


@pytest.mark.spec("P10", "P15")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_omnara_keeps_the_contract(check: Check, api: OmnaraApi) -> None:
    outcome = await run_check(check, OmnaraHarness())
    if isinstance(outcome, NotApplicable):
        # Its agents have tools and files of their own, where they run.
        assert check.needs[0] in ("tools", "structured_edits")


@pytest.mark.spec("P10")
async def test_a_conversation_goes_on_with_the_same_agent(api: OmnaraApi) -> None:
    first = await played(asking("hello"))
    [started] = [event for event in first if isinstance(event, SessionStarted)]
    again = await played(asking("and now?", continuation=started.continuation))
    assert [event.text for event in again if isinstance(event, Result)] == ["You said: and now?"]
    assert api.only.inputs == ["hello", "and now?"]
    assert api.resumed_after == ["0", "2"], "what was said before is not read again"
    assert not api.only.cancelled
    [usage] = [event for event in first if isinstance(event, UsageReport)]
    assert (usage.model, usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == ("m-1", 20, 10, 5)


@pytest.mark.spec("P10")
async def test_a_follow_up_is_answered_however_late_omnara_confirms_it(api: OmnaraApi) -> None:
    api.answers_late = True
    query = OmnaraProvider().query(asking("listen"))
    said: list[str] = []
    async with asyncio.timeout(OmnaraHarness.patience):
        async for event in query.events:
            if isinstance(event, SessionStarted):
                assert await query.push("and marmalade")
            elif isinstance(event, Result):
                said.append(event.text)
    assert said == ["You said: and marmalade"]
    assert query.status == "ended"


@pytest.mark.spec("P10")
async def test_a_follow_up_that_omnara_does_not_take_is_said_to_be_unseen(api: OmnaraApi) -> None:
    query = OmnaraProvider().query(asking("slow"))
    async for _ in query.events:
        async with asyncio.timeout(OmnaraHarness.patience):
            while not api.resumed_after:
                await asyncio.sleep(0.01)
        api.faults.append(web.Response(status=500))
        assert not await query.push("and marmalade")
        await query.abort()
    assert api.only.inputs == ["slow"]


@pytest.mark.spec("P10")
async def test_an_agent_that_is_gone_is_succeeded_by_a_new_one(api: OmnaraApi) -> None:
    events = await played(asking("hello", continuation="agt_gone"))
    assert isinstance(events[0], SessionStarted)
    assert events[0].continuation == api.only.id


@pytest.mark.spec("P10")
async def test_a_stream_that_breaks_is_taken_up_where_it_was(api: OmnaraApi) -> None:
    events = await played(asking("cut"))
    assert [event.text for event in events if isinstance(event, Result)] == ["back again"]
    assert api.only.inputs == ["cut"], "nothing was said twice"
    assert api.resumed_after == ["0", "1"]


@pytest.mark.spec("P10")
async def test_an_approval_is_shown_and_decided_in_omnara(api: OmnaraApi) -> None:
    query = OmnaraProvider().query(asking("risky"))
    seen: list[str] = []
    async for event in query.events:
        seen.append(event.type)
        if isinstance(event, ApprovalRequested):
            assert event.summary == "Permission requested for run_command (Command: make): decided in Omnara"
            allow(api.only)
    assert [word for word in seen if word != "text_delta"] == [
        "session_started", "tool_call", "message", "approval_requested", "tool_result", "usage", "result",
    ]  # fmt: skip


@pytest.mark.spec("P10")
async def test_waiting_for_people_is_not_taken_for_a_hang(api: OmnaraApi) -> None:
    query = OmnaraProvider().query(asking("risky", limits=Limits(seconds_silent=0.0)))
    async for event in query.events:
        if event.type == "progress":
            break
        if event.type == "approval_requested":
            api.only.tell({"raw": ": heartbeat\n\n"})
    await query.abort()
    assert query.status == "aborted"


@pytest.mark.spec("P10")
async def test_what_is_stopped_here_is_stopped_there(api: OmnaraApi) -> None:
    query = OmnaraProvider().query(asking("slow"))
    async for _ in query.events:
        await query.abort()
    assert api.only.cancelled
    assert not await query.push("too late")


@pytest.mark.spec("P10")
@pytest.mark.parametrize(
    ("text", "error_class", "said"),
    [
        ("broken", ErrorClass.INTERNAL, "omnara's agent failed: the model said no to [key]"),
        ("stopped", ErrorClass.INVALID_REQUEST, "somebody stopped the agent in Omnara"),
        ("closed", ErrorClass.TRANSPORT, "Omnara ended the stream: not now"),
        ("crash", ErrorClass.TRANSPORT, "omnara's stream does not read"),
    ],
)
async def test_failures_have_a_class(text: str, error_class: ErrorClass, said: str, api: OmnaraApi) -> None:
    failed = (await played(asking(text)))[-1]
    assert isinstance(failed, Failed)
    assert (failed.error_class, failed.message) == (error_class, said)


@pytest.mark.spec("P10")
@pytest.mark.parametrize(
    ("status", "body", "error_class", "waits"),
    [
        (401, "{}", ErrorClass.AUTH, None),
        (403, "{}", ErrorClass.AUTH, None),
        (402, '{"error": "no credit", "code": "payment_required"}', ErrorClass.QUOTA, None),
        (404, '{"error": "no project", "code": "not_found"}', ErrorClass.INVALID_REQUEST, None),
        (429, "slow down", ErrorClass.RATE_LIMIT, 7.0),
        (500, "<html>", ErrorClass.TRANSPORT, 7.0),
        (302, "", ErrorClass.TRANSPORT, 7.0),
        (201, "not JSON", ErrorClass.TRANSPORT, None),
        (201, "[]", ErrorClass.TRANSPORT, None),
        (201, '{"agent": {"id": "agt_x/../../me"}, "agent_input": {"id": "ain_1"}}', ErrorClass.TRANSPORT, None),
    ],
)
async def test_answers_have_a_class(
    status: int, body: str, error_class: ErrorClass, waits: float | None, api: OmnaraApi
) -> None:
    headers = {"Retry-After": "7", "Location": "http://127.0.0.1:1/"}
    api.faults.append(
        web.Response(status=status, text=body + f" {KEY}"[: 0 if body.startswith("{") else 99], headers=headers)
    )
    [failed] = await played(asking("hello"))
    assert isinstance(failed, Failed)
    assert (failed.error_class, failed.retry_after) == (error_class, waits)
    assert KEY not in failed.message


@pytest.mark.spec("P10")
async def test_a_server_that_says_nothing_hangs(api: OmnaraApi) -> None:
    failed = (await played(asking("hang"), OmnaraProvider(stall_seconds=0.05)))[-1]
    assert isinstance(failed, Failed)
    assert (failed.error_class, failed.retryable) == (ErrorClass.PROVIDER_HANG, True)
    assert api.only.cancelled


@pytest.mark.spec("P10")
async def test_a_wrong_key_is_never_shown(api: OmnaraApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNARA_API_KEY", "omnara_pat_wrong")
    [failed] = await played(asking("hello"))
    assert isinstance(failed, Failed)
    assert failed.message == "omnara does not accept the key in OMNARA_API_KEY for this (401)"


@pytest.mark.spec("P10")
async def test_without_a_key_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNARA_API_KEY", raising=False)
    found = await OmnaraProvider().detect()
    assert not found.installed
    assert found.details == "OMNARA_API_KEY is not set: set it to a key made in Omnara's console"
    [failed] = await played(asking("hello"))
    assert isinstance(failed, Failed)
    assert (failed.message, failed.error_class) == ("there is no key: set OMNARA_API_KEY", ErrorClass.AUTH)


@pytest.mark.spec("P10")
async def test_without_a_place_it_says_what_to_set(api: OmnaraApi, monkeypatch: pytest.MonkeyPatch) -> None:
    [failed] = await played(asking("hello", options={"org": ORG}))
    assert isinstance(failed, Failed)
    assert "set the option project (or OMNARA_PROJECT) and the option config (or OMNARA_CONFIG)" in failed.message
    monkeypatch.setenv("OMNARA_PROJECT", PROJECT)
    monkeypatch.setenv("OMNARA_CONFIG", CONFIG)
    assert (await played(asking("hello", options={"org": ORG})))[-1].type == "result"
