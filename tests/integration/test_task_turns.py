"""The turn of a scheduled task: alone, on the task's own terms, and not at all when it comes too late for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import Approval, BudgetDay, MessageIn, Reservation, Session, Turn, Usage, spending
from models.base import new_id, now
from models.budgets import TASK
from models.inbox import BATCH_LIMIT
from models.spending import BudgetState, budget_states
from scheduler.following import LATE_SECONDS
from tests.support.api_fleet import model_api
from tests.support.cards import appoint, cards_of, press
from tests.support.due_tasks import due_task
from tests.support.fleet import Fleet
from tests.support.model_api import Call, ModelApi, refuse, reply, rule, script, stall
from tests.support.model_api import Usage as Used
from workers import budget
from workers.budget import Purse
from workers.consent.approvals import decide
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases

sqlite_only = pytest.mark.parametrize("database_kind", ["sqlite"])
PRICE = {"price": {"input": 1.0, "output": 100.0}, "max_tokens": 1000}
# One dollar: a million tokens in, at that price.
CALL = reply("done", usage=Used(input=1_000_000, output=0, cache_read=0, cache_write=0))


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, script(rule(None, CALL, repeat=True))) as server:
        yield server


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are a day's: for them it is noon, so that no midnight comes between."""
    noon = datetime.now(UTC).replace(hour=12)

    async def today(_: AsyncConnection) -> datetime:
        return noon

    monkeypatch.setattr(budget, "today", today)
    monkeypatch.setattr(spending, "today", today)


async def said(fleet: Fleet) -> list[str]:
    return [row.content["text"] for row in await fleet.outbox() if row.kind == "chat"]


# --- alone -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S3", "S4")
async def test_a_task_has_a_turn_of_its_own(fleet: Fleet) -> None:
    """Its terms are for the whole turn. What people say goes first, however many tasks are due."""
    await fleet.add_group()
    await fleet.send("before")
    await due_task(fleet, "first task")
    await due_task(fleet, "second task")
    await fleet.send("after")
    accepted = await fleet.send("and again")
    fleet.bells.wakes = [(accepted.session_id, "scripted")]
    await fleet.settle_down()
    assert await said(fleet) == [
        "You said: before after and again", "You said: first task", "You said: second task",
    ]  # fmt: skip
    assert len(await fleet.turns()) == 3


@pytest.mark.spec("S3", "S4")
async def test_what_people_say_does_not_wait_behind_more_tasks_than_are_looked_at(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.add_group()
    task = await due_task(fleet, "first task")
    message = {"kind": "task", "channel_type": "local", "platform_id": "inbox", "session_id": task.session_id}
    rows = [message | {"id": (row := new_id()), "seq": 1000 + n, "series_id": row, "content": {"prompt": "more"}}
            for n in range(BATCH_LIMIT + 5)]  # fmt: skip
    await fleet.insert(MessageIn, *rows)
    await fleet.execute(update(Session).values(message_seq=2000))
    await fleet.send("hello")
    await fleet.wake(task.session_id)
    assert await said(fleet) == ["You said: hello"]


@pytest.mark.spec("S3", "M10")
async def test_a_message_that_failed_before_still_goes_alone_and_before_tasks(fleet: Fleet) -> None:
    await fleet.add_group()
    await due_task(fleet, "a task")
    tired = await fleet.send("tired")
    await fleet.execute(update(MessageIn).where(MessageIn.id == tired.message_id).values(tries=2))
    await fleet.send("hello")
    fleet.bells.wakes = [(tired.session_id, "scripted")]
    await fleet.settle_down()
    assert await said(fleet) == ["You said: tired", "You said: hello", "You said: a task"]


@sqlite_only
@pytest.mark.spec("S3")
async def test_a_task_without_a_series_shares_a_turn_as_ever(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.send("a chat")
    await fleet.send("a task", kind="task")
    assert await fleet.answer_wakes() == ["completed"]
    assert await said(fleet) == ["You said: a chat a task"]


@pytest.mark.spec("S3", "M6")
async def test_what_people_say_meanwhile_passes_a_task_by(fleet: Fleet, api: ModelApi) -> None:
    """A task that comes due in the middle of a conversation waits for its own turn, and holds nobody up."""
    api.script = script(
        rule("time", reply("Let me look.", Call("clock", {"timezone": "UTC"})), "It is noon."), rule("plants", "Done.")
    )
    await fleet.add_group(provider="anthropic", model="claude-haiku-5-5")
    task = await due_task(fleet, "water the plants", row={"process_after": now(3600)})
    accepted = await fleet.send("what time is it?")
    fleet.bells.wakes.clear()
    api.fail(stall(200, when="time"))
    running = asyncio.create_task(fleet.wake(accepted.session_id, "anthropic"))
    await api.arrived(1, "hanging")
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.message_id).values(process_after=now(-1)))
    await fleet.send("in Vienna, please")
    api.release()
    assert await running == "completed"
    assert "in Vienna, please" in json.dumps(api.bodies[1])
    assert "plants" not in json.dumps(api.bodies)
    assert fleet.bells.wakes == [(accepted.session_id, "anthropic")], "and then it is rung for"
    assert await fleet.answer_wakes() == ["completed"]
    assert await said(fleet) == ["You said: in Vienna, please", "Done."]


