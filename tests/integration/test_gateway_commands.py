"""`longshore token`, and what `longshore doctor` says of channels."""

import json
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel
from adapters.channels.webhook import Endpoint, WebhookChannel
from adapters.model_port import AnyProvider
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from gateway.doctor import Check, examine
from models import Audit, SignIn, Token
from models.base import now
from models.fleet import report_alive
from models.listeners import claim_listener, store_cursor
from models.sign_ins import find_visitor, sign_in, sign_out, use_link
from models.tokens import SCOPES, find_bearer
from tests.support.command_line import Cli
from tests.support.fake_platform import post_message
from tests.support.file_channel import LISTENS_TO, Feed
from tests.support.fleet import Fleet, MakeFleet
from tests.support.open_gateway import wire
from workers.access import Standing, standing_of
from workers.front_desk import say

SCRIPTED = Drivers[AnyProvider]("provider", {"scripted": ScriptedProvider()})  # programs take a while to be found
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.mark.spec("C5", "G4")
async def test_a_token_is_shown_once_and_kept_as_a_hash(cli: Cli, fleet: Fleet) -> None:
    assert "there are no tokens" in (await cli("token", "list")).out
    await fleet.add_group("demo")
    made = json.loads((await cli("token", "add", "ada", "--agent", "demo", "--json")).out)
    assert (made["user"], made["chat"]) == ("web:ada", "ada")
    [row] = await fleet.rows(Token)
    assert made["token"] not in str(row)
    listed = await cli("token", "list")
    assert "web:ada" in listed.out
    assert made["token"] not in listed.out
    second = await cli("token", "add", "ada")
    assert "not shown again" in second.out
    assert "may talk to no agent yet" in second.out
    gone = await cli("token", "revoke", row.id[-12:])
    assert gone.out == "revoked: a token of web:ada\n"
    again = await cli("token", "revoke", row.id[-12:])
    assert (again.code, "it was revoked before" in again.err) == (1, True)
    assert "revoked" in (await cli("token", "list")).out


@pytest.mark.spec("G2", "G4")
async def test_a_token_is_for_what_its_scopes_say_and_for_so_long(cli: Cli, fleet: Fleet) -> None:
    group = await fleet.add_group("demo")
    made = json.loads((await cli("token", "add", "crm", "--agent", "demo", "--role", "admin", "--scope", "send",
                                 "--days", "30", "--json")).out)  # fmt: skip
    bearer = await fleet.db.read(lambda conn: find_bearer(conn, made["token"]))
    assert bearer is not None
    assert (bearer.user_id, set(bearer.scopes)) == ("web:crm", {"send"})
    assert await fleet.db.read(lambda conn: standing_of(conn, "web:crm", group)) is Standing.ADMIN
    await fleet.execute(update(Token).values(expires_at=now(-1)))
    assert await fleet.db.read(lambda conn: find_bearer(conn, made["token"])) is None
    assert "over" in (await cli("token", "list")).out

    everything = json.loads((await cli("token", "add", "eve", "--role", "owner", "--scope", "all", "--json")).out)
    assert set(everything["scopes"]) == set(SCOPES)
    assert await fleet.db.read(lambda conn: standing_of(conn, "web:eve", group)) is Standing.OWNER
    assert [row.act for row in await fleet.rows(Audit)] == ["token.add", "token.add"]


@pytest.mark.spec("G3", "G6")
async def test_a_link_to_the_console_signs_in_once(cli: Cli, fleet: Fleet) -> None:
    printed = (await cli("console", "--url", "https://agents.example/")).out
    assert printed.startswith("https://agents.example/console/enter?code=")
    code = printed.splitlines()[0].rpartition("=")[2]
    [link] = await fleet.rows(SignIn)
    assert code not in str(link)
    assert await fleet.db.transact(lambda conn: use_link(conn, code, "mine"))
    assert not await fleet.db.transact(lambda conn: use_link(conn, code, "another's"))
    visitor = await fleet.db.read(lambda conn: find_visitor(conn, "mine"))
    assert visitor is not None
    assert (visitor.user_id, sorted(visitor.scopes)) == ("web:operator", sorted(SCOPES))
    assert await fleet.db.read(lambda conn: find_visitor(conn, "another's")) is None
    await fleet.db.transact(lambda conn: sign_out(conn, visitor.sign_in_id))
    assert await fleet.db.read(lambda conn: find_visitor(conn, "mine")) is None

    late = (await cli("console")).out.splitlines()[0].rpartition("=")[2]
    await fleet.execute(update(SignIn).values(expires_at=now(-1)))
    assert not await fleet.db.transact(lambda conn: use_link(conn, late, "late"))


@pytest.mark.spec("G3", "C5")
async def test_all_browsers_of_somebody_are_signed_out_at_once(cli: Cli, fleet: Fleet) -> None:
    async def link(*arguments: str) -> str:
        return (await cli("console", *arguments)).out.splitlines()[0].rpartition("=")[2]

    for browser in ("desk", "phone"):
        code = await link()
        assert await fleet.db.transact(partial(use_link, secret=code, browser_secret=browser))
    other = await link("--name", "grace")
    assert await fleet.db.transact(lambda conn: use_link(conn, other, "grace's"))
    unused = await link()

    assert "2 browsers of web:operator" in (await cli("console", "--sign-out")).out
    for browser, is_in in {"desk": False, "phone": False, "grace's": True}.items():
        assert (await fleet.db.read(partial(find_visitor, browser_secret=browser)) is not None) is is_in, browser
    assert not await fleet.db.transact(lambda conn: use_link(conn, unused, "late"))
    line = (await fleet.rows(Audit))[-1]
    assert (line.who, line.act, line.target) == ("cli", "console.sign_out", "web:operator")
    assert "0 browsers" in (await cli("console", "--sign-out", "--name", "nobody")).out


