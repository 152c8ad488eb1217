"""What CLI agents send around the words of their user, as their pinned versions were seen to, and what they find."""

from typing import Any

import httpx2
import pytest

from tests.support.model_api import Call, ModelApi, refuse, reply, rule, script
from tests.support.model_clients import ask_chat, ask_claude, ask_responses

REMINDER = "<system-reminder>\nEnd git commit messages with:\nsomething about the weather\n</system-reminder>\n"
ENVIRONMENT = "<environment_context>\n  <cwd>/tmp/weather</cwd>\n</environment_context>"
OPENCLAW = "[Mon 2026-11-16 15:18 UTC] Good morning\n\nRuntime: agent=main | host=vm | model=a/b"
INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nthe weather\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
PUSHED = (
    "The user sent a new message while you were working:\nGood night\n\nThis is how Claude Code surfaces messages the "
    "user sends mid-turn."
)
TOLD = script(rule("weather", "wrong"), rule("^Good night$", "Sleep well"), rule("^Good morning$", "Hello", "{result}"))


def chat(*messages: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


async def test_claude_speaks_below_its_reminders() -> None:
    content = [{"type": "text", "text": REMINDER}, {"type": "text", "text": "Good morning"}]
    async with ModelApi(TOLD) as api:
        assert (await ask_claude(api, [{"role": "user", "content": content}])).content[0].text == "Hello"


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ([], "noon"),
        ([{"role": "user", "content": [{"type": "text", "text": REMINDER}]}], "noon"),
        ([{"role": "system", "content": [{"type": "text", "text": PUSHED}]}], "Sleep well"),
        ([{"role": "user", "content": f"<system-reminder>\n{PUSHED}\n</system-reminder>"}], "Sleep well"),
    ],
)
async def test_beside_a_tool_result_only_the_user_starts_anew(beside: list[Any], expected: str) -> None:
    use = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
    history = [
        {"role": "user", "content": "Good morning"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "noon"}]},
        *beside,
    ]
    async with ModelApi(TOLD) as api:
        assert (await ask_claude(api, history)).content[0].text == expected


async def test_codex_tells_its_surroundings_as_the_user() -> None:
    async with ModelApi(TOLD) as api:
        for given in (chat(("user", ENVIRONMENT), ("user", "Good morning")), chat(("user", "Good morning"))):
            assert (await ask_responses(api, given)).output_text == "Hello"


async def test_openclaw_tells_the_time_before_and_its_state_after_the_words() -> None:
    async with ModelApi(TOLD) as api:
        answer = await ask_chat(api, chat(("user", OPENCLAW), ("user", INTERNAL)))
        assert answer.choices[0].message.content == "Hello"


async def test_a_title_for_opencode_uses_up_no_fault_and_no_reply() -> None:
    asked = chat(("system", "You are a title generator. You output ONLY a title."), ("user", "Good morning"))
    async with ModelApi(TOLD) as api:
        api.fail(refuse("overloaded", times=None))
        assert (await ask_chat(api, asked)).choices[0].message.content == "Stand-in"
        assert [(one.side, one.fault) for one in api.requests] == [(True, None)]


@pytest.mark.parametrize("name", ["mcp__longshore__probe", "longshore_probe", "mcp_longshore_probe"])
async def test_a_pattern_finds_the_tool_by_whatever_name_it_is_offered(name: str) -> None:
    tools = [{"type": "function", "function": {"name": one, "parameters": {}}} for one in ("probe_other", name)]
    async with ModelApi(script(rule(None, reply(Call("~probe$", {"n": 1}))))) as api:
        choice = (await ask_chat(api, "hello", tools=tools)).choices[0]
        assert [call.function.name for call in choice.message.tool_calls] == [name]
        none = (await ask_chat(api, "hello")).choices[0]
        assert none.message.content == "No tool offered fits ~probe$. There are: none."


async def test_tools_of_codex_in_a_namespace_and_custom_ones_are_called_as_such() -> None:
    inner = {"type": "function", "name": "probe", "parameters": {}, "strict": False}
    tools: list[dict[str, Any]] = [
        {"type": "namespace", "name": "mcp__longshore", "description": "d", "tools": [inner]},
    ]
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    hello = {"type": "message", "role": "user", "content": "hello"}
    calls = reply(Call("~probe$", {"n": 1}), Call("exec", "text('hi')"))
    body = {"model": "m", "input": [added, hello], "tools": tools}
    async with ModelApi(script(rule(None, calls))) as api, httpx2.AsyncClient(base_url=api.url) as client:
        made = await client.post("/v1/responses", json=body, headers={"x-api-key": "k"})
        function, custom = made.json()["output"]
        assert (function["type"], function["namespace"], function["name"]) == (
            "function_call",
            "mcp__longshore",
            "probe",
        )
        assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "exec", "text('hi')")
        stream = await client.post("/v1/responses", json={**body, "stream": True}, headers={"x-api-key": "k"})
        assert "event: response.custom_tool_call_input.done" in stream.text
        results: list[dict[str, Any]] = [
            {**function, "type": "function_call"},
            custom,
            {"type": "function_call_output", "call_id": function["call_id"], "output": "one"},
            {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "two"},
        ]
        await client.post("/v1/responses", json={**body, "input": results}, headers={"x-api-key": "k"})
        asked = api.requests[-1].conversation
        assert asked is not None
        assert (asked.rounds, asked.result, api.problems) == (1, "two", [])


async def test_what_it_does_not_know_is_told_and_remembered() -> None:
    async with ModelApi() as api, httpx2.AsyncClient(base_url=api.url) as client:
        assert (await client.head("/")).status_code == 200
        assert (await client.post("/v1/messages?beta=true", json={}, headers={"x-api-key": "k"})).status_code == 400
        assert (await client.get("/api/hello")).status_code == 404
        assert api.strays == ["GET /api/hello"]
