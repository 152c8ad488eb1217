from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.actions import ListSessions, SteerSession
from adapters.policy import Policy
from adapters.tools.sessions import LIST_SESSIONS, STEER_SESSION, ListSessionsArguments, SteerSessionArguments


@pytest.mark.spec("T4")
async def test_today_began_at_midnight_in_utc_by_the_fleets_clock() -> None:
    late = datetime(2026, 11, 18, 1, 30, tzinfo=timezone(timedelta(hours=2)))  # still the 17th in UTC
    context: Any = SimpleNamespace(clock=lambda: late)
    wanted = await LIST_SESSIONS.handler(ListSessionsArguments(begun_since="today"), context)
    assert wanted == ListSessions(begun_since=datetime(2026, 11, 17, tzinfo=UTC))


@pytest.mark.spec("T4")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"act": "reset"}, "name a sessionId or an agentGroup"),
        ({"act": "reset", "sessionId": "12345678", "agentGroup": "x"}, "name a sessionId or an agentGroup"),
        ({"act": "reset", "sessionId": "12345678", "provider": "openai"}, "a reset has no provider"),
        ({"act": "delete", "sessionId": "12345678"}, "Input should be 'reset', 'replay' or 'again'"),
        ({"act": "again", "sessionId": "1234"}, "at least 8 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SteerSessionArguments(**arguments)


@pytest.mark.spec("T4")
async def test_only_an_agent_whose_policy_says_so_has_the_tool() -> None:
    assert not STEER_SESSION.offered(Policy(oversees={"*": "steps"}, agents=("*",)))
    assert STEER_SESSION.offered(Policy(steers=("worker",)))
    context: Any = SimpleNamespace()
    wanted = await STEER_SESSION.handler(SteerSessionArguments(act="again", agent_group="worker"), context)
    assert wanted == SteerSession("again", agent_group="worker")
