"""The first minute of `longshore up`: a demo that answers, asks a colleague, does what was scheduled and asks back; and
what to try next. Only on the first start; later ones say how things stand."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from adapters.events import TurnEnded
from adapters.providers.keys import NO_KEY_NEEDED, missing_key
from gateway.assistant import FOLDER as ASSISTANT
from gateway.cli.desk import Desk, out, shown
from gateway.cli.stream import EventPrinter
from gateway.cli.token import OPERATOR
from gateway.demo import FIRST_MESSAGE, FOLDER, REPORT, REPORT_SECONDS
from models.browsing import sessions_page
from models.groups import find_agent_group
from models.overview import counts
from models.spending import everybodys
from models.web_chats import WEB
from workers.events import Follower, redis_client
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept

_SOON = """
In the console: the chat with demo, its session's timeline, and in a few seconds a question that waits for you."""
_TRY = """
In another terminal, in this folder, after [bold]export PATH=$PWD/.venv/bin:$PATH[/bold]
  [bold]longshore send demo "what time is it?"[/bold]
  [bold]longshore send demo "please fail"[/bold]    watch the retries
  [bold]longshore send demo "work"[/bold]           a file, a program in the sandbox
  [bold]longshore send demo "go slow"[/bold]        and kill -9 the worker meanwhile
  [bold]longshore chat demo[/bold]                  say "ask me something": it waits for your answer
  [bold]longshore sessions[/bold]                   what goes on
  [bold]longshore doctor[/bold]                     is everything well?

[dim]Events of the whole fleet (longshore tail):[/dim]"""


async def welcome(desk: Desk, printer: EventPrinter, *, is_new: bool) -> None:
    if is_new:
        out.print(f'\n[bold]You[/bold] → demo: "{FIRST_MESSAGE}"')
        await _show_off(desk, printer)
    else:
        known = len(await desk.db.read(lambda conn: sessions_page(conn, everybodys, 1000)))
        waiting = (await desk.db.read(counts))["pending"]
        more = f", {waiting} message{'s' * (waiting != 1)} waiting" * bool(waiting)
        out.print(f"\ngoing on with {known} session{'s' * (known != 1)}{more}")
    await _introduce_assistant(desk)
    out.print(f"{_SOON}{_TRY}" if is_new else _TRY)


async def _show_off(desk: Desk, printer: EventPrinter) -> None:
    """The first message and its answer, live. What was scheduled comes by itself, soon after."""
    accepted = await _say(desk, text=FIRST_MESSAGE)
    soon = datetime.now(UTC) + timedelta(seconds=REPORT_SECONDS)
    await _say(desk, text=REPORT, kind="task", process_after=soon.isoformat())
    client = redis_client(desk.settings.redis_url)
    try:
        ring = partial(accepted.ring, desk.bells)
        async for item in Follower(desk.db, client, accepted.session_id, ready=ring).events():
            printer.show(item)
            if isinstance(item.event, TurnEnded):
                return
    finally:
        await client.aclose()


async def _say(desk: Desk, **fields: Any) -> Accepted:
    """In the chat that whoever opens the console finds there."""
    place = {"channel_type": WEB, "platform_id": OPERATOR, "sender_id": OPERATOR, "sender_name": "you"}
    return await accept(
        desk.db, desk.registry, desk.settings, parse_incoming({"agent_group": FOLDER, **place, **fields})
    )


async def _introduce_assistant(desk: Desk) -> None:
    if desk.settings.default_provider == NO_KEY_NEEDED:
        return
    group = await desk.db.read(lambda conn: find_agent_group(conn, ASSISTANT))
    assert group is not None, "it was made when we started"
    provider = group.provider or desk.settings.default_provider
    own = getattr(desk.registry.providers.get(provider), "default_model", None)
    model = group.model or desk.settings.default_model or own or "its own model"
    out.print(
        f"\n[bold]{shown(group.name)}[/bold] is on {shown(provider)} ({shown(model)}). "
        "Talk with it: [bold]longshore chat[/bold]"
    )
    if missing := missing_key(provider):
        out.print(f"[yellow]{missing} is not set[/yellow]: it cannot answer until it is, and `make up` runs again")
