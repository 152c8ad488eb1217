"""The port of API providers over real HTTP: both vendors' SDKs on all three wires, against the stand-in server."""

import asyncio
import gc
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from adapters.contracts import ToolSpec
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking
from adapters.model_port import ModelProvider, ModelReply, ModelRequest
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.openai import OpenAIProvider
from adapters.transcript import Called, Item, Returned, Said, Shown, Thought
from tests.support.model_api import (
    Call,
    Fault,
    Limits,
    ModelApi,
    Reply,
    Think,
    Usage,
    cut,
    drip,
    drop,
    error_event,
    garbage,
    hang,
    refuse,
    reply,
    rule,
    script,
    stall,
    truncate,
)

Wire = Literal["anthropic", "responses", "chat"]
WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat")
KEY = "sk-fake-0123456789abcdef"
FORECAST = ToolSpec(
    "forecast", "The weather of a place.", {"type": "object", "properties": {"place": {"type": "string"}}}
)


@dataclass
class Desk:
    """A provider, the server it asks, and what came of it."""

    wire: Wire
    api: ModelApi
    provider: ModelProvider
    options: dict[str, Any] = field(default_factory=dict)

    def request(self, *items: Item | str, **changes: Any) -> ModelRequest:
        said = tuple(Said("user", item) if isinstance(item, str) else item for item in items)
        made = ModelRequest(
            model=self.provider.default_model,
            system="You are a sailor.",
            items=said or (Said("user", "ahoy"),),
            conversation="session-1",
            options=self.options,
        )
        return replace(made, **changes)

    async def pieces(self, request: ModelRequest) -> list[TextDelta | Thinking | ModelReply | None]:
        async with asyncio.timeout(20):
            return [piece async for piece in self.provider.stream(request)]

    async def ask(self, request: ModelRequest | None = None) -> ModelReply:
        last = (await self.pieces(request or self.request()))[-1]
        assert isinstance(last, ModelReply)
        return last

    async def failure(self, request: ModelRequest | None = None) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await self.ask(request)
        assert KEY not in str(caught.value)
        assert len(str(caught.value)) < 400
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        return caught.value

    def script(self, *replies: Reply | str) -> None:
        self.api.script = script(rule(None, *replies))


@pytest.fixture(params=WIRES)
async def desk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    wire: Wire = request.param
    async with ModelApi(keys={KEY}) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        provider: ModelProvider = AnthropicProvider() if wire == "anthropic" else OpenAIProvider()
        made = Desk(wire, api, provider, {} if wire == "anthropic" else {"api": wire})
        yield made
        await provider.close()


@pytest.fixture
def tidy() -> Iterator[None]:
    """What was not closed complains when it is collected, and warnings are errors."""
    yield
    gc.collect()


P3P4 = pytest.mark.spec("P3", "P4")


# --- Answers -----------------------------------------------------------------------------------------------------


@P3P4
async def test_an_answer_streams_piece_by_piece_and_ends_in_one_reply(desk: Desk) -> None:
    desk.script("The wind has turned, and so have we: north by north-west.")
    *pieces, last = await desk.pieces(desk.request())
    deltas = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    assert len(deltas) > 1
    assert "".join(deltas) == "The wind has turned, and so have we: north by north-west."
    assert isinstance(last, ModelReply)
    assert last.items == (Said("assistant", "".join(deltas)),)
    assert last.stop == "end"
    assert not any(isinstance(piece, ModelReply) for piece in pieces)
    assert desk.api.problems == []


@P3P4
async def test_bytes_may_come_in_any_pieces(desk: Desk) -> None:
    desk.script("Größe: 🦑 — as it came")
    desk.api.fail(drip(pause=0.0, size=7))
    assert (await desk.ask()).items == (Said("assistant", "Größe: 🦑 — as it came"),)


