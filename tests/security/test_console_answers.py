"""Which answer an agent gets is which button was pressed, whatever the agent has written on its buttons."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update

from models import PendingQuestion
from tests.support.api_callers import caller
from tests.support.api_seeds import seed
from tests.support.console_session import sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [pytest.mark.spec("M11", "G3"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]
LABELS = ["4", "no", "1", "2)", "NO"]
VALUES = ["four", "no", "one", "two", "NO"]
BUTTON = re.compile(r'<button[^>]* name="(\w+)" value="([^"]*)"[^>]*>([^<]*)</button>')


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        yield opened


async def ask(gateway: Gateway, question_id: str) -> None:
    asked = {"title": "How many?", "text": "", "options": LABELS, "values": VALUES}
    await gateway.fleet.execute(
        update(PendingQuestion).where(PendingQuestion.id == question_id).values(question=asked, status="pending")
    )


async def answer_of(gateway: Gateway) -> str:
    [row] = await gateway.fleet.rows(PendingQuestion)
    assert row.status == "answered"
    return str(row.answer)


async def test_a_button_answers_what_it_says(gateway: Gateway) -> None:
    ids = await seed(gateway.fleet, "demo", "tide")
    ada = await sign_in_user(gateway)
    for number, value in enumerate(VALUES):
        await ask(gateway, ids["question_id"])
        page = (await ada.get("/inbox")).text
        buttons = [found for found in BUTTON.findall(page) if html.unescape(found[2]) in LABELS]
        assert [label for _, _, label in buttons] == LABELS
        name, given, _ = buttons[number]
        assert (await ada.post(f"/inbox/questions/{ids['question_id']}", {name: given})).status_code == 303
        assert await answer_of(gateway) == value


async def test_words_are_an_option_before_a_number_is(gateway: Gateway) -> None:
    ids = await seed(gateway.fleet, "demo", "tide")
    owner = await caller(gateway, "olga", "owner")
    for said, value in (("4", "four"), ("1", "one"), ("2", "no"), ("2)", "two"), ("5.", "NO"), ("6", "6")):
        await ask(gateway, ids["question_id"])
        await owner.post(f"/v1/questions/{ids['question_id']}", {"answer": said})
        assert await answer_of(gateway) == value, said


async def test_there_is_no_option_beyond_the_last(gateway: Gateway) -> None:
    ids = await seed(gateway.fleet, "demo", "tide")
    ada = await sign_in_user(gateway)
    await ask(gateway, ids["question_id"])
    for fields in ({"option": "0"}, {"option": "6"}, {"option": "-1"}, {}, {"answer": ""}):
        assert (await ada.post(f"/inbox/questions/{ids['question_id']}", fields)).status_code in (409, 422), fields
    [row] = await gateway.fleet.rows(PendingQuestion)
    assert row.status == "pending"
