"""What becomes of turns when a model API breaks off, hangs, talks nonsense or refuses. Real SDKs, real HTTP."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models import Event, Step, TranscriptItem, Usage
from models.base import Base
from tests.support.api_fleet import FleetTime, model_api, resting_seconds, retry_now, use_keys
from tests.support.fleet import Fleet, MakeFleet, fleet_settings
from tests.support.model_api import (
    Call,
    Conversation,
    Fault,
    Limits,
    ModelApi,
    cut,
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
from tests.support.model_api import Usage as Told
from tests.support.model_api.answer import answer
from tests.support.model_api.prompt_cache import CachedTokens
from tests.support.model_api.wires import PATHS
from tests.support.servers import Valkey
from workers import turn
from workers.watchdog import Watchdog

COUNTED = Told(input=100, output=20, cache_read=0, cache_write=0)  # answers have the same length each time
ON_THE_WAY = "Ich schaue auf die Uhr … 🕛 gleich."
WHOLE = "Es ist zwölf – 正午 🕛, und später wird es später. Grüße!"
REPLIES = (
    reply(ON_THE_WAY, Call("clock", {"timezone": "UTC"}), usage=COUNTED),
    reply(WHOLE, usage=COUNTED),
)
CLOCK = script(rule("clock", *REPLIES))


@dataclass(frozen=True)
class Wire:
    provider: str
    options: dict[str, str]

    async def group(self, fleet: Fleet, **values: Any) -> str:
        return await fleet.add_group(
            provider=self.provider, **({"config": {"provider_options": self.options}} | values)
        )


ANTHROPIC, RESPONSES, CHAT = (
    Wire("anthropic", {}),
    Wire("openai", {"api": "responses"}),
    Wire("openai", {"api": "chat"}),
)
# Each wire once, and both databases: neither needs the other's all.
SPREAD = pytest.mark.parametrize(
    ("wire", "database_kind"),
    [(ANTHROPIC, "postgresql"), (RESPONSES, "sqlite"), (CHAT, "postgresql")],
    ids=["anthropic", "responses", "chat"],
)


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, CLOCK) as server:
        yield server


TOGETHER = 4


# --- Broken streams ----------------------------------------------------------------------------------------------


def _bodies(api: ModelApi) -> list[bytes]:
    """The two answers of a turn, byte for byte as long as the stand-in sends them."""
    made = []
    for number, request in enumerate(api.requests[:2]):
        assert request.conversation is not None
        wire = PATHS[request.path]
        made.append(b"".join(wire.events(answer(REPLIES[number], request.conversation, CachedTokens(0)))))
    return made


def _places(body: bytes, count: int = 20) -> list[int]:
    """Where to break it: in characters of two, three and four bytes, in the framing, at both ends, and in between."""
    known = {0, 1, len(body) - 1, len(body) - 2}
    for text, inside in (("ö", 1), ("–", 2), ("…", 1), ("🕛", 1), ("🕛", 3)):
        if (at := body.find(text.encode())) >= 0:
            known.add(at + inside)
    second = body.index(b"\n\n") + 2
    known |= {second - 1, second, second + 3, body.index(b"data: ", second) + 5}
    step = len(body) / (count + 1)
    for number in range(1, count + 1):
        if len(known) < count:
            known.add(int(number * step))
    return sorted(known)


def _in_round(case: str, rounds: int) -> Any:
    def fits(asked: Conversation) -> bool:
        return asked.text.startswith(case) and asked.rounds == rounds

    return fits


async def _first_turn(fleet: Fleet, wire: Wire, api: ModelApi) -> list[bytes]:
    await wire.group(fleet)
    await fleet.send("case 99: clock", platform_id="first")
    assert await fleet.answer_wakes() == ["completed"]
    return _bodies(api)


@SPREAD
@pytest.mark.spec("M9", "M8", "M7")
async def test_a_stream_cut_at_any_byte_is_asked_for_again_and_nothing_partial_is_said(
    fleet: Fleet, api: ModelApi, wire: Wire
) -> None:
    """Each turn is cut once in its first answer (with a tool call) and once in its last."""
    bodies = await _first_turn(fleet, wire, api)
    places = list(zip(_places(bodies[0]), _places(bodies[1]), strict=True))
    assert len(places) == 20
    for start in range(0, 20, TOGETHER):
        await _break_both(fleet, api, start, [tuple(map(cut, pair)) for pair in places[start : start + TOGETHER]])
    await _check_answers(fleet, turns=21, attempts=3)
    assert len(api.requests) == 2 + 20 * 4, "nothing finished was asked for again"


@SPREAD
@pytest.mark.spec("M9", "M8", "M7")
async def test_an_answer_that_ends_too_early_is_no_answer(fleet: Fleet, api: ModelApi, wire: Wire) -> None:
    """HTTP sees nothing wrong with these."""
    bodies = await _first_turn(fleet, wire, api)
    shares = (0.0, 0.1, 0.35, 0.6)
    await _break_both(fleet, api, 0, [tuple(truncate(int(len(body) * share)) for body in bodies) for share in shares])
    # The last of a stream says nothing new: one that lacks it counts as whole or as broken, not as half an answer.
    for rounds, body in enumerate(bodies):
        api.fail(truncate(len(body) - 1), predicate=_in_round("case 50:", rounds))
        api.fail(truncate(int(len(body) * 0.85)), predicate=_in_round("case 51:", rounds))
    for case in ("case 50:", "case 51:"):
        await fleet.send(f"{case} clock", platform_id=case)
    outcomes = await fleet.answer_wakes()
    while "waiting" in outcomes:
        outcomes = await retry_now(fleet)
    await _check_answers(fleet, turns=7)


async def _break_both(fleet: Fleet, api: ModelApi, start: int, faults: list[tuple[Fault, ...]]) -> None:
    """Some turns at once, each with a fault in its first and one in its second answer. Fewer than open the breaker."""
    for number, (first, second) in enumerate(faults, start):
        case = f"case {number:02d}:"
        api.fail(first, predicate=_in_round(case, 0))
        api.fail(second, predicate=_in_round(case, 1))
        await fleet.send(f"{case} clock", platform_id=case)
    assert await fleet.answer_wakes() == ["waiting"] * len(faults), faults
    await _check_waiting(fleet, len(faults), 0.05)
    assert await retry_now(fleet) == ["waiting"] * len(faults), faults
    await _check_waiting(fleet, len(faults), 0.1)
    assert await retry_now(fleet) == ["completed"] * len(faults)


async def _check_waiting(fleet: Fleet, count: int, backoff: float) -> None:
    turns = [row for row in await fleet.turns() if row.status == "waiting"]
    messages = [row for row in await fleet.inbox() if row.status == "pending"]
    assert [row.error_class for row in turns + messages] == ["transport"] * 2 * count
    rests = await resting_seconds(fleet)
    assert all(backoff <= rests[turn.session_id] <= backoff * 1.21 for turn in turns)
    assert fleet.runtime.leases.running == 0
    assert not {row.session_id for row in await fleet.outbox()} & {turn.session_id for turn in turns}


async def _check_answers(fleet: Fleet, *, turns: int, attempts: int | None = None) -> None:
    assert [row.content["text"] for row in await fleet.outbox()] == [WHOLE] * turns
    assert [row.status for row in await fleet.turns()] == ["completed"] * turns
    if attempts is not None:
        assert sorted(row.attempt for row in await fleet.turns()) == [1] + [attempts] * (turns - 1)
    steps = await fleet.rows(Step, Step.turn_id, Step.number)
    assert [(step.kind, step.status) for step in steps] == [
        ("model", "finished"),
        ("tool", "finished"),
        ("model", "finished"),
    ] * turns
    assert len(await fleet.rows(Usage)) == 2 * turns
    said = [
        row.content["text"]
        for row in await fleet.rows(TranscriptItem)
        if row.role == "assistant" and row.type == "text"
    ]
    assert sorted(said) == sorted([ON_THE_WAY, WHOLE] * turns)
    shown = [row for row in await fleet.rows(Event) if row.type in ("message", "result")]
    assert {row.payload["text"] for row in shown} == {ON_THE_WAY, WHOLE}
    assert len([row for row in shown if row.type == "result"]) == turns


@asynccontextmanager
async def impatience(monkeypatch: pytest.MonkeyPatch, condition: Callable[[], bool]) -> AsyncIterator[None]:
    """The turn's watchdog loses its patience as soon as something is the case, and not by the clock: on a slow machine
    that would be before anybody was asked."""
    dogs: list[Watchdog] = []

    def watchdog(seconds: float) -> Watchdog:
        dogs.append(Watchdog(seconds))
        return dogs[-1]

    async def bite() -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0.02)
            waiting = dogs[-1]._timeout if dogs else None
            if condition() and waiting is not None and (waiting.when() or 0) > loop.time() + 0.2:
                waiting.reschedule(loop.time() + 0.2)

    monkeypatch.setattr(turn, "Watchdog", watchdog)
    biting = asyncio.create_task(bite())
    try:
        yield
    finally:
        biting.cancel()


@SPREAD
@pytest.mark.spec("M9", "M4")
async def test_a_model_that_hangs_frees_its_slot_and_is_asked_again(
    make_fleet: MakeFleet, api: ModelApi, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before its headers, once in the middle of its words."""
    fleet = await make_fleet()
    await wire.group(fleet)
    api.fail(hang(), stall(), stall(1))
    await fleet.send("clock")
    for attempt in (1, 2, 3):
        async with impatience(monkeypatch, lambda: any(one.outcome == "hanging" for one in api.requests)):
            outcome = await fleet.answer_wakes() if attempt == 1 else await retry_now(fleet)
        assert outcome == ["waiting"]
        [message], [session], [tried] = await fleet.inbox(), await fleet.sessions(), await fleet.turns()
        assert (message.error_class, message.tries, tried.attempt) == ("provider_hang", attempt, attempt)
        assert (session.lease_owner, fleet.runtime.leases.running) == (None, 0)
        await api.arrived(attempt, "left")  # the connection is closed, not forgotten
    assert await fleet.outbox() == []
    assert await retry_now(fleet) == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == [WHOLE]
    assert len(await fleet.rows(Usage)) == 2


