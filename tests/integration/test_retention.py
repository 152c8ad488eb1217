"""What is old and finished goes, everything else stays; nothing goes that is not kept, if it is to be kept."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import (
    AgentGroup,
    Approval,
    BudgetDay,
    Card,
    Compaction,
    Event,
    Invitation,
    MessageIn,
    MessageOut,
    PendingQuestion,
    ProgramState,
    Rejected,
    Series,
    Session,
    Step,
    TranscriptItem,
    Turn,
    Usage,
    WrongCode,
    pruning,
)
from models.base import Base, new_id, now
from models.budgets import TASK
from models.dead_letters import revive
from models.spending import usage_in_total
from models.tasks import database_now
from tests.support.database_contents import everything, grow_older
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import ModelApi, rule, script
from workers.retention import Pruned, Pruning, Terms

pytestmark = pytest.mark.both_databases

OLD, KEPT = 40, 30
WITH_TOOL = "- play: [{think: hm}, {tool: clock}, {answer: 'it is {result}'}]"


async def prune(fleet: Fleet, days: int | None = KEPT, refused: int | None = None) -> Pruned:
    pruned = await Pruning(fleet.db, Terms(days, refused)).run()
    assert pruned.whole
    assert pruned.left == 0
    return pruned


async def chat(fleet: Fleet, text: str = "hello", **fields: Any) -> str:
    accepted = await fleet.send(text, **fields)
    await fleet.settle_down()
    return accepted.message_id


async def count(fleet: Fleet, *tables: type[Base]) -> list[int]:
    return [len(await fleet.rows(table)) for table in tables]


async def put(fleet: Fleet, table: type[Any], *rows: dict[str, Any]) -> None:
    for row in rows:
        await fleet.execute(insert(table).values(**row))


async def alter(fleet: Fleet, table: type[Any], **values: Any) -> None:
    await fleet.execute(update(table).values(**values))


@pytest.mark.spec("D6")
async def test_an_old_turn_goes_with_all_that_belongs_to_it(fleet: Fleet) -> None:
    await fleet.add_group(script=WITH_TOOL)
    await chat(fleet, "old")
    await fleet.execute(delete(Usage))  # as of a turn that asked no model
    await fleet.execute(delete(TranscriptItem))
    await grow_older(fleet.db, OLD)
    await chat(fleet, "young")
    young = [row for row in await everything(fleet.db) if row]
    pruned = await prune(fleet)
    assert await count(fleet, MessageIn, MessageOut, Turn, Session) == [1, 1, 1, 1]
    assert [row.content["text"] for row in await fleet.inbox()] == ["young"]
    [turn] = await fleet.turns()
    assert {row.turn_id for row in await fleet.events()} == {turn.id}
    assert {row.turn_id for row in await fleet.rows(Step)} == {turn.id}
    assert pruned.total == len(young) - len(await everything(fleet.db)) > 0
    assert pruned.rows["turns"] == pruned.rows["messages_in"] == pruned.rows["messages_out"] == 1
    assert pruned.rows["steps"] > 0
    assert pruned.rows["events"] > 1


@pytest.mark.spec("D6", "P21")
async def test_what_a_bill_and_a_conversation_rest_on_stays(fleet: Fleet) -> None:
    script = "- play: [{usage: {model: big, input_tokens: 9, output_tokens: 5, cost_usd: 0.5}}, {answer: 'yes'}]"
    await fleet.add_group(script=script)
    await chat(fleet)
    await grow_older(fleet.db, OLD)
    since = await fleet.db.read(database_now) - timedelta(days=100)
    before = await fleet.db.read(lambda conn: usage_in_total(conn, since))
    items = await fleet.rows(TranscriptItem)
    assert before.cost_usd == pytest.approx(0.5)
    assert items
    await prune(fleet)
    assert await fleet.db.read(lambda conn: usage_in_total(conn, since)) == before
    assert await fleet.rows(TranscriptItem) == items
    assert await count(fleet, MessageIn, MessageOut, Event, Step, Turn) == [0, 0, 0, 0, 1]
    assert (await prune(fleet)).total == 0


@pytest.mark.spec("D6", "P21")
async def test_a_turn_stays_for_what_it_cost(fleet: Fleet) -> None:
    await fleet.add_group(script="- play: [{usage: {model: big, input_tokens: 9, output_tokens: 5}}, {answer: 'yes'}]")
    await chat(fleet)
    await fleet.execute(delete(TranscriptItem))
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert await count(fleet, MessageIn, Event, Turn) == [0, 0, 1]
    assert {row.turn_id for row in await fleet.rows(Usage)} == {(await fleet.turns())[0].id}


@pytest.mark.spec("D6")
async def test_the_front_of_every_session_is_found_however_the_slices_fall(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "SLICE", 3)
    monkeypatch.setattr(pruning, "_SESSIONS", pruning._SESSIONS.limit(2))
    monkeypatch.setattr(pruning, "SESSIONS", 2)
    pruning._statements.cache_clear()
    try:
        await fleet.add_group(script=WITH_TOOL)
        for number in range(4):
            for _ in range(number % 3):
                await chat(fleet, "old", thread_id=f"t{number}")
        await grow_older(fleet.db, OLD)
        for number in range(4):
            for _ in range(2):
                await chat(fleet, "young", thread_id=f"t{number}")
        await prune(fleet)
        assert Counter(row.content["text"] for row in await fleet.inbox()) == {"young": 8}
        assert await count(fleet, MessageOut) == [8]
        young = {row.turn_id for row in await fleet.inbox()}
        assert {row.turn_id for row in await fleet.events()} == young
        assert {row.turn_id for row in await fleet.rows(Step)} == young
    finally:
        pruning._statements.cache_clear()


@pytest.mark.spec("D6", "M6")
async def test_a_dead_letter_stays_with_the_whole_of_its_turn_until_somebody_looks(fleet: Fleet) -> None:
    await fleet.add_group(script="- play: [{say: 'well'}, {fail: {class: auth}}]")
    message = await chat(fleet)
    await grow_older(fleet.db, OLD)
    before = await everything(fleet.db)
    notices = {row for row in before if row[0] == "messages_out"}  # to its place: they have arrived
    await prune(fleet)
    assert before.keys() - (await everything(fleet.db)).keys() == notices
    await fleet.db.transact(lambda conn: revive(conn, message))
    assert (await prune(fleet)).rows["turns"] == 1, "the turn that failed is nobody's any more"
    assert [row.status for row in await fleet.inbox()] == ["pending"]
    await alter(fleet, MessageIn, status="discarded", status_changed_at=now())
    assert (await prune(fleet)).total == 0, "it was discarded just now"
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert await count(fleet, MessageIn, MessageOut) == [0, 0]


@pytest.mark.spec("D6")
@pytest.mark.parametrize("status", ["failed", "unknown", "pending", "sending"])
async def test_an_answer_that_did_not_arrive_stays_with_what_it_answers(fleet: Fleet, status: str) -> None:
    await fleet.add_group(script=WITH_TOOL)
    await chat(fleet)
    await alter(fleet, MessageOut, status=status)
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert await count(fleet, MessageIn, MessageOut, Turn) == [1, 1, 1]
    kept_whole = status in ("failed", "unknown")
    assert bool(await fleet.events()) == bool(await fleet.rows(Step)) == kept_whole


@pytest.mark.spec("D6")
@pytest.mark.parametrize(("status", "of_message"), [("waiting", "processing"), ("parked", "completed")])
async def test_a_turn_that_goes_on_stays_however_long_it_takes(fleet: Fleet, status: str, of_message: str) -> None:
    await fleet.add_group(script=WITH_TOOL)
    await chat(fleet)
    await alter(fleet, Turn, status=status, ended_at=None)
    await alter(fleet, MessageIn, status=of_message)
    await grow_older(fleet.db, OLD)
    before = await everything(fleet.db)
    await prune(fleet)
    assert await everything(fleet.db) == before


@pytest.mark.spec("D6", "S1")
async def test_runs_of_a_series_go_and_its_living_end_stays(fleet: Fleet) -> None:
    group = await fleet.add_group(script="ok")
    session = (await fleet.send("first")).session_id
    await fleet.settle_down()
    states = {
        "followed": {"status": "completed", "recurred": True},
        "missed": {"status": "discarded", "recurred": True},
        "to be followed": {"status": "completed", "recurred": False},
        "gave up": {"status": "failed", "recurred": True},
        "waits": {"status": "pending", "recurred": False, "process_after": now(1e8)},
        "paused": {"status": "paused", "recurred": False},
    }
    series = {name: new_id() for name in ("living", "over")}
    for seq, (name, state) in enumerate(states.items(), 100):
        row = {"session_id": session, "seq": seq, "kind": "task", "content": {"prompt": name}, "recurrence": "@daily"}
        row |= {"channel_type": "local", "platform_id": "x", "series_id": series["living"], "process_after": now(seq)}
        await put(fleet, MessageIn, row | state)
    last = {"session_id": session, "seq": 99, "kind": "task", "content": {}, "status": "completed", "recurred": True}
    await put(fleet, MessageIn, last | {"channel_type": "local", "platform_id": "x", "series_id": series["over"]})
    await put(fleet, Series, *({"id": id, "agent_group_id": group} for id in series.values()))
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    left = {row.content["prompt"] for row in await fleet.inbox() if row.kind == "task"}
    assert left == {"to be followed", "gave up", "waits", "paused"}
    assert [row.id for row in await fleet.rows(Series)] == [series["living"]]


@pytest.mark.spec("D6", "S1")
async def test_a_reminder_goes_when_it_was_said_long_ago_and_its_series_goes_on(fleet: Fleet) -> None:
    await fleet.add_group(script="ok")
    session = (await fleet.send("first")).session_id
    await fleet.settle_down()
    await grow_older(fleet.db, OLD)
    long_ago, lately = now(-OLD * 86_400), now(-86_400)
    said: dict[str, Any] = {"status": "delivered", "created_at": long_ago}
    rows: dict[str, dict[str, Any]] = {
        "said long ago": said | {"deliver_after": long_ago, "delivered_at": long_ago},
        "said late": said | {"deliver_after": long_ago, "delivered_at": lately},
        "said lately": said | {"deliver_after": lately, "delivered_at": lately},
        "cancelled before its date": said | {"deliver_after": now(86_400), "status": "cancelled"},
        "cancelled long ago": said | {"deliver_after": long_ago, "status": "cancelled", "recurrence": "@daily"},
        "to be repeated": said | {"deliver_after": long_ago, "delivered_at": long_ago, "recurrence": "@daily"},
        "repeated": said
        | {"deliver_after": long_ago, "delivered_at": long_ago, "recurrence": "@daily", "recurred": True},
    }
    for seq, (name, row) in enumerate(rows.items(), 100):
        place = {"channel_type": "local", "platform_id": "x", "content": {"text": name}, "kind": "chat"}
        await put(fleet, MessageOut, row | place | {"session_id": session, "seq": seq, "idempotency_key": name})
    await prune(fleet)
    left = {row.content["text"] for row in await fleet.outbox()}
    assert left == {"said late", "said lately", "cancelled before its date", "to be repeated"}


async def put_asked(
    fleet: Fleet, session: str, seq: int, kind: str, subject: type[Any], **values: Any
) -> dict[str, Any]:
    """A question or an approval, its message and its card."""
    message, asked, card = new_id(), new_id(), new_id()
    place = {"session_id": session, "channel_type": "local", "platform_id": "x"}
    out = {"id": message, "seq": seq, "kind": "notice", "content": {}, "status": "delivered", "delivered_at": now()}
    await put(fleet, MessageOut, place | out | {"idempotency_key": asked})
    row: dict[str, Any] = {"id": asked, "session_id": session, "expires_at": now()}
    if subject is PendingQuestion:
        row |= place | {"message_out_id": message, "question": {"title": "t", "text": "t"}}
    else:
        row |= {"category": "tool", "summary": "s", "risk": "low", "payload": {}, "payload_hash": "h"}
    await put(fleet, subject, row | values)
    status = "open" if values["status"] == "pending" else "closed"
    shown = {"id": card, "kind": kind, "subject_id": asked, "options": [], "status": status, "message_out_id": message}
    await put(fleet, Card, place | shown)
    return {"asked": asked, "card": card, "message": message}


@pytest.mark.spec("D6", "C6")
async def test_what_was_asked_and_decided_goes_with_its_cards_but_not_what_was_said_about_strangers(
    fleet: Fleet,
) -> None:
    group = await fleet.add_group(script="ok")
    session = (await fleet.send("first")).session_id
    await fleet.settle_down()
    used = await put_asked(fleet, session, 100, "approval", Approval, status="used", decided_at=now())
    await put_asked(fleet, session, 101, "question", PendingQuestion, status="answered", answer="yes")
    access = await put_asked(fleet, session, 102, "approval", Approval, status="denied", category="access")
    waits = await put_asked(fleet, session, 103, "question", PendingQuestion, status="pending")
    day = {"agent_group_id": group, "day": "2020-01-01", "approval_id": used["asked"]}
    await put(fleet, BudgetDay, day, day | {"user_id": f"{TASK}x", "day": "2999-01-01", "approval_id": None})
    await put(
        fleet,
        Invitation,
        {"code_hash": "used", "role": "admin", "expires_at": now(60), "used_at": now()},
        {"code_hash": "good", "role": "admin", "expires_at": now(1e8)},
    )
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert [row.id for row in await fleet.rows(Approval)] == [access["asked"]]
    assert [row.id for row in await fleet.rows(PendingQuestion)] == [waits["asked"]]
    assert {row.id for row in await fleet.rows(Card)} == {access["card"], waits["card"]}
    assert {row.id for row in await fleet.outbox()} == {access["message"], waits["message"]}
    assert len(await fleet.rows(BudgetDay)) == 1
    assert [row.code_hash for row in await fleet.rows(Invitation)] == ["good"]


@pytest.mark.spec("D6")
async def test_of_a_conversation_that_was_closed_nothing_is_remembered(fleet: Fleet) -> None:
    await fleet.add_group(script="ok")
    session = (await fleet.send("hello")).session_id
    await fleet.settle_down()
    await fleet.execute(delete(Usage))
    await put(fleet, Compaction, {"session_id": session, "through_turn": 1, "summary": "s", "archive": "a"})
    await put(fleet, ProgramState, {"session_id": session, "provider": "codex", "state": b"\x00memory"})
    closed = update(Session).values(status="closed", activity_since=now())
    await grow_older(fleet.db, OLD)
    await fleet.execute(closed)
    await alter(fleet, Compaction, through_turn=0)
    await prune(fleet)
    assert await count(fleet, Compaction, ProgramState, Turn) == [1, 1, 1], "closed only now"
    assert await fleet.rows(TranscriptItem)
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert await count(fleet, TranscriptItem, Compaction, ProgramState, Turn, Session) == [0, 0, 0, 0, 1]


@pytest.mark.spec("D6", "P17")
async def test_words_go_for_which_a_summary_stands(fleet: Fleet) -> None:
    await fleet.add_group(script="ok")
    session = (await fleet.send("one")).session_id
    await fleet.settle_down()
    await chat(fleet, "two")
    await put(fleet, Compaction, {"session_id": session, "through_turn": 1, "summary": "s", "archive": "a"})
    [first, second] = await fleet.turns()
    await grow_older(fleet.db, OLD)
    await prune(fleet)
    assert {row.turn_id for row in await fleet.rows(TranscriptItem)} == {second.id}
    assert first.id not in {row.id for row in await fleet.turns()} or await fleet.rows(Usage)
    assert len(await fleet.rows(Compaction)) == 1


@pytest.mark.spec("D6")
async def test_nothing_but_refused_input_goes_unless_somebody_says_so(fleet: Fleet) -> None:
    await fleet.add_group(script=WITH_TOOL)
    await chat(fleet)
    await put(fleet, Rejected, {"source": "x", "reason": "old", "payload": {}})
    await put(fleet, WrongCode, {"user_id": "telegram:1"})
    await grow_older(fleet.db, OLD)
    await put(fleet, Rejected, {"source": "x", "reason": "young", "payload": {}})
    await put(fleet, WrongCode, {"user_id": "telegram:2"})
    before = await everything(fleet.db)
    settings = fleet.runtime.settings
    assert Terms.of(settings) == Terms(None, 30)
    pruned = await Pruning(fleet.db, Terms.of(settings)).run()
    assert pruned.rows == {"rejected": 1, "wrong_codes": 1}
    assert [row.reason for row in await fleet.rows(Rejected)] == ["young"]
    gone = before.keys() - (await everything(fleet.db)).keys()
    assert {name[0] for name in gone} == {"rejected", "wrong_codes"}


@pytest.mark.spec("D6", "M1")
async def test_a_repeated_message_is_recognised_for_as_long_as_rows_are_kept(fleet: Fleet) -> None:
    await fleet.add_group(script="ok")
    for days in (10, 0):
        await chat(fleet, message_id=f"before {days}", channel_type="fake", platform_id="room")
        await grow_older(fleet.db, OLD if days else KEPT - 1)
    await prune(fleet)
    known = await fleet.send("again", message_id="before 0", channel_type="fake", platform_id="room")
    forgotten = await fleet.send("again", message_id="before 10", channel_type="fake", platform_id="room")
    assert (known.duplicate, forgotten.duplicate) == (True, False)


@pytest.mark.spec("D6", "D5")
async def test_it_is_done_while_the_fleet_works(fleet: Fleet) -> None:
    await fleet.add_group(script=WITH_TOOL)
    for number in range(6):
        await chat(fleet, "old", thread_id=f"t{number}")
    await grow_older(fleet.db, OLD)
    storm = asyncio.Event()

    async def talk(number: int) -> None:
        for _ in range(5):
            await fleet.send("young", thread_id=f"t{number}")
            await fleet.settle_down()
        storm.set()

    gone: Counter[str] = Counter()

    async def keep_pruning() -> None:
        while not storm.is_set():
            gone.update((await Pruning(fleet.db, Terms(KEPT, 30)).run()).rows)

    await asyncio.gather(keep_pruning(), keep_pruning(), *(talk(number) for number in range(6)))
    assert gone["messages_in"] == 6
    inbox = await fleet.inbox()
    assert Counter((row.content["text"], row.status) for row in inbox) == {("young", "completed"): 30}
    answered = {row.turn_id for row in inbox}
    assert {row.status for row in await fleet.turns() if row.id in answered} == {"completed"}
    assert {row.turn_id for row in await fleet.outbox()} == answered
    assert {row.status for row in await fleet.outbox()} == {"delivered"}


@pytest.mark.spec("D6")
async def test_what_is_named_by_something_new_stays_for_the_next_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the removal somebody writes an answer to an old message."""
    await fleet.add_group(script="ok")
    message = await chat(fleet)
    session = (await fleet.sessions())[0].id
    await grow_older(fleet.db, OLD)
    remove = pruning.remove
    late = {"session_id": session, "seq": 77, "kind": "chat", "content": {}, "in_reply_to": message}
    late |= {"channel_type": "local", "platform_id": "x", "idempotency_key": "late", "status": "delivered"}
    late |= dict.fromkeys(("created_at", "deliver_after", "delivered_at"), now(-OLD * 86_400))

    async def just_then(conn: AsyncConnection, *rest: Any) -> Any:
        if not (await conn.execute(select(MessageOut.id).where(MessageOut.seq == 77))).all():
            await conn.execute(insert(MessageOut).values(**late))
        return await remove(conn, *rest)

    monkeypatch.setattr("workers.retention.remove", just_then)
    await prune(fleet)
    assert [row.id for row in await fleet.inbox()] == [message]
    assert [row.seq for row in await fleet.outbox()] == [77]
    monkeypatch.undo()
    await prune(fleet)
    assert await count(fleet, MessageIn, MessageOut) == [0, 0]


