"""A fleet with a life of its own, for tests of the console and its pictures: agents that have worked for a month, work
now, are to work later, and have failed. Whatever is written here goes by the same ways as in a real fleet, except for
what only time could bring."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import new_id, now
from models.conversation import Usage
from models.fleet import note_limited, note_success, report_alive
from models.groups import AgentGroup
from models.inbox import MessageIn
from models.overview import first_id_of
from models.sessions import Session
from models.tokens import new_token
from models.turns import Turn
from scheduler.recurrence import next_after
from tests.support.fleet import Fleet
from workers.operations.group_settings import Changes, OptionValue
from workers.operations.groups import add_group, update_group
from workers.operations.tokens import add_token
from workers.operations.wirings import Listening, put_wiring

# Folder, name, what it costs a day, the model it is said to run on.
AGENTS: Final = (
    ("harbourmaster", "Harbour master", 2.4, "claude-opus-5-5"),
    ("researcher", "Researcher", 3.1, "claude-sonnet-5-5"),
    ("invoices", "Invoices", 0.9, "gpt-6-sol"),
    ("translator", "Translator", 0.35, "claude-haiku-5-5"),
)
PLACES: Final = (
    ("harbourmaster", "web", "ada"),
    ("researcher", "local", "desk"),
    ("invoices", "webhook", "crm"),
    ("translator", "web", "lobby"),
)
TASKS: Final = (
    ("harbourmaster", "Read the tide tables and say which berths can take the *Meridian* today.", "0 6 * * *"),
    ("invoices", "Match the invoices of last night with the orders, and ask about those that differ.", "30 7 * * 1-5"),
    ("researcher", "Look for new papers on port logistics and sum up what is worth reading.", "0 9 * * 1"),
)
DAYS: Final = 29  # of usage: within the last thirty also just after midnight
SCRIPT: Final = """
- when: "Meridian"
  play:
    - think: "Berth 7 is free at high water; berth 12 is deeper. Somebody must choose."
    - say: "Let me look at the tides."
    - tool: clock
    - tool: ask_user_question
      with:
        title: "A berth for the Meridian"
        question: "Berth 7 is free at 06:12, berth 12 only at noon, but deeper. Which shall it be?"
        options: ["Berth 7", "Berth 12"]
        timeout: 86400
    - answer: "Then **{result}** it is."
- when: "tides"
  play:
    - think: "They want a table."
    - tool: clock
    - answer: |
        Today at the *north quay*:

        | tide | time | height |
        | --- | --- | --- |
        | high | 06:12 | 3.9 m |
        | low | 12:31 | 0.8 m |

        - Berth 7 takes the *Halcyon* until **05:40**.
        - Berth 12 is dredged on Thursday.
- when: "differs"
  play:
    - say: "Order 4711 was for eight bollards, and nine are invoiced."
    - tool: write_file
      with:
        path: "letters/hansen.md"
        content: "Dear Hansen & Sons, your invoice 2026-118 has nine bollards. We ordered eight."
    - answer: "The letter to Hansen & Sons is written."
