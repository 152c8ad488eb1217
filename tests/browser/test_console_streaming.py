"""Text that is being written, in a real browser: from its beginning or not at all, once, and in its place; and what a
page offers while a turn runs, waits and is over."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from gateway.demo import FIRST_MESSAGE
from models import Turn
from tests.support.browser import Browsing, press
from tests.support.console_scene import Scene, open_scene, send_chat_message, watch_layout_shifts
from tests.support.console_session import ConsoleUser, sign_in_user
from tests.support.open_gateway import gateway_to, wire
from tests.support.running_fleet import LivingFleet

pytestmark = pytest.mark.spec("G3")

STORY = " ".join(f"word{number}" for number in range(400))
SCRIPT = f"""
- when: "ask"
  play:
    - say: "There is something only you can tell me."
    - tool: ask_user_question
      with: {{title: "A choice", question: "What shall it be?", options: ["Tea", "Coffee"], timeout: 3600}}
    - answer: "You chose the {{result}}, and that is well chosen."
- when: "story"
  play: [{{answer: "{STORY}"}}]
- when: "fail"
  play: [{{fail: {{class: transport, message: "the line went dead", retry_after: 600}}}}]
- when: "slow"
  play: [{{wait: 600}}]
- play: [{{answer: "You said: {{texts}}"}}]
"""
# What was seen of a text while it was written, whenever it changed.
SEEN = """() => {
    window.seen = [];
    new MutationObserver(() => {
        const words = [...document.querySelectorAll(".streaming")].map((part) => part.textContent).join("|");
        if (words && words !== window.seen.at(-1)) window.seen.push(words);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def scene(fleet: LivingFleet) -> AsyncIterator[Scene]:
    async with open_scene(fleet, SCRIPT, 0.03) as scene:
        yield scene


async def test_what_was_said_for_somebody_stands_in_their_chat(scene: Scene, page: Page) -> None:
    ada = {"channel_type": "web", "platform_id": "ada"}
    await scene.begin(FIRST_MESSAGE, **ada, sender_id="ada", sender_name="you")
    await scene.ada.open_page(page, "/chat")
    lines = page.locator(".entry")
    await expect(lines).to_have_count(2)
    await scene.begin("The report is due.", **ada, kind="task")
    await expect(page.get_by_text("You said: The report is due.")).to_be_visible()
    await scene.begin("And one more from the operator.", **ada, sender_id=None, sender_name="Grace")
    await expect(lines).to_have_count(5)
    await expect(lines.nth(0)).to_have_text(FIRST_MESSAGE)
    await expect(lines.nth(1)).to_contain_text(f"You said: {FIRST_MESSAGE}")
    await expect(page.locator(".bubble-in", has_text="And one more from the operator.")).to_contain_text("Grace")


@pytest.mark.parametrize("where", ["chat", "session"])
async def test_a_turn_that_goes_on_says_nothing_again(scene: Scene, page: Page, where: str) -> None:
    session = await scene.begin("hello", channel_type="web", platform_id="ada", sender_id="ada")
    await scene.ada.open_page(page, "/chat" if where == "chat" else f"/sessions/{session}")
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await page.evaluate(SEEN)
    await page.locator("#say-text").fill("ask me")
    await press(page, "Enter")
    await page.get_by_role("button", name="Coffee").click()
    answer = page.locator(".bubble-out", has_text="You chose the Coffee, and that is well chosen.")
    await expect(answer).to_be_visible()
    await expect(page.locator(".streaming")).to_have_count(0)
    seen: list[str] = await page.evaluate("window.seen")
    texts = ("There is something only you can tell me. ", "You chose the Coffee, and that is well chosen. ")
    assert [words for words in seen if not any(text.startswith(words) for text in texts)] == [], "each from its start"
    assert [words.split()[0] for words in seen] == sorted(
        (words.split()[0] for words in seen), key=["There", "You"].index
    )
    if where == "session":
        await expect(page.locator(".entry-said")).to_have_count(1)


@pytest.mark.parametrize("where", ["chat", "session"])
async def test_who_comes_in_the_middle_of_an_answer_has_it_from_its_beginning(
    scene: Scene, browsing: Browsing, where: str
) -> None:
    session = await scene.begin("hello", channel_type="web", platform_id="ada", sender_id="ada")
    path = "/chat" if where == "chat" else f"/sessions/{session}"
    page, other = await browsing.open(), await browsing.open()
    await scene.ada.open_page(page, path)
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await watch_layout_shifts(page)
    await page.locator("#say-text").fill("a story")
    await press(page, "Enter")
    await expect(page.locator(".streaming")).to_contain_text("word30 ")
    await scene.ada.open_page(other, path)
    await expect(other.locator(".streaming")).to_contain_text("word50 ")
    said: str = await other.locator(".streaming").inner_text()
    assert STORY.startswith(said.strip())

    # A gateway that has not heard the beginning either says so, and shows the whole when it is there.
    async with gateway_to(scene.fleet) as second:
        late = await browsing.open()
        await ConsoleUser(second, "ada", scene.ada.secret).open_page(late, path)
        await expect(late.locator(".streaming")).to_have_text("writing …")
        await expect(late.locator(".bubble-out", has_text="word399")).to_be_visible(timeout=60_000)
        await expect(late.locator(".streaming")).to_have_count(0)
        await late.goto("about:blank")
    await expect(other.locator(".bubble-out", has_text="word399")).to_have_count(1)
    await expect(page.locator(".streaming")).to_have_count(0)
    assert await page.evaluate("window.shifted") < 0.1


@pytest.mark.parametrize("where", ["chat", "session"])
async def test_a_text_goes_on_in_one_place_after_the_gateway_was_restarted(
    fleet: LivingFleet, browsing: Browsing, where: str
) -> None:
    group = await fleet.add_group(config={"provider_options": {"script": SCRIPT, "pace": 0.03}})
    await wire(fleet, group, "web", "ada")
    page = await browsing.open()
    async with gateway_to(fleet) as gateway:
        scene = Scene(fleet, gateway, await sign_in_user(gateway))
        session = await scene.begin("hello", channel_type="web", platform_id="ada", sender_id="ada")
        await scene.ada.open_page(page, "/chat" if where == "chat" else f"/sessions/{session}")
        await page.evaluate("document.querySelectorAll('[data-poll]').forEach((part) => part.remove())")
        await expect(page.get_by_text("You said: hello")).to_be_visible()
        await page.locator("#say-text").fill("a story")
        await press(page, "Enter")
        await expect(page.locator(".streaming")).to_contain_text("word10 ")
    browsing.expect("ERR_CONNECTION_REFUSED")
    async with asyncio.timeout(20):
        while not browsing.complaints:  # it has come back in vain
            await asyncio.sleep(0.05)
    async with gateway_to(fleet, port=gateway.port):
        await expect(page.locator(".streaming")).to_have_text("writing …")
        await expect(page.locator(".bubble-out", has_text="word399")).to_be_visible(timeout=60_000)
        await expect(page.locator(".streaming")).to_have_count(0)
        await expect(page.get_by_text("word10 ")).to_have_count(1)
        await page.goto("about:blank")


async def test_a_turn_is_offered_to_be_cancelled_while_there_is_one(scene: Scene, page: Page) -> None:
    session = await scene.begin()
    await scene.ada.open_page(page, f"/sessions/{session}")
    cancel, state = page.get_by_role("button", name="Cancel turn"), page.locator("#state")
    await expect(state).to_contain_text("idle for")
    await expect(cancel).to_be_hidden()
    await watch_layout_shifts(page)
    for text, words in (
        ("be slow", "at work: asking the model, for"),
        ("ask me", "waits for a person, for"),
        ("fail", "tries again in"),
    ):
        await send_chat_message(page, text)
        await expect(state).to_contain_text(words)
        await expect(cancel).to_be_visible()
        await page.reload()
        await cancel.click()
        await page.get_by_role("button", name="Do it").click()
        await expect(state).to_contain_text("idle")
        await expect(cancel).to_be_hidden()
        await watch_layout_shifts(page)
    await send_chat_message(page, "hello again")
    await expect(page.get_by_text("You said: hello again")).to_be_visible()
    await expect(state).to_contain_text("idle")
    box = await page.get_by_role("button", name="Reset").bounding_box()
    await send_chat_message(page, "slow")
    await expect(cancel).to_be_visible()
    assert await page.get_by_role("button", name="Reset").bounding_box() == box, "nothing has moved"


async def test_who_may_only_talk_is_shown_who_is_waited_for(scene: Scene, browsing: Browsing) -> None:
    page, narrow = await browsing.open(), await browsing.open()
    session = await scene.begin("ask me", "parked", channel_type="web", platform_id="ada", sender_id="ada")
    talker = await sign_in_user(scene.gateway, "ada", scopes=("read", "send"))
    await scene.ada.open_page(page, "/chat")
    await expect(page.get_by_role("button", name="Coffee")).to_be_visible()
    for path in ("/chat", f"/sessions/{session}"):
        await talker.open_page(narrow, path)
        await expect(narrow.get_by_text("What shall it be?").last).to_be_visible()
        await expect(narrow.get_by_text("an answer from somebody whose sign-in may decide")).to_be_visible()
        await expect(narrow.get_by_role("button", name="Coffee")).to_have_count(0)
    await page.get_by_role("button", name="Coffee").click()
    async with asyncio.timeout(20):
        while [row.status for row in await scene.fleet.rows(Turn)] != ["completed"]:
            await asyncio.sleep(0.02)