@P3P4
async def test_calls_come_whole_and_a_conversation_with_them_is_accepted(desk: Desk) -> None:
    desk.script(
        reply("Let me see.", Call("forecast", {"place": "Kiel", "days": [1, 2]}), Call("forecast", {})),
        "Rain, then {result}.",
    )
    request = desk.request("weather?", tools=(FORECAST,))
    first = await desk.ask(request)
    assert first.stop == "tools"
    said, one, two = first.items
    assert said == Said("assistant", "Let me see.")
    assert isinstance(one, Called)
    assert isinstance(two, Called)
    assert (one.name, one.arguments, one.broken) == ("forecast", {"place": "Kiel", "days": [1, 2]}, "")
    assert (two.arguments, two.broken) == ({}, "")
    assert one.id != two.id
    results = (Returned(one.id, "forecast", "rain"), Returned(two.id, "forecast", "sun", ok=False))
    second = await desk.ask(replace(request, items=(*request.items, *first.items, *results)))
    assert second.stop == "end"
    assert desk.api.problems == []


@P3P4
@pytest.mark.parametrize("written", ['{"place": "Kie', "[1, 2]", '"Kiel"', "place=Kiel", "null"])
async def test_arguments_that_are_no_object_are_kept_as_they_were_written(desk: Desk, written: str) -> None:
    desk.script(reply(Call("forecast", written)), "I see.")
    request = desk.request("weather?", tools=(FORECAST,))
    answer = await desk.ask(request)
    [call] = answer.items
    assert isinstance(call, Called)
    assert (call.broken, call.arguments) == (written, {})
    assert answer.stop == "tools"
    result = Returned(call.id, "forecast", "these are no arguments", ok=False)
    await desk.ask(replace(request, items=(*request.items, call, result)))
    assert desk.api.problems == []


@P3P4
async def test_thoughts_are_shown_kept_and_handed_back_as_they_came(desk: Desk) -> None:
    desk.script(reply(Think("The user wants weather."), Call("forecast", {})), "Sun.")
    desk.options["thinking"] = "medium"
    request = desk.request("weather?", tools=(FORECAST,))
    *pieces, first = await desk.pieces(request)
    assert "".join(piece.text for piece in pieces if isinstance(piece, Thinking)) == "The user wants weather."
    assert isinstance(first, ModelReply)
    thought, call = first.items
    assert isinstance(thought, Thought)
    assert isinstance(call, Called)
    assert thought.text == "The user wants weather."
    assert thought.provider == desk.provider.manifest.adapter_id
    await desk.ask(replace(request, items=(*request.items, *first.items, Returned(call.id, "forecast", "sun"))))
    assert desk.api.problems == []  # the stand-in checks signatures and encrypted contents
    sent = json.dumps(desk.api.bodies[-1])
    assert all(json.dumps(str(value)) in sent for value in thought.opaque.values() if isinstance(value, str))
    assert bool(thought.opaque) is (desk.wire != "chat")


@P3P4
async def test_a_thought_of_another_vendor_is_not_sent(desk: Desk) -> None:
    foreign = Thought("somebody-else", "secret", {"type": "thinking", "thinking": "secret", "signature": "s"})
    await desk.ask(desk.request("one", foreign, Said("assistant", "two"), "three"))
    assert "secret" not in json.dumps(desk.api.bodies[-1])


@P3P4
async def test_pictures_and_documents_are_sent(desk: Desk) -> None:
    picture, document = (
        Shown("image/png", "in/a.png", "a.png", "aGFsbG8="),
        Shown("application/pdf", "b.pdf", "", "JVBERg=="),
    )
    await desk.ask(desk.request(picture, document, "what is this?"))
    assert desk.api.problems == []
    sent = json.dumps(desk.api.bodies[-1])
    assert "aGFsbG8=" in sent
    assert ("JVBERg==" in sent) is (desk.wire != "chat")
    assert ("[pdf: b.pdf]" in sent) is (desk.wire == "chat")


@P3P4
async def test_a_damaged_conversation_is_still_accepted(desk: Desk) -> None:
    await desk.ask(
        desk.request(
            Said("assistant", "cut off at the start"),
            Returned("nobody", "forecast", "asked for this"),
            "one",
            Called("a1", "forecast", {}),
            "meanwhile",
            Called("a2", "no such tool!", {}, broken="{{"),
            Said("assistant", "  "),
            Returned("a2", "no such tool!", ""),
            Called("a2", "forecast", {}),
            "two \ud800 halves",
        )
    )
    assert desk.api.problems == []
    assert "no result is known" in json.dumps(desk.api.bodies[-1])


