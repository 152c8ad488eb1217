"""Approvals on cards: who is asked and where, the first answer wins, and all others see what came of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import delete, update

from models import AgentGroup, Approval, MessageOut, Session, User, UserDm
from models.base import now
from models.consent import close_questions
from tests.support.cards import DENY, SCRIPT, Launcher, Platform, appoint, ask, cards_of, press, ring
from tests.support.fleet import Fleet, MakeFleet
from workers.consent import approvals, approvers
from workers.consent.approvers import resolve_approvers
from workers.consent.cards import answer_by_text
from workers.consent.requests import hash_of
from workers.house import Done

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, launcher: Launcher, platform: Platform) -> Fleet:
    """With two admins who are known to be reached at `dm-ann` and `dm-ben`, and an owner."""
    fleet = await make_fleet(launcher.registry(platform, Platform("other")))
    group = await fleet.add_group(script=SCRIPT)
    await appoint(fleet, "fake:ann", "admin", group, chat="dm-ann")
    await appoint(fleet, "fake:ben", "admin", group, chat="dm-ben")
    await appoint(fleet, "fake:olga", "owner", chat="dm-olga")
    return fleet


@pytest.mark.spec("C6")
async def test_several_are_asked_the_first_decides_and_the_others_see_it(
    fleet: Fleet, launcher: Launcher, platform: Platform
) -> None:
    approval = await ask(fleet)
    await fleet.settle_down()
    assert "I wait for an approval before I go on (launch)" in platform.text_in("room")
    assert platform.text_in("dm-olga") == "", "the owner is not asked while admins can be"
    for place in ("dm-ann", "dm-ben"):
        text = platform.text_in(place)
        assert '"what": "prod"' in text, "the whole payload"
        assert f"`approve {approval.id[-8:]}`" in text
        assert "Asked by `fake:sam`" in text
        assert f"{approval.expires_at:%Y-%m-%d %H:%M}Z" in text
    shown = [row for row in await fleet.outbox() if row.platform_id == "dm-ben"]
    ann, ben = await cards_of(fleet, approval.id)
    assert [(b["label"], b["token"], b["style"]) for b in shown[0].content["buttons"]] == [
        ("Approve", f"{ben.id}:1", "good"),
        ("Deny", f"{ben.id}:2", "bad"),
    ]
    assert shown[0].content["answer_code"] == approval.id[-8:]
    assert (ann.user_id, ben.user_id, ben.payload_hash) == ("fake:ann", "fake:ben", approval.payload_hash)

    pressed = await press(fleet, ben, "ben")
    assert pressed.text == "approved, once: `demo wants launch(what=prod)`"
    ring(fleet, pressed)
    await fleet.settle_down()
    assert launcher.done == ["prod"]
    for place in ("dm-ann", "dm-ben"):
        assert platform.text_in(place).startswith("Approved by Ben (fake) at "), "each card was changed"
        assert platform.text_in(place).endswith("Z: `demo wants launch(what=prod)`")
    assert {card.status for card in await cards_of(fleet, approval.id)} == {"closed"}
    late = await press(fleet, ann, "ann", DENY)
    assert late == Done("it is already approved by Ben (fake)")


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_a_name_that_somebody_chose_does_not_hide_who_it_is(fleet: Fleet, platform: Platform) -> None:
    await fleet.insert(User, {"id": "fake:sam", "kind": "fake", "display_name": "Olga, see owner.example.com"})
    await ask(fleet)
    await fleet.settle_down()
    assert "Asked by `Olga, see owner.example.com` (`fake:sam`). Decide" in platform.text_in("dm-ann")


@pytest.mark.spec("C6")
async def test_of_two_presses_at_once_exactly_one_decides(fleet: Fleet) -> None:
    approval = await ask(fleet)
    ann, ben = await cards_of(fleet, approval.id)
    outcomes = await asyncio.gather(press(fleet, ann, "ann"), press(fleet, ben, "ben", DENY))
    told = sorted(outcome.text for outcome in outcomes)
    [approval] = await fleet.rows(Approval)
    winner = {"approved": "Ann", "denied": "Ben"}[approval.status]
    assert f"it is already {approval.status} by {winner} (fake)" in told
    assert [len(outcome.deliveries) for outcome in outcomes if outcome.wakes] == [2]
    assert len([row for row in await fleet.outbox() if "operation" in row.content]) == 2


@pytest.mark.spec("C6")
async def test_what_is_decided_at_the_terminal_is_seen_on_the_cards(fleet: Fleet, platform: Platform) -> None:
    approval = await ask(fleet)
    await fleet.settle_down()
    decided = await approvals.decide(fleet.db, approval.id, approve=False)
    fleet.bells.deliveries += decided.deliveries
    await fleet.settle_down()
    assert platform.text_in("dm-ann").startswith("Denied by cli at ")


@pytest.mark.spec("C6")
async def test_nobody_decides_in_time(make_fleet: MakeFleet, fleet: Fleet, platform: Platform) -> None:
    approval = await ask(fleet)
    await fleet.settle_down()
    await fleet.execute(update(Approval).values(expires_at=now(-1)))
    other = await make_fleet(fleet.runtime.registry)
    found = await asyncio.gather(fleet.sweep(), other.sweep())
    assert {wake.session_id for one in found for wake in one.wakes} == {approval.session_id}, "what waits goes on"
    fleet.bells.wakes += other.bells.wakes
    fleet.bells.deliveries += other.bells.deliveries
    await fleet.settle_down()
    assert platform.text_in("dm-ann") == "Nobody decided in time: `demo wants launch(what=prod)`"
    assert "launch was not approved in time" in platform.text_in("room")
    assert len([row for row in await fleet.outbox() if "operation" in row.content]) == 2, "each card once"
    ann, _ = await cards_of(fleet, approval.id)
    assert (await press(fleet, ann, "ann")).text == "it is already expired"


@pytest.mark.spec("C6")
async def test_a_decision_that_nobody_rang_for_is_found_by_the_sweep(fleet: Fleet, launcher: Launcher) -> None:
    approval = await ask(fleet)
    await fleet.settle_down()
    ann, _ = await cards_of(fleet, approval.id)
    pressed = await press(fleet, ann, "ann")  # and whoever was to ring died
    await fleet.execute(update(Session).values(woken_at=now(-60)))
    await fleet.execute(update(MessageOut).values(rung_at=now(-60)))
    found = await fleet.sweep()
    assert [wake.session_id for wake in found.wakes] == [approval.session_id]
    assert set(found.deliveries) >= set(pressed.deliveries)
    await fleet.settle_down()
    assert launcher.done == ["prod"]


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_what_is_given_up_needs_no_decision_any_more(fleet: Fleet, platform: Platform) -> None:
    approval = await ask(fleet)
    await fleet.settle_down()
    fleet.bells.deliveries += await fleet.db.transact(lambda conn: close_questions(conn, approval.turn_id))
    await fleet.settle_down()
    assert platform.text_in("dm-ben").startswith("No longer needed")
    _, ben = await cards_of(fleet, approval.id)
    assert (await press(fleet, ben, "ben")).text == "it is already expired"


# --- Whom to ask, and where --------------------------------------------------------------------------------------


async def whom(fleet: Fleet, prefer: str = "fake") -> list[str]:
    found = await resolve_approvers(fleet.db, fleet.runtime.registry, await _group(fleet), prefer)
    return [f"{one.user_id}@{one.channel_type}:{one.platform_id}" for one in found]


async def _group(fleet: Fleet) -> str:
    return next(str(row.id) for row in await fleet.rows(AgentGroup) if row.folder == "demo")


@pytest.fixture
async def quiet(make_fleet: MakeFleet, launcher: Launcher, platform: Platform) -> Fleet:
    """Nobody has a role yet."""
    fleet = await make_fleet(launcher.registry(platform, Platform("other")))
    await fleet.add_group(script=SCRIPT)
    return fleet


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_own_admins_come_before_global_ones_and_those_before_owners(quiet: Fleet, platform: Platform) -> None:
    group = await _group(quiet)
    other = await quiet.add_group("elsewhere")
    await appoint(quiet, "fake:olga", "owner")
    assert await whom(quiet) == ["fake:olga@fake:dm-olga"]
    await appoint(quiet, "fake:gil", "admin")
    await appoint(quiet, "fake:eva", "admin", other)
    assert await whom(quiet) == ["fake:gil@fake:dm-gil"]
    await appoint(quiet, "fake:ann", "admin", group)
    assert await whom(quiet) == ["fake:ann@fake:dm-ann"]
    platform.closed_to |= {"ann"}
    await quiet.execute(delete(UserDm))
    assert await whom(quiet) == ["fake:gil@fake:dm-gil"], "of the first nobody can be reached"


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_the_platform_of_the_request_is_preferred(quiet: Fleet) -> None:
    group = await _group(quiet)
    for user in ("fake:ann", "fake:ben", "other:cem"):
        await appoint(quiet, user, "admin", group)
    assert await whom(quiet, "fake") == ["fake:ann@fake:dm-ann", "fake:ben@fake:dm-ben"]
    assert await whom(quiet, "other") == ["other:cem@other:dm-cem"]
    assert len(await whom(quiet, "local")) == 3, "else all of them"


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_a_direct_chat_is_asked_for_once(quiet: Fleet, platform: Platform) -> None:
    await appoint(quiet, "fake:ann", "admin", await _group(quiet))
    first = await ask(quiet, "room")
    second = await ask(quiet, "attic")
    assert platform.asked == ["ann"]
    for approval in (first, second):
        [card] = await cards_of(quiet, approval.id)
        assert (card.user_id, card.platform_id) == ("fake:ann", "dm-ann")


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_a_platform_that_fails_keeps_nobody_else_from_being_asked(
    quiet: Fleet, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvers, "OPEN_SECONDS", 0.02)
    group = await _group(quiet)
    for user in ("fake:ann", "fake:ben", "gone:cem"):
        await appoint(quiet, user, "admin", group)
    platform.hangs_for |= {"ann"}
    assert await whom(quiet) == ["fake:ben@fake:dm-ben"]
    assert [row.user_id for row in await quiet.rows(UserDm)] == ["fake:ben"]


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_if_nobody_can_be_reached_the_place_itself_is_asked(
    quiet: Fleet, platform: Platform, launcher: Launcher
) -> None:
    await appoint(quiet, "fake:olga", "owner")
    platform.closed_to |= {"olga"}
    approval = await ask(quiet)
    await quiet.settle_down()
    assert "has been asked" not in platform.text_in("room")
    [card] = await cards_of(quiet, approval.id)
    assert (card.platform_id, card.user_id) == ("room", None)
    assert "you may not decide this" in (await press(quiet, card, "sam")).text
    ring(quiet, await press(quiet, card, "olga"))
    await quiet.settle_down()
    assert launcher.done == ["prod"]


# --- By words ----------------------------------------------------------------------------------------------------


async def say(fleet: Fleet, text: str, user: str = "ann", thread: str | None = None) -> Done | None:
    place = {"channel_type": "fake", "platform_id": f"dm-{user}", "thread_id": thread}
    return await fleet.db.transact(lambda conn: answer_by_text(conn, **place, user_id=f"fake:{user}", text=text))  # type: ignore[arg-type]


@pytest.mark.spec("C6", "C3")
@pytest.mark.parametrize(
    ("words", "status"),
    [("1 {code}", "approved"), (" 2.  {code} ", "denied"), ("Approve {code}", "approved"), ("DENY {code}", "denied")],
)
@ONE_DATABASE
async def test_words_do_what_buttons_do(fleet: Fleet, words: str, status: str) -> None:
    approval = await ask(fleet)
    told = await say(fleet, words.format(code=approval.id[-8:].upper()))
    assert told is not None
    assert told.wakes == [(approval.session_id, "scripted")]
    assert len(told.deliveries) == 2, "both cards are changed"
    [approval] = await fleet.rows(Approval)
    assert (approval.status, approval.decided_by) == (status, "fake:ann")


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_words_that_answer_nothing_are_for_the_agent(fleet: Fleet) -> None:
    assert await say(fleet, "1") is None, "nothing is open"
    approval = await ask(fleet)
    code = approval.id[-8:]
    sentences: Sequence[str] = (
        "I approve of that", "1 and 2", "3", "0", "", "approve 00000000", f"yes {code}", "approve\x00", "deny " * 80,
        f"approve {code} please", "%", "approve %%%%%%%%", "1", "2.",
    )  # fmt: skip
    assert [await say(fleet, sentence) for sentence in sentences] == [None] * len(sentences)
    assert await say(fleet, f"1 {code}", user="olga") is None, "the card lies elsewhere"
    assert (hint := await say(fleet, "Approve")) is not None
    assert hint == Done(f"Nothing was decided: an approval needs its code as well. Write `approve {code}`")
    [approval] = await fleet.rows(Approval)
    assert approval.status == "pending"


@ONE_DATABASE
@pytest.mark.spec("C6")
async def test_with_several_open_the_code_says_which(fleet: Fleet) -> None:
    first, second = await ask(fleet, "room"), await ask(fleet, "attic")
    assert (told := await say(fleet, "approve")) is not None
    assert told.wakes == []
    assert all(f"`approve {one.id[-8:]}`" in told.text for one in (first, second))
    assert (told := await say(fleet, f"approve {second.id[-8:]}")) is not None
    assert told.text.startswith("approved, once")
    statuses = {row.id: row.status for row in await fleet.rows(Approval)}
    assert statuses == {first.id: "pending", second.id: "approved"}
    assert (late := await say(fleet, f"deny {second.id[-8:]}", user="ben")) is not None
    assert late.text == "it is already approved by Ann (fake)"


@pytest.mark.spec("C6")
async def test_numbers_that_a_database_writes_otherwise_do_not_make_it_another_payload(
    fleet: Fleet, launcher: Launcher
) -> None:
    numbers = {"arguments": {"what": [1e22, -0.0, 1.5, 1e-7, 3.0]}}
    stored: dict[str, Any] = {"arguments": {"what": [10**22, 0, 1.5, 0.0000001, 3]}}
    assert hash_of(numbers) == hash_of(stored) != hash_of({"arguments": {"what": [1e22, -0.0, 1.5, 1e-7, 4.0]}})
    options = {"provider_options": {"script": SCRIPT.replace("prod", "[1.0e+22, -0.0, 1.5]")}}
    await fleet.execute(update(AgentGroup).values(config=options))
    approval = await ask(fleet)
    ann, _ = await cards_of(fleet, approval.id)
    ring(fleet, await press(fleet, ann, "ann"))
    await fleet.settle_down()
    assert launcher.done == [[1e22, 0.0, 1.5]]