@sqlite_only
@pytest.mark.spec("S1")
async def test_only_a_task_costs_a_look_at_its_terms(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await fleet.send("hello")
    with statements(fleet) as chat:
        await fleet.wake(accepted.session_id)
    await due_task(fleet)
    with statements(fleet) as task:
        await fleet.wake(accepted.session_id)
    assert [text for text in chat if "task_series" in text] == []
    assert len([text for text in task if "task_series" in text]) == 1
    assert len(task) == len(chat) + 1


@contextmanager
def statements(fleet: Fleet) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(conn: Any, cursor: Any, text: str, *_: Any) -> None:
        seen.append(text)

    engine = fleet.db.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


# --- too late ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("S3")
async def test_a_run_that_was_missed_is_left_to_the_sweep(fleet: Fleet) -> None:
    """Its task does without it; others in the same conversation do not wait for that to be written down."""
    await fleet.add_group()
    missed = await due_task(fleet, "missed", late=LATE_SECONDS + 60, catch_up="skip")
    assert await fleet.wake(missed.session_id) == "nothing"
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    assert await said(fleet) == ["You said: hello"]
    row = next(row for row in await fleet.inbox() if row.id == missed.message_id)
    assert (row.status, row.tries, row.turn_id) == ("pending", 0, None)
    assert fleet.bells.wakes == [], "nobody is rung for in vain"


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    ("late", "terms", "row"),
    [
        (LATE_SECONDS - 60, {"catch_up": "skip"}, {}),
        (LATE_SECONDS + 60, {"catch_up": "one"}, {}),
        (LATE_SECONDS + 60, {"catch_up": "all"}, {}),
        (LATE_SECONDS + 60, {}, {}),
        # Written late, or begun before: neither is its own fault.
        (LATE_SECONDS + 60, {"catch_up": "skip"}, {"created_at": now()}),
        (LATE_SECONDS + 60, {"catch_up": "skip"}, {"status_changed_at": now()}),
        (LATE_SECONDS + 60, {"catch_up": "skip"}, {"recurred": True}),
        (LATE_SECONDS + 60, {"catch_up": "skip"}, {"tries": 1}),
    ],
    ids=["not very late", "one", "all", "as it is", "written late", "tried again", "run now", "begun before"],
)
@sqlite_only
async def test_all_others_are_run_however_late(
    fleet: Fleet, late: float, terms: dict[str, Any], row: dict[str, Any]
) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, late=late, row=row, **terms)
    assert await fleet.wake(accepted.session_id) == "completed"


# --- its provider ------------------------------------------------------------------------------------------------


