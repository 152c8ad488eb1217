"""The stand-in model server around its answers: scripts from files, usage, ids, the door for other processes."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from pydantic import ValidationError

from tests.support.model_api import (
    Call,
    ModelApi,
    ModelApiThread,
    Text,
    Think,
    load_script,
    refuse,
    reply,
    rule,
    script,
)
from tests.support.model_api.script import Stop
from tests.support.model_clients import ask_chat, ask_claude, ask_responses, openai_client

SCRIPT = """
rules:
  - when: weather
    replies:
      - [{think: "Which town?"}, {call: forecast, arguments: {town: Oslo}}]
      - It is {result}.
  - when: long
    replies:
      - parts: [cut off]
        stop: length
        usage: {output: 100}
        faults: [{kind: refuse, error: overloaded, times: 1}]
  - replies: ["You said: {text}"]
"""


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(SCRIPT, encoding="utf-8")
    read = load_script(file)
    assert read.rules[0].replies[0].parts == (Think("Which town?"), Call("forecast", {"town": "Oslo"}))
    assert read.rules[0].replies[1].parts == (Text("It is {result}."),)
    assert read.rules[1].replies[0].faults == (refuse("overloaded"),)


def test_a_key_that_means_nothing_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text("rules: [{replies: [x], wen: typo}]", encoding="utf-8")
    with pytest.raises(ValidationError, match="wen"):
        load_script(file)


@pytest.mark.parametrize(
    ("stop", "claude", "chat", "responses"),
    [
        ("end", "end_turn", "stop", "completed"),
        ("length", "max_tokens", "length", "incomplete"),
        ("refusal", "refusal", "stop", "completed"),
        ("filter", "refusal", "content_filter", "incomplete"),
    ],
)
async def test_how_an_answer_stops(stop: Stop, claude: str, chat: str, responses: str) -> None:
    async with ModelApi(script(rule(None, reply("no", stop=stop)))) as api:
        assert (await ask_claude(api, "hello")).stop_reason == claude
        async with openai_client(api) as client:
            hello: Any = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            choice = (await client.chat.completions.create(**hello)).choices[0]
            chunks = [c async for c in await client.chat.completions.create(**hello, stream=True)]
            events = [e async for e in await client.responses.create(model="m", input="hello", stream=True)]
        assert choice.finish_reason == chunks[-1].choices[0].finish_reason == chat
        assert (choice.message.refusal == "no") == (stop == "refusal")
        last: Any = events[-1]
        assert last.type == f"response.{responses}"
        assert ("response.refusal.done" in [e.type for e in events]) == (stop == "refusal")


async def test_only_what_was_asked_to_be_cached_is_read_from_the_cache() -> None:
    system = [{"type": "text", "text": "s" * 400, "cache_control": {"type": "ephemeral"}}]
    plain = [{"type": "text", "text": "s" * 400}]
    async with ModelApi() as api:
        never = [(await ask_claude(api, "hello", system=plain)).usage for _ in range(2)]
        assert [usage.cache_read_input_tokens for usage in never] == [0, 0]
        first = (await ask_claude(api, "one", system=system)).usage
        second = (await ask_claude(api, "two", system=system)).usage
        assert first.cache_creation_input_tokens == second.cache_read_input_tokens > 100
        assert (first.cache_read_input_tokens, second.cache_creation_input_tokens) == (0, 0)
        assert first.input_tokens == second.input_tokens > 0
        other = (await ask_claude(api, "one", system=system, model="claude-opus-5-5")).usage
        assert other.cache_read_input_tokens == 0


async def test_openai_caches_unasked_and_counts_the_cached_among_the_prompt() -> None:
    async with ModelApi() as api:
        first = (await ask_responses(api, [{"role": "user", "content": "hello"}], instructions="i" * 400)).usage
        second = (await ask_responses(api, [{"role": "user", "content": "other"}], instructions="i" * 400)).usage
        assert first.input_tokens == second.input_tokens
        assert (first.input_tokens_details.cached_tokens, second.input_tokens_details.cached_tokens) == (0, 101)


@pytest.mark.parametrize("fresh", [False, True])
async def test_ids_of_calls_are_the_same_in_every_attempt_unless_told_otherwise(fresh: bool) -> None:
    async with ModelApi(script(rule(None, reply(Call("clock"), Call("clock", id="mine")))), fresh_ids=fresh) as api:
        ids = [[block.id for block in (await ask_claude(api, "hello")).content] for _ in range(2)]
        assert (ids[0][0] != ids[1][0]) == fresh
        assert ids[0][1] == ids[1][1] == "mine"


async def test_after_its_last_reply_a_script_says_so_or_repeats() -> None:
    told = script(rule("loop", reply(Call("clock")), repeat=True), rule(None, reply(Call("clock"))))
    async with ModelApi(told) as api:
        for text, kind in [("loop", "tool_use"), ("once", "text")]:
            use = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
            history = [
                {"role": "user", "content": text},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            ]
            assert (await ask_claude(api, history)).content[0].type == kind


async def test_a_user_who_speaks_beside_a_tool_result_starts_a_new_count() -> None:
    use = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
    both = [{"type": "tool_result", "tool_use_id": "a", "content": "noon"}, {"type": "text", "text": "stop"}]
    async with ModelApi(script(rule("stop", "stopped at {result}"))) as api:
        history = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": both},
        ]
        assert (await ask_claude(api, history)).content[0].text == "stopped at noon"


async def test_other_processes_can_look_and_spoil() -> None:
    async with ModelApi() as api, httpx2.AsyncClient(base_url=api.url) as other:
        queued = await other.post("/_faults", json={"kind": "refuse", "error": "rate_limited", "retry_after": 3})
        assert queued.json() == {"queued": 1}
        assert (await other.post("/_faults", json={"kind": "explode"})).status_code == 400
        with pytest.raises(openai.RateLimitError):
            await ask_chat(api, "hello")
        await other.post("/_faults", json=[{"kind": "refuse", "times": None}])
        await other.delete("/_faults")
        await ask_chat(api, "hello")
        seen = (await other.get("/_requests?bodies")).json()
        assert [(one["text"], one["status"], one["outcome"]) for one in seen] == [
            ("hello", 429, "refused"),
            ("hello", 200, "answered"),
        ]
        assert seen[1]["body"]["messages"] == [{"role": "user", "content": "hello"}]
        assert "fake" not in json.dumps(seen)
        assert (await other.get("/_problems")).json() == []


async def test_raw_bodies_and_headers_are_kept_unless_told_otherwise() -> None:
    async with ModelApi() as api:
        await ask_claude(api, "hello")
        assert json.loads(api.requests[0].raw) == api.bodies[0]
        assert api.requests[0].headers["anthropic-version"]
        assert api.requests[0].wire == "anthropic"
    async with ModelApi(record=False) as api:
        await ask_claude(api, "hello")
        assert (api.bodies, api.requests[0].raw, api.requests[0].conversation) == ([], b"", None)


async def test_a_canned_answer_has_as_many_deltas_as_told() -> None:
    async with ModelApi(deltas=7, record=False) as api:
        assert (await ask_claude(api, "hello")).content[0].text == "word " * 7
        assert (await ask_responses(api, "hello")).output_text == "word " * 7
        chat = await ask_chat(api, "hello")
        assert (chat.choices[0].message.content, chat.usage.completion_tokens) == ("word " * 7, 7)


def test_a_port_that_is_taken_is_an_error_of_the_starting_thread() -> None:
    with ModelApiThread() as api:
        port = int(api.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"), ModelApiThread(port=port):
            pass


def test_by_hand_it_tells_what_to_export_and_each_request(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "tests.support.model_api", "--script", str(file), "--pace", "0.001"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert process.stdout.readline() == f"export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=fake\n"
        assert process.stdout.readline() == f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=fake\n"
        assert process.stdout.readline() == f"export GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=fake\n"
        with openai.OpenAI(base_url=f"{url}/v1", api_key="fake", max_retries=0) as client:
            assert client.responses.create(model="m", input="hello").output_text == "You said: hello"
        assert process.stdout.readline() == "#1 /v1/responses 200 answered 'hello'\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
