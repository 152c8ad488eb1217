"""Who answers a message: wirings by priority, trigger rules, response scope, session mode."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from workers.routing import Heard, Route, choose


@dataclass
class Wired:
    folder: str = "helper"
    response_scope: str = "all"
    trigger_rules: dict[str, Any] = field(default_factory=dict)
    session_mode: str = "shared"
    follow_up: str = "enqueue"
    messaging_group_id: str = "place"

    @property
    def agent_group_id(self) -> str:
        return f"id of {self.folder}"


def _answers(wiring: Wired, heard: Heard) -> str:
    """What becomes of a message: 'answered', 'context' or 'dropped'."""
    route = choose([wiring], heard)
    if route is None:
        return "dropped"
    return "answered" if route.wakes else "context"


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("scope", "rules", "heard", "expected"),
    [
        # scope all
        ("all", {}, Heard("hello"), "answered"),
        ("all", {}, Heard("hello", sender_id="ada"), "answered"),
        ("all", {"pattern": "^deploy"}, Heard("Deploy now"), "answered"),
        ("all", {"pattern": "^deploy"}, Heard("do not deploy"), "dropped"),
        ("all", {"mentionOnly": True}, Heard("hello", is_mention=True), "answered"),
        ("all", {"mentionOnly": True}, Heard("hello"), "dropped"),
        ("all", {"excludeSenders": ["bot"]}, Heard("hello", sender_id="bot"), "dropped"),
        ("all", {"excludeSenders": ["bot"]}, Heard("hello", sender_id="ada"), "answered"),
        ("all", {"excludeSenders": ["bot"]}, Heard("hello"), "answered"),
        ("all", {"includeSenders": ["ada"]}, Heard("hello", sender_id="ada"), "answered"),
        ("all", {"includeSenders": ["ada"]}, Heard("hello", sender_id="eve"), "dropped"),
        ("all", {"includeSenders": ["ada"]}, Heard("hello"), "dropped"),
        # scope triggered
        ("triggered", {"pattern": "tea|coffee"}, Heard("more TEA"), "answered"),
        ("triggered", {"pattern": "tea|coffee"}, Heard("more beer"), "context"),
        ("triggered", {"mentionOnly": True}, Heard("hello", is_mention=True), "answered"),
        ("triggered", {"mentionOnly": True}, Heard("hello"), "context"),
        ("triggered", {}, Heard("hello"), "context"),
        ("triggered", {"pattern": "tea", "excludeSenders": ["bot"]}, Heard("tea", sender_id="bot"), "dropped"),
        # scope allowlisted
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello", sender_id="ada"), "answered"),
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello", sender_id="eve"), "dropped"),
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello"), "dropped"),
        ("allowlisted", {}, Heard("hello", sender_id="ada"), "dropped"),
        ("allowlisted", {"includeSenders": ["ada"], "pattern": "x"}, Heard("x", sender_id="eve"), "dropped"),
        ("allowlisted", {"includeSenders": ["a"], "excludeSenders": ["a"]}, Heard("x", sender_id="a"), "dropped"),
    ],
)
def test_rules_decide(scope: str, rules: dict[str, Any], heard: Heard, expected: str) -> None:
    assert _answers(Wired(response_scope=scope, trigger_rules=rules), heard) == expected


@pytest.mark.spec("M2")
def test_the_first_wiring_that_lets_it_through_answers() -> None:
    wirings = [
        Wired("deployer", trigger_rules={"pattern": "deploy"}),
        Wired("brewer", trigger_rules={"pattern": "tea"}),
        Wired("helper"),
    ]
    routes = [choose(wirings, Heard(text)) for text in ("deploy tea", "tea", "anything")]
    assert [route.agent_group_id for route in routes if route] == ["id of deployer", "id of brewer", "id of helper"]
    assert [route.reason for route in routes if route] == [
        "deployer: triggered",
        "brewer: triggered",
        "helper: listens",
    ]


@pytest.mark.spec("M2")
def test_an_agent_that_answers_is_preferred_to_one_that_only_overhears() -> None:
    wirings = [Wired("quiet", "triggered", {"pattern": "quiet"}), Wired("helper")]
    route = choose(wirings, Heard("hello"))
    assert route == Route("id of helper", "place", "", True, "helper: listens")


@pytest.mark.spec("M2")
def test_the_first_of_those_that_overhear_keeps_it_as_context() -> None:
    wirings = [Wired("one", "triggered", {"pattern": "x"}), Wired("two", "triggered", {"pattern": "y"})]
    assert choose(wirings, Heard("hello")) == Route(
        "id of one", "place", "", False, "one: not triggered, kept as context"
    )


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("mode", "thread", "expected"),
    [("shared", None, ""), ("shared", "t1", ""), ("per-thread", None, ""), ("per-thread", "t1", "t1")],
)
def test_the_session_mode_decides_about_threads(mode: str, thread: str | None, expected: str) -> None:
    route = choose([Wired(session_mode=mode)], Heard("hello", thread_id=thread))
    assert route is not None
    assert route.thread_id == expected


@pytest.mark.spec("M2")
def test_where_nobody_listens_there_is_no_route() -> None:
    assert choose([], Heard("hello")) is None


@pytest.mark.spec("M2")
def test_a_wiring_without_rules_may_hold_null() -> None:
    wiring = Wired()
    wiring.trigger_rules = None  # type: ignore[assignment]  # what an old row may hold
    assert _answers(wiring, Heard("hello")) == "answered"
