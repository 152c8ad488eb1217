"""`longshore tasks add`: a message with a date, through the door that every message comes in by."""

import sys
from typing import Annotated, Any

import typer

from gateway.cli.desk import BY, AsJson, Desk, err, fail, out, print_json, run, shown
from gateway.cli.listening import warn_of_provider
from gateway.cli.task_options import (
    At,
    Budget,
    CatchUpOption,
    Every,
    Jitter,
    Model,
    OverlapOption,
    PauseAfter,
    Provider,
    Script,
    Zone,
    checked_cron,
    checked_zone,
    moment,
    named_terms,
    place_of,
)
from models.lookup import short
from models.series import DEFAULT_TERMS
from models.tasks import database_now
from scheduler.words import next_dates
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, Besides, accept
from workers.operations.agents import agent_named
from workers.operations.tasks import check_provider_options, noting_added
from workers.task_dates import first_date, plan_in_words
from workers.task_terms import changed_terms


def add(
    agent: Annotated[str, typer.Argument(help="the agent, by folder name or id")],
    prompt: Annotated[str, typer.Argument(help="what it is to do then; - reads standard input")],
    at: At = None,
    every: Every = None,
    tz: Zone = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHERE", help="CHANNEL:PLACE, or CHANNEL:PLACE/THREAD: where it is answered; the talk there goes on"
        ),
    ] = "local:inbox",
    catch_up: CatchUpOption = None,
    overlap: OverlapOption = None,
    jitter: Jitter = None,
    pause_after: PauseAfter = None,
    daily_budget: Budget = None,
    provider: Provider = None,
    model: Model = None,
    script: Script = None,
    as_json: AsJson = False,
) -> None:
    """Give an agent a task for later. Times are UTC unless --tz names a zone."""
    if at is None and every is None:
        fail("say when: --at '2026-12-01 09:00', --every '0 9 * * 1-5', or both", 2)
    if not (said := sys.stdin.read() if prompt == "-" else prompt).strip():
        fail("the prompt is empty: say what is to be done", 2)
    zone = checked_zone(tz)
    cron = checked_cron(every, zone) if every is not None else None
    terms = named_terms(catch_up, overlap, jitter, pause_after, daily_budget, provider, model, script)

    async def command(desk: Desk) -> None:
        all_terms = changed_terms(DEFAULT_TERMS, **terms)  # refuses what cannot be
        now = await desk.db.read(database_now)
        date = moment(at, now, zone) if at is not None else first_date(None, cron, zone, now)
        group = await desk.db.read(lambda conn: agent_named(conn, agent))
        runs_on = terms.get("provider") or group.provider or desk.settings.default_provider
        check_provider_options(desk.registry, group, runs_on)
        place = await desk.db.read(lambda conn: place_of(conn, to))
        message = {"agent_group": group.id, "kind": "task", "text": said}
        message |= {"channel_type": place.channel, "platform_id": place.name, "thread_id": place.thread}
        message |= {"process_after": date, "recurrence": cron, "timezone": zone}
        accepted = await _accept(desk, message, terms, noting_added(BY, group.id))
        handle = short(accepted.message_id)
        if as_json:
            made = {"id": accepted.message_id, "handle": handle, "agent": group.folder}
            print_json(made | {"session": accepted.session_id, "next": next_dates(cron, date, zone, now)})
            return
        plan = plan_in_words(date, cron, zone, all_terms, now)
        out.print(f"task [bold]{handle}[/bold] of {shown(group.folder)} is scheduled: {shown(plan)}")
        if tz is None and (cron is not None or ":" in (at or "")):  # not for `in 20 minutes`
            out.print("[dim]Times are UTC; --tz names another zone.[/dim]")
        out.print(f"It is answered in {shown(place)}. All about it: [bold]longshore tasks show {handle}[/bold]")
        if not place.known and place.channel != "local":
            err.print("[yellow]Nobody has written there yet[/yellow]: is it the right place?")
        if terms.get("provider") is not None:
            await warn_of_provider(desk, runs_on)

    run(command)


async def _accept(desk: Desk, message: dict[str, Any], terms: dict[str, Any], noted: Besides) -> Accepted:
    """Nobody is rung for: what has a date is found by the sweep."""
    said = {name: value for name, value in message.items() if value is not None}
    said["terms"] = {name: value for name, value in terms.items() if name != "script"}
    incoming = parse_incoming(said)
    script = terms.get("script")
    return await accept(desk.db, desk.registry, desk.settings, incoming, script=script, besides=noted)
