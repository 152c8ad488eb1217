"""Buttons pressed by those who may not, with tokens that are not ours, in other places, too late, or after somebody has
changed what was shown: all refused, and nothing is changed by it."""

import json
from typing import Any

import pytest
from markdown_it import MarkdownIt
from sqlalchemy import delete, update

from models import AgentGroup, AgentGroupMember, Approval, Card, MessageOut, User, UserRole
from models.base import new_id
from tests.support.cards import DENY, SCRIPT, Launcher, Platform, appoint, ask, cards_of, press, ring
from tests.support.fleet import Fleet, MakeFleet
from workers.consent.approvals import decide
from workers.consent.cards import NOT_OURS
from workers.consent.requests import hash_of
from workers.refusals import RefusedError

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, launcher: Launcher) -> Fleet:
    """An agent with one admin; a member, and an admin of another agent."""
    fleet = await make_fleet(launcher.registry(Platform(), Platform("other")))
    group = await fleet.add_group(script=SCRIPT)
    await appoint(fleet, "fake:ann", "admin", group, chat="dm-ann")
    await appoint(fleet, "fake:eva", "admin", await fleet.add_group("elsewhere"))
    await appoint(fleet, "fake:mia", None)
    await fleet.insert(AgentGroupMember, {"user_id": "fake:mia", "agent_group_id": group})
    return fleet


async def state(fleet: Fleet) -> Any:
    tables = (Approval, Card, MessageOut, User)
    sessions = [(row.id, row.woken_at, row.resume_after) for row in await fleet.sessions()]
    return [await fleet.rows(table, table.id) for table in tables], sessions


@pytest.mark.spec("C6", "C5")
async def test_only_those_who_decide_for_the_agent_may(fleet: Fleet, launcher: Launcher) -> None:
    [card] = await cards_of(fleet, (await ask(fleet)).id)
    before = await state(fleet)
    for sender in ("mia", "eva", "sam", "olga", "ANN", "ann ", "*"):
        pressed = await press(fleet, card, sender)
        assert "you may not decide this" in pressed.text
        assert (pressed.wakes, pressed.deliveries) == ([], [])
    for user_id in ("fake:mia", "other:ann"):
        with pytest.raises(RefusedError, match="you may not decide this"):
            await decide(fleet.db, card.subject_id, approve=True, user_id=user_id)
    assert await state(fleet) == before
    await fleet.settle_down()
    assert launcher.done == []


@ONE_DATABASE
@pytest.mark.spec("C6", "C5")
async def test_a_role_that_was_taken_away_since_counts_for_nothing(fleet: Fleet) -> None:
    [card] = await cards_of(fleet, (await ask(fleet)).id)
    await fleet.execute(delete(UserRole).where(UserRole.user_id == "fake:ann"))
    before = await state(fleet)
    assert "you may not decide this" in (await press(fleet, card, "ann")).text
    assert await state(fleet) == before
    await fleet.insert(UserRole, {"id": new_id(), "user_id": "fake:mia", "role": "owner"})
    assert (await press(fleet, card, "mia")).text.startswith("approved"), "one who got it since may"


@pytest.mark.spec("C6")
async def test_an_approval_is_not_given_twice(fleet: Fleet, launcher: Launcher) -> None:
    [card] = await cards_of(fleet, (await ask(fleet)).id)
    ring(fleet, await press(fleet, card, "ann"))
    assert (await press(fleet, card, "ann", DENY)).text == "it is already approved by Ann (fake)"
    await fleet.settle_down()
    before = await state(fleet)
    again = await press(fleet, card, "ann")
    assert (again.text, again.wakes, again.deliveries) == ("it is already approved by Ann (fake)", [], [])
    assert await state(fleet) == before
    assert launcher.done == ["prod"]


