"""The console's living pages in a real browser, with a fleet behind them that works: an operator's whole way through a
session, and the same on a phone, in the dark, and without a mouse."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from models.tokens import SCOPES, new_token
from tests.support.browser import Browsing, press
from tests.support.console_scene import Scene, open_scene, send_chat_message, watch_layout_shifts
from tests.support.console_session import sign_in_user
from tests.support.open_gateway import gateway_to
from tests.support.running_fleet import LivingFleet
from workers.operations.tokens import add_token

pytestmark = pytest.mark.spec("G3")

WORDS = " ".join(f"word{number}" for number in range(60))
SCRIPT = rf"""
- when: "choose"
  play:
    - tool: ask_user_question
      with: {{title: "A choice", question: "What shall it be?", options: ["Tea", "Coffee"], timeout: 3600}}
    - answer: "You chose: {{result}}."
- when: "launch"
  play: [{{tool: launch, with: {{what: prod}}}}, {{answer: "so: {{result}}"}}]
- when: "fail"
  play: [{{fail: {{class: auth, message: "the key is not accepted"}}}}]
- when: "slow"
  play: [{{say: "one moment"}}, {{wait: 600}}, {{answer: never}}]
- when: "hostile"
  play:
    - think: "<img src=x onerror=document.title='taken'>"
    - say: "<script>document.title='taken'</script> [here](javascript:document.title='taken')"
    - tool: clock
      with: {{timezone: "<svg onload=document.title='taken'>"}}
    - answer: "<script>document.title='taken'</script> **bold** ![p](http://evil.example/x.png)"
- when: "disguised"
  play:
    - tool: ask_user_question
      with:
        title: "<b id=lamp hx-get=/console/people hx-trigger=load>"
        question: "<p id=notice hx-get=/console/people hx-trigger=load>x</p> &#x202E;txt [a](/x 'b&#x2066;')"
        options: ["3", "<i hx-get=/console/people hx-trigger=load>", "2", "1"]
        timeout: 3600
    - answer: "You chose: {{result}}."
- when: "long"
  play: [{{tool: clock}}, {{answer: "{WORDS}"}}, {{listen: 60}}]