@pytest.mark.spec("G3", "C5")
async def test_a_browser_is_out_when_its_token_is(cli: Cli, fleet: Fleet) -> None:
    made = json.loads((await cli("token", "add", "ada", "--json")).out)

    async def come_in(conn: AsyncConnection) -> None:
        bearer = await find_bearer(conn, made["token"])
        assert bearer is not None
        await sign_in(conn, "mine", bearer)

    await fleet.db.transact(come_in)
    assert await fleet.db.read(lambda conn: find_visitor(conn, "mine")) is not None
    [row] = await fleet.rows(Token)
    await cli("token", "revoke", row.id)
    assert await fleet.db.read(lambda conn: find_visitor(conn, "mine")) is None


@pytest.mark.spec("C5", "G4")
@ONE_DATABASE
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["add", "ada", "--scope", "everything"], 2, "there is no scope 'everything'. There are: send: hand in"),
        (["add", "two words"], 2, "a name has 1 to 100 letters"),
        (["add", "a/b"], 2, "a name has 1 to 100 letters"),
        (["add", "x" * 101], 2, "a name has 1 to 100 letters"),
        (["add", "ada", "--agent", "nobody"], 1, "there is no agent 'nobody'"),
        (["add", "ada", "--agent", ".front-desk"], 1, "there is no agent '.front-desk'"),
        (["add", "plaza"], 1, "there is a chat 'plaza' of several people"),
        (["revoke", "nothing"], 1, "no id ends with 'nothing'"),
    ],
)
async def test_tokens_that_cannot_be_made_are_refused(
    cli: Cli, fleet: Fleet, arguments: list[str], code: int, said: str
) -> None:
    await wire(fleet, await fleet.add_group("demo"), "web", "plaza")
    await fleet.add_group(".front-desk")
    ran = await cli("token", *arguments)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert await fleet.rows(Token) == []


@pytest.mark.spec("C4", "C5")
@ONE_DATABASE
async def test_a_token_for_an_agent_lets_in_whoever_waited_for_it(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group("demo")
    await cli("wire", "demo", "web", "plaza", "--unknown", "request_approval")
    await post_message(fleet, "hello", "ada", "plaza", channel_type="web")
    assert [row.status for row in await fleet.inbox()] == ["paused"]
    assert (await cli("token", "add", "ada", "--agent", "demo")).code == 0
    await fleet.settle_down()
    assert [row.status for row in await fleet.inbox()] == ["completed"]


@pytest.mark.spec("G4")
@ONE_DATABASE
async def test_what_the_fleet_itself_says_is_no_session_of_anybody_s(cli: Cli, fleet: Fleet) -> None:
    place = {"channel_type": "local", "platform_id": "hall", "thread_id": None}
    assert await fleet.db.transact(lambda conn: say(conn, **place, text="Who are you?", key="k")) is not None  # type: ignore[arg-type]
    assert json.loads((await cli("sessions", "--json")).out) == []


@pytest.mark.spec("F8", "C2")
async def test_doctor_says_of_each_channel_who_hears_it(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet()
    webhook = WebhookChannel({"crm": Endpoint(secret="s")})
    channels_here: dict[str, Channel] = {"feed": Feed(tmp_path), "webhook": webhook, "off": WebhookChannel({})}
    registry = Registry(SCRIPTED, Drivers("channel", channels_here))

    async def channels() -> dict[str, Check]:
        found = [check async for check in examine(fleet.runtime.settings, registry)]
        return {check.name: check for check in found if check.name.startswith("channel")}

    before = await channels()
    assert before["channel feed"] == Check(
        "channel feed", "warning", f"nobody listens to {LISTENS_TO}", "start it: longshore listen"
    )
    assert before["channel webhook"] == Check(
        "channel webhook", "warning", "no gateway runs", "start one: longshore gateway"
    )
    assert before["channels off"].detail.startswith("off: not configured")
    db = fleet.db
    await db.transact(lambda conn: report_alive(conn, "gateway@host", "gateway", pid=1))
    place = await db.transact(lambda conn: claim_listener(conn, LISTENS_TO, "listen@host", 60))
    assert place is not None
    assert (await channels())["channel feed"].detail.endswith("nothing heard yet")
    await db.transact(lambda conn: store_cursor(conn, LISTENS_TO, place.token, {"at": 1}))
    after = await channels()
    assert after["channel feed"].state == after["channel webhook"].state == "ok"
    assert "listen@host listens to feed:1, last heard" in after["channel feed"].detail


@pytest.mark.spec("F8", "F9")
@ONE_DATABASE
async def test_doctor_names_the_variable_that_is_wrong_and_not_its_value(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_WEBHOOKS", "hunter2")
    found = [check async for check in examine(fleet.runtime.settings, Registry(SCRIPTED))]
    [check] = [check for check in found if check.name == "channel webhook"]
    assert check.state == "problem"
    assert "LONGSHORE_WEBHOOKS" in check.detail
    assert "hunter2" not in str(found)
