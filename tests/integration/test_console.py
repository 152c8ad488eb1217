"""The console over plain HTTP: who comes in and what they see, what forged requests and hostile names come to, and what
its forms do."""

import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Drivers
from gateway.console.app import PAGES
from gateway.console.security import COOKIE, CSRF_FIELD
from gateway.console.static_files import address_of, static_files
from models import AgentGroup, Audit, MessageIn, SignIn, Usage, Wiring
from models.base import now
from models.database import Database
from models.errors import DatabaseDownError
from models.fleet import note_limited, note_success
from models.sign_ins import new_secret
from models.tokens import SCOPES, list_tokens, new_token
from tests.support.console_pages import HOSTILE_TEXT
from tests.support.console_session import ConsoleUser, sign_in_user, text_of
from tests.support.database_kinds import SQLITE_ONLY
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with, wire
from tests.support.sample_fleet import settle_in
from workers.events import redis_client
from workers.operations.tokens import add_link, add_token, revoke

# As a browser asks for a page that somebody opens by hand.
BY_HAND = {"Accept": "text/html", "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
OWN_FORM = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
PAGES_OF_ALL = ("/", "/sessions", "/workflows", "/schedules", "/usage", "/groups", "/wirings")
PAGES_OF_OWNERS = ("/groups/new", "/wirings/new", "/people", "/audit")


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    fleet = await make_fleet(registry_with(tmp_path), origins="https://listed.example")
    async with gateway_to(fleet) as opened:
        yield opened


@pytest.fixture
async def group(gateway: Gateway) -> str:
    return await gateway.fleet.add_group(script="You said: {texts}")


@pytest.fixture
async def ada(gateway: Gateway) -> ConsoleUser:
    """An owner."""
    return await sign_in_user(gateway)


async def make_token(gateway: Gateway, name: str = "ada") -> str:
    token = new_token()
    await gateway.fleet.db.transact(lambda conn: add_token(conn, "cli", name, token, role="owner", scopes=list(SCOPES)))
    return token


async def sign_in(gateway: Gateway, token: str, after: str = "", **headers: str) -> httpx2.Response:
    said = OWN_FORM | {"Origin": f"http://127.0.0.1:{gateway.port}"} | headers
    return await gateway.client.post("/console/sign-in", data={"token": token, "after": after}, headers=said)


def cookie_of(answer: httpx2.Response) -> str:
    found = re.search(rf"{COOKIE}=([^;]+)", answer.headers.get("set-cookie", ""))
    return found[1] if found else ""


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_who_is_not_signed_in_is_led_to_the_door(gateway: Gateway) -> None:
    client = gateway.client
    for path in ("/", "/console"):
        assert (await client.get(path)).headers["location"] == "/console/"
    page = await client.get("/console/sessions", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/console/sign-in?next=/console/sessions")
    searched = await client.get("/console/sessions?q=a%26b", headers={"Accept": "text/html"})
    assert searched.headers["location"] == "/console/sign-in?next=/console/sessions%3Fq%3Da%2526b"
    part = await client.get("/console/overview/now", headers={"Accept": "text/html", "HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/console/sign-in")
    stream = await client.get("/console/overview/now", headers={"Accept": "text/event-stream"})
    assert stream.status_code == 401
    wrong = {"Cookie": f"{COOKIE}=nobody", "Accept": "text/html"}
    assert (await client.get("/console/", headers=wrong)).status_code == 303
    door = await client.get("/console/sign-in")
    assert door.status_code == 200
    assert "longshore token add NAME" in door.text


@pytest.mark.spec("G3")
async def test_a_token_signs_a_browser_in_and_its_end_signs_it_out(gateway: Gateway) -> None:
    token = await make_token(gateway)
    answer = await sign_in(gateway, f" {token}\n", "/console/sessions")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/sessions")
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Path=/console"))
    assert "Secure" not in cookie
    assert token not in cookie
    inside = {"Cookie": f"{COOKIE}={cookie_of(answer)}", "Accept": "text/html"}
    assert (await gateway.client.get("/console/sessions", headers=inside)).status_code == 200

    async def end(conn: AsyncConnection) -> None:
        [row] = await list_tokens(conn)
        await revoke(conn, "cli", row.id, row.user_id)

    await gateway.fleet.db.transact(end)
    assert (await gateway.client.get("/console/sessions", headers=inside)).status_code == 303


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_the_cookie_is_for_tls_only_where_the_browser_talks_tls(gateway: Gateway) -> None:
    token = await make_token(gateway)
    host = f"127.0.0.1:{gateway.port}"
    for headers in ({"Origin": f"https://{host}"}, {"X-Forwarded-Proto": "https"}):
        assert "Secure" in (await sign_in(gateway, token, **headers)).headers["set-cookie"]


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_wrong_tokens_are_all_told_the_same(gateway: Gateway) -> None:
    token = await make_token(gateway)
    texts = set()
    for wrong in ("", "x", token[:-1], token + "x", "' OR 1=1 --", "\x00", "ü" * 400):
        answer = await sign_in(gateway, wrong)
        assert answer.status_code == 403
        texts.add(text_of(answer))
    assert len(texts) == 1
    assert "This is no token, or it is revoked or over" in texts.pop()


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_who_guesses_is_told_to_wait_in_words(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), address_rate=1.0)
    async with gateway_to(fleet) as gateway:
        while (answer := await sign_in(gateway, "x")).status_code == 403:
            pass
        assert (answer.status_code, answer.headers["content-type"]) == (429, "text/plain; charset=utf-8")
        assert "too many requests: come back in" in answer.text


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_after_signing_in_nobody_is_sent_elsewhere(gateway: Gateway) -> None:
    token = await make_token(gateway)
    for elsewhere in ("https://evil.example/", "//evil.example", "/console//evil.example", "/\\evil.example", "/v1/x"):
        answer = await sign_in(gateway, token, elsewhere)
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/")


@pytest.mark.spec("G3")
async def test_a_link_signs_one_browser_in_once(gateway: Gateway) -> None:
    link = new_secret()
    await gateway.fleet.db.transact(lambda conn: add_link(conn, "cli", "operator", link))
    address = f"/console/enter?code={link}"
    for fetched in (
        {},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        BY_HAND | {"Sec-Purpose": "prefetch"},
    ):
        shown = await gateway.client.get(address, headers=fetched)
        assert (shown.status_code, cookie_of(shown)) == (200, "")
        assert "Come aboard" in shown.text
    assert (await gateway.client.head(address, headers=BY_HAND)).status_code == 405
    entered = await gateway.client.get(address, headers=BY_HAND)
    assert (entered.status_code, entered.headers["location"]) == (303, "/console/")
    inside = {"Cookie": f"{COOKIE}={cookie_of(entered)}", "Accept": "text/html"}
    assert "operator" in (await gateway.client.get("/console/", headers=inside)).text
    again = await gateway.client.get(address, headers=BY_HAND)
    assert (again.status_code, cookie_of(again)) == (403, "")
    assert "This link was used" in again.text


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_the_button_of_a_link_works_too(gateway: Gateway) -> None:
    link = new_secret()
    await gateway.fleet.db.transact(lambda conn: add_link(conn, "cli", "operator", link))
    said = OWN_FORM | {"Origin": f"http://127.0.0.1:{gateway.port}"}
    entered = await gateway.client.post("/console/enter", data={"code": link}, headers=said)
    assert (entered.status_code, bool(cookie_of(entered))) == (303, True)


@pytest.mark.spec("G3")
async def test_who_comes_in_and_goes_is_in_the_audit_log_and_who_is_refused_is_not(gateway: Gateway) -> None:
    token, link, browser = await make_token(gateway), new_secret(), {"Accept": "text/html"}
    await gateway.fleet.db.transact(lambda conn: add_link(conn, "cli", "operator", link))
    before = len(await gateway.fleet.rows(Audit))
    for _ in range(3):
        assert (await sign_in(gateway, token[:-1])).status_code == 403
        assert (await gateway.client.get(f"/console/enter?code={link[:-1]}", headers=BY_HAND)).status_code == 403
    assert len(await gateway.fleet.rows(Audit)) == before
    by_token = ConsoleUser(gateway, "ada", cookie_of(await sign_in(gateway, token)))
    await gateway.client.get(f"/console/enter?code={link}", headers=BY_HAND | browser)
    assert (await gateway.client.get(f"/console/enter?code={link}", headers=BY_HAND)).status_code == 403
    page = text_of(await by_token.get("/audit?act=console"))
    assert (await by_token.post("/sign-out")).status_code == 303
    lines = sorted(await gateway.fleet.rows(Audit), key=lambda row: row.id)[before:]
    [token_row] = await gateway.fleet.db.read(list_tokens)
    assert [(row.who, row.act, row.target, row.detail) for row in lines] == [
        ("web:ada", "console.sign_in", "web:ada", {"by": "token", "token": token_row.id}),
        ("web:operator", "console.sign_in", "web:operator", {"by": "link"}),
        ("web:ada", "console.sign_out", "web:ada", {}),
    ]
    assert page.count("console.sign_in") == 2
    assert "token.add" not in page


@pytest.mark.spec("G3")
async def test_the_audit_log_is_narrowed_by_who_what_and_agent(
    gateway: Gateway, ada: ConsoleUser, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.pages.audit._SHOWN", 2)
    assert "Nothing was done yet" in (await ada.get("/audit")).text
    await make_token(gateway, "100%")
    await ada.post("/wirings/new", {"agent": "demo", "channel": "fake", "chat": "plaza", "scope": "all"})
    for name in ("Demo", "Other", "Third"):
        await ada.post("/groups/demo", {"name": name, "provider": "scripted"})

    async def rows(query: str) -> tuple[list[str], str]:
        page = await ada.get(f"/audit?{query}")
        more = re.search(r'href="/console/audit\?([^"]+)" rel="next"', page.text)
        return re.findall(r'class="chip mono"[^>]*>([^<]+)<', page.text), html.unescape(more[1]) if more else ""

    assert await rows("who=cli") == (["token.add"], "")
    assert await rows("act=wiring") == (["wiring.put"], "")
    assert await rows("who=web%3Aada&agent=demo&act=wiring.put") == (["wiring.put"], "")
    assert await rows("who=%25") == ([], "")  # as it is written, and not any
    first, older = await rows("agent=demo&act=group")
    assert first == ["group.update"] * 2
    assert (await rows(older))[0] == ["group.update"]
    assert "Show all" in (await ada.get("/audit?act=nothing")).text


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_signing_out_ends_it_also_for_a_copy_of_the_cookie(gateway: Gateway, ada: ConsoleUser) -> None:
    answer = await ada.post("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await ada.get("/")).status_code == 303


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_a_sign_in_ends_when_its_time_is_over(gateway: Gateway, ada: ConsoleUser) -> None:
    assert (await ada.get("/")).status_code == 200
    await gateway.fleet.execute(update(SignIn).values(expires_at=now(-1)))
    assert (await ada.get("/")).headers["location"].startswith("/console/sign-in")


def console_routes() -> list[tuple[str, str]]:
    """Every method and path of the console."""
    routes = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
    return [(method, route.path) for route in routes for method in route.methods or ()]


def filled(path: str) -> str:
    return re.sub(r"\{what\}", "pause", re.sub(r"\{(?!what)[^}]+\}", "demo", path))


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_no_form_is_taken_that_is_forged(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    eve = await sign_in_user(gateway, "eve", "member", group)
    posts = [filled(path) for method, path in console_routes() if method == "POST"]
    assert len(posts) > 10
    before = await gateway.fleet.rows(Audit)
    tokens = ("", "x", eve.csrf, ada.csrf[:-1])
    foreign: tuple[dict[str, str], ...] = (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "https://listed.example"},  # it may use the API
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": ada.base + "0"},
    )
    for path in posts:
        every = path == "/sign-out"  # of the others one each
        if path not in ("/sign-in", "/enter"):  # nobody is signed in there yet
            for token in tokens if every else tokens[:1]:
                answer = await ada.post(path, {CSRF_FIELD: token})
                assert (answer.status_code, "load the page again" in text_of(answer)) == (403, True), path
        for headers in foreign if every else foreign[:1]:
            answer = await ada.post(path, {"code": "x", "token": "x"}, **headers)
            assert (answer.status_code, "othing was done" in text_of(answer)) == (403, True), (path, headers)
        unsaid = {"Cookie": f"{COOKIE}={ada.secret}"}
        answer = await gateway.client.post(f"/console{path}", data={CSRF_FIELD: ada.csrf}, headers=unsaid)
        assert answer.status_code == 403, path
    assert await gateway.fleet.rows(Audit) == before
    assert (await ada.get("/")).status_code == 200, "still signed in"


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_whoever_is_not_signed_in_reaches_no_page_at_all(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    open_ones = ("/sign-in", "/enter")
    for method, path in console_routes():
        if path in open_ones:
            continue
        headers = {"Origin": ada.base, "Accept": "application/json"}
        answer = await gateway.client.request(method, f"/console{filled(path)}", headers=headers)
        assert answer.status_code == 401, (method, path)
        assert "You are not signed in" in answer.text


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_every_answer_forbids_what_is_not_ours(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    gets = [filled(path) for method, path in console_routes() if method == "GET"]
    answers = [await ada.glance(path) for path in gets if path != "/providers/list"]
    answers += [await ada.get(path) for path in ("/nowhere", "/static/console.css", "/static/nothing.css")]
    answers += [await ada.post("/groups/new"), await ada.post("/nowhere"), await ada.post("/audit")]
    answers.append(await gateway.client.get("/console/sessions", headers={"Accept": "text/html"}))
    assert {answer.status_code for answer in answers} >= {200, 303, 404, 405, 422}
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "immutable" in answer.headers["cache-control"] or answer.headers["cache-control"] in (
            "no-store",
            "no-cache",
        )
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:", answer.text), (
                answer.url
            )


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_what_goes_wrong_is_a_page_for_people(
    gateway: Gateway, ada: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = await ada.get("/nowhere")
    assert (nowhere.status_code, "There is no such page" in nowhere.text) == (404, True)
    polled = await ada.get("/sessions?after=nonsense", **{"HX-Request": "true"})
    assert (polled.status_code, polled.headers["hx-reswap"]) == (422, "none")
    unread = await ada.get("/sessions?status=odd")
    assert (unread.status_code, "look at: status" in text_of(unread)) == (422, True)
    assert text_of(unread).count("look at: status") == 1
    form = await ada.post("/groups/nobody", {}, **{"HX-Request": "true"})
    assert (form.status_code, form.headers["hx-retarget"]) == (404, "#notice")
    assert re.search(r'<div id="notice"[^>]*>.*There is no such agent', form.text, re.S)

    async def away(*_: Any, **__: Any) -> None:
        raise DatabaseDownError("the database does not answer (a secret address)")

    monkeypatch.setattr(Database, "read", away)
    down = await ada.get("/sessions")
    assert (down.status_code, "The database does not answer" in down.text) == (503, True)
    assert "secret address" not in down.text


@pytest.mark.spec("G3")
async def test_hostile_names_are_shown_as_they_are_and_do_nothing(gateway: Gateway, ada: ConsoleUser) -> None:
    fleet = gateway.fleet
    agent = await fleet.add_group("demo", "{texts}", name=HOSTILE_TEXT)
    await wire(fleet, agent, "web", HOSTILE_TEXT)
    await fleet.send(HOSTILE_TEXT, platform_id=HOSTILE_TEXT, thread_id=HOSTILE_TEXT, sender_id=HOSTILE_TEXT)
    await fleet.settle_down()
    task = {"kind": "task", "recurrence": "0 6 * * *", "platform_id": HOSTILE_TEXT}
    made = await fleet.send(HOSTILE_TEXT, **task)
    await sign_in_user(gateway, HOSTILE_TEXT, "admin")
    await ada.post("/wirings/new", {"agent": "demo", "channel": "web", "chat": HOSTILE_TEXT, "pattern": "x"})
    [wiring] = await fleet.rows(Wiring)
    of_one = ("/providers", f"/schedules/{made.message_id}", "/groups/demo", f"/wirings/{wiring.id}")
    wrong = await ada.post(
        "/wirings/new", {"agent": "demo", "channel": HOSTILE_TEXT, "chat": HOSTILE_TEXT, "pattern": HOSTILE_TEXT}
    )
    shown = 0
    pages = [await ada.get(path) for path in (*PAGES_OF_ALL, *PAGES_OF_OWNERS, *of_one, "/sessions?q=%3Cscript%3E")]
    for page in [*pages, wrong, await ada.get(f"/sessions?q={HOSTILE_TEXT}")]:
        assert page.status_code in (200, 422), (page.url, page.text)
        assert "<script>alert" not in page.text, page.url
        assert "<img src=x" not in page.text, page.url
        shown += "&lt;script&gt;alert(1)" in page.text
    assert shown >= 10


@pytest.mark.spec("G3")
async def test_everybody_sees_what_is_theirs(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    fleet = gateway.fleet
    other = await fleet.add_group("secretive", "{texts}")
    for folder in ("demo", "secretive"):
        await fleet.send("hello", agent_group=folder, platform_id=f"place-of-{folder}")
    await fleet.settle_down()
    task = await fleet.send("hush", agent_group="secretive", kind="task", recurrence="@daily")
    grace = await sign_in_user(gateway, "grace", "admin", group)
    lin = await sign_in_user(gateway, "lin", "member", group)

    assert "place-of-secretive" in (await ada.get("/sessions")).text
    for path in PAGES_OF_ALL:
        page = await grace.get(path)
        assert page.status_code == 200
        assert "secretive" not in page.text, path
    for path in (*PAGES_OF_OWNERS, "/providers", "/providers/list", "/providers/list?again=true"):
        assert (await grace.get(path)).status_code == 403, path
    assert "/console/providers" not in (await grace.get("/")).text
    for path in ("/groups/secretive", f"/schedules/{task.message_id}"):
        assert (await grace.get(path)).status_code == 404, path
    assert (await grace.post(f"/schedules/{task.message_id}/pause")).status_code == 404
    assert (await grace.post("/groups/demo", {"name": "mine"})).status_code == 403
    assert "disabled" in (await grace.get("/groups/demo")).text

    home = await lin.get("/")
    assert home.status_code == 200
    assert ("/console/chat" in home.text, "/console/inbox" in home.text) == (True, True)
    assert "/console/sessions" not in home.text
    for path in ("/sessions", "/overview/now", "/groups", "/groups/demo", "/usage", "/people"):
        assert (await lin.get(path)).status_code == 403, path
    assert {row.status for row in await fleet.inbox() if row.kind == "task"} == {"pending"}
    assert other


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_a_sign_in_is_good_for_its_scopes_only(gateway: Gateway, group: str) -> None:
    task = await gateway.fleet.send("x", kind="task", recurrence="@daily")
    reader = await sign_in_user(gateway, "reader", "owner", scopes=("read",))
    for path in (*PAGES_OF_ALL, "/providers"):
        assert (await reader.get(path)).status_code == 200, path
    for path in PAGES_OF_OWNERS:
        assert (await reader.get(path)).status_code == 403, path
    page = await reader.get("/schedules")
    assert "Pause" not in page.text
    for path in (f"/schedules/{task.message_id}/pause", f"/schedules/{task.message_id}/run", "/groups/demo"):
        answer = await reader.post(path)
        assert (answer.status_code, "lacks the scope" in text_of(answer)) == (403, True)
    sender = await sign_in_user(gateway, "sender", "owner", scopes=("send",))
    assert (await sender.get("/sessions")).status_code == 403
    assert "lacks the scope" in (await sender.get("/")).text


@pytest.mark.spec("G3")
async def test_a_task_is_paused_resumed_run_and_cancelled(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    fleet = gateway.fleet
    task = (await fleet.send("Count the **containers**", kind="task", recurrence="0 6 * * *")).message_id
    page = text_of(await ada.get("/schedules"))
    assert "Count the **containers**" in page
    assert "At 06:00 every day" in page
    assert "<strong>containers</strong>" in (await ada.get(f"/schedules/{task}")).text
    paused = text_of(await ada.post(f"/schedules/{task}/pause"))
    assert ("is paused" in paused, "Resume" in paused) == (True, True)
    assert "goes on" in text_of(await ada.post(f"/schedules/{task}/resume?back=task"))
    fleet.bells.wakes.clear()
    assert "runs now" in text_of(await ada.post(f"/schedules/{task}/run"))
    assert len(fleet.bells.wakes) == 1
    twice = await ada.post(f"/schedules/{task}/run", {}, **{"HX-Request": "true"})
    assert (twice.status_code, twice.headers["hx-retarget"]) == (409, "#notice")
    await fleet.settle_down()
    assert "done" in text_of(await ada.get(f"/schedules/{task}"))
    assert "is cancelled" in text_of(await ada.post(f"/schedules/{task}/cancel"))
    assert "Nothing is scheduled" in (await ada.get("/schedules")).text
    acts = [(row.who, row.act) for row in await fleet.rows(Audit, Audit.id)]
    assert acts == [("web:ada", f"task.{act}") for act in ("pause", "resume", "run", "cancel")]
    log = text_of(await ada.get("/audit"))
    assert ("task.cancel" in log, "web:ada" in log) == (True, True)


@pytest.mark.spec("G3")
async def test_an_agent_is_made_and_changed_and_mistakes_are_told_beside_their_field(
    gateway: Gateway, ada: ConsoleUser
) -> None:
    fleet = gateway.fleet
    assert "No agent yet" in (await ada.get("/groups")).text
    new = {"folder": "helper", "provider": "scripted", "options": "script: hi", "daily_usd": "2.5"}
    made = await ada.post("/groups/new", new)
    assert (made.status_code, made.headers["hx-push-url"]) == (200, "/console/groups/helper")
    assert "script: hi" in made.text
    mistakes = {
        "folder": ({"folder": "No Spaces"}, "cannot be a folder"),
        "provider": ({"folder": "other", "provider": "nobody"}, "nobody"),
        "fallbacks": ({"folder": "other", "provider": "scripted", "fallbacks": "scripted"}, "another provider"),
        "daily_usd": ({"folder": "other", "daily_usd": "much"}, "not an amount"),
        "options": ({"folder": "other", "options": "[1"}, "does not read as YAML"),
        "policy": ({"folder": "other", "provider": "scripted", "policy": "nonsense: 1"}, "policy"),
        # A few such lines would fill the memory.
        "options ": ({"folder": "other", "options": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]"}, "write it out"),
    }
    for field, (typed, complaint) in mistakes.items():
        answer = await ada.post("/groups/new", typed)
        assert answer.status_code == 422, field
        hint = re.search(rf'id="h-{field.strip()}">([^<]*)<', answer.text)
        assert hint is not None
        assert complaint in hint[1], (field, hint[1])
    taken = await ada.post("/groups/new", {"folder": "helper", "provider": "scripted"})
    assert "there is already an agent" in text_of(taken)

    shown = {"name": "Helper", "provider": "scripted", "options": "script: ho", "daily_usd": ""}
    assert "Saved" in text_of(await ada.post("/groups/helper", shown))
    [row] = await fleet.rows(AgentGroup)
    assert (row.name, row.config) == ("Helper", {"provider_options": {"script": "ho"}})
    assert "Nothing was changed" in text_of(await ada.post("/groups/helper", shown))
    assert [line.act for line in await fleet.rows(Audit, Audit.id)] == ["group.add", "group.update"]


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_a_secret_of_an_agent_is_not_shown_and_stays_until_it_is_taken_away(
    gateway: Gateway, ada: ConsoleUser
) -> None:
    options = {"script": "hi", "api_key": "sk-1234"}
    await gateway.fleet.add_group(config={"provider_options": options})
    page = await ada.get("/groups/demo")
    assert ("sk-1234" in page.text, "api_key: (set)" in page.text) == (False, True)
    form = {"name": "Demo", "provider": "scripted", "options": "script: hi\napi_key: (set)"}
    assert "Saved" in text_of(await ada.post("/groups/demo", form))
    [row] = await gateway.fleet.rows(AgentGroup)
    assert (row.name, row.config) == ("Demo", {"provider_options": options})
    await ada.post("/groups/demo", form | {"options": "script: hi"})
    [row] = await gateway.fleet.rows(AgentGroup)
    assert row.config == {"provider_options": {"script": "hi"}}


@pytest.mark.spec("G3")
async def test_an_agent_is_wired_and_unwired(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    fleet = gateway.fleet
    assert "No agent listens anywhere yet" in (await ada.get("/wirings")).text
    new = {"agent": "demo", "channel": "web", "chat": "lobby", "mention_only": "on", "strangers": "public"}
    listed = text_of(await ada.post("/wirings/new", new | {"scope": "all", "follow_up": "interrupt", "priority": "3"}))
    assert ("demo listens on web lobby" in listed, "mentions; is interrupted by more" in listed) == (True, True)
    [row] = await fleet.rows(Wiring)
    assert (row.trigger_rules, row.follow_up, row.priority) == ({"mentionOnly": True}, "interrupt", 3)
    form = await ada.get(f"/wirings/{row.id}")
    assert re.search(r'name="mention_only" checked', form.text)
    for field, value, complaint in (("pattern", "(", "pattern"), ("priority", "high", "whole number")):
        answer = await ada.post(f"/wirings/{row.id}", new | {"scope": "all", "follow_up": "enqueue", field: value})
        hint = re.search(rf'id="h-{field}">([^<]*)<', answer.text)
        assert (answer.status_code, hint is not None and complaint in hint[1]) == (422, True), field
    # Which agent and where stays, whatever is sent.
    await ada.post(f"/wirings/{row.id}", {"agent": "other", "chat": "x", "scope": "all", "follow_up": "enqueue"})
    [row] = await fleet.rows(Wiring)
    assert (row.agent_group_id, row.trigger_rules, row.follow_up) == (group, {}, "enqueue")
    assert "no longer listens" in text_of(await ada.post(f"/wirings/{row.id}/remove"))
    assert await fleet.rows(Wiring) == []
    assert (await ada.post(f"/wirings/{row.id}/remove")).status_code == 404


@pytest.mark.spec("G3")
async def test_the_overview_says_how_things_stand(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    fleet = gateway.fleet
    quiet = text_of(await ada.get("/"))
    assert ("No turn is under way" in quiet, "No worker is there" in quiet) == (True, True)
    await fleet.send("hello", platform_id="quay")
    waiting = text_of(await ada.get("/overview/now"))
    assert re.search(r"Waiting to begin 1 ", waiting)
    assert "agent.scripted no worker 1" in re.sub(r"\s+", " ", waiting)
    await fleet.settle_down()
    over = text_of(await ada.get("/"))
    assert "0 of 1 turns" in over
    assert "1 in 24 hours" in over
    dead = (await fleet.inbox())[0].id
    await fleet.execute(MessageIn.__table__.update().where(MessageIn.id == dead).values(status="failed"))  # type: ignore[attr-defined]
    assert "given up; try them again" in text_of(await ada.get("/overview/now"))


@pytest.mark.spec("G3")
async def test_sessions_are_found_by_place_agent_state_and_id(gateway: Gateway, ada: ConsoleUser, group: str) -> None:
    fleet = gateway.fleet
    await fleet.add_group("other", "{texts}")
    for place in ("north-quay", "south_quay", "100%"):
        await fleet.send("hello", platform_id=place)
    await fleet.send("hello", agent_group="other", platform_id="mole")
    session = (await fleet.sessions())[0]
    asked = {
        "?q=NORTH": ["north-quay"],
        "?q=_": ["south_quay"],
        "?q=%25": ["100%"],
        "?q=quay&agent=demo": ["south_quay", "north-quay"],
        "?agent=other": ["mole"],
        f"?q={session.id[-8:]}": ["north-quay"],
        "?status=closed": [],
        "?q=zebra": [],
    }
    for query, places in asked.items():
        page = await ada.get(f"/sessions{query}")
        assert re.findall(r"</span> (north-quay|south_quay|100%|mole)\s*<", page.text) == places, query
    assert "Nothing like that" in page.text


@pytest.mark.spec("G3")
async def test_long_lists_go_on_page_by_page(
    gateway: Gateway, ada: ConsoleUser, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in ("sessions", "audit"):
        monkeypatch.setattr(f"gateway.console.pages.{page}._SHOWN", 2)
    for number in range(5):
        await gateway.fleet.send("hello", platform_id=f"quay-{number}")
        await ada.post("/wirings/new", {"agent": "demo", "channel": "web", "chat": f"quay-{number}"})
    for path, named in (("/sessions?q=quay&status=active", r"</span> (quay-\d)"), ("/audit", r">web (quay-\d)<")):
        seen: list[str] = []
        following: str | None = path
        while following is not None:
            page_of_two = (await ada.get(following)).text
            seen += re.findall(named, page_of_two)
            older = re.search(r'href="/console([^"]*)" rel="next"', page_of_two)
            following = html.unescape(older[1]) if older else None
        assert seen == [f"quay-{number}" for number in reversed(range(5))], path


@pytest.mark.spec("G3")
async def test_a_busy_fleet_is_told_in_numbers(gateway: Gateway, ada: ConsoleUser) -> None:
    await settle_in(gateway.fleet)
    redis = redis_client(gateway.fleet.runtime.settings.redis_url)
    message = {"headers": {"task": "messages.ingest"}, "properties": {"delivery_tag": "1"}, "body": ""}
    stray = f"mesages-{new_secret()}"  # a typing mistake
    await redis.rpush(stray, json.dumps(message))
    try:
        overview = text_of(await ada.get("/"))
    finally:
        await redis.delete(stray)
        await redis.aclose()
    for said in ("running search_files", "attempt 2", "waits for a person", "14 of 40", "2 wait for people", stray):
        assert said in overview, said
    assert f"longshore queues rescue '{stray}'" in (await ada.get("/overview/now")).text.replace("&#39;", "'")
    pace = [int(number) for number in re.findall(r"UTC: (\d+)", (await ada.get("/overview/pace")).text)]
    turns = await gateway.fleet.turns()
    assert (len(pace), sum(pace)) == (24, len(turns))

    sessions = text_of(await ada.get("/sessions"))
    for said in ("at work running search_files", "at work asking the model", "waits for a person for 24 h at most"):
        assert said in sessions, said

    usage = text_of(await ada.get("/usage?days=30&by=model"))
    spent = await gateway.fleet.rows(Usage)
    total = sum(float(row.cost_usd or 0) for row in spent)
    assert f"${total:,.2f}" in usage
    assert f"{len(spent)}" in usage
    assert re.search(r"invoices everybody \$0\.\d\d of \$1\.00", usage)
    page = await ada.get("/usage?days=7&by=day")
    assert len(re.findall(r"<title>", page.text)) == 1 + 7, "a column for each day"
    counts = await ada.get("/counts")
    assert re.search(r'id="count-inbox"[^>]*>2<', counts.text)


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_of_a_provider_is_said_what_is_missing_and_how_to_get_it(
    gateway: Gateway, ada: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    registry = gateway.fleet.runtime.registry
    known = {name: registry.providers.get(name) for name in ("anthropic", "scripted")}
    registry.providers = Drivers("provider", known)
    await gateway.fleet.db.transact(lambda conn: note_limited(conn, "scripted", "", "429: <slowly>", 240))
    told = text_of(await ada.get("/providers/list"))
    assert "set ANTHROPIC_API_KEY where the workers run" in told
    assert "nobody reads agent.scripted : celery -A workers.app worker -Q agent.scripted" in told
    assert "limited for 4 min more 429: &lt;slowly&gt;" in told
    await gateway.fleet.db.transact(lambda conn: note_success(conn, "scripted", ""))
    assert "limited" in text_of(await ada.get("/providers/list")), "programs are not started for every look"
    assert "limited" not in text_of(await ada.get("/providers/list?again=true"))


@pytest.mark.spec("G3")
@SQLITE_ONLY
async def test_files_are_kept_for_good_and_never_an_old_one(gateway: Gateway) -> None:
    client = gateway.client
    for name, file in static_files().items():
        answer = await client.get(address_of(name))
        assert (answer.status_code, answer.content) == (200, file.body)
        assert "immutable" in answer.headers["cache-control"]
        again = await client.get(f"/console/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")
    for path in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "vendor", ""):
        assert (await client.get(f"/console/static/{path}")).status_code == 404
