"""What people, models and platforms may write, and databases may not hold: nothing of it breaks a turn."""

from datetime import timedelta
from typing import Any

import pytest
from markdown_it import MarkdownIt
from sqlalchemy import update

from models import MessageIn, MessageOut, MessagingGroup, User, UserDm, UserRole
from tests.support.fleet import Fleet
from tests.support.task_runs import add_run, clock

pytestmark = pytest.mark.both_databases

HOSTILE = "[Approve in one click](https://evil.example) **URGENT** @everyone `now`"


async def add_owner(fleet: Fleet) -> None:
    await fleet.insert(User, {"id": "local:olga", "kind": "local"})
    await fleet.insert(MessagingGroup, {"id": "dm", "channel_type": "local", "platform_id": "olga"})
    await fleet.insert(UserDm, {"user_id": "local:olga", "channel_type": "local", "messaging_group_id": "dm"})
    await fleet.insert(UserRole, {"user_id": "local:olga", "role": "owner"})


def check_quoted(rows: list[Any]) -> None:
    """What others wrote is there to be read, and stands in marks that it cannot leave."""
    for row in rows:
        pieces = [piece for block in MarkdownIt().parse(row.content["text"]) for piece in block.children or ()]
        assert {piece.type for piece in pieces} <= {"text", "code_inline", "softbreak"}
        assert "@everyone" not in "".join(piece.content for piece in pieces if piece.type != "code_inline")
        assert HOSTILE in "".join(piece.content for piece in pieces)


@pytest.mark.parametrize(
    "fields",
    [
        {"channel_type": "c" * 51},
        {"sender_id": "ada", "sender_name": "n" * 201},
        {"text": None, "content": {"text": "x", "n": float("nan")}},
        {"process_after": "0001-01-01T00:00:00+10:00"},
    ],
    ids=["channel type", "sender name", "not a number", "date"],
)
async def test_what_was_checked_can_be_stored(fields: dict[str, Any], fleet: Fleet) -> None:
    from workers.refusals import RefusedError

    await fleet.add_group()
    try:
        await fleet.send(**fields)
    except RefusedError:
        return
    assert len(await fleet.inbox()) == 1


@pytest.mark.parametrize("act", ["answer", "say", "think", "progress"])
@pytest.mark.parametrize("char", ["\\0", "\\uD83E"], ids=["nul", "half a pair"])
async def test_whatever_a_model_says_ends_the_turn_properly(act: str, char: str, fleet: Fleet) -> None:
    await fleet.add_group(script=f'- play:\n  - {act}: "a{char}b"\n  - answer: "done"')
    accepted = await fleet.send()
    assert await fleet.wake(accepted.session_id) == "completed"


async def test_a_tool_result_with_a_nul_is_stored(fleet: Fleet) -> None:
    await fleet.add_group(script='- play:\n  - tool: send_message\n    with: {text: "a\\0b"}\n  - answer: "done"')
    accepted = await fleet.send()
    assert await fleet.wake(accepted.session_id) == "completed"


async def test_attachments_that_are_no_list_do_not_poison_the_session(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await fleet.send()
    # Refused at the door; a row that got in otherwise is answered all the same.
    await fleet.execute(update(MessageIn).values(content={"text": "x", "attachments": 5}))
    assert await fleet.wake(accepted.session_id) == "completed"


@pytest.mark.spec("S3")
async def test_a_task_that_is_paused_does_not_speak_for_the_fleet(fleet: Fleet) -> None:
    await fleet.add_group()
    await add_owner(fleet)
    at = await clock(fleet)
    failure: dict[str, Any] = {"status": "failed", "error_class": "tool", "error": f"not possible:\n\n{HOSTILE}"}
    await add_run(fleet, at, ended=at, **failure, content={"prompt": f"\n{HOSTILE}"}, terms={"pause_after": 1})
    await fleet.sweep()
    said, told = await fleet.outbox()
    check_quoted([said, told])
    assert told.content["text"].count("@everyone") == 2


@pytest.mark.spec("M9")
async def test_a_dead_letter_does_not_speak_for_the_fleet(fleet: Fleet) -> None:
    await fleet.add_group(script=f"- play:\n  - fail: {{class: auth, message: '{HOSTILE}'}}\n")
    await add_owner(fleet)
    await fleet.send()
    assert await fleet.answer_wakes() == ["failed"]
    check_quoted([row for row in await fleet.outbox() if row.platform_id == "olga"])


@pytest.mark.spec("M12", "S1")
async def test_a_message_that_was_not_delivered_does_not_speak_for_the_fleet(fleet: Fleet) -> None:
    """Nor where it was to go, nor a reminder's dates."""
    await fleet.add_group()
    await add_owner(fleet)
    await fleet.send()
    await fleet.answer_wakes()
    fleet.bells.deliveries.clear()
    date = await clock(fleet) - timedelta(hours=1)
    wrong = {"scheduled_for": date, "deliver_after": date, "recurrence": HOSTILE, "platform_id": HOSTILE}
    await fleet.execute(update(MessageOut).values(**wrong, rung_at=date))
    for _ in range(2):
        await fleet.sweep()
        await fleet.settle_down()
    told = [row for row in await fleet.outbox() if row.platform_id == "olga"]
    assert len(told) == 2
    check_quoted(told)