@pytest.mark.spec("S4", "M3")
async def test_a_task_is_run_by_the_provider_it_names(fleet: Fleet, api: ModelApi) -> None:
    """On that one's queue, with its model, and without the options of the agent's own."""
    await fleet.add_group(script="from the script")
    accepted = await due_task(fleet, provider="anthropic", model="claude-haiku-5-5")
    assert await fleet.wake(accepted.session_id, "scripted") == "elsewhere"
    assert fleet.bells.wakes == [(accepted.session_id, "anthropic")]
    assert await fleet.turns() == [], "nothing of that was written"
    assert await fleet.answer_wakes() == ["completed"]
    [turn], [asked] = await fleet.turns(), api.bodies
    assert (turn.provider, turn.model, asked["model"]) == ("anthropic", "claude-haiku-5-5", "claude-haiku-5-5")
    assert await said(fleet) == ["done"]
    # What people say is the agent's own again.
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    assert (await fleet.turns())[-1].provider == "scripted"
    assert (await said(fleet))[-1] == "from the script"


@sqlite_only
@pytest.mark.spec("S4")
async def test_a_chat_with_it_is_the_agents_own_and_goes_first(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, provider="anthropic", model="claude-haiku-5-5")
    await fleet.send("hello")
    outcomes = []
    async with asyncio.timeout(30):
        while fleet.bells.wakes:
            outcomes += await fleet.answer_wakes()
    assert outcomes == ["completed", "elsewhere", "completed"]
    assert await said(fleet) == ["You said: hello", "done"]
    assert accepted.session_id == (await fleet.turns())[0].session_id


@pytest.mark.spec("S4")
async def test_a_task_that_is_due_at_once_is_rung_for_where_it_belongs(fleet: Fleet) -> None:
    await fleet.add_group()
    await fleet.send("look around", kind="task", terms={"provider": "anthropic"})
    assert [provider for _, provider in fleet.bells.wakes] == ["anthropic"]


@pytest.mark.spec("S4", "M9")
async def test_a_provider_that_is_not_installed_fails_the_run_and_says_so(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, provider="nosuch")
    assert await fleet.wake(accepted.session_id) == "failed"
    [message] = await fleet.inbox()
    assert (message.status, message.error_class) == ("failed", "unknown_provider")
    assert "nosuch" in message.error
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"], "the agent has its own"


@sqlite_only
@pytest.mark.spec("S4", "P20")
async def test_the_agents_fallbacks_stand_in_for_a_tasks_provider(fleet: Fleet, api: ModelApi) -> None:
    await fleet.add_group(provider="scripted", config={"fallbacks": ["openai:some-model"]})
    api.fail(refuse("quota", wire="anthropic"))
    accepted = await due_task(fleet, provider="anthropic", model="claude-haiku-5-5")
    assert await fleet.wake(accepted.session_id, "anthropic") == "handed_over"
    assert fleet.bells.wakes == [(accepted.session_id, "openai")]
    assert await fleet.answer_wakes() == ["completed"]
    [turn] = await fleet.turns()
    assert (turn.provider, turn.model, turn.tried) == ("openai", "some-model", ["anthropic"])


@pytest.mark.spec("S4", "M10")
async def test_a_turn_that_is_taken_apart_does_not_go_in_circles(fleet: Fleet) -> None:
    """A task and a chat that joined its turn failed twice together. They go on one by one, each with its own provider:
    whichever worker looks first decides the same."""
    await fleet.add_group()
    chat = await fleet.send("hello")
    task = await due_task(fleet, provider="nosuch")
    turn = {"id": new_id(), "session_id": chat.session_id, "number": 1, "provider": "nosuch", "lease_token": 0}
    await fleet.insert(Turn, turn | {"status": "waiting", "attempt": 2})
    await fleet.execute(update(MessageIn).values(turn_id=turn["id"], tries=2))
    await fleet.execute(update(Session).values(turn_seq=1))
    assert await fleet.wake(chat.session_id, "scripted") == "completed"
    assert await said(fleet) == ["You said: hello"]
    assert fleet.bells.wakes == [(chat.session_id, "scripted")]
    assert await fleet.answer_wakes() == ["failed"]
    rows = {row.id: row.error_class for row in await fleet.inbox()}
    assert rows == {chat.message_id: None, task.message_id: "unknown_provider"}


