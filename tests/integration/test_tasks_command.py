"""`longshore tasks` on a fleet's rows: what it writes, what it shows, what it refuses, and how it exits."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner, Result

from gateway.cli import desk
from gateway.cli.main import app
from models import MessageIn, MessageOut, Series
from models.base import new_id
from models.groups import ensure_messaging_group
from models.lookup import short
from models.reminders import reminder
from tests.support.fleet import Fleet
from tests.support.task_runs import add_run, add_session, clock, runs_of

pytestmark = pytest.mark.spec("G4", "S2", "S3", "T3")

Cli = Callable[..., Awaitable[Result]]
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])  # the words do not depend on it
# So seldom that no test runs over the moment it comes due.
YEARLY = "0 9 1 7 *"
DAY = timedelta(days=1)


@pytest.fixture
async def cli(fleet: Fleet, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`longshore tasks`, as whoever runs the fleet calls it, in this process. There are agents demo and gardener."""
    await fleet.add_group()
    await fleet.add_group("gardener")
    env = {
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "80",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "DEFAULT_PROVIDER": "scripted",
        "LONGSHORE_HOME": str(tmp_path / "home"),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(desk, "configure_logs", lambda *_, **__: None)  # those of other tests
    monkeypatch.setattr(desk.Desk, "bells", fleet.bells)

    async def call(*arguments: str, code: int = 0, given: str | None = None) -> Result:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["tasks", *arguments], input=given, env=env)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    return call


async def add(cli: Cli, *arguments: str, agent: str = "demo", prompt: str = "water the plants") -> dict[str, Any]:
    made: dict[str, Any] = json.loads((await cli("add", agent, prompt, *arguments, "--json")).stdout)
    return made


async def shown(cli: Cli, handle: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await cli("show", handle, "--json")).stdout)
    return found


def said(result: Result) -> str:
    """On one line, however the terminal has broken it."""
    return " ".join((result.stdout + result.stderr).split())


@pytest.mark.spec("S1", "S4")
async def test_a_task_with_terms_goes_through_the_door_of_all_messages(cli: Cli, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "check.sh").write_text("echo '{\"wakeAgent\": true}'\n")
    terms = "--catch-up all --overlap queue --jitter 10m --pause-after 3 --daily-budget 2 --provider scripted --model m"
    made = await cli(
        "add", "demo", "-", "--every", YEARLY, "--tz", "Europe/Vienna", *terms.split(), "--script", "check.sh",
        given="water the plants",
    )  # fmt: skip
    [row] = await fleet.inbox()
    first = row.scheduled_for
    assert first.astimezone(UTC).strftime("%m-%d %H:%M") == "07-01 07:00"
    assert first <= row.process_after < first + timedelta(minutes=10)
    assert (row.kind, row.status, row.content) == ("task", "pending", {"prompt": "water the plants"})
    assert (row.recurrence, row.timezone, row.series_id) == (YEARLY, "Europe/Vienna", row.id)
    assert (row.channel_type, row.platform_id, row.sender_id) == ("local", "inbox", None)
    [series] = await fleet.rows(Series)
    kept = (series.id, series.catch_up, series.overlap, series.jitter_seconds, series.pause_after, series.daily_usd)
    assert kept == (row.id, "all", "queue", 600, 3, 2.0)
    assert (series.provider, series.model) == ("scripted", "m")
    assert series.script.strip() == "echo '{\"wakeAgent\": true}'"

    words = said(made)
    assert f"task {short(row.id)} of demo is scheduled: At 09:00 on July 1 (Europe/Vienna)" in words
    for year in range(5):
        assert f"1 Jul {first.year + year}, 09:00 CEST" in words
    assert "Times are UTC" not in words
    story = said(await cli("show", short(row.id)))
    for line in ("waiting", "missed dates: each is made up for", "pauses after 3", "at most 2 USD a day", "wakeAgent",
                 "provider scripted", "model m", "last runs none yet", "answers to local:inbox", row.id):  # fmt: skip
        assert line in story
    data = await shown(cli, row.id)
    assert data["next"][:1] == [first.astimezone(UTC).isoformat()]
    assert len(data["next"]) == 5
    assert (data["terms"]["script"], data["runs"], data["kind"]) == (series.script, [], "task")


