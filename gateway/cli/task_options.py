"""What is typed about a task: when, where its answers go, and on what terms it is run. Mistakes end in a sentence."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.task_limits import MAX_JITTER, MAX_PAUSE_AFTER, MAX_SCRIPT
from gateway.cli.desk import fail
from gateway.cli.moments import MomentError, parse_moment, parse_span
from models.groups import find_place
from models.series import CatchUp, Overlap
from scheduler.recurrence import RecurrenceError, check_recurrence, check_timezone
from scheduler.words import when
from workers.operations.group_settings import DEFAULT, NONE, GroupSettingsError, parse_budget
from workers.task_dates import GRACE

UTC_NAME: Final = "UTC"
LAST_YEAR: Final = 2999
_MOST_BYTES: Final = 4  # of one character

At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="WHEN", help="when it runs (first): `2026-12-01 09:00`, `tomorrow 09:00`, `in 2 hours`"
    ),
]
Every = Annotated[
    str | None, typer.Option("--every", metavar="CRON", help="how often: cron (`0 9 * * 1-5`), `@daily`, `@hourly`")
]
Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="whose clocks: an IANA name like Europe/Vienna")]
CatchUpOption = Annotated[
    CatchUp | None, typer.Option("--catch-up", help="dates missed while no worker ran: none, one run for all, or each")
]
OverlapOption = Annotated[
    Overlap | None, typer.Option("--overlap", help="dates that come while it runs: passed over, or run afterwards")
]
Jitter = Annotated[
    str | None, typer.Option("--jitter", metavar="SPAN", help="begin up to so much later, e.g. `10m`; `none`: at once")
]
PauseAfter = Annotated[
    int | None,
    typer.Option("--pause-after", min=0, max=MAX_PAUSE_AFTER, help="pause after so many failures in a row; 0: never"),
]
Budget = Annotated[str | None, typer.Option("--daily-budget", metavar="USD", help="what its runs may cost in a day")]
Provider = Annotated[str | None, typer.Option("--provider", help="instead of the agent's own")]
Model = Annotated[str | None, typer.Option("--model", help="instead of the agent's own")]
Script = Annotated[
    str | None, typer.Option("--script", metavar="FILE", help="bash that is run first and may spare the agent the run")
]


def checked_zone(name: str | None) -> str:
    try:
        return check_timezone(name if name is not None else UTC_NAME).key
    except RecurrenceError as error:
        fail(f"--tz: {error}", 2)


def checked_cron(expression: str, timezone: str) -> str:
    try:
        check_recurrence(expression, timezone)
    except RecurrenceError as error:
        fail(f"--every: {error}", 2)
    return " ".join(expression.split())


def moment(text: str, at: datetime, timezone: str) -> datetime:
    """When --at is, by the database's clock, which says that it is `at` now."""
    try:
        date = parse_moment(text, at, check_timezone(timezone))
    except MomentError as error:
        fail(f"--at: {error}", 2)
    except RecurrenceError as error:  # the zone of a task that was made elsewhere
        fail(f"{error}; name one with --tz")
    if date < at - GRACE:
        fail(f"--at {text!r} has passed: it is {when(at, timezone)} now")
    if date.year > LAST_YEAR:
        fail(f"--at {text!r} is too far away: dates are taken up to the year {LAST_YEAR}", 2)
    return max(date, at)


def named_terms(
    catch_up: CatchUp | None,
    overlap: Overlap | None,
    jitter: str | None,
    pause_after: int | None,
    daily_budget: str | None,
    provider: str | None,
    model: str | None,
    script: str | None,
) -> dict[str, Any]:
    """Those that were named, as `Terms` has them. None: back to what is usual."""
    named: dict[str, Any] = {"catch_up": catch_up, "overlap": overlap, "pause_after": pause_after}
    terms = {name: value for name, value in named.items() if value is not None}
    if jitter is not None:
        terms["jitter_seconds"] = _jitter(jitter)
    if daily_budget is not None:
        try:
            terms["daily_usd"] = parse_budget("--daily-budget", daily_budget)
        except GroupSettingsError as error:
            fail(str(error), 2)
    for name, value in (("provider", provider), ("model", model)):
        if value is not None and not value.strip():
            fail(f"--{name} is empty; `{DEFAULT}` goes back to the agent's own", 2)
        if value is not None:
            terms[name] = None if value == DEFAULT else value
    if script is not None:
        terms["script"] = None if script == NONE else read_script(Path(script))
    return terms


def _jitter(text: str) -> int:
    if text in (NONE, "0"):
        return 0
    try:
        seconds = parse_span(text)
    except MomentError as error:
        fail(f"--jitter: {error}", 2)
    if seconds > MAX_JITTER:
        fail(f"--jitter: {text!r} is more than a day", 2)
    return seconds


def read_script(file: Path) -> str:
    """Never more of it than could be taken: it may be anything."""
    too_large = f"--script: {file} is too large: at most {MAX_SCRIPT:,} characters are taken"
    try:
        with file.open("rb") as opened:
            read = opened.read(_MOST_BYTES * MAX_SCRIPT + 1)
        text = read.decode() if len(read) <= _MOST_BYTES * MAX_SCRIPT else fail(too_large)
    except UnicodeDecodeError:
        fail(f"--script: {file} is not text in UTF-8")
    except (OSError, ValueError) as error:
        fail(f"--script: {file} cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(text) > MAX_SCRIPT:
        fail(too_large)
    if not text.strip():
        fail(f"--script: {file} is empty")
    if "\0" in text:
        fail(f"--script: {file} is not text: it has NUL characters in it")
    return text


@dataclass(frozen=True)
class Place:
    """Where a conversation is. `known`: somebody has written there, or an agent listens."""

    channel: str
    name: str
    thread: str | None = None
    known: bool = True

    def __str__(self) -> str:
        return f"{self.channel}:{self.name}" + (f"/{self.thread}" if self.thread else "")


async def place_of(conn: AsyncConnection, to: str) -> Place:
    """Names of places may have slashes (owner/name): what follows one is a thread only where a known place ends."""
    channel, _, rest = to.partition(":")
    if not channel or not rest.strip():
        fail(f"--to {to!r} is not CHANNEL:PLACE or CHANNEL:PLACE/THREAD, as `longshore sessions` shows them", 2)
    slashes = [at for at, char in enumerate(rest) if char == "/"]
    for end in (len(rest), *reversed(slashes)):
        if rest[:end] and await find_place(conn, channel, rest[:end]) is not None:
            return Place(channel, rest[:end], rest[end + 1 :] or None)
    return Place(channel, rest, known=False)