# --- its budget --------------------------------------------------------------------------------------------------


@pytest.mark.spec("S4", "P21", "M17")
async def test_at_its_budget_a_task_waits_for_a_yes_and_others_go_on(fleet: Fleet, api: ModelApi) -> None:
    await appoint(fleet, "fake:boss", "admin", await _group(fleet), chat="the admin's chat")
    task = await due_task(fleet, daily_usd=1.0)
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    again = await due_task(fleet, series=task.message_id)
    assert await fleet.wake(task.session_id, "anthropic") == "parked"
    assert len(api.requests) == 1

    [approval] = await fleet.rows(Approval)
    name = f"the daily budget of task {task.message_id[-8:]} of demo ($1.00) is spent"
    told = [row for row in await fleet.outbox() if row.kind == "notice"]
    assert [row.platform_id for row in told] == ["inbox", "the admin's chat"]
    assert name in told[0].content["text"]
    [card] = await cards_of(fleet, approval.id)
    assert (card.platform_id, card.user_id) == ("the admin's chat", "fake:boss")
    assert name in str(told[1].content)
    # Another task of the agent, and a person elsewhere, have money.
    fleet.bells.wakes.clear()
    await fleet.send("hello", platform_id="another chat")
    assert await fleet.answer_wakes() == ["completed"]

    pressed = await press(fleet, card, "boss")
    assert pressed.text.startswith("$1.00 more for ")
    assert pressed.wakes == [(task.session_id, "anthropic")]
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    days = {day.user_id: (round(day.spent_usd, 6), round(day.reserved_usd, 6)) for day in await fleet.rows(BudgetDay)}
    assert days == {f"{TASK}{task.message_id}": (2.0, 0.0)}
    assert await fleet.rows(Reservation) == []
    assert again.session_id == task.session_id


@pytest.mark.parametrize("approve", [True, False], ids=["yes", "no"])
@pytest.mark.spec("S4", "P21", "M17")
async def test_what_is_decided_before_the_run_is_parked_is_noticed(
    fleet: Fleet, api: ModelApi, monkeypatch: pytest.MonkeyPatch, approve: bool
) -> None:
    """Whoever decides finds nothing parked to ring for, and another task's question is still open."""
    await _group(fleet)
    other = await due_task(fleet, "another task", place="elsewhere", daily_usd=1.0)
    assert await fleet.wake(other.session_id, "anthropic") == "completed"
    task = await due_task(fleet, daily_usd=1.0)
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    await due_task(fleet, series=other.message_id, place="elsewhere")
    assert await fleet.wake(other.session_id, "anthropic") == "parked"
    [open_one] = await fleet.rows(Approval)
    refuse_real = Purse._refuse

    async def decided_meanwhile(purse: Purse, *given: Any) -> None:
        try:
            await refuse_real(purse, *given)
        finally:
            [asked] = [row for row in await fleet.rows(Approval) if row.id != open_one.id]
            assert (await decide(fleet.db, asked.id, approve=approve)).wakes == [(other.session_id, "anthropic")]

    later = await due_task(fleet, series=task.message_id)
    with monkeypatch.context() as patched:
        patched.setattr(Purse, "_refuse", decided_meanwhile)
        assert await fleet.wake(later.session_id, "anthropic") == "parked"
    assert fleet.bells.wakes == [(later.session_id, "anthropic")], "it need not wait for tomorrow"
    assert await fleet.wake(later.session_id, "anthropic") == ("completed" if approve else "failed")


