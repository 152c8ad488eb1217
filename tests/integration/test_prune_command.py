"""`longshore prune`, and the job that beat rings for."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from models import MessageIn, Rejected, Round
from models.base import now
from tests.support.command_line import Cli
from tests.support.database_contents import archived, everything, grow_older
from tests.support.fleet import Fleet, MakeFleet
from workers.app import app
from workers.retention import Pruning, prune_round

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


async def make_past(fleet: Fleet, chats: int = 2) -> None:
    await fleet.add_group(script="- play: [{tool: clock}, {answer: 'it is {result}'}]")
    for _ in range(chats):
        await fleet.send("hello")
        await fleet.settle_down()
    await grow_older(fleet.db, 100)


@pytest.mark.spec("D6", "G4")
async def test_what_it_counts_is_what_it_removes(cli: Cli, fleet: Fleet, tmp_path: Path) -> None:
    await make_past(fleet)
    before = await everything(fleet.db)
    counted = json.loads((await cli("prune", "--older-than", "90d", "--dry-run", "--json")).out)
    assert await everything(fleet.db) == before
    assert (counted["dry_run"], counted["older_than_days"], counted["archive"]) == (True, 90, None)
    assert counted["rows"]["messages_in"] == 2
    shown = await cli("prune", "--older-than", "90", "--dry-run")
    assert f"{counted['total']}  rows would be removed" in shown.out
    done = json.loads((await cli("prune", "--older-than", "90d", "--archive", str(tmp_path / "kept"), "--json")).out)
    assert (done["rows"], done["total"], done["left"]) == (counted["rows"], counted["total"], 0)
    assert len(before) - len(await everything(fleet.db)) == done["total"]
    assert done["archive"] == {"folder": str(tmp_path / "kept"), "files": 1}
    assert len(list(archived(tmp_path / "kept"))) == done["total"]
    again = await cli("prune", "--older-than", "90d")
    assert (again.code, "nothing to remove" in again.out) == (0, True)


@pytest.mark.spec("D6", "G4")
@ONE_DATABASE
async def test_it_says_what_it_did(cli: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await make_past(fleet)
    monkeypatch.setenv("LONGSHORE_KEEP_DAYS", "99")
    monkeypatch.setenv("LONGSHORE_ARCHIVE", str(tmp_path / "kept"))
    said = await cli("prune")
    assert said.code == 0, said.err
    lines = [line.split() for line in said.out.splitlines()]
    assert ["2", "messages_in"] in lines
    assert "rows removed, finished before" in said.out
    assert "kept in" in said.out
    assert await fleet.inbox() == []


@pytest.mark.spec("D6", "G4")
@ONE_DATABASE
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "nothing says how long rows are kept: give --older-than 90d, or set LONGSHORE_KEEP_DAYS"),
        (["--older-than", "6d"], 2, "--older-than 6d is too little: at least 7 days must stay"),
        (["--older-than", "0"], 2, "too little"),
        (["--older-than", "soon"], 2, "--older-than 'soon' is not a number of days; write it like 90d"),
        (["--older-than", "-90d"], 2, "is not a number of days"),
        (["--older-than", "1.5d"], 2, "is not a number of days"),
        (["--older-than", ""], 2, "is not a number of days"),
        (["--older-than", "٩٠d"], 2, "is not a number of days"),
        (["--older-than", "999999999"], 2, "is too much: at most 36500 days"),
        (["--older-than", "90d", "--archive", "/dev/null/here"], 1, "cannot be written to"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    cli: Cli, fleet: Fleet, arguments: list[str], code: int, said: str
) -> None:
    ran = await cli("prune", *arguments)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.spec("D6", "G4")
@ONE_DATABASE
async def test_an_archive_that_fills_up_stops_it(
    cli: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await make_past(fleet)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.archive._write", full)
    ran = await cli("prune", "--older-than", "90d", "--archive", str(tmp_path / "kept"))
    assert ran.code == 1
    assert "(No space left on device). 0 rows removed; the rest stays" in ran.err
    assert len(await fleet.inbox()) == 2


@pytest.mark.spec("D6", "G4")
@ONE_DATABASE
async def test_whoever_stops_it_is_told_how_far_it_came(
    cli: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_past(fleet)

    async def interrupted(self: Pruning) -> None:
        self.pruned.rows["events"] = 1
        raise asyncio.CancelledError

    monkeypatch.setattr(Pruning, "run", interrupted)
    monkeypatch.setattr("gateway.cli.desk.asyncio.run", run_as_if_interrupted(asyncio.run))
    ran = await cli("prune", "--older-than", "90d")
    assert (ran.code, "stopped. 1 row removed; run it again for the rest" in ran.err) == (130, True)


def run_as_if_interrupted(run: Any) -> Any:
    """asyncio.run turns the cancellation that Ctrl-C causes into KeyboardInterrupt."""

    def running(work: Any) -> Any:
        try:
            return run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return running


# --- upkeep.prune ---


async def ring(fleet: Fleet) -> dict[str, int]:
    return dict((await prune_round(fleet.db, fleet.runtime.settings)).rows)


@pytest.mark.spec("D6", "S5")
async def test_beat_s_job_removes_what_the_settings_say_once_an_hour(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(keep_days=30, archive=tmp_path / "kept")
    await make_past(fleet)
    await fleet.insert(Rejected, {"source": "x", "reason": "young", "payload": {}})
    done = await ring(fleet)
    assert done["messages_in"] == 2
    assert len(list(archived(tmp_path / "kept"))) == sum(done.values())
    assert len(await fleet.rows(Rejected)) == 1
    await fleet.send("one more")
    await fleet.execute(update(MessageIn).values(status="discarded"))
    await grow_older(fleet.db, 0)
    await fleet.execute(update(MessageIn).values(created_at=now(-1e8), status_changed_at=now(-1e8)))
    assert await ring(fleet) == {}, "a second beat rings"
    await fleet.execute(update(Round).values(began_at=now(-4000)))
    assert (await ring(fleet))["messages_in"] == 1


@pytest.mark.spec("D6")
@ONE_DATABASE
async def test_the_job_ends_with_a_sentence_when_the_archive_is_not_there(
    make_fleet: MakeFleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").write_text("a file")
    fleet = await make_fleet(keep_days=30, archive=tmp_path / "kept")
    await make_past(fleet)
    assert await ring(fleet) == {}
    assert len(await fleet.inbox()) == 2
    assert "prune.stopped" in capsys.readouterr().out


@pytest.mark.spec("D6", "F8")
def test_what_beat_rings_for_is_there() -> None:
    app.loader.import_default_modules()
    entry = app.conf.beat_schedule["prune"]
    assert entry["task"] in app.tasks
    assert app.amqp.queues[entry["options"]["queue"]]
