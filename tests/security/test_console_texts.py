"""What cannot be seen, or turns the reading direction, is shown by its number on every page of the console: whoever
decides must read what is there. Also where Markdown would write it, and in names that people choose for themselves."""

import html
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update

from gateway.console.rendering.markdown import markdown
from gateway.console.rendering.texts import marked, spoken
from models import MessageIn, Session, Turn, Wiring
from models.people import remember_user
from models.sign_ins import new_secret
from tests.support.console_session import sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with, wire
from workers.events import redis_client

TURNED = "pay \u202eeert\u202c"
SHOWN = "pay ⟨U+202E⟩eert⟨U+202C⟩"


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        yield opened


@pytest.mark.spec("G3")
@pytest.mark.parametrize("written", ["&#x202E;", "&#8238;", "&#8294;", "&ZeroWidthSpace;", "&shy;", "&InvisibleTimes;"])
def test_markdown_writes_no_character_that_texts_may_not_have(written: str) -> None:
    html = markdown(spoken(f"[a {written} b](http://example.org 'c {written} d') e {written} f"))
    assert html.count("⟨U+") == 3
    assert not {"\u202e", "\u2066", "\u200b", "\u00ad", "\u2062"} & set(html)


@pytest.mark.spec("G3")
@pytest.mark.parametrize("char", ["\u034f", "\u115f", "\u1160", "\u17b4", "\u2800", "\u3164", "\uffa0"])
def test_letters_and_signs_that_nobody_sees_are_shown_by_their_number(char: str) -> None:
    assert spoken(f"send{char}mail") == marked(f"send{char}mail") == f"send⟨U+{ord(char):04X}⟩mail"


@pytest.mark.spec("G3")
def test_what_joins_emoji_joins_nothing_else_where_each_character_counts() -> None:
    for plain in ("👩\u200d💻", "❤\ufe0f\u200d🔥", "👍🏽", "1\ufe0f\u20e3", "☎\ufe0f", "🏳\ufe0f\u200d🌈"):
        assert marked(plain) == spoken(plain) == plain
    assert marked("rm\u200d -rf\ufe0f") == "rm⟨U+200D⟩ -rf⟨U+FE0F⟩"
    for variant in ("\ufe00", "\u180b", "\U000e0101"):
        assert marked(f"rm{variant}") == f"rm⟨U+{ord(variant):04X}⟩"
    assert spoken("葛\U000e0100飾") == "葛\U000e0100飾"
    assert spoken("क्\u200dष") == "क्\u200dष"


@pytest.mark.spec("G3")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_no_page_lets_a_name_or_a_text_turn_around(gateway: Gateway) -> None:
    fleet = gateway.fleet
    ada = await sign_in_user(gateway)
    agent = await fleet.add_group("demo", "{texts}", name=TURNED, model=TURNED, config={"fallbacks": [TURNED]})
    await wire(fleet, agent, "web", TURNED)
    await fleet.execute(update(Wiring).values(trigger_rules={"pattern": TURNED, "includeSenders": [TURNED]}))
    at_work = await fleet.send(TURNED, platform_id=TURNED, thread_id=TURNED, sender_id=TURNED)
    await fleet.settle_down()
    await fleet.execute(update(Turn).values(status="running", ended_at=None, model=TURNED, worker=TURNED))
    await fleet.execute(update(Session).values(activity=TURNED))
    task = await fleet.send(TURNED, kind="task", recurrence="0 6 * * *")
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.message_id).values(error=TURNED))
    await fleet.db.transact(lambda conn: remember_user(conn, "web:eve", "web", TURNED))
    await sign_in_user(gateway, TURNED, "admin")
    wired = await ada.post("/wirings/new", {"agent": "demo", "channel": "web", "chat": TURNED})
    [wiring] = await fleet.rows(Wiring)
    paths = ("/", "/sessions", "/schedules", "/usage", "/groups", "/wirings", "/people", "/audit", "/inbox", "/dead")
    of_one = (f"/schedules/{task.message_id}", f"/sessions/{at_work.session_id}", "/groups/demo", "/chat")
    pages = {path: await ada.get(path) for path in (*paths, *of_one, f"/wirings/{wiring.id}")} | {"notice": wired}
    turned = {path for path, page in pages.items() if "\u202e" in _read(page.text)}
    assert turned == set()
    assert sum(SHOWN in page.text for page in pages.values()) >= 8


def _read(html: str) -> str:
    """Without what is typed into fields: that is sent back as it is."""
    html = re.sub(r"<textarea.*?</textarea>", "", html, flags=re.S)
    return re.sub(r'\bvalue="[^"]*"', "", html)


@pytest.mark.spec("G1", "G3")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_a_command_to_copy_is_one_command_whatever_a_producer_has_named(gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    stray = f"mesages-{new_secret()}'; touch taken; '"
    client = redis_client(gateway.fleet.runtime.settings.redis_url)
    message = {"headers": {"task": "messages.ingest"}, "properties": {"delivery_tag": "1"}, "body": ""}
    await client.rpush(stray, json.dumps(message))
    try:
        page = (await ada.get("/overview/now")).text
    finally:
        await client.delete(stray)
        await client.aclose()
    commands = [html.unescape(found) for found in re.findall(r"<code>(longshore queues rescue .*?)</code>", page)]
    assert ["longshore", "queues", "rescue", stray] in [shlex.split(command) for command in commands]