async def test_once_and_without_terms_is_a_plain_row(cli: Cli, fleet: Fleet) -> None:
    before = await clock(fleet)
    made = said(await cli("add", "gardener", "[bold]look[/bold]", "--at", "in 2 hours"))
    [row] = await fleet.inbox()
    assert before <= row.process_after - timedelta(hours=2) <= await clock(fleet)
    assert (row.recurrence, row.series_id, row.content["prompt"]) == (None, None, "[bold]look[/bold]")
    assert await fleet.rows(Series) == []
    assert f"task {short(row.id)} of gardener is scheduled" in made
    at_nine = await cli("add", "demo", "look", "--at", "tomorrow 09:00")
    assert "09:00 UTC" in said(at_nine)
    assert "Times are UTC" in said(at_nine)


@ONE_DATABASE
async def test_a_task_on_another_provider_does_not_need_the_agents_own(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group("lost", provider="gone")
    await add(cli, "--at", "in 1 day", "--provider", "scripted", agent="lost")
    [row] = await fleet.inbox()
    assert (row.status, row.error) == ("pending", None)


@pytest.mark.spec("S3")
async def test_pause_resume_update_run_now_and_cancel(cli: Cli, fleet: Fleet, tmp_path: Path) -> None:
    made = await add(cli, "--every", YEARLY, "--pause-after", "3")
    handle, session_id = made["handle"], made["session"]
    await fleet.execute(update(Series).values(failures=3))
    assert f"task {handle} of demo is paused go on: longshore tasks resume {handle}" in said(await cli("pause", handle))
    assert "paused already" in said(await cli("pause", handle))
    assert "paused after 3 failures" in said(await cli("list"))
    assert f"longshore tasks resume {handle}" in said(await cli("show", handle))
    assert f"task {handle} of demo goes on: At 09:00 on July 1" in said(await cli("resume", handle))
    assert (await shown(cli, handle))["failures"] == 0
    assert "is not paused" in said(await cli("resume", handle))

    (tmp_path / "s.sh").write_text("true")
    changed = await cli("update", handle, "--every", "30 6 2 8 *", "--prompt", "other", "--tz", "Asia/Tokyo",
                        "--script", "s.sh", "--daily-budget", "1", "--jitter", "1h", "--model", "m")  # fmt: skip
    assert f"task {handle} of demo is changed: At 06:30 on August 2 (Asia/Tokyo)" in said(changed)
    data = await shown(cli, handle)
    assert (data["prompt"], data["timezone"], data["recurrence"]) == ("other", "Asia/Tokyo", "30 6 2 8 *")
    assert data["next"][0].endswith("08-01T21:30:00+00:00")
    assert {"script": "true", "daily_usd": 1.0, "jitter_seconds": 3600, "model": "m", "pause_after": 3}.items() <= (
        data["terms"].items()
    )
    await cli("update", handle, "--script", "none", "--daily-budget", "none", "--jitter", "none", "--model", "default")
    terms = (await shown(cli, handle))["terms"]
    assert [terms[name] for name in ("script", "daily_usd", "jitter_seconds", "model")] == [None, None, 0, None]
    await cli("update", handle, "--at", "2999-01-01 09:00")  # in the zone it has
    assert (await shown(cli, handle))["scheduled"] == "2999-01-01T00:00:00+00:00"

    ran = said(await cli("run-now", handle))
    assert f"task {handle} of demo runs now watch it: longshore tail {short(session_id)}" in ran
    assert "no worker listens on agent.scripted: it runs as soon as one starts" in ran
    assert fleet.bells.wakes == [(session_id, "scripted")]
    assert "waits to begin already" in said(await cli("run-now", handle, code=1))
    assert await fleet.answer_wakes() == ["completed"]
    story = said(await cli("show", handle))
    assert "UTC: done, besides its dates" in story or "JST: done, besides its dates" in story

    assert said(await cli("cancel", handle)) == f"task {handle} of demo is cancelled"
    assert "there is no scheduled task" in said(await cli("cancel", handle, code=1))
    story = said(await cli("show", handle))
    assert f"task {handle} of demo: over" in story
    assert "cancelled" in story
    assert "change it" not in story
    assert "no tasks yet. Make one: longshore tasks add AGENT" in said(await cli("list"))


async def test_the_list_has_all_agents_tasks_the_next_first(cli: Cli, fleet: Fleet) -> None:
    at = await clock(fleet)
    later = await add(cli, "--every", YEARLY, "--tz", "Europe/Vienna")
    sooner = await add(cli, "--at", "in 20 minutes", agent="gardener", prompt="look\nat " + "everything " * 20)
    late = await add_run(fleet, at - DAY)
    running = await add_run(fleet, at - DAY, began=at, status="processing", recurred=True)
    begun = await add_run(fleet, at - DAY, began=at)
    failing = await add_run(fleet, at + DAY, terms={"failures": 2})
    text = (await cli("list")).stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    order = [made if isinstance(made, str) else made["id"] for made in (sooner, failing, later)]
    places = [text.index(short(row_id)) for row_id in order]
    assert places == sorted(places)
    for row_id, words in (
        (late, "due, 24 hours ago"),
        (running, "running, the last time"),
        (begun, "begun, waits"),
        (failing, "2 failures in a row"),
        (sooner["id"], "waiting, in "),
        (later["id"], "CEST"),
    ):
        after = text[text.index(short(row_id)) :]
        assert words in after
        assert after.index(words) < 300
    assert "look at everything" in text
    assert "…" in text
    data = json.loads((await cli("list", "gardener", "--json")).stdout)
    assert [(one["kind"], one["agent"], one["id"]) for one in data] == [("task", "gardener", sooner["id"])]
    assert "more with --limit" in said(await cli("list", "--limit", "2"))
    assert "'demo2'" in said(await cli("list", "demo2", code=1))


async def test_runs_are_shown_with_what_became_of_them(cli: Cli, fleet: Fleet) -> None:
    at = await clock(fleet)
    date = at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    task_id = await add_run(fleet, date, began=date + timedelta(seconds=5), ended=date + timedelta(seconds=65))
    await fleet.execute(
        update(MessageIn).values(
            status="failed", error_class="script", error="exit code 3: [red]\x1b[2J", recurred=True
        )
    )
    [first] = await runs_of(fleet, task_id)
    missed = dict(first._mapping) | {
        "id": new_id(),
        "seq": 2,
        "turn_id": None,
        "status": "discarded",
        "error_class": None,
    }
    waiting = missed | {"id": new_id(), "seq": 3, "status": "paused", "error": None, "recurred": False}
    missed |= {"error": "missed: nobody could run it", "process_after": date + timedelta(minutes=1)}
    await fleet.insert(MessageIn, missed, waiting | {"process_after": at - DAY, "scheduled_for": at - DAY})
    result = await cli("show", short(first.id))
    story = said(result)
    assert f"{date:%H:%M} UTC: failed (script), 1 min exit code 3: [red]�[2J" in story
    assert "passed over missed: nobody could run it" in story
    assert "\x1b" not in result.stdout
    # Paused since yesterday: it goes on with a date to come.
    [task] = json.loads((await cli("list", "--json")).stdout)
    assert datetime.fromisoformat(task["next"][0]) > at


async def test_reminders_are_listed_shown_and_cancelled(cli: Cli, fleet: Fleet) -> None:
    at = await clock(fleet)
    session_id = await add_session(fleet, "gardener")
    row = {"id": new_id(), "session_id": session_id, "seq": 2, "kind": "chat", "idempotency_key": new_id(),
           "channel_type": "fake", "platform_id": "room", "content": {"text": "[b]tea\x1b[31m is ready"}}  # fmt: skip
    repeated = {"recurrence": YEARLY, "timezone": "Europe/Vienna", "series_id": row["id"]}
    await fleet.insert(MessageOut, reminder(row, at + DAY, at, **repeated))
    handle = short(str(row["id"]))
    for words in (said(await cli("list")), said(await cli("list", "gardener"))):
        assert handle in words
        assert "reminder" in words
        assert "[b]tea�[31m is ready" in words
    assert "no tasks yet" in said(await cli("list", "demo"))
    story = said(await cli("show", handle))
    assert f"reminder {handle} of gardener: waiting [b]tea" in story
    assert "said in fake:room" in story
    assert (await shown(cli, str(row["id"])))["kind"] == "reminder"
    for act in (("pause",), ("resume",), ("run-now",), ("update", "--prompt", "x")):
        refused = said(await cli(act[0], handle, *act[1:], code=1))
        assert f"{handle} is a reminder, which can be shown and cancelled" in refused
    assert said(await cli("cancel", handle)) == f"reminder {handle} of gardener is cancelled"
    [left] = await fleet.outbox()
    assert left.status == "cancelled"
    assert "there is no scheduled task" in said(await cli("show", handle, code=1))


async def test_a_handle_that_means_several_is_asked_about(cli: Cli, fleet: Fleet) -> None:
    at = await clock(fleet)
    twins = [f"01a1ea2e-44c9-70f4-b38{number}-e4286dc1aaaa" for number in (1, 2)]
    for twin in twins:
        await add_run(fleet, at + DAY, id=twin, series_id=twin)
    refused = said(await cli("cancel", "6dc1aaaa", code=1))
    assert "may be one of several" in refused
    assert all(twin in refused for twin in twins)
    assert [row.status for row in await fleet.inbox()] == ["pending", "pending"]
    await cli("cancel", twins[0])
    session_id = await add_session(fleet)
    row = {"id": twins[0][:-13] + "c" + twins[0][-12:], "session_id": session_id, "seq": 2, "kind": "chat",
           "idempotency_key": "k", "channel_type": "fake", "platform_id": "room", "content": {"text": "x"}}  # fmt: skip
    await fleet.insert(MessageOut, reminder(row, at + DAY, at))
    assert "may be one of several" in said(await cli("show", "6dc1aaaa", code=1))
    assert "too short for an id" in said(await cli("cancel", "aaa", code=2))
    assert "there is no scheduled task '%%%%'" in said(await cli("cancel", "%%%%", code=1))


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("github:owner/name", ("owner/name", None)),
        ("github:owner/name/7", ("owner/name", "7")),
        ("github:owner/name/a/b", ("owner/name", "a/b")),
        ("github:other/name", ("other/name", None)),
    ],
)
@ONE_DATABASE
async def test_a_thread_begins_where_a_known_place_ends(
    cli: Cli, fleet: Fleet, to: str, expected: tuple[str, str | None]
) -> None:
    await fleet.db.transact(lambda conn: ensure_messaging_group(conn, "github", "owner/name"))
    made = said(await cli("add", "demo", "look", "--at", "in 1 day", "--to", to))
    [row] = await fleet.inbox()
    assert (row.platform_id, row.thread_id) == expected
    assert ("Nobody has written there yet" in made) == (expected[0] == "other/name")
    assert f"answered in {to}" in made