@P3P4
@pytest.mark.parametrize(
    ("given", "stop"),
    [
        (reply("so far", stop="length"), "length"),
        (reply("no", stop="refusal"), "refused"),
        (reply("", stop="filter"), "refused"),
        (reply("done", stop="end"), "end"),
    ],
    ids=["length", "refusal", "filter", "end"],
)
async def test_why_it_stopped(desk: Desk, given: Reply, stop: str) -> None:
    desk.script(given)
    assert (await desk.ask()).stop == stop


@P3P4
async def test_calls_count_though_the_model_says_it_is_done(desk: Desk) -> None:
    desk.script(reply(Call("forecast", {}), stop="end"))
    assert (await desk.ask(desk.request(tools=(FORECAST,)))).stop == "tools"


# --- Usage, limits, caches ---------------------------------------------------------------------------------------


@P3P4
async def test_usage_counts_cached_tokens_apart_and_knows_the_cost(desk: Desk) -> None:
    desk.script(reply("hi", usage=Usage(input=1000, output=500, cache_read=2000, cache_write=0)))
    desk.options["price"] = {"input": 2.0, "output": 10.0}
    usage = (await desk.ask()).usage
    assert (usage.input_tokens, usage.output_tokens) == (1000, 500)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (2000, 0)
    assert usage.model == desk.provider.default_model
    assert usage.cost_usd == pytest.approx((3000 * 2 + 500 * 10) / 1_000_000)


@pytest.mark.spec("P4")
async def test_a_compatible_server_costs_nobody_knows_what(desk: Desk) -> None:
    cost = (await desk.ask()).usage.cost_usd
    assert (cost is None) is (desk.wire != "anthropic")


@P3P4
async def test_headers_tell_what_is_left_of_the_limits(desk: Desk) -> None:
    assert (await desk.ask()).allowances == ()
    desk.api.limits = Limits(requests=50, requests_left=7, tokens=40_000, tokens_left=123, reset=90)
    told = {one.kind: one for one in (await desk.ask()).allowances}
    assert set(told) == {"requests", "tokens"}
    assert (told["requests"].limit, told["requests"].remaining) == (50, 7)
    assert (told["tokens"].limit, told["tokens"].remaining) == (40_000, 123)
    assert told["tokens"].reset_seconds == pytest.approx(90, abs=5)


@P3P4
async def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter_one(desk: Desk) -> None:
    desk.script(reply(Call("forecast", {"b": 1, "a": 2})), "Sun.")
    request = desk.request("weather?", tools=(FORECAST,))
    first = await desk.ask(request)
    [call] = first.items
    assert isinstance(call, Called)
    await desk.ask(replace(request, items=(*request.items, call, Returned(call.id, "forecast", "sun"))))
    one, two = (body for body in desk.api.bodies)
    name = "input" if desk.wire == "responses" else "messages"
    shorter, longer = json.dumps(one.pop(name)), json.dumps(two.pop(name))
    assert longer.startswith(shorter[:-1])
    assert json.dumps(one) == json.dumps(two)


@P3P4
async def test_what_is_asked_for(desk: Desk) -> None:
    desk.options["thinking"] = "high"
    await desk.ask(desk.request(max_tokens=77, tools=(FORECAST,)))
    [body] = desk.api.bodies
    assert body["stream"] is True
    assert not {"temperature", "top_p", "top_k"} & set(body)
    match desk.wire:
        case "anthropic":
            assert body["max_tokens"] == 77
            assert body["cache_control"] == {"type": "ephemeral"}
            assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
            assert body["thinking"]["type"] == "adaptive"
            assert body["output_config"] == {"effort": "high"}
            assert "cache_control" not in json.dumps(body["messages"])
        case "responses":
            assert body["max_output_tokens"] == 77
            assert body["store"] is False
            assert body["include"] == ["reasoning.encrypted_content"]
            assert body["prompt_cache_key"] == "session-1"
            assert body["reasoning"] == {"effort": "high", "summary": "auto"}
        case "chat":
            assert body["max_tokens"] == 77
            assert body["reasoning_effort"] == "high"
            assert body["stream_options"] == {"include_usage": True}