- play: [{{tool: clock}}, {{answer: "You said: **{{texts}}**"}}]
"""


@pytest_asyncio.fixture(loop_scope="session")
async def scene(fleet: LivingFleet) -> AsyncIterator[Scene]:
    async with open_scene(fleet, SCRIPT, 0.005) as scene:
        yield scene


async def test_an_operator_signs_in_talks_and_decides(scene: Scene, page: Page) -> None:
    session = await scene.begin()
    token = new_token()
    owner: dict[str, Any] = {"role": "owner", "scopes": tuple(SCOPES)}
    await scene.fleet.db.transact(lambda conn: add_token(conn, "cli", "cy", token, **owner))
    await page.goto(f"{scene.ada.base}/console/sessions/{session}")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("You said: hello")).to_be_visible()

    await watch_layout_shifts(page)
    await send_chat_message(page, "a long story")
    await expect(page.locator(".streaming")).to_contain_text("word59")  # written, and the turn still goes on
    await send_chat_message(page, "that is enough")
    await expect(page.get_by_text("joined while it ran")).to_be_visible()
    await expect(page.locator(".bubble-out").last).to_contain_text("word59")
    await expect(page.locator(".streaming")).to_have_count(0)
    assert await page.evaluate("window.shifted") < 0.1
    assert await page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 2")

    await send_chat_message(page, "let me choose")
    await page.get_by_role("button", name="Coffee").click()
    await expect(page.get_by_text("You chose: Coffee.")).to_be_visible()
    await send_chat_message(page, "launch it")
    card = page.get_by_role("article", name="Approval")
    await expect(card).to_contain_text('"what": "prod"')
    await card.get_by_role("button", name="Approve, once").click()
    await expect(card).to_contain_text("approved by web:cy")
    await expect(page.get_by_text("so: launched prod")).to_be_visible()

    await send_chat_message(page, "something hostile")
    await expect(page.get_by_text("bold", exact=True)).to_be_visible()
    await expect(page.get_by_text("<script>document.title='taken'</script>").first).to_be_visible()
    await page.locator("details.call").last.click()
    await expect(page.locator(".step-facts").last).to_contain_text("<svg onload=")
    assert "taken" not in await page.title()
    assert await page.locator("main img, main svg, main script").count() == 0
    # What was added live is what is shown after loading the page again.
    keys = "[...document.querySelectorAll('.entry')].map((entry) => entry.id + entry.className)"
    live = await page.evaluate(keys)
    await page.reload()
    assert await page.evaluate(keys) == live


@pytest.mark.spec("M11", "M15")
async def test_a_turn_is_cancelled_a_letter_retried_and_a_session_replayed(scene: Scene, page: Page) -> None:
    session = await scene.begin()
    await scene.ada.open_page(page, f"/sessions/{session}")
    await send_chat_message(page, "be slow")
    await expect(page.get_by_text("one moment")).to_be_visible()
    await page.get_by_role("button", name="Cancel turn").click()
    await page.get_by_role("button", name="Do it").click()
    await expect(page.locator(".turn-cancelled")).to_contain_text("cancelled by web:ada")
    await expect(page.locator("#state")).to_contain_text("idle")

    await send_chat_message(page, "fail please")
    await page.get_by_role("link", name="after 1 tries: auth").click()
    await expect(page.get_by_text("the key is not accepted")).to_be_visible()
    await page.get_by_label("Provider and model").select_option("spare big")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("status").filter(has_text="back in the queue of demo on spare (big)")).to_be_visible()
    await page.goto(f"{scene.ada.base}/console/sessions/{session}")
    await expect(page.get_by_text("The spare one says: fail please")).to_be_visible()

    await page.get_by_text("Replay on this or another provider").click()
    for box in await page.get_by_role("checkbox", name="all of the session").all():
        await box.check()
    await page.locator("#f-choice").select_option("spare small")
    await page.get_by_role("button", name="Replay").click()
    pairs = page.locator(".pair")
    await expect(pairs.first.get_by_role("region", name="Original")).to_contain_text("You said: hello")
    replayed = pairs.first.get_by_role("region", name="Replay")
    await expect(replayed.get_by_text("The spare one says: hello", exact=True)).to_be_visible()
    await expect(pairs.first.locator(".diff ins").first).to_contain_text("The")
    left = await pairs.first.get_by_role("region", name="Original").bounding_box()
    right = await replayed.bounding_box()
    assert left is not None
    assert right is not None
    assert (left["y"], left["x"] + left["width"] < right["x"]) == (right["y"], True)


async def test_a_question_that_comes_in_disguise_is_text_and_its_buttons_answer_what_they_say(
    scene: Scene, page: Page
) -> None:
    """What a stream brings is no different from what a page has: nothing in it asks, hides, or takes another's id."""
    session = await scene.begin()
    await scene.ada.open_page(page, f"/sessions/{session}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await send_chat_message(page, "disguised")
    card = page.locator("article.ask")
    await expect(card).to_contain_text("⟨U+202E⟩txt")
    await expect(card.get_by_role("link", name="a")).to_have_attribute("title", "b⟨U+2066⟩")
    assert [await page.locator(f"#{name}").count() for name in ("notice", "lamp")] == [1, 1]
    assert await card.locator("[hx-trigger], [hx-get], b, i").count() == 0
    await card.get_by_role("button", name="1", exact=True).click()
    await expect(page.locator("#turns")).to_contain_text("You chose: 1.")
    assert [url for url in asked if "/console/people" in url] == []


async def test_the_stream_goes_on_after_the_gateway_was_restarted(fleet: LivingFleet, browsing: Browsing) -> None:
    await fleet.add_group(script=SCRIPT)
    page = await browsing.open()
    async with gateway_to(fleet) as gateway:
        scene = Scene(fleet, gateway, await sign_in_user(gateway))
        session = await scene.begin("one")
        await scene.ada.open_page(page, f"/sessions/{session}")
        await page.evaluate("window.loadedOnce = true")
        # What only asks now and then would complain in words of its own.
        await page.evaluate("document.querySelectorAll('[data-poll]').forEach((part) => part.remove())")
        await expect(page.get_by_text("You said: one")).to_be_visible()
    await expect(page.locator("#lamp")).to_be_visible()
    await scene.begin("two")
    browsing.expect("ERR_CONNECTION_REFUSED")
    async with asyncio.timeout(20):
        while not browsing.complaints:  # it has come back in vain
            await asyncio.sleep(0.05)
    async with gateway_to(fleet, port=gateway.port):
        await expect(page.get_by_text("You said: two")).to_be_visible()
        await expect(page.locator("#lamp")).to_be_hidden()
        await send_chat_message(page, "three")
        await expect(page.get_by_text("You said: three")).to_be_visible()
        assert await page.locator(".turn").count() == 3
        assert await page.locator(".bubble-out").count() == 3
        assert await page.evaluate("window.loadedOnce") is True
        await page.goto("about:blank")


async def test_on_a_phone_and_in_the_dark(scene: Scene, browsing: Browsing) -> None:
    await scene.begin("launch", "parked", platform_id="p1")
    await scene.begin("fail " + "x" * 300, "failed", platform_id="p2")
    session = await scene.begin()
    page = await browsing.open(phone=True, dark=True)
    await scene.ada.open_page(page, f"/sessions/{session}")
    await send_chat_message(page, "hostile")
    await expect(page.get_by_text("bold", exact=True)).to_be_visible()
    for path in (f"/sessions/{session}", "/inbox", "/dead", "/chat"):
        await page.goto(f"{scene.ada.base}/console{path}")
        assert await page.evaluate("document.documentElement.scrollWidth <= screen.width"), path
        await expect(page.locator("body")).to_have_css("background-color", "rgb(9, 19, 24)")
    await page.get_by_label("Message").fill("from a phone")
    await page.get_by_role("button", name="Send").tap()
    await expect(page.get_by_text("You said: from a phone")).to_be_visible()
    await expect(page.locator("#say-text")).to_be_in_viewport()


async def test_without_a_mouse(scene: Scene, page: Page) -> None:
    session = await scene.begin("launch", "parked", platform_id="p1")
    other = await scene.begin("launch", "parked", platform_id="p2")
    await scene.ada.open_page(page, "/inbox")
    # Until htmx has begun, a form is an ordinary one, and leads to the page without what was decided.
    await expect(page.locator("form[hx-post]").first).to_have_attribute("data-htmx-powered", "true")
    await press(page, "j")
    await press(page, "a")
    await expect(page.get_by_text("approved by web:ada")).to_be_visible()
    await press(page, "j")
    await press(page, "d")
    await expect(page.locator("#confirm")).to_contain_text("Deny this?")
    await press(page, "Tab")
    await press(page, "Enter")
    await expect(page.get_by_text("denied by web:ada")).to_be_visible()
    await press(page, "g")
    await press(page, "s")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    await press(page, "j")
    await press(page, "Enter")
    await page.wait_for_url("**/sessions/*-*")
    assert page.url.rpartition("/")[2] in (session, other)
    await press(page, "/")
    await page.keyboard.type("one line")
    await press(page, "Shift+Enter")
    await page.keyboard.type("and another")
    await press(page, "Enter")
    await expect(page.get_by_text("You said: one line and another")).to_be_visible()