@ONE_DATABASE
async def test_mistakes_get_a_sentence(cli: Cli, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "long.sh").write_text("#" * 20_001)
    (tmp_path / "wide.sh").write_text("\N{SHIP}" * 20_001)
    (tmp_path / "bytes.sh").write_bytes(b"\xff\xfe")
    (tmp_path / "nul.sh").write_text("a\0b")
    (tmp_path / "empty.sh").write_text(" \n")
    await fleet.add_group("lost", provider="gone")
    made = await add(cli, "--every", YEARLY)
    cases: list[tuple[list[str], int, str]] = [
        ([], 2, "say when: --at '2026-12-01 09:00', --every '0 9 * * 1-5', or both"),
        (["--every", "61 * * * *"], 2, "--every: '61 * * * *' is not a cron expression that ever comes due"),
        (["--every", "* * * * * *"], 2, "runs at most once a minute"),
        (["--at", "2020-01-01 09:00"], 1, "--at '2020-01-01 09:00' has passed: it is "),
        (["--at", "soon"], 2, "--at: 'soon' does not say when"),
        (["--at", "9999-01-01 00:00"], 2, "too far away"),
        (["--at", "2027-03-28 02:30", "--tz", "Europe/Vienna"], 2, "is skipped in Europe/Vienna"),
        (["--at", "now", "--tz", "Mars/Base"], 2, "--tz: 'Mars/Base' is not a time zone"),
        (["--at", "now", "--script", "none.sh"], 1, "--script: none.sh cannot be read: No such file"),
        (["--at", "now", "--script", "."], 1, "--script: . cannot be read: Is a directory"),
        (["--at", "now", "--script", "long.sh"], 1, "long.sh is too large: at most 20,000 characters"),
        (["--at", "now", "--script", "wide.sh"], 1, "wide.sh is too large"),
        (["--at", "now", "--script", "/dev/zero"], 1, "/dev/zero is too large"),
        (["--at", "now", "--script", "bytes.sh"], 1, "bytes.sh is not text in UTF-8"),
        (["--at", "now", "--script", "nul.sh"], 1, "nul.sh is not text"),
        (["--at", "now", "--script", "empty.sh"], 1, "empty.sh is empty"),
        (["--at", "now", "--provider", "gpt"], 1, "there is no provider 'gpt' here; installed: acp"),
        (["--at", "now", "--to", "fax:1"], 1, "there is no channel 'fax' here"),
        (["--at", "now", "--to", "fax"], 2, "--to 'fax' is not CHANNEL:PLACE"),
        (["--at", "now", "--jitter", "10"], 2, "--jitter: '10' is not a length of time"),
        (["--at", "now", "--jitter", "2d"], 2, "--jitter: '2d' is more than a day"),
        (["--at", "now", "--daily-budget", "0"], 2, "--daily-budget must be more than 0"),
        (["--at", "now", "--daily-budget", "1e9"], 1, "daily USD is from 0.01 to 1,000,000"),
        (["--at", "now", "--daily-budget", "0.009"], 1, "daily USD is from 0.01 to 1,000,000"),
        (["--at", "now", "--model", ""], 2, "--model is empty"),
        (["--at", "now", "--catch-up", "never"], 2, "'never' is not one of"),
        (["--at", "now", "--pause-after", "-1"], 2, "--pause-after"),
    ]
    whole = [(["add", "demo", "x", *arguments], code, words) for arguments, code, words in cases] + [
        (["add", "demo", " ", "--at", "now"], 2, "the prompt is empty"),
        (["add", "nobody", "x", "--at", "now"], 1, "there is no agent 'nobody'"),
        (["add", "lost", "x", "--at", "now"], 1, "there is no provider 'gone' here"),
        (["show", "zzzzzzzz"], 1, "there is no scheduled task 'zzzzzzzz'; see: longshore tasks list"),
        (["update", made["handle"]], 2, "nothing to change"),
        (["update", made["handle"], "--every", "x"], 2, "is not a cron expression"),
        (["update", made["handle"], "--prompt", ""], 2, "--prompt is empty"),
        (["update", made["handle"], "--at", "2020-01-01 09:00"], 1, "has passed"),
        (["update", made["handle"], "--provider", "gpt"], 1, "there is no provider 'gpt' here"),
    ]
    before = await fleet.inbox()
    for arguments, code, words in whole:
        result = await cli(*arguments, code=code)
        assert words in said(result), arguments
        assert result.stdout == ""
    assert await fleet.inbox() == before, "nothing was written"


@ONE_DATABASE
async def test_an_id_that_looks_like_markup_is_shown_as_it_is(cli: Cli, fleet: Fleet) -> None:
    """A producer's ids are its own."""
    task_id = "task[/x]"
    await add_run(fleet, await clock(fleet) + DAY, id=task_id, series_id=task_id, recurrence=YEARLY)
    for words in ("pause", "resume", "run-now", "update --jitter 5m", "show", "cancel"):
        assert task_id in said(await cli("list"))
        command, *options = words.split()
        assert f"task {task_id} of demo" in said(await cli(command, task_id, *options))