@pytest.mark.spec("D6")
async def test_when_its_time_is_over_it_stops_and_goes_on_the_next_time(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet()
    await fleet.add_group(script="ok")
    await chat(fleet)
    await put(fleet, Rejected, {"source": "x", "reason": "old", "payload": {}})
    await grow_older(fleet.db, OLD)
    first = await Pruning(fleet.db, Terms(KEPT, 30), seconds=0.0).run()
    assert (first.whole, first.total) == (False, 1)
    second = await Pruning(fleet.db, Terms(KEPT, 30), seconds=600.0).run()
    assert (second.whole, second.rows["messages_in"]) == (True, 1)


async def test_an_agent_s_settings_are_never_touched(fleet: Fleet) -> None:
    await fleet.add_group(script="ok")
    await grow_older(fleet.db, 4000)
    await prune(fleet, days=7)
    assert await count(fleet, AgentGroup) == [1]


@pytest.mark.spec("D6", "P3")
async def test_an_agent_remembers_what_was_said_in_messages_that_are_gone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "fake-key")
    async with ModelApi(script(rule(None, "You said: {text}"))) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        await fleet.add_group(provider="anthropic")
        await chat(fleet, "my ship is called Ada")
        await grow_older(fleet.db, OLD)
        await prune(fleet)
        assert await count(fleet, MessageIn, MessageOut) == [0, 0]
        await chat(fleet, "what is it called?")
        asked = json.dumps(api.bodies[-1])
        assert "my ship is called Ada" in asked
        assert "You said: " in asked
        assert [row.status for row in await fleet.outbox()] == ["delivered"]
        assert [row.number for row in await fleet.turns()] == [1, 2]
        assert api.problems == []