@P3P4
async def test_no_trace_of_ours_goes_to_the_vendor(desk: Desk) -> None:
    await desk.ask(desk.request(system="", tools=()))
    [seen] = desk.api.requests
    assert "traceparent" not in seen.headers
    assert seen.body is not None
    assert not {"system", "instructions", "tools"} & set(seen.body)


# --- Failures ----------------------------------------------------------------------------------------------------

M9 = pytest.mark.spec("M9", "P3", "P4")


@M9
@pytest.mark.parametrize(
    ("fault", "error_class", "retry_after"),
    [
        (refuse("rate_limited", retry_after=7), ErrorClass.RATE_LIMIT, 7.0),
        (refuse("rate_limited", headers={"retry-after-ms": "1500"}), ErrorClass.RATE_LIMIT, 1.5),
        (refuse("rate_limited"), ErrorClass.RATE_LIMIT, None),
        (refuse("quota"), ErrorClass.QUOTA, None),
        (refuse("billing"), ErrorClass.QUOTA, None),
        (refuse("quota", status=402), ErrorClass.QUOTA, None),
        (refuse("unauthenticated"), ErrorClass.AUTH, None),
        (refuse("forbidden"), ErrorClass.AUTH, None),
        (refuse("too_long"), ErrorClass.CONTEXT_TOO_LONG, None),
        (refuse("invalid"), ErrorClass.INVALID_REQUEST, None),
        (refuse("invalid", status=422), ErrorClass.INVALID_REQUEST, None),
        (refuse("no_model"), ErrorClass.INVALID_REQUEST, None),
        (refuse("too_large"), ErrorClass.INVALID_REQUEST, None),
        (refuse("timeout", status=408), ErrorClass.TRANSPORT, None),
        (refuse("server_error", status=409), ErrorClass.TRANSPORT, None),
        (refuse("server_error"), ErrorClass.TRANSPORT, None),
        (refuse("unavailable", retry_after=3), ErrorClass.TRANSPORT, 3.0),
        (refuse("timeout"), ErrorClass.TRANSPORT, None),
        (refuse("overloaded", status=529, retry_after=20), ErrorClass.TRANSPORT, 20.0),
    ],
    ids=lambda value: f"{value.error}-{value.status}-{value.headers}" if isinstance(value, Fault) else None,
)
async def test_every_refusal_has_its_class(
    desk: Desk, fault: Fault, error_class: ErrorClass, retry_after: float | None
) -> None:
    desk.api.fail(fault)
    error = await desk.failure()
    assert (error.error_class, error.retry_after) == (error_class, retry_after)
    assert len(desk.api.requests) == 1  # the SDK does not try again by itself
    assert (await desk.ask()).stop == "end"


@M9
async def test_what_the_vendor_says_of_keys_is_not_repeated(desk: Desk) -> None:
    desk.api.fail(refuse("unauthenticated", message=f"Incorrect API key provided: {KEY[:12]}****"))
    error = await desk.failure()
    assert KEY[:12] not in str(error)
    assert "_API_KEY" in str(error)
    desk.api.fail(refuse("invalid", message=f"what is {KEY} {'x' * 500}"))
    error = await desk.failure()
    assert "what is [key] xxx" in str(error)


@M9
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("form", ["nested", "flat", "failed"])
async def test_an_error_in_the_middle_of_a_stream(
    desk: Desk, after: int, form: Literal["nested", "flat", "failed"]
) -> None:
    desk.api.fail(error_event("overloaded", after=after, form=form))
    assert (await desk.failure()).error_class is ErrorClass.TRANSPORT
    desk.api.fail(error_event("rate_limited", after=after, form=form))
    assert (await desk.failure()).error_class is ErrorClass.RATE_LIMIT


@M9
@pytest.mark.parametrize("how", [cut, truncate])
async def test_a_stream_that_ends_early_is_no_answer(desk: Desk, how: Any) -> None:
    desk.script(reply(Think("hm"), "Some words of an answer.", Call("forecast", {"place": "Kiel"})))
    whole = await desk.ask(desk.request(tools=(FORECAST,)))
    for after in (0, 1, 10, 60, 200, 400, 700, 1000):
        desk.api.fail(how(after))
        outcome = await asyncio.gather(desk.ask(desk.request(tools=(FORECAST,))), return_exceptions=True)
        match outcome[0]:
            case ModelReply(items=items):
                assert items == whole.items  # it was over by then
            case error:
                assert isinstance(error, ProviderError)
                assert error.error_class is ErrorClass.TRANSPORT


