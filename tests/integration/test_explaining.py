"""The dry run says what happens: over many places, people and texts it is compared with the reception itself."""

import asyncio
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.registry import Drivers, Registry
from models.base import new_id
from tests.support.fake_platform import RegisteringChannel, grant_role, post_message, wire
from tests.support.fleet import Fleet, MakeFleet
from workers.intake.explaining import explain
from workers.intake.incoming import parse_incoming
from workers.intake.visits import Visit, visit_key
from workers.refusals import RefusedError

TEXTS: Final = ("hello", "@boss look", "/status", "/clear", "/login", "/cost", "/tmp/x", "my code LS-0000-0000-0000")
SENDERS: Final = ("member", "boss-member", "owner", "stranger", "stranger-too", None)
RULES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"trigger_rules": {"mentionOnly": True, "sticky": True}},
    {"trigger_rules": {"excludeSenders": ["member"]}, "response_scope": "triggered"},
    {"trigger_rules": {"includeSenders": ["owner"]}, "response_scope": "allowlisted"},
)
POLICIES: Final = ("strict", "request_approval", "public")

cases = st.tuples(
    st.sampled_from(POLICIES),
    st.sampled_from((None, *range(len(RULES)))),  # None: nobody is wired
    st.sampled_from(TEXTS),
    st.sampled_from(SENDERS),
    st.sampled_from((None, "t1")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((False, False, False, True)),
    st.sampled_from(("demo", "nobody")),
)


class Asked:
    """A fleet with a place for each policy and each wiring, and two kinds of copies of a message: told and heard."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    async def compare(self, case: Any) -> None:
        policy, rules, text, sender, thread, mention, direct, trusted, agent = case
        channel = self.fleet.runtime.registry.channels.get("fake")
        assert isinstance(channel, RegisteringChannel)
        channel.agent = agent
        chat = f"{policy}-{rules}" if rules is not None else f"unwired-{new_id()}"
        said = {"channel_type": "fake", "platform_id": chat, "sender_id": sender, "thread_id": thread}
        incoming = parse_incoming(said | {"text": text, "is_mention": mention})
        visit = Visit(incoming, direct, trusted, visit_key(incoming, new_id()))
        runtime = self.fleet.runtime
        told = await self.fleet.db.read(lambda conn: explain(conn, runtime.registry, runtime.settings, visit))
        how = {"thread_id": thread, "is_mention": mention, "direct": direct, "trusted": trusted}
        try:
            accepted = await post_message(self.fleet, text, sender, chat, **how)
        except RefusedError:
            assert told["outcome"] == "refused", told
            return
        if accepted.handled is not None:
            assert told["outcome"] == accepted.handled, told
            return
        row = next(row for row in await self.fleet.inbox() if row.id == accepted.message_id)
        assert told["outcome"] == ("waits" if row.status == "paused" else "stored"), told
        assert told["wakes"] == row.wakes
        assert told["session"] in (None, row.session_id)
        agents = {"demo": self.demo, "boss": self.boss}
        assert agents[told["agent"]] == row.agent_group_id

    async def prepare(self) -> None:
        fleet = self.fleet
        self.demo, self.boss = await fleet.add_group("demo"), await fleet.add_group("boss")
        await grant_role(fleet, "member", "member", self.demo)
        await grant_role(fleet, "boss-member", "member", self.boss)
        await grant_role(fleet, "owner", "owner")
        for policy in POLICIES:
            for number, rules in enumerate(RULES):
                await wire(fleet, self.demo, f"{policy}-{number}", policy=policy, **rules)
                await wire(fleet, self.boss, f"{policy}-{number}", trigger_rules={"pattern": "@boss"}, priority=5)


@pytest.mark.spec("M2", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_the_dry_run_and_the_reception_agree(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.intake.codes.MAX_WRONG", 10**6)
    monkeypatch.setattr("workers.consent.strangers.MAX_WAITING", 10**6)
    asked = Asked(await make_fleet(Registry(channels=Drivers("channel", {"fake": RegisteringChannel()}))))
    await asked.prepare()
    loop = asyncio.get_running_loop()

    @settings(max_examples=40, deadline=None, database=None)
    @given(cases)
    def compared(case: Any) -> None:
        asyncio.run_coroutine_threadsafe(asked.compare(case), loop).result(30)

    await asyncio.to_thread(compared)