@ONE_DATABASE
@pytest.mark.spec("C6", "C8")
async def test_what_is_no_token_of_ours_does_nothing(fleet: Fleet) -> None:
    [card] = await cards_of(fleet, (await ask(fleet)).id)
    before = await state(fleet)
    tokens = (
        "", ":", "1", card.id, f"{card.id}:", f"{card.id}:0", f"{card.id}:3", f"{card.id}:-1", f"{card.id}:99",
        f"{card.id}:01", f"{card.id}:1 ", f" {card.id}:1", f"{card.id}:1\n", f"{card.id}:1:1", f"{card.id}:١",
        f"{card.id.upper()}:1", f"{card.id}:1e0", f"{new_id()}:1", f"{card.subject_id}:1", "' OR 1=1 --:1",
        f"{card.id}' OR '1'='1:1", "%:1", "\x00:1", "\ud800:1", "a" * 100_000, f"{card.id}:{'1' * 5000}",
    )  # fmt: skip
    for token in tokens:
        pressed = await press(fleet, card, "ann", token=token)
        assert (pressed.text, pressed.wakes, pressed.deliveries) == (NOT_OURS, [], []), token[:60]
    for sender in ("", "ann\x00", "\udfff"):
        assert (await press(fleet, card, sender)).text == NOT_OURS
    assert "you may not" in (await press(fleet, card, "a" * 5000)).text
    assert await state(fleet) == before


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_a_button_works_only_where_it_lies(fleet: Fleet) -> None:
    """And whoever tries it elsewhere does not learn whether there is such a card."""
    [card] = await cards_of(fleet, (await ask(fleet)).id)
    before = await state(fleet)
    await appoint(fleet, "other:ann", "owner")
    for channel, place in (("fake", "room"), ("fake", "dm-ann\x00"), ("other", "dm-ann")):
        elsewhere = await press(fleet, card, "ann", channel_type=channel, platform_id=place)
        unknown = await press(fleet, card, "ann", channel_type=channel, platform_id=place, token=f"{new_id()}:1")
        assert elsewhere == unknown
        assert elsewhere.text == NOT_OURS
    await fleet.execute(delete(UserRole).where(UserRole.user_id == "other:ann"))
    await fleet.execute(delete(User).where(User.id == "other:ann"))
    assert await state(fleet) == before
    await fleet.execute(update(Card).values(platform_id="dm-mia"))
    assert (await press(fleet, card, "ann")).text == NOT_OURS, "a card that was moved is not where it was shown"


@pytest.mark.spec("C6")
@pytest.mark.parametrize("changed", ["payload", "hash", "both", "card"])
@ONE_DATABASE
async def test_what_is_decided_is_what_was_shown(fleet: Fleet, launcher: Launcher, changed: str) -> None:
    approval = await ask(fleet)
    [card] = await cards_of(fleet, approval.id)
    other = approval.payload | {"arguments": {"what": "everything"}}
    match changed:
        case "payload":
            await fleet.execute(update(Approval).values(payload=other))
        case "hash":
            await fleet.execute(update(Approval).values(payload_hash="0" * 64))
        case "both":
            await fleet.execute(update(Approval).values(payload=other, payload_hash=hash_of(other)))
        case "card":
            await fleet.execute(update(Card).values(payload_hash="0" * 64))
    before = await state(fleet)
    assert "what was shown is not what is asked for now" in (await press(fleet, card, "ann")).text
    assert await state(fleet) == before
    await fleet.settle_down()
    assert launcher.done == []


@pytest.mark.spec("C6")
@pytest.mark.parametrize(
    "text",
    [
        "``` \n\n**Approved by Ann** \n```",
        "`````\nAll is well: longshore approve 1",
        "a\u202egnp.exe \u200b\u2066x\u2069 \ue000 \U000e0041",
        "<b>&amp;</b> [here](https://evil.example) @channel <!here>",
    ],
)
@ONE_DATABASE
async def test_an_agents_words_stay_within_their_marks(fleet: Fleet, text: str) -> None:
    options = {"provider_options": {"script": SCRIPT.replace("prod", json.dumps(text, ensure_ascii=False))}}
    await fleet.execute(update(AgentGroup).values(config=options))
    approval = await ask(fleet)
    assert approval.payload["arguments"]["what"] == text
    [shown] = [row.content["text"] for row in await fleet.outbox() if row.platform_id == "dm-ann"]
    assert not [char for char in shown if char in "\u202e\u200b\u2066\u2069\ue000\U000e0041"]
    blocks = MarkdownIt().parse(shown)
    assert [block.type for block in blocks].count("fence") == 1
    inline = [child for block in blocks for child in block.children or ()]
    ours = " ".join(child.content for child in inline if child.type == "text")
    assert "evil" not in ours
    assert "All is well" not in ours
    assert "Approved by" not in ours
    assert {child.type for child in inline} <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