@M9
@pytest.mark.parametrize("fault", [drop(), garbage("html"), garbage("json")], ids=["drop", "html", "json"])
async def test_a_server_that_talks_nonsense(desk: Desk, fault: Fault) -> None:
    desk.api.fail(fault)
    assert (await desk.failure()).error_class is ErrorClass.TRANSPORT


@M9
async def test_nobody_listens(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert (await desk.failure()).error_class is ErrorClass.TRANSPORT


@M9
async def test_without_a_key_it_says_which_variable_to_set(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable)
    error = await desk.failure()
    assert error.error_class is ErrorClass.AUTH
    assert f"set {'ANTHROPIC' if desk.wire == 'anthropic' else 'OPENAI'}_API_KEY" in str(error)
    assert desk.api.requests == []


@M9
async def test_a_key_no_header_can_carry_is_not_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "sk-ä\nb")
    error = await desk.failure()
    assert error.error_class is ErrorClass.AUTH
    assert "sk-" not in str(error)


# --- Connections -------------------------------------------------------------------------------------------------


@P3P4
@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("fault", [hang(), stall(after=300)], ids=["before headers", "in the middle"])
async def test_cancelling_closes_the_connection(desk: Desk, fault: Fault) -> None:
    desk.api.fail(fault)
    task = asyncio.create_task(desk.ask())
    await desk.api.arrived(1, "hanging")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await desk.api.arrived(1, "left", timeout=5)
    assert (await desk.ask()).stop == "end"


@P3P4
@pytest.mark.usefixtures("tidy")
async def test_closing_the_iterator_closes_the_connection(desk: Desk) -> None:
    desk.script("word " * 200)
    desk.api.fail(stall())
    async with asyncio.timeout(20), aclosing(desk.provider.stream(desk.request())) as stream:
        async for piece in stream:
            if isinstance(piece, TextDelta):
                break
    await desk.api.arrived(1, "left", timeout=5)


@P3P4
@pytest.mark.usefixtures("tidy")
async def test_many_at_a_time_and_a_silent_one_holds_up_nobody(desk: Desk) -> None:
    desk.api.fail(stall(after=10, times=60))
    silent = [asyncio.create_task(desk.ask()) for _ in range(60)]
    await desk.api.arrived(60, "hanging")
    assert (await desk.ask()).stop == "end"
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)


@P3P4
@pytest.mark.usefixtures("tidy")
async def test_a_closed_provider_can_be_used_again(desk: Desk) -> None:
    await desk.ask()
    await desk.provider.close()
    await desk.provider.close()
    assert (await desk.ask()).stop == "end"


@P3P4
@pytest.mark.usefixtures("tidy")
async def test_another_event_loop_gets_its_own_client(desk: Desk) -> None:
    await desk.ask()

    def elsewhere() -> ModelReply:
        async def once() -> ModelReply:
            try:
                return await desk.ask()
            finally:
                await desk.provider.close()

        return asyncio.run(once())

    assert (await asyncio.to_thread(elsewhere)).stop == "end"
    assert (await desk.ask()).stop == "end"


@pytest.mark.spec("P4")
async def test_a_compatible_server_is_asked_without_a_key_over_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelApi() as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        provider = OpenAIProvider()
        desk = Desk("chat", api, provider)
        assert (await desk.ask()).stop == "end"
        assert [one.wire for one in api.requests] == ["chat"]
        assert "prompt_cache_key" not in api.bodies[0]
        assert provider.manifest.capabilities.pdfs is False
        await provider.close()


@P3P4
async def test_detecting_tells_of_the_key_and_never_shows_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(desk.provider, ModelProvider)
    found = await desk.provider.detect()
    assert found.installed
    assert found.version
    assert found.details.endswith("is set")
    account = desk.provider.account
    assert len(account) == 8
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable)
    assert (await desk.provider.detect()).details.endswith("is not set")
    assert desk.provider.account != account
    assert desk.api.requests == []
