"""What people, models and platforms may write, and databases may not hold: nothing of it breaks a turn."""

from typing import Any

import pytest
from sqlalchemy import update

from models import MessageIn
from tests.support.fleet import Fleet


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