# --- Refusals ----------------------------------------------------------------------------------------------------

KEY = "sk-proj-7Qh2-not-a-real-key-Zk9w"
FRAGMENTS = ("7Qh2", "Zk9w")
TELLING = f"It is about {KEY}, which is yours."
MASKED = "Incorrect API key provided: sk-proj-7Qh2**************Zk9w. You can find your API key in your settings."
RETRIED = "waiting"
DEAD = "failed"

FAULTS: dict[str, tuple[Fault, str, str]] = {
    "rate_limited": (refuse("rate_limited", message=TELLING), "rate_limit", RETRIED),
    "quota": (refuse("quota", message=TELLING), "quota", DEAD),
    "billing": (refuse("billing", message=TELLING), "quota", DEAD),
    "too_long": (refuse("too_long"), "context_too_long", DEAD),
    "invalid": (refuse("invalid", message=TELLING), "invalid_request", DEAD),
    "unauthenticated": (refuse("unauthenticated", message=MASKED), "auth", DEAD),
    "forbidden": (refuse("forbidden", message=MASKED), "auth", DEAD),
    "no_model": (refuse("no_model", message=TELLING), "invalid_request", DEAD),
    "too_large": (refuse("too_large", message=TELLING), "invalid_request", DEAD),
    "server_error": (refuse("server_error", message=TELLING), "transport", RETRIED),
    "bad_gateway": (refuse("server_error", status=502), "transport", RETRIED),
    "unavailable": (refuse("unavailable", message=TELLING), "transport", RETRIED),
    "timeout": (refuse("timeout"), "transport", RETRIED),
    "request_timeout": (refuse("timeout", status=408), "transport", RETRIED),
    "conflict": (refuse("server_error", status=409), "transport", RETRIED),
    "overloaded": (refuse("overloaded"), "transport", RETRIED),
    "unknown_4xx": (refuse("invalid", status=418), "invalid_request", DEAD),
    "overloaded, said late": (error_event("overloaded"), "transport", RETRIED),
    "server_error, said at once": (error_event("server_error", after=0), "transport", RETRIED),
    "rate_limited, said late": (error_event("rate_limited"), "rate_limit", RETRIED),
    "unauthenticated, said late": (error_event("unauthenticated"), "auth", DEAD),
    "a page": (garbage("html"), "transport", RETRIED),
    "broken JSON": (garbage("json"), "transport", RETRIED),
    "dropped": (drop(), "transport", RETRIED),
}


