"""The console's living pages over real HTTP: a session's timeline and its stream, the chat, the inbox, dead letters and
replays; each for those it is for, and each act once."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from adapters.channel_port import OutboundMessage, Receipt
from adapters.channels.fake import FakeChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers
from adapters.tool_port import Tool
from gateway.console.security import COOKIE
from models import Approval, Audit, MessageIn, MessageOut, PendingQuestion, Rejected, Turn
from models.sessions import evict
from tests.support.cards import Launcher
from tests.support.console_session import ConsoleUser, sign_in_user, text_of
from tests.support.fleet import fleet_settings
from tests.support.open_gateway import Gateway, gateway_to, registry_with, wire
from tests.support.running_fleet import LivingFleet, living
from workers.intake.ingest import Accepted

SCRIPT = r"""
- when: "ask"
  play:
    - tool: ask_user_question
      with: {title: "A choice", question: "Which?", options: ["Tea", "Coffee"], timeout: 3600}
    - answer: "You chose: {result}."
- when: "launch"
  play: [{tool: launch, with: {what: prod}}, {answer: "so: {result}"}]
- when: "fail"
  play: [{fail: {class: auth, message: "the key is not accepted"}}]
- when: "file"
  play: [{tool: write_file, with: {path: a.txt, content: hi}}, {tool: send_file, with: {path: a.txt}}, {answer: sent}]
- when: "slow"
  play: [{say: "one moment"}, {wait: 600}, {answer: never}]
- play:
    - think: "They greet me."
    - tool: clock
    - usage: {model: script, input_tokens: 1200, output_tokens: 90, cost_usd: 0.25}
    - answer: "You said: **{texts}**"
"""
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
HTMX: dict[str, Any] = {"HX-Request": "true"}


class Deaf(FakeChannel):
    """Nothing arrives there."""

    channel_type = "deaf"

    async def deliver(self, message: OutboundMessage) -> Receipt:
        raise DeliveryError("nobody is there", retryable=False)


class AnsweringWorker:
    def __init__(self, fleet: LivingFleet, group: str) -> None:
        self.fleet = fleet
        self.group = group

    async def until(self, look: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(20):
            while not (found := await look()):
                await asyncio.sleep(0.02)
        return found

    async def turn(self, accepted: Accepted, *statuses: str) -> Any:
        """The turn that a message is in, when it has come so far."""

        async def look() -> Any:
            rows = await self.fleet.rows(Turn, Turn.number)
            return [row for row in rows if row.session_id == accepted.session_id and row.status in statuses][-1:]

        [turn] = await self.until(look)
        return turn

    async def send(self, text: str, status: str = "completed", **fields: Any) -> Accepted:
        """And wait until its turn has come so far."""
        accepted = await self.fleet.send(text, **({"sender_id": "bo"} | fields))
        await self.turn(accepted, status)
        return accepted

    async def acts(self) -> list[str]:
        return [row.act for row in await self.fleet.rows(Audit, Audit.id)]


@pytest.fixture
async def worker(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[AnsweringWorker]:
    registry = registry_with(tmp_path)
    registry.channels = Drivers("channel", registry.channels.working | {"deaf": Deaf()})
    registry.tools = Drivers("tool", Drivers[Tool[Any]]("tool").working | {"launch": Launcher().tool()})
    async with living(fleet_settings(database_url, redis_url, tmp_path), registry) as fleet:
        yield AnsweringWorker(fleet, await fleet.add_group(script=SCRIPT))


@pytest.fixture
async def gateway(worker: AnsweringWorker) -> AsyncIterator[Gateway]:
    async with gateway_to(worker.fleet) as gateway:
        yield gateway


class Reader:
    """A browser's page: what it shows after the events it has heard, by the ids of its entries."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.streamed = ""
        self.last: str | None = None
        self.names: list[str] = []

    @asynccontextmanager
    async def following(self, gateway: Gateway, person: ConsoleUser, path: str) -> AsyncIterator[AsyncIterator[str]]:
        headers = {"Cookie": f"{COOKIE}={person.secret}", "Accept": "text/event-stream"}
        headers |= {"Last-Event-ID": self.last} if self.last else {}
        async with gateway.client.stream("GET", f"/console{path}", headers=headers) as response:
            assert response.status_code == 200
            yield self._hear(response)

    async def _hear(self, response: httpx2.Response) -> AsyncIterator[str]:
        event: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                event[name] = value
                continue
            if "data" in event:
                self._take(event["event"], json.loads(event["data"]))
                self.last = event.get("id", self.last)
                yield event["event"]
            event = {}

    def _take(self, name: str, data: Any) -> None:
        self.names.append(name)
        if name == "patch":
            for entry in data["entries"]:
                self.shown[entry["key"]] = entry["html"]
        elif name == "thought":
            self.shown[data["key"]] = self.shown.get(data["key"], "") + data["text"]
        elif name == "delta":
            self.streamed += data["text"]

    async def until(self, events: AsyncIterator[str], text: str) -> None:
        async with asyncio.timeout(20):
            async for _ in events:
                if any(text in part for part in self.shown.values()):
                    return
        raise AssertionError(f"the stream ended without {text!r}: {self.shown}")