- play: [{tool: clock}, {answer: "Done: {texts}"}]
"""


async def settle_in(fleet: Fleet) -> None:
    """What is there on a busy day. Needs the channels of `registry_with`."""
    house = fleet.runtime
    for folder, name, _, _ in AGENTS:
        script = {"script": OptionValue(SCRIPT.lstrip())}
        await add_group(house, "cli", folder, Changes(name=name, provider="scripted", options=script))
    await update_group(house, "cli", "researcher", Changes(budget={"daily_usd": 5.0}))
    asks = {"approve": ["write_file"]}
    await update_group(house, "cli", "invoices", Changes(budget={"daily_usd": 1.0}, policy=asks))
    for folder, channel, chat in PLACES:
        await put_wiring(house, "cli", folder, channel, chat, Listening(), "public")
    await put_wiring(house, "cli", "translator", "local", "crew", Listening(mention_only=True, per_thread=True))
    await _people(fleet)
    for number in range(3):
        for folder, _, _, _ in AGENTS:
            await fleet.send(f"what is new, number {number}?", agent_group=folder, platform_id=f"desk-{number}")
    ada = {"agent_group": "harbourmaster", "channel_type": "web", "platform_id": "ada", "sender_id": "ada"}
    for said in ("Good morning! What are the tides today?", "Thanks. And where do we put the Meridian?"):
        await fleet.send(said, **ada)
        await fleet.settle_down()
    crm = {"agent_group": "invoices", "channel_type": "webhook", "platform_id": "crm", "sender_id": "grace"}
    await fleet.send("The invoice of Hansen & Sons differs from their order. What now?", **crm)
    await fleet.settle_down()
    for folder, prompt, cron in TASKS:
        first = next_after(cron, datetime.now(UTC))
        await fleet.send(prompt, agent_group=folder, kind="task", recurrence=cron, process_after=first)
    await fleet.db.transact(_processes)
    await _spend(fleet)
    await _past_turns(fleet)
    await _work(fleet)


async def _people(fleet: Fleet) -> None:
    async def work(conn: AsyncConnection) -> None:
        await add_token(conn, "cli", "grace", new_token(), "invoices", "admin")
        await add_token(conn, "cli", "lin", new_token(), "translator", "member")

    await fleet.db.transact(work)


async def _processes(conn: AsyncConnection) -> None:
    queues = ["agent.anthropic", "agent.openai", "agent.scripted"]
    await report_alive(conn, "agent@quay-1", "worker", pid=101, queues=queues, running=14, slots=40)
    await report_alive(conn, "agent@quay-2", "worker", pid=102, queues=queues, running=3, slots=40)
    await report_alive(conn, "messages@quay-1", "worker", pid=103, queues=["messages", "upkeep"], running=1, slots=20)
    await report_alive(conn, "delivery@quay-1", "worker", pid=104, queues=["delivery"], running=0, slots=20)
    await report_alive(conn, "beat@quay-1", "beat", pid=105)
    await note_success(conn, "anthropic", "")
    await note_limited(conn, "openai", "", "429: too many tokens a minute", 240)


async def _spend(fleet: Fleet) -> None:
    """A month of calls, and turns over the last day."""
    dice = random.Random(8)
    turns = {row.session_id: row.id for row in await fleet.turns()}
    sessions = {row.agent_group_id: row for row in await fleet.sessions() if row.id in turns}
    agents = {row.folder: row.id for row in await fleet.rows(AgentGroup)}
    rows: list[dict[str, Any]] = []
    at = datetime.now(UTC)
    for folder, _, usd, model in AGENTS:
        session = sessions[agents[folder]]
        for back in range(DAYS):
            weight = (0.35 if (at - timedelta(days=back)).weekday() > 4 else 1.0) * dice.uniform(0.6, 1.4)
            rows.append(
                {
                    "agent_group_id": session.agent_group_id,
                    "session_id": session.id,
                    "turn_id": turns[session.id],
                    "user_id": "web:ada",
                    "provider": _provider(model),
                    "model": model,
                    "input_tokens": int(usd * weight * 90_000),
                    "output_tokens": int(usd * weight * 11_000),
                    "cache_read_tokens": int(usd * weight * 240_000),
                    "cache_write_tokens": 0,
                    "cost_usd": Decimal(f"{usd * weight:.6f}"),
                    "created_at": at - timedelta(days=back, minutes=5),
                }
            )
    await fleet.insert(Usage, *rows)


def _provider(model: str) -> str:
    return "openai" if model.startswith("gpt") else "anthropic"


async def _past_turns(fleet: Fleet) -> None:
    """Of the last day, with ids of their time."""
    dice = random.Random(9)
    session = (await fleet.sessions())[0]
    number = 1000
    rows: list[dict[str, Any]] = []
    for back in range(1, 23):  # the running hour may just have begun
        busy = 26 if 5 < (datetime.now(UTC) - timedelta(hours=back)).hour < 19 else 5
        for _ in range(int(busy * dice.uniform(0.4, 1.2))):
            number += 1
            at = datetime.now(UTC) - timedelta(hours=back, minutes=dice.uniform(0, 30))
            row_id = f"{first_id_of(at)}7{number:03x}-8000-{number:012x}"
            ended = {"status": "completed", "started_at": at, "ended_at": at + timedelta(seconds=9)}
            rows.append({"id": row_id, "session_id": session.id, "number": number, "lease_token": 1} | ended)
    await fleet.insert(Turn, *({"provider": "scripted", **row} for row in rows))


async def _work(fleet: Fleet) -> None:
    """Turns that are under way, and a letter that is dead."""
    doing = (
        ("calling model", 12, 1, "claude-sonnet-5-5"),
        ("tool: search_files", 4, 1, "gpt-6-sol"),
        ("tool: run_command", 95, 2, "claude-haiku-5-5"),
    )
    sessions = await fleet.sessions()
    for (activity, seconds, attempt, model), session in zip(doing, sessions[1:], strict=False):
        lease = {"lease_owner": "agent@quay-1", "lease_expires_at": now(3600.0)}
        at_work = {"activity": activity, "activity_since": now(-float(seconds)), "turn_seq": session.turn_seq + 1}
        await fleet.execute(update(Session).where(Session.id == session.id).values(**at_work, **lease))
        turn = {"session_id": session.id, "number": session.turn_seq + 1, "status": "running", "attempt": attempt}
        turn |= {"provider": _provider(model), "model": model, "worker": "agent@quay-1", "lease_token": 2}
        await fleet.insert(Turn, turn | {"id": new_id(), "started_at": datetime.now(UTC) - timedelta(seconds=seconds)})
    letter = (await fleet.inbox())[0]
    dead = {"status": "failed", "error": "the provider refused the key", "error_class": "auth"}
    await fleet.execute(update(MessageIn).where(MessageIn.id == letter.id).values(**dead))