@SPREAD
@pytest.mark.spec("M9", "P19")
async def test_every_refusal_has_its_class_and_its_fate_and_tells_no_key(
    fleet: Fleet,
    api: ModelApi,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    use_keys(monkeypatch, KEY)
    await wire.group(fleet)
    wrong = []
    for name, (fault, error_class, fate) in FAULTS.items():
        before = len(api.requests)
        api.fail(fault)
        accepted = await fleet.send(f"clock: {name}", platform_id=name)
        outcome = await fleet.answer_wakes()
        [message] = [row for row in await fleet.inbox() if row.session_id == accepted.session_id]
        found = (outcome, message.error_class, len(api.requests) - before)
        if found != ([fate], error_class, 1):
            wrong.append((name, found, message.error))
        if outcome == [RETRIED]:
            assert await retry_now(fleet) == ["completed"], name
    assert wrong == []
    answers = [row for row in await fleet.outbox() if row.kind == "chat"]
    assert {row.content["text"] for row in answers} == {WHOLE}
    assert len(answers) == len([fate for _, _, fate in FAULTS.values() if fate == RETRIED])
    shown = capfd.readouterr()
    told = await _everything(fleet) + shown.out + shown.err + caplog.text
    assert "turn.failed" in told
    assert "[key]" in told, "a vendor's words are kept, without the key"
    assert [secret for secret in (KEY, *FRAGMENTS) if secret in told] == []


async def _everything(fleet: Fleet) -> str:
    """All rows of all tables."""
    return "\n".join([repr(row) for mapper in Base.registry.mappers for row in await fleet.rows(mapper.class_)])


@SPREAD
@pytest.mark.spec("M9")
async def test_an_unknown_key_is_refused_by_name_of_its_variable(
    fleet: Fleet, api: ModelApi, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.group(fleet)
    api.fail(refuse("unauthenticated", message=MASKED))
    await fleet.send("clock")
    assert await fleet.answer_wakes() == ["failed"]
    [message] = await fleet.inbox()
    assert f"{wire.provider.upper()}_API_KEY" in message.error


# --- Rate limits -------------------------------------------------------------------------------------------------

MODEL, OTHER_MODEL = "claude-sonnet-5-5", "claude-haiku-5-5"


@pytest.mark.spec("M9")
@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize("wire", [ANTHROPIC, RESPONSES, CHAT], ids=["anthropic", "responses", "chat"])
@pytest.mark.parametrize("error", ["rate_limited", "overloaded"])
async def test_retry_after_is_obeyed_to_the_second(fleet: Fleet, api: ModelApi, wire: Wire, error: Any) -> None:
    await wire.group(fleet)
    api.fail(refuse(error, retry_after=77))
    await fleet.send("clock")
    assert await fleet.answer_wakes() == ["waiting"]
    [seconds] = (await resting_seconds(fleet)).values()
    assert seconds == pytest.approx(77, abs=0.01)
    [message] = await fleet.inbox()
    assert message.tries == (0 if error == "rate_limited" else 1), "patience for a limit costs no try, an outage does"
    assert fleet.runtime.leases.running == 0


async def _together(wakes: list[tuple[str, str]], fleets: list[Fleet]) -> list[str]:
    """Answer wakes on several workers at once."""
    shared = [(fleets[n % len(fleets)], session, provider) for n, (session, provider) in enumerate(wakes)]
    return await asyncio.gather(*(fleet.wake(session, provider) for fleet, session, provider in shared))


def _asked(api: ModelApi, model: str) -> int:
    return len([one for one in api.requests if one.conversation is not None and one.conversation.model == model])


@pytest.mark.spec("M9", "P19", "M4")
async def test_a_storm_of_refusals_rests_the_whole_fleet_and_loses_nothing(
    make_fleet: MakeFleet, api: ModelApi
) -> None:
    """Retry-After 300 for one model: twenty sessions on three workers wait, the other model's do not notice."""
    fleets = [await make_fleet() for _ in range(3)]
    fleet, time = fleets[0], FleetTime(*fleets)
    await fleet.add_group(provider="anthropic", model=MODEL)
    await fleet.add_group("other", provider="anthropic", model=OTHER_MODEL)
    api.fail(
        refuse("rate_limited", retry_after=300, times=None),
        predicate=lambda asked: asked.model == MODEL and time.passed < 300,
    )
    for number in range(20):
        await fleet.send(f"number {number:02d}", platform_id=f"chat{number:02d}")
    wakes, fleet.bells.wakes = fleet.bells.wakes, []

    assert await _together(wakes[:3], fleets) == ["waiting"] * 3, "all three may have asked before one was told"
    told = {session_id for session_id, _ in wakes[:3]}
    asked = _asked(api, MODEL)
    assert 1 <= asked <= 3
    rests = await resting_seconds(fleet)
    assert [rests[session] for session in told] == pytest.approx([300] * 3, abs=1)
    assert pytest.approx(300, abs=0.001) in rests.values(), "who was told waits what it was told"
    assert await _together(wakes[3:], fleets) == ["waiting"] * 17
    assert _asked(api, MODEL) == asked, "nobody asks who need not be told"
    rests = await resting_seconds(fleet)
    assert len(rests) == 20
    # A second more than told: the tests' clock is read before the question travels, Redis's own is not.
    assert all(250 < seconds <= 301 for seconds in rests.values()), sorted(rests.values())
    assert {row.status for row in await fleet.turns()} == {"waiting"}
    assert {(row.status, row.tries, row.error_class) for row in await fleet.inbox()} == {("pending", 0, "rate_limit")}
    assert [one.runtime.leases.running for one in fleets] == [0, 0, 0]

    for number in range(3):
        await fleet.send(f"other {number}", agent_group="other", platform_id=f"other{number}")
    assert await fleet.answer_wakes() == ["completed"] * 3

    await time.go_by(240)
    assert (await fleet.sweep()).wakes == [], "not before its time"
    late = await fleet.send("a newcomer", platform_id="late")
    assert await fleets[1].wake(late.session_id, "anthropic") == "waiting"
    assert _asked(api, MODEL) == asked
    fleet.bells.wakes.clear()

    await time.go_by(61)
    await fleet.sweep()
    wakes, fleet.bells.wakes = fleet.bells.wakes, []
    assert len(wakes) == 21
    assert await _together(wakes, fleets) == ["completed"] * 21
    assert _asked(api, MODEL) == asked + 21
    answers = [row.content["text"] for row in await fleet.outbox() if "number" in row.content["text"]]
    assert sorted(answers) == [f"You said: number {number:02d}" for number in range(20)]
    assert {(row.status, row.tries) for row in await fleet.inbox()} == {("completed", 1)}


@pytest.mark.spec("M9", "P19")
async def test_refused_for_five_minutes_no_message_dies_and_then_its_tries_count(
    make_fleet: MakeFleet, api: ModelApi
) -> None:
    fleet = await make_fleet(limit_seconds=300)
    time = FleetTime(fleet)
    await fleet.add_group(provider="openai", config={"provider_options": {"api": "responses"}})
    api.fail(refuse("rate_limited", retry_after=20, times=None))
    await fleet.send("are you there?")
    assert await fleet.answer_wakes() == ["waiting"]
    for passed in range(20, 300, 20):
        [message] = await fleet.inbox()
        assert (message.status, message.tries) == ("pending", 0), passed
        assert (await fleet.sweep()).wakes == []
        await time.go_by(20)
        await fleet.sweep()
        assert await fleet.answer_wakes() == ["waiting"]
    assert len(api.requests) == 15, "once every 20 seconds, no oftener"
    outcomes = []
    tries = []
    while "failed" not in outcomes:
        await time.go_by(20)
        await fleet.sweep()
        outcomes += await fleet.answer_wakes()
        tries += [row.tries for row in await fleet.inbox()]
    assert (outcomes, tries) == (["waiting"] * 4 + ["failed"], [1, 2, 3, 4, 5])
    [message], [turn] = await fleet.inbox(), await fleet.turns()
    assert (message.status, message.error_class, turn.status) == ("failed", "rate_limit", "failed")
    assert "Rate limit reached" in message.error
    assert len(api.requests) == 20


@SPREAD
@pytest.mark.spec("P19")
async def test_what_the_headers_say_holds_the_next_call_back(make_fleet: MakeFleet, api: ModelApi, wire: Wire) -> None:
    """Also in the middle of a turn: what it has done stays done."""
    fleet, other = await make_fleet(), await make_fleet()
    time = FleetTime(fleet, other)
    await wire.group(fleet)
    api.limits = Limits(requests=1, requests_left=0, reset=60)
    await fleet.send("clock")
    assert await fleet.answer_wakes() == ["waiting"], "its second call"
    newcomer = await other.send("hello", platform_id="newcomer")
    assert await other.wake(newcomer.session_id, wire.provider) == "waiting", "on another worker"
    assert len(api.requests) == 1
    rests = await resting_seconds(fleet)
    assert all(55 < seconds <= 61 for seconds in rests.values()), rests
    assert {(row.tries, row.error_class) for row in await fleet.inbox()} == {(0, "rate_limit")}

    api.limits = None
    other.bells.wakes.clear()
    for _ in range(2):  # the bucket holds one request a minute
        await time.go_by(61)
        await fleet.sweep()
        await fleet.answer_wakes()
    assert [row.status for row in await fleet.turns()] == ["completed"] * 2
    assert sorted(row.content["text"] for row in await fleet.outbox()) == [WHOLE, "You said: hello"]
    assert len(api.requests) == 3
    assert len([step for step in await fleet.rows(Step) if step.kind == "tool"]) == 1


@pytest.mark.spec("M9", "P19")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_come_back_at_once_is_believed_less_and_less(make_fleet: MakeFleet, api: ModelApi) -> None:
    """A vendor that says Retry-After: 0 with each refusal is not asked without end."""
    fleet = await make_fleet(limit_seconds=120)
    time = FleetTime(fleet)
    await fleet.add_group(provider="anthropic")
    api.fail(refuse("rate_limited", retry_after=0, times=None))
    await fleet.send("hello")
    outcomes = await fleet.answer_wakes()
    rests: list[float] = []
    while outcomes[-1] == "waiting" and len(outcomes) < 60:
        rests += (await resting_seconds(fleet)).values()
        await time.go_by(rests[-1] + 0.01)
        await fleet.sweep()
        outcomes += await fleet.answer_wakes()
    assert outcomes[-1] == "failed"
    assert min(rests[:-4]) >= 1, "at least a second, until patience is at an end and the tries count"
    assert time.passed > 60
    assert len(api.requests) < 50


@pytest.mark.spec("P19")
@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_turns_run_while_redis_is_away(database_url: str, tmp_path: Path, api: ModelApi) -> None:
    """Limits are then counted by each worker on its own."""
    valkey = Valkey(tmp_path / "valkey")
    valkey.start()
    fleet = Fleet(fleet_settings(database_url, valkey.url, tmp_path))
    try:
        await fleet.add_group(provider="anthropic")
        await fleet.send("clock one")
        assert await fleet.answer_wakes() == ["completed"]
        api.fail(stall(300))
        accepted = await fleet.send("clock two")
        running = asyncio.create_task(fleet.wake(accepted.session_id, "anthropic"))
        await api.arrived(1, "hanging")
        valkey.stop(signal.SIGKILL)
        api.release()
        assert await running == "completed"
        fleet.bells.wakes.clear()
        await fleet.send("clock three")
        assert await fleet.answer_wakes() == ["completed"]
        assert [row.content["text"] for row in await fleet.outbox()] == [WHOLE] * 3
        api.fail(refuse("rate_limited", retry_after=300))
        await fleet.send("clock four")
        await fleet.send("clock five", platform_id="another")
        assert await fleet.answer_wakes() == ["waiting", "waiting"]
        assert len(api.requests) == 7, "this worker still knows that it was told to wait"
    finally:
        valkey.stop(signal.SIGKILL)
        await fleet.close()