def ids_in(page: str) -> list[str]:
    return re.findall(r'<li class="entry[^"]*" id="([^"]+)"', page)


@pytest.mark.spec("G3")
async def test_a_session_is_shown_whole_without_any_script(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello there", sender_name="Bo")
    page = await ada.get(f"/sessions/{asked.session_id}")
    assert page.status_code == 200
    words = text_of(page)
    for part in ("hello there", "Thinking", "They greet me.", "clock", "ok", "You said:", "1.2k in", "$0.25", "idle"):
        assert part in words, part
    assert "<strong>hello there</strong>" in page.text
    [call] = re.findall(r'href="/console(/sessions/[^"]+/steps/[^"]+)"', page.text)
    assert says(await ada.get(call), "asked for")
    assert says(await ada.get(f"/sessions/{asked.session_id}/messages/1"), "hello there")
    for part in ("turns/1", "earlier?before=2", "?before=2"):
        assert "hello there" in text_of(await ada.get(f"/sessions/{asked.session_id}/{part}".replace("/?", "?"))), part
    assert "hello there" not in text_of(await ada.get(f"/sessions/{asked.session_id}/earlier?before=1"))


@pytest.mark.spec("G3")
async def test_a_number_that_no_turn_can_have_is_not_found(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello")
    for number in (2**31, 2**62, 2**63, 10**30, -1, -(10**30)):
        for path in (f"/turns/{number}", f"/messages/{number}", f"?before={number}", f"/earlier?before={number}"):
            answer = await ada.get(f"/sessions/{asked.session_id}{path}")
            assert answer.status_code in (404, 422), path
    assert (await ada.get(f"/sessions/{asked.session_id}/turns/{2**31 - 2}")).status_code == 404


@ONE_DATABASE
async def test_of_a_very_long_answer_the_beginning_is_shown_as_it_is(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello")
    await worker.fleet.execute(update(MessageOut).values(content={"text": "[" * 1_000_000}))
    page = await ada.get(f"/sessions/{asked.session_id}")
    assert "<pre>[[[[" in page.text
    assert len(page.text) < 100_000
    assert "980,000 more characters" in text_of(page)


@pytest.mark.spec("G3")
async def test_a_stream_goes_on_after_the_gateway_was_restarted(worker: AnsweringWorker) -> None:
    reader = Reader()
    async with gateway_to(worker.fleet) as gateway:
        ada = await sign_in_user(gateway)
        first = await worker.send("one")
        path = f"/sessions/{first.session_id}/stream"
        async with reader.following(gateway, ada, path) as events:
            await reader.until(events, "<strong>one</strong>")
    two = await worker.send("two")  # while no gateway is there
    assert two.session_id == first.session_id
    async with gateway_to(worker.fleet) as gateway:
        async with reader.following(gateway, ada, path) as events:
            await reader.until(events, "<strong>two</strong>")
            await worker.fleet.send("three", sender_id="bo")
            await reader.until(events, "<strong>three</strong>")
        page = await sign_in_user(gateway, "cy")
        assert sorted(reader.shown) == sorted(ids_in((await page.get(f"/sessions/{first.session_id}")).text))
    assert "You said: **three**" in reader.streamed
    assert all(part.count("entry-sent") <= 1 for part in reader.shown.values())


@ONE_DATABASE
async def test_a_stream_ends_when_its_reader_signs_out(
    worker: AnsweringWorker, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.api.streams.CHECK_SECONDS", 0.0)
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello")
    reader = Reader()
    async with reader.following(gateway, ada, f"/sessions/{asked.session_id}/stream") as events:
        await reader.until(events, "hello")
        await ada.post("/sign-out")
        async with asyncio.timeout(20):
            async for _ in events:
                pass
    again = await gateway.client.get(
        f"/console/sessions/{asked.session_id}/stream", headers={"Cookie": f"{COOKIE}={ada.secret}"}
    )
    assert again.status_code == 401


@ONE_DATABASE
async def test_what_is_said_in_a_session_is_taken_once(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello")
    said = {"text": "more <b>please</b>", "key": "k1"}
    for _ in range(2):
        answer = await ada.post(f"/sessions/{asked.session_id}/say", said, Accept="application/json")
        assert answer.json()["go"] is None
    assert [row.content["text"] for row in await worker.fleet.inbox()] == ["hello", "more <b>please</b>"]
    plain = await ada.post(f"/sessions/{asked.session_id}/say", {"text": "by form", "key": "k2"})
    assert (plain.status_code, plain.headers["location"]) == (303, f"/console/sessions/{asked.session_id}")
    other = await ada.post(
        f"/sessions/{asked.session_id}/say", {"text": "else", "key": "k2"}, Accept="application/json"
    )
    assert other.status_code == 409


@ONE_DATABASE
async def test_what_answers_a_question_is_said_to_have_done_so(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("ask", "parked")
    said = {"text": "Tea", "key": "k1"}
    answer = await ada.post(f"/sessions/{asked.session_id}/say", said, Accept="application/json")
    assert answer.json()["text"] == "taken: it answered what was asked"
    more = {"text": "thanks", "key": "k2"}
    answer = await ada.post(f"/sessions/{asked.session_id}/say", more, Accept="application/json")
    assert answer.json()["text"] == "taken"


@pytest.mark.spec("M15")
async def test_a_turn_is_cancelled_a_session_reset_and_closed(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.fleet.send("slow", sender_id="bo")
    await worker.turn(asked, "running")
    done = await ada.post(f"/sessions/{asked.session_id}/cancel", **HTMX)
    assert (done.status_code, done.headers["hx-retarget"]) == (200, "#notice")
    assert says(done, "was cancelled")
    await worker.turn(asked, "cancelled")
    nothing = await ada.post(f"/sessions/{asked.session_id}/cancel", **HTMX)
    assert nothing.status_code == 409
    assert says(nothing, "has nothing to cancel")
    for act in ("reset", "close"):
        await ada.post(f"/sessions/{asked.session_id}/{act}")
    assert {"turn.cancel", "session.reset"} <= set(await worker.acts())


async def test_what_a_lost_worker_said_is_void(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.fleet.send("slow", sender_id="bo")
    reader = Reader()
    async with reader.following(gateway, ada, f"/sessions/{asked.session_id}/stream") as events:
        await reader.until(events, "one moment")
        await worker.fleet.db.transact(lambda conn: evict(conn, asked.session_id))
        worker.fleet.bells.wake(asked.session_id, "scripted")
        await reader.until(events, "this worker was lost")
        await reader.until(events, "void: the worker that wrote this was lost")
    page = await ada.get(f"/sessions/{asked.session_id}")
    assert "attempt 2 on" in text_of(page)
    assert page.text.count('class="entry entry-said void"') == 1


@pytest.mark.spec("M10")
async def test_exactly_what_was_shown_is_approved_once(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("launch", "parked")
    [row] = await worker.fleet.rows(Approval, Approval.id)
    inbox = await ada.get("/inbox")
    assert row.payload_hash in inbox.text
    assert "&#34;what&#34;: &#34;prod&#34;" in inbox.text
    wrong = await ada.post(f"/inbox/approvals/{row.id}", {"decision": "approve", "shown": "0" * 64}, **HTMX)
    assert (wrong.status_code, says(wrong, "nothing was decided")) == (409, True)
    right = {"decision": "approve", "shown": row.payload_hash}
    assert says(await ada.post(f"/inbox/approvals/{row.id}", right, **HTMX), "approved by web:ada")
    late = await ada.post(f"/inbox/approvals/{row.id}", right, **HTMX)
    assert (late.status_code, says(late, "already approved")) == (409, True)
    await worker.turn(asked, "completed")
    assert says(await ada.get("/inbox"), "Nothing waits for you")


@ONE_DATABASE
async def test_a_question_is_answered_by_its_button_or_in_words(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    for answer, heard in (("2", "You chose: Coffee."), ("a glass of <i>water</i>", "a glass of &lt;i&gt;water")):
        asked = await worker.send("ask", "parked", platform_id=heard[:9])
        [row] = [row for row in await worker.fleet.rows(PendingQuestion) if row.status == "pending"]
        assert says(await ada.get("/inbox"), "Which?")
        back = f"/console/sessions/{asked.session_id}"
        told = await ada.post(f"/inbox/questions/{row.id}", {"answer": answer, "back": back})
        assert (told.status_code, told.headers["location"]) == (303, back)
        await worker.turn(asked, "completed")
        assert heard in (await ada.get(f"/sessions/{asked.session_id}")).text
    elsewhere = await ada.post(f"/inbox/questions/{row.id}", {"answer": "late", "back": "https://evil.example/"})
    assert (elsewhere.status_code, says(elsewhere, "too late")) == (409, True)


@pytest.mark.spec("M11")
async def test_dead_letters_are_tried_again_elsewhere_and_put_away(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    for place in ("p1", "p2", "p3"):
        await worker.send(f"fail in {place}", "failed", platform_id=place)
    rows = {row.platform_id: row for row in await worker.fleet.inbox()}
    listed = text_of(await ada.get("/dead"))
    assert "the key is not accepted" in listed
    letter = text_of(await ada.get(f"/dead/{rows['p1'].id}"))
    assert "fail in p1" in letter
    again = await ada.post(f"/dead/{rows['p1'].id}/retry", {"choice": "scripted script"})
    assert "is back in the queue of demo on scripted (script)" in text_of(again)
    no_such = await ada.post(f"/dead/{rows['p2'].id}/retry", {"choice": "nobody"}, **HTMX)
    assert (no_such.status_code, says(no_such, "there is no provider 'nobody'")) == (409, True)
    none = await ada.post("/dead/acts", {"act": "discard"}, **HTMX)
    assert (none.status_code, says(none, "nothing is selected")) == (409, True)
    several = {"act": "discard", "message": [rows["p2"].id, rows["p3"].id, "no-such"]}
    assert says(await ada.post("/dead/acts", several), "2 put away; 1 not: there is no such dead letter")
    assert (await _statuses(worker))["p3"] == "discarded"
    assert {"dead.retry", "dead.discard"} <= set(await worker.acts())


async def _statuses(worker: AnsweringWorker) -> dict[str, str]:
    return {row.platform_id: row.status for row in await worker.fleet.rows(MessageIn)}


@ONE_DATABASE
async def test_undelivered_answers_are_sent_again_and_refused_input_is_for_owners(
    worker: AnsweringWorker, gateway: Gateway
) -> None:
    ada = await sign_in_user(gateway)
    bo = await sign_in_user(gateway, "bo", "admin", worker.group)
    await worker.send("hello", channel_type="deaf", platform_id="x")

    async def given_up() -> Any:
        return [row for row in await worker.fleet.outbox() if row.status == "failed"]

    [row] = await worker.until(given_up)
    assert says(await bo.get("/dead/undelivered"), "nobody is there")
    assert says(await bo.post(f"/dead/undelivered/{row.id}/resend"), "back in the queue")
    await worker.fleet.insert(Rejected, {"source": "producer", "reason": "no <such> queue", "payload": {"a": "<b>"}})
    assert says(await ada.get("/dead/rejected"), "no <such> queue")
    assert (await bo.get("/dead/rejected")).status_code == 403


def says(answer: httpx2.Response, words: str) -> bool:
    return words.casefold() in html.unescape(text_of(answer)).casefold()


@pytest.mark.spec("M15")
async def test_a_replay_stands_beside_its_original(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    asked = await worker.send("hello")
    order = {"turns": "1", "choice": "scripted script", "key": "k1"}
    made = await ada.post(f"/sessions/{asked.session_id}/replay", order)
    address = made.headers["location"].removeprefix("/console")
    assert (await ada.post(f"/sessions/{asked.session_id}/replay", order)).headers["location"] == f"/console{address}"

    async def ended() -> Any:
        page = await ada.get(address)
        return page if "hx-trigger" not in page.text.partition('id="pairs"')[2].partition(">")[0] else None

    page = await worker.until(ended)
    assert page.text.count("<strong>hello</strong>") == 2
    assert "The answers are the same" in text_of(page)
    assert "nothing is delivered" in text_of(page)
    none = await ada.post(f"/sessions/{asked.session_id}/replay", {"key": "k2"}, **HTMX)
    assert (none.status_code, says(none, "choose the turns")) == (409, True)
    assert (await ada.get(f"/replays/{asked.session_id}")).status_code == 404


@ONE_DATABASE
async def test_a_replay_of_many_turns_comes_in_pages(
    worker: AnsweringWorker, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.pages.replay.PAIRS", 1)
    ada = await sign_in_user(gateway)
    for text in ("hello", "and more"):
        asked = await worker.send(text)

    async def both() -> bool:
        return [row.status for row in await worker.fleet.rows(Turn, Turn.number)] == ["completed"] * 2

    await worker.until(both)
    made = await ada.post(f"/sessions/{asked.session_id}/replay", {"all": "yes", "key": "k1"})
    first = await ada.get(made.headers["location"].removeprefix("/console"))
    [more] = re.findall(r'href="/console(/replays/[^"]+)">The turns after', first.text)
    second = await ada.get(more)
    assert [page.text.count('class="pair"') for page in (first, second)] == [1, 1]
    assert says(second, "and more")
    assert "The turns after" not in second.text


@pytest.mark.spec("C2")
async def test_a_member_chats_in_the_browser(worker: AnsweringWorker, gateway: Gateway) -> None:
    ada = await sign_in_user(gateway, "ada", "member", worker.group)
    eve = await sign_in_user(gateway, "eve", "member")
    await wire(worker.fleet, worker.group, "web", "ada", policy="strict")
    reader = Reader()
    async with reader.following(gateway, ada, "/chat/stream") as events:
        for _ in range(2):
            said = await ada.post("/chat/say", {"text": "hello", "key": "k1"}, Accept="application/json")
            assert said.status_code == 200
        await reader.until(events, "<strong>hello</strong>")
        await ada.post("/chat/say", {"text": "ask", "key": "k2"}, Accept="application/json")
        await reader.until(events, "Coffee</button>")
        [token] = re.findall(r'name="token" value="([^"]+:2)"', "".join(reader.shown.values()))
        pressed = await ada.post("/chat/press", {"token": token}, **HTMX)
        assert pressed.status_code == 200
        await reader.until(events, "You chose: Coffee.")
        await ada.post("/chat/say", {"text": "file", "key": "k3"}, Accept="application/json")
        await reader.until(events, "<p>sent</p>")  # after the file
    assert "You chose: Coffee." in reader.streamed
    assert len([key for key in reader.shown if key.startswith("in")]) == 3
    page = await ada.get("/chat")
    assert sorted(ids_in(page.text)) == sorted(reader.shown)
    [file] = re.findall(r'href="/console(/chat/files/[^"]+)"', page.text)
    got = await ada.get(file)
    assert (got.content, got.headers["content-disposition"]) == (b"hi", 'attachment; filename="a.txt"')
    assert (await eve.get(file)).status_code == 404
    refused = await eve.post("/chat/say", {"text": "let me in", "key": "k1"}, Accept="application/json")
    assert refused.status_code == 403
    assert (await ada.get("/inbox")).status_code == 200


@ONE_DATABASE
async def test_what_is_none_of_theirs_does_not_exist_for_them(worker: AnsweringWorker, gateway: Gateway) -> None:
    other = await worker.fleet.add_group("other")
    bo = await sign_in_user(gateway, "bo", "admin", other)
    member = await sign_in_user(gateway, "cy", "member", worker.group)
    reads = await sign_in_user(gateway, "dee", scopes=("read",))
    asked = await worker.send("launch", "parked")
    dead = await worker.send("fail", "failed", platform_id="p1")
    [approval] = await worker.fleet.rows(Approval)
    session, letter = f"/sessions/{asked.session_id}", f"/dead/{dead.message_id}"
    decision = {"decision": "approve", "shown": approval.payload_hash}
    gets = (session, f"{session}/stream", f"{session}/earlier?before=9", f"{session}/turns/1", letter)
    posts: list[tuple[str, dict[str, Any]]] = [
        (f"{session}/say", {"text": "x", "key": "k"}),
        (f"{session}/cancel", {}),
        (f"{session}/replay", {"turns": "1", "key": "k"}),
        (f"{letter}/retry", {}),
        (f"/inbox/approvals/{approval.id}", decision),
    ]
    for path in gets:
        assert (await bo.get(path)).status_code == 404, path
        assert (await member.get(path)).status_code in (403, 404), path
    for path, fields in posts:
        assert (await bo.post(path, fields)).status_code == 404, path
        assert (await member.post(path, fields)).status_code in (403, 404), path
        assert (await reads.post(path, fields)).status_code == 403, path
        owner = await sign_in_user(gateway, "owner")
        assert (await owner.post(path, fields | {"csrf": "forged"})).status_code == 403, path
    assert says(await bo.get("/inbox"), "Nothing waits for you")
    assert await worker.acts() == []
    assert [row.status for row in await worker.fleet.rows(Approval)] == ["pending"]
