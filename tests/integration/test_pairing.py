"""One-time codes: whoever writes one to the bot directly is somebody then; once, in time, and never in public."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import update

from models import AgentGroupMember, Invitation, MessageIn, MessageOut, Rejected, UserDm, UserRole, WrongCode
from models.base import Base, now
from models.people import owner_addresses
from tests.support.command_line import Cli
from tests.support.fake_platform import fetch_texts, grant_role, post_message, wire
from tests.support.fleet import Fleet
from workers.intake.codes import ALPHABET, MAX_WRONG, WRONG, codes_in, invite, new_code

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


async def code_for(fleet: Fleet, role: str = "owner", group_id: str | None = None, seconds: float = 60) -> str:
    code = new_code()
    await fleet.db.transact(lambda conn: invite(conn, code, role, group_id, seconds))
    return code


async def everything(fleet: Fleet) -> str:
    """All rows that a text could have got into."""
    tables: list[type[Base]] = [MessageIn, MessageOut, Rejected, Invitation, UserRole, WrongCode]
    return json.dumps([[dict(row._mapping) for row in await fleet.rows(table)] for table in tables], default=str)


@pytest.mark.spec("C4")
async def test_the_first_owner_is_whoever_has_the_code(fleet: Fleet, cli: Cli) -> None:
    printed = await cli("owners", "invite")
    code = printed.out.splitlines()[0]
    assert codes_in(code) == [code]
    assert (await post_message(fleet, f" {code.lower()} ", "ada", "dm-ada", sender_name="Ada")).handled == "code"
    assert await fetch_texts(fleet, "dm-ada") == [
        "Welcome. You are now an owner of this fleet. What you are asked to decide comes to this chat."
    ]
    [role] = await fleet.rows(UserRole)
    assert (role.user_id, role.role, role.agent_group_id) == ("fake:ada", "owner", None)
    assert await fleet.db.read(owner_addresses) == [("fake", "dm-ada")]
    assert code[3:7] not in await everything(fleet)


@ONE_DATABASE
@pytest.mark.spec("C4", "D4")
@pytest.mark.parametrize(
    ("role", "of_agent", "became"),
    [
        ("admin", False, "an admin of this fleet"),
        ("admin", True, "an admin of demo"),
        ("member", True, "a member of demo"),
    ],
)
async def test_a_code_makes_what_it_says(fleet: Fleet, role: str, of_agent: bool, became: str) -> None:
    group = await fleet.add_group()
    await post_message(fleet, await code_for(fleet, role, group if of_agent else None), "ada", "dm-ada")
    assert f"You are now {became}." in (await fetch_texts(fleet, "dm-ada"))[0]
    table: type[Base] = AgentGroupMember if role == "member" else UserRole
    [row] = await fleet.rows(table)
    assert (row.user_id, row.agent_group_id) == ("fake:ada", group if of_agent else None)
    assert [row.user_id for row in await fleet.rows(UserDm)] == ["fake:ada"]


@pytest.mark.spec("C4")
async def test_a_code_that_is_used_over_or_never_was_gets_the_same_answer(fleet: Fleet) -> None:
    used, over = await code_for(fleet), await code_for(fleet, seconds=-1)
    await post_message(fleet, used, "ada", "dm-ada")
    for code in (used, over, new_code()):
        await post_message(fleet, code, "eve", "dm-eve")
    assert await fetch_texts(fleet, "dm-eve") == [WRONG] * 3
    assert [row.user_id for row in await fleet.rows(UserRole)] == ["fake:ada"]
    assert await fleet.inbox() == []


@pytest.mark.spec("C4")
async def test_of_many_who_write_it_at_once_one_becomes_somebody(fleet: Fleet) -> None:
    code = await code_for(fleet)
    await asyncio.gather(*(post_message(fleet, code, f"p{n}", f"dm-p{n}") for n in range(8)))
    assert len(await fleet.rows(UserRole)) == 1


@pytest.mark.spec("C4", "M1")
async def test_the_same_message_again_is_the_same_code_used_once(fleet: Fleet) -> None:
    code = await code_for(fleet)
    first = await post_message(fleet, code, "ada", "dm-ada", message_id="m1")
    again = await asyncio.gather(*(post_message(fleet, code, "ada", "dm-ada", message_id="m1") for _ in range(3)))
    assert (first.handled, first.duplicate) == ("code", False)
    assert all(one.duplicate and not one.deliveries for one in again)
    assert len(await fetch_texts(fleet, "dm-ada")) == 1
    assert await fleet.rows(WrongCode) == []


@pytest.mark.spec("C4")
async def test_a_code_that_others_could_read_is_burnt(fleet: Fleet) -> None:
    code = await code_for(fleet)
    await post_message(fleet, f"@bot {code}", "ada", "room")
    assert "write it to me directly" in (await fetch_texts(fleet))[0]
    await post_message(fleet, code, "eve", "dm-eve")  # who has read it there
    await post_message(fleet, code, "ada", "dm-ada")
    assert await fetch_texts(fleet, "dm-eve") == [WRONG]
    assert await fleet.rows(UserRole) == []


@ONE_DATABASE
@pytest.mark.spec("C4")
@pytest.mark.parametrize("sender", ["eve", None])
async def test_a_code_that_others_could_read_is_burnt_whoever_shows_it(fleet: Fleet, sender: str | None) -> None:
    for _ in range(MAX_WRONG if sender else 0):  # whose codes are not looked at any more
        await post_message(fleet, new_code(), sender, "dm-eve")
    codes = [await code_for(fleet), await code_for(fleet)]
    assert (await post_message(fleet, f"look, {codes[0]} and {codes[1]}!", sender, "room")).deliveries == []
    for code in codes:
        await post_message(fleet, code, "ada", "dm-ada")
    assert await fleet.rows(UserRole) == []


@ONE_DATABASE
@pytest.mark.spec("C4")
async def test_a_code_in_a_sentence_is_a_code_and_nobody_keeps_the_sentence(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, "dm-ada", policy="public")
    code = await code_for(fleet)
    assert (await post_message(fleet, f"Hello! My code is {code}, thanks", "ada", "dm-ada")).handled == "code"
    assert [row.user_id for row in await fleet.rows(UserRole)] == ["fake:ada"]
    assert await fleet.inbox() == []


@pytest.mark.spec("C4")
async def test_whoever_guesses_is_not_listened_to_for_an_hour(fleet: Fleet) -> None:
    code = await code_for(fleet)
    for _ in range(MAX_WRONG):
        await post_message(fleet, new_code(), "eve", "dm-eve")
    assert "for an hour, no code of yours is looked at" in (await fetch_texts(fleet, "dm-eve"))[-1]
    assert (await post_message(fleet, code, "eve", "dm-eve")).deliveries == []
    assert await fleet.rows(UserRole) == []
    assert len(await fetch_texts(fleet, "dm-eve")) == MAX_WRONG
    await fleet.execute(update(WrongCode).values(created_at=now(-3601)))
    await post_message(fleet, code, "eve", "dm-eve")
    assert len(await fleet.rows(UserRole)) == 1


@pytest.mark.spec("C4")
async def test_what_was_written_before_the_code_goes_on_after_it(fleet: Fleet) -> None:
    group = await fleet.add_group(script="heard: {texts}")
    await wire(fleet, group, "dm-ada", policy="request_approval")
    await post_message(fleet, "hello", "ada", "dm-ada")
    await post_message(fleet, await code_for(fleet, "member", group), "ada", "dm-ada")
    await fleet.settle_down()
    assert (await fetch_texts(fleet, "dm-ada"))[-1] == "heard: hello"


@ONE_DATABASE
@pytest.mark.spec("C4")
async def test_without_an_identity_there_is_nobody_to_make_an_owner(fleet: Fleet) -> None:
    await post_message(fleet, await code_for(fleet), None, "dm-x", trusted=True)
    assert await fleet.rows(UserRole) == []


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    "text", ["ls home data temp", "LS-1234-5678", "LS-1234-5678-9AB!", "XLS-1234-5678-9ABC", "LS-1234-5678-9ABCD"]
)
def test_ordinary_words_are_no_code(text: str) -> None:
    assert codes_in(text) == []


@pytest.mark.spec("C4")
def test_a_code_reads_as_people_copy_it() -> None:
    assert codes_in("ls-oi1l-abcd-0000\n") == ["LS-0111-ABCD-0000"]
    assert codes_in("it is LS–1234–5678–9ABC, or LS-0000-0000-0000.") == ["LS-1234-5678-9ABC", "LS-0000-0000-0000"]
    assert len(ALPHABET) == 32
    assert not set("ILOU") & set(ALPHABET)
    assert len({new_code() for _ in range(100)}) == 100


@pytest.mark.spec("C4", "D4", "G4")
async def test_people_are_added_shown_and_removed_at_the_command_line(fleet: Fleet, cli: Cli) -> None:
    group = await fleet.add_group(script="heard: {texts}")
    await wire(fleet, group, policy="request_approval")
    assert "owners invite" in (await cli("people", "list")).out
    await post_message(fleet, "hello")
    assert (await cli("people", "add", "fake:eve", "--agent", "demo")).out == "fake:eve is a member of demo\n"
    await fleet.settle_down()
    assert (await fetch_texts(fleet))[-1] == "heard: hello"  # what waited went on
    await cli("people", "add", "fake:eve", "--role", "admin")
    rows = json.loads((await cli("people", "list", "--json")).out)
    assert [(row["user_id"], row["role"], row["agent"], row["by"]) for row in rows] == [
        ("fake:eve", "admin", None, "cli"),
        ("fake:eve", "member", "demo", "cli"),
    ]
    assert "admin of all agents" in (await cli("people", "show", "fake:eve")).out
    assert (await cli("people", "remove", "fake:eve", "--role", "admin")).code == 0
    assert [row["role"] for row in json.loads((await cli("people", "list", "--json")).out)] == ["member"]
    assert (await cli("people", "remove", "fake:eve")).code == 0
    assert "a stranger to all agents" in (await cli("people", "show", "fake:eve")).out
    assert (await cli("people", "remove", "fake:eve")).code == 1


@ONE_DATABASE
@pytest.mark.spec("D4")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "fake:eve", "--role", "owner", "--agent", "demo"), "owners are owners of everything"),
        (("add", "fake:eve"), "name it with --agent"),
        (("add", "eve", "--role", "owner"), "write the platform and the id"),
        (("add", "nowhere:eve", "--role", "owner"), "there is no channel 'nowhere'"),
        (("add", "fake:eve", "--agent", "nobody"), "there is no agent 'nobody'"),
        (("invite", "--role", "member"), "name it with --agent"),
        (("show", "fake:eve"), "fake:eve is not known"),
    ],
)
async def test_what_people_cannot_be_is_refused(fleet: Fleet, cli: Cli, arguments: Any, said: str) -> None:
    await fleet.add_group()
    refused = await cli("people", *arguments)
    assert refused.code != 0
    assert said in refused.err
    assert await fleet.rows(UserRole) == []


@pytest.mark.spec("C4")
async def test_a_known_person_who_writes_a_code_stays_what_they_are(fleet: Fleet) -> None:
    await grant_role(fleet, "ada", "owner")
    await post_message(fleet, await code_for(fleet, "owner"), "ada", "dm-ada")
    assert len(await fleet.rows(UserRole)) == 1