@pytest.mark.spec("S4", "P21")
async def test_a_no_fails_the_run(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet)
    task = await due_task(fleet, daily_usd=0.5)
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    await due_task(fleet, series=task.message_id)
    assert await fleet.wake(task.session_id, "anthropic") == "parked"
    [approval] = await fleet.rows(Approval)
    await decide(fleet.db, approval.id, approve=False)
    assert await fleet.wake(task.session_id, "anthropic") == "failed"
    message = (await fleet.inbox())[-1]
    assert message.error_class == "budget"
    assert message.error.endswith("of demo ($0.50) is spent, and more was not granted")


@pytest.mark.spec("S4", "P21")
async def test_a_budget_that_is_set_in_the_middle_of_a_day_counts_the_runs_before(fleet: Fleet, api: ModelApi) -> None:
    """Those of the task, and nobody else's."""
    await _group(fleet)
    other = await due_task(fleet, "another task")
    task = await due_task(fleet)
    for _ in (other, task):
        assert await fleet.wake(task.session_id, "anthropic") == "completed"
    for expected in ("completed", "parked"):
        await due_task(fleet, series=task.message_id, daily_usd=1.5)
        assert await fleet.wake(task.session_id, "anthropic") == expected
    [day] = await fleet.rows(BudgetDay)
    assert (day.user_id, round(day.spent_usd, 6)) == (f"{TASK}{task.message_id}", 2.0)


@pytest.mark.spec("S4", "P21")
async def test_a_tasks_budget_is_listed_as_a_tasks(fleet: Fleet, api: ModelApi) -> None:
    group = await _group(fleet, daily_usd=10.0, user_daily_usd=5.0)
    task = await due_task(fleet, daily_usd=4.0, row={"sender_id": "ann"})
    idle = await due_task(fleet, daily_usd=4.0, row={"process_after": now(3600)})
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    expected = [
        BudgetState("demo", None, 1.0, 0.0, 10.0),
        BudgetState("demo", "ann", 1.0, 0.0, 5.0),
        BudgetState("demo", None, 1.0, 0.0, 4.0, task.message_id),
    ]
    assert await fleet.db.read(budget_states) == expected
    assert await fleet.db.read(lambda conn: budget_states(conn, group)) == expected
    assert await fleet.db.read(lambda conn: budget_states(conn, "another")) == []
    assert idle.message_id not in str(expected), "one that has spent nothing today is not listed"
    [usage] = await fleet.rows(Usage)
    assert usage.user_id == "ann", "who asked for it is still who asked for it"


@pytest.mark.spec("S4", "P21")
async def test_nobody_has_the_name_of_a_tasks_budget(fleet: Fleet, api: ModelApi) -> None:
    """Whoever calls themselves so has money of their own, and the task has its own."""
    await _group(fleet, user_daily_usd=5.0)
    task = await due_task(fleet, daily_usd=4.0)
    assert await fleet.wake(task.session_id, "anthropic") == "completed"
    name = f"task:{task.message_id}"
    chat = await fleet.send("hello", sender_id=name)
    assert await fleet.wake(chat.session_id, "anthropic") == "completed"
    assert await fleet.db.read(budget_states) == [
        BudgetState("demo", name, 1.0, 0.0, 5.0),
        BudgetState("demo", None, 1.0, 0.0, 4.0, task.message_id),
    ]
    with pytest.raises(RefusedError, match="sender_id"):
        await fleet.send("hello", sender_id=f"{TASK}{task.message_id}")


@pytest.mark.spec("P21", "C6")
async def test_whose_budget_is_spent_is_said_in_the_fleets_own_words(fleet: Fleet, api: ModelApi) -> None:
    await _group(fleet, user_daily_usd=0.5)
    for status in ("completed", "parked"):
        chat = await fleet.send("hello", sender_id="[more](https://evil.example)")
        assert await fleet.wake(chat.session_id, "anthropic") == status
    [told] = [row for row in await fleet.outbox() if row.kind == "notice"]
    assert "the daily budget of demo for `[more](https://evil.example)` ($0.50) is spent" in told.content["text"]


async def _group(fleet: Fleet, **budget: float) -> str:
    config = {"provider_options": PRICE, "budget": budget}
    return await fleet.add_group(provider="anthropic", config=config)
