"""What a platform cannot show is shown in what it can: numbers for buttons, parts for long texts, words for edits."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Button
from adapters.errors import DeliveryError
from models import MessageOut
from models.base import now
from tests.support.fleet import MakeFleet
from tests.support.outgoing import Outgoing, Platform
from workers.delivery import settle_doubtful

pytestmark = [pytest.mark.parametrize("database_kind", ["sqlite"]), pytest.mark.spec("C3")]

CHOICE = [
    {"label": "Allow", "token": "card:1", "style": "good"},
    {"label": "Deny", "token": "card:2", "style": "bad"},
]
LONG = "one two three\n\nfour five six\n\nseven eight nine"
PARTS = ["one two three", "four five six", "seven eight nine"]


async def opened(make_fleet: MakeFleet, platform: Platform) -> Outgoing:
    return await Outgoing.open(await make_fleet(platform.registry()))


async def test_buttons_where_there_are_buttons(make_fleet: MakeFleet) -> None:
    platform = Platform()
    outgoing = await opened(make_fleet, platform)
    link = {"label": "Docs", "url": "https://x.y"}
    await outgoing.send({"text": "May I?", "buttons": [*CHOICE, link], "card": {"title": "t"}})
    [message] = platform.shown
    assert message.buttons == (
        Button("Allow", "card:1", "good"),
        Button("Deny", "card:2", "bad"),
        Button("Docs", url="https://x.y"),
    )
    assert message.content == {"text": "May I?", "card": {"title": "t"}}


async def test_numbers_where_there_are_none(make_fleet: MakeFleet) -> None:
    platform = Platform(buttons=False)
    outgoing = await opened(make_fleet, platform)
    link = {"label": "The\ndocs", "url": "https://x.y"}
    await outgoing.send({"text": "May I?", "buttons": [CHOICE[0], link, CHOICE[1]]})
    await outgoing.send({"text": "See:", "buttons": [link]})
    assert platform.texts == [
        "May I?\n\nThe docs: https://x.y\n\n1. Allow\n2. Deny\n\nAnswer with a number.",
        "See:\n\nThe docs: https://x.y",
    ]
    assert [message.buttons for message in platform.shown] == [(), ()]
    assert all("buttons" not in message.content for message in platform.shown)


@pytest.mark.spec("C3", "C6")
async def test_an_approval_is_answered_with_its_code(make_fleet: MakeFleet) -> None:
    platform = Platform(buttons=False)
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "May I?", "buttons": CHOICE, "answer_code": "1a2b3c4d"})
    asked = "May I?\n\n1. Allow\n2. Deny\n\nAnswer with a number and the code, for example: 1 1a2b3c4d"
    assert platform.shown[0].content == {"text": asked}


@pytest.mark.spec("C3", "M12")
async def test_a_long_text_goes_in_parts_with_a_key_each(make_fleet: MakeFleet) -> None:
    platform = Platform(max_text=20)
    outgoing = await opened(make_fleet, platform)
    row = await outgoing.send({"text": LONG, "buttons": CHOICE, "card": {"title": "t"}})
    assert platform.texts == PARTS
    assert platform.keys == ["101#1", "101#2", "101#3"]
    assert [len(message.buttons) for message in platform.shown] == [0, 0, 2]
    assert [message.content.get("card") for message in platform.shown] == [None, None, {"title": "t"}]
    assert row.status == "delivered"
    assert row.receipt == {"platform_message_id": "m3", "parts": ["m1", "m2", "m3"]}


async def test_the_platform_says_how_long_a_text_is(make_fleet: MakeFleet) -> None:
    class Counting(Platform):
        def length(self, text: str) -> int:
            return 2 * len(text)

    platform = Counting(max_text=20)
    await (await opened(make_fleet, platform)).send({"text": "twelve chars"})
    assert platform.texts == ["twelve", "chars"]


@pytest.mark.spec("C3", "M12")
async def test_files_go_with_the_last_part_or_are_named(make_fleet: MakeFleet, tmp_path: Path) -> None:
    content = {"text": LONG, "files": [{"name": "a.txt", "size": 1}], "outbox": True}
    platform = Platform(max_text=20)
    outgoing = await opened(make_fleet, platform)
    message_id = await outgoing.put(content)
    folder = outgoing.fleet.runtime.outbox.root / message_id
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    await outgoing.fleet.settle_down()
    assert [len(message.files) for message in platform.shown] == [0, 0, 1]
    assert not folder.exists()
    platform.capabilities = Platform(max_text=60, files=False).capabilities
    await outgoing.send(content)
    assert platform.texts[3:] == [LONG, "[a.txt: files cannot be sent here]"]


@pytest.mark.spec("C3", "M12")
async def test_a_retry_goes_on_with_the_part_that_failed(make_fleet: MakeFleet) -> None:
    platform = Platform(max_text=20)
    platform.fail_at["101#2"] = DeliveryError("busy", retryable=True, retry_after=0.0)
    outgoing = await opened(make_fleet, platform)
    row = await outgoing.send({"text": LONG})
    assert (row.status, row.receipt) == ("pending", {"parts": ["m1"]})
    assert platform.texts == PARTS[:1]
    outgoing.fleet.bells.deliver(row.id)
    await outgoing.fleet.settle_down()
    assert platform.texts == PARTS
    assert platform.keys == ["101#1", "101#2", "101#2", "101#3"]
    assert (await outgoing.row(row.id)).receipt == {"platform_message_id": "m3", "parts": ["m1", "m2", "m3"]}


@pytest.mark.spec("C3", "M12")
async def test_a_sender_that_lost_its_claim_between_two_parts_stops(make_fleet: MakeFleet) -> None:
    class Slow(Platform):
        async def deliver(self, message: Any) -> Any:
            receipt = await super().deliver(message)
            if len(self.shown) == 1:  # longer than its claim lasts: somebody else goes on with it
                await outgoing.fleet.execute(update(MessageOut).values(claim_expires_at=now(-1), rung_at=now(-60)))
                await outgoing.fleet.sweep()
                [doubtful], outgoing.fleet.bells.doubtful = outgoing.fleet.bells.doubtful, []
                await settle_doubtful(outgoing.fleet.runtime, doubtful)
            return receipt

    platform = Slow(max_text=20)
    outgoing = await opened(make_fleet, platform)
    row = await outgoing.send({"text": LONG})
    assert row.status == "delivered"
    assert platform.texts == PARTS, "each once, and in order"


async def test_an_edit_changes_text_and_buttons(make_fleet: MakeFleet) -> None:
    platform = Platform()
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "May I?", "buttons": CHOICE})
    await outgoing.send({"operation": "edit", "message": 101, "text": "Sure?", "buttons": CHOICE[:1]})
    assert platform.texts == ["Sure?"]
    assert platform.shown[0].buttons == (Button("Allow", "card:1", "good"),)
    row = await outgoing.send({"operation": "edit", "message": 101, "text": "allowed"})
    assert [(message.content["text"], message.buttons) for message in platform.shown] == [("allowed", ())]
    assert row.receipt == {"platform_message_id": "m1"}


async def test_an_edit_of_a_message_in_parts_changes_its_last_part(make_fleet: MakeFleet) -> None:
    platform = Platform(max_text=20)
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": LONG, "buttons": CHOICE})
    await outgoing.send({"operation": "edit", "message": 101, "text": "allowed"})
    assert platform.texts == [*PARTS[:2], "allowed"]
    assert platform.shown[2].buttons == ()


@pytest.mark.parametrize("capabilities", [{"edits": False}, {"edits": False, "buttons": False}, {"max_text": 8}])
async def test_an_edit_that_cannot_be_shown_is_a_new_message(
    make_fleet: MakeFleet, capabilities: dict[str, Any]
) -> None:
    platform = Platform(**capabilities)
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "May I?"})
    row = await outgoing.send({"operation": "edit", "message": 101, "text": "it was allowed"})
    assert " ".join(platform.texts) == "May I? it was allowed"
    assert row.status == "delivered"
    assert all(set(message.content) == {"text"} for message in platform.shown)


async def test_an_edit_of_what_never_arrived_is_a_new_message(make_fleet: MakeFleet) -> None:
    platform = Platform()
    platform.failures = [DeliveryError("gone", retryable=False)]
    outgoing = await opened(make_fleet, platform)
    await outgoing.send({"text": "May I?"})
    await outgoing.send({"operation": "edit", "message": 101, "text": "allowed"})
    assert platform.texts == ["allowed"]


async def test_a_reaction_where_there_are_none_is_skipped(make_fleet: MakeFleet) -> None:
    platform = Platform(reactions=False)
    outgoing = await opened(make_fleet, platform)
    row = await outgoing.send({"operation": "reaction", "message": 1, "emoji": "👍", "text": "👍 (to message 1)"})
    assert (row.status, row.receipt["skipped"]) == ("delivered", "no reactions there")
    assert (platform.texts, platform.reactions) == ([], [])


async def test_a_text_that_is_only_space_is_one_message(make_fleet: MakeFleet) -> None:
    platform = Platform(max_text=3)
    await (await opened(make_fleet, platform)).send({"text": " \n" * 9, "note": "x"})
    assert [message.content["note"] for message in platform.shown] == ["x"]
