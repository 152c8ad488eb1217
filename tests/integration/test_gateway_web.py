"""Web chat and the API over real HTTP: everybody is who their token says, and sees and decides what is theirs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from adapters.registry import Drivers
from adapters.tool_port import Tool
from gateway.http import serving
from gateway.http.api import streams
from models import AgentGroupMember, Approval, MessageOut, MessagingGroup, PendingQuestion, Token, UserRole
from models.base import new_id, now
from models.tokens import new_token
from models.web_chats import Cursor
from tests.support.cards import SCRIPT as LAUNCH
from tests.support.cards import Launcher
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, answering, gateway_to, registry_with, wire
from tests.support.scripts import QUESTION_SCRIPT
from workers.operations.tokens import add_token

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
NOBODY_S = "there is no such chat, or it is not one of yours"


class Person:
    """Somebody with a token, at the gateway."""

    def __init__(self, gateway: Gateway, name: str, token: str) -> None:
        self.name = name
        self.token = token
        self._client = gateway.client

    async def get(self, path: str, **given: Any) -> httpx2.Response:
        return await self._client.get(path, headers=self.headers, **given)

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        return await self._client.post(path, json=body, headers=self.headers)

    async def read(self, chat: str | None = None) -> list[dict[str, Any]]:
        answer = await self.get(f"/web/{chat or self.name}/messages")
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def events(self, chat: str, after: str | None = None) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        headers = self.headers | ({"Last-Event-ID": after} if after else {})
        async with self._client.stream("GET", f"/web/{chat}/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _events(response)


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def next_message(events: AsyncIterator[tuple[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        async for name, data in events:
            if name == "message":
                found: dict[str, Any] = data
                return found
    raise AssertionError("the stream ended")


class Club:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.fleet = gateway.fleet

    async def person(self, name: str, agent: str | None = None) -> Person:
        token = new_token()
        await self.fleet.db.transact(lambda conn: add_token(conn, "cli", name, token, agent))
        return Person(self.gateway, name, token)

    async def make_admin(self, person: Person, group: str | None) -> None:
        await self.fleet.insert(UserRole, {"user_id": f"web:{person.name}", "role": "admin", "agent_group_id": group})


@pytest.fixture
async def club(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Club]:
    registry = registry_with(tmp_path)
    tools = Drivers[Tool[Any]]("tool")
    registry.tools = Drivers("tool", tools.working | {"launch": Launcher().tool()})
    fleet = await make_fleet(registry)
    async with gateway_to(fleet) as gateway:
        yield Club(gateway)


@pytest.fixture
async def group(club: Club) -> str:
    return await club.fleet.add_group(script="You said: {texts}")


@pytest.mark.spec("C2", "C8")
async def test_somebody_with_a_token_talks_with_their_agent(club: Club, group: str) -> None:
    ada = await club.person("ada", agent="demo")
    said = await ada.post("/web/ada/messages", id="1", text="hello")
    assert said.status_code == 202
    again = await ada.post("/web/ada/messages", id="1", text="hello")
    assert (again.json()["duplicate"], again.json()["id"]) == (True, said.json()["id"])
    [row] = await club.fleet.inbox()
    assert (row.channel_type, row.platform_id, row.sender_id) == ("web", "ada", "ada")
    await club.fleet.settle_down()
    [answer] = await ada.read()
    assert (answer["agent"], answer["kind"], answer["text"]) == ("demo", "chat", "You said: hello")


@pytest.mark.spec("C5", "C8")
@ONE_DATABASE
async def test_without_a_valid_token_there_is_nothing(club: Club, group: str) -> None:
    ada = await club.person("ada", agent="demo")
    wrong = [{}, {"Authorization": ada.token}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {ada.token}"}]
    wrong += [{"Authorization": f"Bearer {given}"} for given in (ada.token[:-1], ada.token + "x", "hänsel", "x" * 5000)]
    paths = ("/web/ada/messages", "/web/ada/events", f"/web/ada/files/{new_id()}/0", "/v1/approvals", "/v1/questions")
    for headers in wrong:
        sent = {name.encode(): value.encode() for name, value in headers.items()}
        for path in paths:
            answer = await club.gateway.client.get(path, headers=sent)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        for path, body in (("/web/ada/messages", {"text": "hi"}), ("/web/presses", {"token": "x"})):
            assert (await club.gateway.client.post(path, json=body, headers=sent)).status_code == 401
    assert await club.fleet.inbox() == []
    await club.fleet.execute(update(Token).values(revoked_at=now()))
    assert (await ada.get("/web/ada/messages")).status_code == 401


@pytest.mark.spec("C5")
@ONE_DATABASE
async def test_another_s_direct_chat_does_not_exist(club: Club, group: str) -> None:
    ada, bob = await club.person("ada", agent="demo"), await club.person("bob", agent="demo")
    await ada.post("/web/ada/messages", text="between us")
    await club.fleet.settle_down()
    [said] = await ada.read()
    reads = [await bob.get(f"/web/ada/{what}") for what in ("messages", "events", f"files/{said['id']}/0")]
    writes = [await bob.post("/web/ada/messages", text="me too"), await bob.post("/web/presses", token="x", chat="ada")]
    unknown = [await bob.get("/web/nowhere/messages")]
    for answer in (*reads, *writes, *unknown):
        assert (answer.status_code, answer.json()["detail"]) == (404, NOBODY_S)
    assert len(await club.fleet.inbox()) == 1


@pytest.mark.spec("C2")
@ONE_DATABASE
async def test_two_people_may_use_the_same_ids(club: Club, group: str) -> None:
    await wire(club.fleet, group, "web", "plaza")
    for name in ("ada", "bob"):
        said = await (await club.person(name, agent="demo")).post("/web/plaza/messages", id="1", text=f"I am {name}")
        assert (said.status_code, said.json()["duplicate"]) == (202, False)
    assert [row.content["text"] for row in await club.fleet.inbox()] == ["I am ada", "I am bob"]


@pytest.mark.spec("C5", "M2")
async def test_a_chat_of_several_is_for_the_members_of_its_agent(club: Club, group: str) -> None:
    await wire(club.fleet, group, "web", "plaza", policy="strict")
    ada, eve = await club.person("ada", agent="demo"), await club.person("eve")
    assert (await ada.post("/web/plaza/messages", text="hello all")).status_code == 202
    await club.fleet.settle_down()
    assert [message["text"] for message in await ada.read("plaza")] == ["You said: hello all"]
    assert (await eve.get("/web/plaza/messages")).status_code == 404
    refused = await eve.post("/web/plaza/messages", text="let me in")
    assert refused.status_code == 403
    assert refused.json()["detail"]
    assert len(await club.fleet.inbox()) == 1


@pytest.mark.spec("C5")
@ONE_DATABASE
async def test_in_a_chat_of_two_agents_each_is_read_by_its_own_members(club: Club, group: str) -> None:
    other = await club.fleet.add_group("other", script="The other says: {texts}")
    await wire(club.fleet, group, "web", "plaza")
    ada, bob = await club.person("ada", agent="demo"), await club.person("bob", agent="other")
    await ada.post("/web/plaza/messages", text="hello")
    await club.fleet.settle_down()
    assert len(await ada.read("plaza")) == 1
    assert (await bob.get("/web/plaza/messages")).status_code == 404
    await club.fleet.insert(AgentGroupMember, {"user_id": "web:ada", "agent_group_id": other})
    assert len(await ada.read("plaza")) == 1


@pytest.mark.spec("C2", "C8")
@ONE_DATABASE
async def test_what_cannot_be_read_is_refused_in_words(club: Club, group: str) -> None:
    ada = await club.person("ada", agent="demo")
    headers = ada.headers | {"content-type": "application/json"}
    for body in (
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"text": ""}',
        b'{"text": 5}',
        b'{"text": "\\ud800"}',
        b'{"text": "x", "id": ""}',
        b'{"text": "x", "sender": "owner"}',
        b'{"text": "x", "thread": []}',
        b"[" * 100_000,
        b'{"text": ' + b"9" * 5000 + b"}",
    ):
        answer = await club.gateway.client.post("/web/ada/messages", content=body, headers=headers)
        assert answer.status_code in (400, 422)
        assert set(answer.json()) == {"type", "title", "status", "detail"}
        assert "Traceback" not in answer.text
    assert await club.fleet.inbox() == []


@pytest.mark.spec("C2")
async def test_what_is_said_is_followed_live_each_once_and_from_where_one_stopped(club: Club, group: str) -> None:
    ada = await club.person("ada", agent="demo")
    async with answering(club.fleet):
        async with ada.events("ada") as events:
            await ada.post("/web/ada/messages", text="one")
            first = await next_message(events)
            await ada.post("/web/ada/messages", text="two")
            second = await next_message(events)
        assert [first["text"], second["text"]] == ["You said: one", "You said: two"]
        await ada.post("/web/ada/messages", text="three")
        async with ada.events("ada", after=second["cursor"]) as events:
            # What is only just said may come again.
            seen = {first["id"], second["id"]}
            while (message := await next_message(events))["id"] in seen:
                continue
        assert message["text"] == "You said: three"
    later = await ada.get("/web/ada/messages", params={"after": message["cursor"]})
    assert {said["id"] for said in later.json()["messages"]} <= {*seen, message["id"]}
    old = Cursor(Cursor.parse(message["cursor"]).at, "")  # type: ignore[union-attr]
    await club.fleet.execute(update(MessageOut).values(delivered_at=now(-3600)))
    assert (await ada.get("/web/ada/messages", params={"after": str(old)})).json()["messages"] == []
    for wrong in ("x", "1_\x00", "9" * 17 + "_x", "_", "1.5_x"):
        assert (await ada.get("/web/ada/messages", params={"after": wrong})).status_code == 422


@pytest.mark.spec("C2", "C5")
@ONE_DATABASE
async def test_a_revoked_token_ends_a_stream(club: Club, group: str) -> None:
    ada = await club.person("ada", agent="demo")
    async with ada.events("ada") as events:
        await club.fleet.execute(update(Token).values(revoked_at=now()))
        async with asyncio.timeout(20):
            assert [event async for event in events] == []


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_streams_of_one_user_are_counted_and_none_is_cut_off(
    club: Club, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS", 2)
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    ada, bob = await club.person("ada", agent="demo"), await club.person("bob", agent="demo")
    async with ada.events("ada") as first:
        async with ada.events("ada"):
            refused = await ada.get("/web/ada/events")
            assert (refused.status_code, refused.json()["detail"][:22]) == (429, "2 live streams of your")
            async with bob.events("bob"):
                pass
        async with asyncio.timeout(20):
            while (await _status(ada)) != 200:  # the gateway has to notice that the second has hung up
                await asyncio.sleep(0.01)
        idle, writer = await asyncio.open_connection("127.0.0.1", club.gateway.port)
        assert await idle.read() == b"", "whoever says nothing has gone meanwhile; who listens has not"
        writer.close()
        await ada.post("/web/ada/messages", text="hello")
        await club.fleet.settle_down()
        assert (await next_message(first))["text"] == "You said: hello"


async def _status(person: Person) -> int:
    async with person._client.stream("GET", f"/web/{person.name}/events", headers=person.headers) as response:
        return response.status_code


@pytest.mark.spec("M13")
async def test_one_sees_who_is_at_work_and_at_what(club: Club) -> None:
    await club.fleet.add_group(script="- play:\n  - listen: 60\n  - answer: done")
    ada = await club.person("ada", agent="demo")
    async with answering(club.fleet), ada.events("ada") as events:
        await ada.post("/web/ada/messages", text="go")
        async with asyncio.timeout(20):
            name, working = await anext(events)
            assert name == "working"
            [one] = working
            assert one["agent"] == "demo"
            assert one["doing"]
            assert one["since"]
            await ada.post("/web/ada/messages", text="enough")
            async for name, data in events:
                if name == "working" and data == []:
                    break


@pytest.mark.spec("C2", "C6", "C7")
async def test_a_button_is_pressed_once_and_then_gone(club: Club) -> None:
    await club.fleet.add_group(script=QUESTION_SCRIPT)
    ada, bob = await club.person("ada", agent="demo"), await club.person("bob", agent="demo")
    await ada.post("/web/ada/messages", text="tea?")
    await club.fleet.settle_down()
    [asked] = await ada.read()
    assert [button["label"] for button in asked["buttons"]] == ["Now", "Later"]
    token = asked["buttons"][1]["token"]
    for other in (await bob.post("/web/presses", token=token), await ada.post("/web/presses", token="x:1")):
        assert (other.status_code, other.json()) == (200, {"text": "This button does nothing here."})
    pressed = await ada.post("/web/presses", token=token)
    assert "Later" in pressed.json()["text"]
    await club.fleet.settle_down()
    messages = await ada.read()
    assert "buttons" not in messages[0]
    assert [message.get("changes") for message in messages if message.get("operation") == "edit"] == [asked["id"]]
    assert messages[-1]["text"].startswith("So: ")
    assert "Later" in messages[-1]["text"]


@pytest.mark.spec("C2", "T3")
@ONE_DATABASE
async def test_files_are_fetched_by_those_who_may_read_the_message(club: Club) -> None:
    script = "- play:\n  - tool: write_file\n    with: {path: a b.html, content: <b>hi</b>}\n"
    await club.fleet.add_group(script=script + "  - tool: send_file\n    with: {path: a b.html}\n  - answer: there")
    ada, bob = await club.person("ada", agent="demo"), await club.person("bob", agent="demo")
    await ada.post("/web/ada/messages", text="a file, please")
    await club.fleet.settle_down()
    [file] = [file for message in await ada.read() for file in message.get("files", [])]
    assert file["name"] == "a b.html"
    fetched = await ada.get(file["url"])
    assert (fetched.status_code, fetched.text) == (200, "<b>hi</b>")
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert (await bob.get(file["url"])).status_code == 404
    assert (await ada.get(file["url"][:-1] + "1")).status_code == 404
    outside = {"files": [str(club.fleet.runtime.settings.home / "secret.txt")]}
    (club.fleet.runtime.settings.home / "secret.txt").write_text("no")
    await club.fleet.execute(update(MessageOut).values(receipt=outside))
    assert (await ada.get(file["url"])).status_code == 404


# --- The API -----------------------------------------------------------------------------------------------------


async def parked(club: Club, script: str) -> tuple[str, Person]:
    """An agent whose turn waits for somebody, and who had asked it."""
    group = await club.fleet.add_group(script=script)
    ada = await club.person("ada", agent="demo")
    await ada.post("/web/ada/messages", text="do it")
    await club.fleet.settle_down()
    return group, ada


@pytest.mark.spec("C6", "C5")
async def test_approvals_are_decided_by_those_who_may_and_once(club: Club) -> None:
    group, ada = await parked(club, LAUNCH)
    boss, eve = await club.person("boss"), await club.person("eve")
    await club.make_admin(boss, group)
    [shown] = (await boss.get("/v1/approvals")).json()["items"]
    [approval] = await club.fleet.rows(Approval)
    assert (shown["id"], shown["agent"], shown["payload"]) == (approval.id, "demo", approval.payload)
    assert shown["payload"]["arguments"] == {"what": "prod"}
    for other in (ada, eve):
        assert (await other.get("/v1/approvals")).json() == {"items": [], "next": None}
    path = f"/v1/approvals/{approval.id}"
    assert (await eve.post(path, decision="approve")).status_code == 404
    refused = await ada.post(path, decision="approve")
    assert refused.status_code == 403
    assert "admins of demo" in refused.json()["detail"]
    assert (await boss.post(path, decision="perhaps")).status_code == 422
    another = await boss.post(path, decision="approve", payload_hash="0" * 64)
    assert another.status_code == 409
    assert "what was shown is not what is asked for now" in another.json()["detail"]
    done = await boss.post(path, decision="approve", payload_hash=shown["payload_hash"])
    assert done.status_code == 200
    assert done.json()["text"].startswith("approved, once")
    late = await boss.post(path, decision="deny")
    assert late.status_code == 409
    assert "already approved" in late.json()["detail"]
    for unknown in (new_id(), "x", "%00"):
        assert (await boss.post(f"/v1/approvals/{unknown}", decision="approve")).status_code in (404, 422)
    assert (await boss.get("/v1/approvals")).json() == {"items": [], "next": None}
    await club.fleet.settle_down()
    assert (await ada.read())[-1]["text"] == "so: launched prod"


@pytest.mark.spec("C7", "C5")
async def test_questions_are_answered_by_those_who_were_asked(club: Club) -> None:
    group, ada = await parked(club, QUESTION_SCRIPT)
    bob, boss, eve = await club.person("bob", agent="demo"), await club.person("boss"), await club.person("eve")
    await club.make_admin(boss, group)
    [asked] = (await ada.get("/v1/questions")).json()["items"]
    assert (asked["agent"], asked["text"], asked["options"]) == ("demo", "Now or later?", ["Now", "Later"])
    assert [one["id"] for one in (await boss.get("/v1/questions")).json()["items"]] == [asked["id"]]
    path = f"/v1/questions/{asked['id']}"
    for other, status in ((bob, 403), (eve, 404)):
        assert (await other.get("/v1/questions")).json() == {"items": [], "next": None}
        assert (await other.post(path, answer="Now")).status_code == status
    assert (await ada.post(path, answer="")).status_code == 422
    assert (await ada.post(path, answer="2")).status_code == 200
    late = await boss.post(path, answer="Now")
    assert (late.status_code, late.json()["detail"]) == (409, "too late: it was answered before")
    await club.fleet.settle_down()
    assert "Later" in (await ada.read())[-1]["text"]


@pytest.mark.spec("C7", "C5")
@ONE_DATABASE
async def test_what_an_agent_asks_in_a_private_chat_is_read_by_nobody_else(club: Club) -> None:
    await club.fleet.add_group(script=QUESTION_SCRIPT)
    bob = await club.person("bob", agent="demo")
    await club.fleet.send("do it", channel_type="platform", platform_id="4711", sender_id="cy")
    await club.fleet.settle_down()
    [question] = await club.fleet.rows(PendingQuestion)
    path = f"/v1/questions/{question.id}"
    assert (await bob.get("/v1/questions")).json() == {"items": [], "next": None}, "nobody said that others are there"
    assert (await bob.post(path, answer="Now")).status_code == 403
    await club.fleet.execute(update(MessagingGroup).values(is_group=True))
    assert [one["id"] for one in (await bob.get("/v1/questions")).json()["items"]] == [question.id]
    assert (await bob.post(path, answer="Now")).status_code == 200
