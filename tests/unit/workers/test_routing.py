"""Who answers a message: wirings by priority, trigger rules, response scope, session mode."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from workers.intake.routing import Heard, Route, choose


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
    route = choose([wiring], heard).route
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
        ("triggered", {}, Heard("hello", is_mention=True), "answered"),
        ("triggered", {"includeSenders": ["ada"]}, Heard("hello", sender_id="ada"), "answered"),
        ("triggered", {"includeSenders": ["ada"]}, Heard("hello", sender_id="eve", is_mention=True), "context"),
        # every rule that is given must hold
        ("triggered", {"pattern": "tea"}, Heard("hello", is_mention=True), "context"),
        ("all", {"pattern": "tea"}, Heard("hello", is_mention=True), "dropped"),
        ("all", {"pattern": "tea", "mentionOnly": True}, Heard("tea"), "dropped"),
        ("all", {"pattern": "tea", "mentionOnly": True}, Heard("tea", is_mention=True), "answered"),
        ("all", {"pattern": "tea", "includeSenders": ["ada"]}, Heard("tea", sender_id="eve"), "dropped"),
        ("all", {"pattern": "tea", "includeSenders": ["ada"]}, Heard("beer", sender_id="ada"), "dropped"),
        ("all", {"pattern": "tea", "includeSenders": ["ada"]}, Heard("tea", sender_id="ada"), "answered"),
        ("all", {"pattern": "("}, Heard("("), "dropped"),
        ("all", {"includeSenders": "ada"}, Heard("x", sender_id="ad"), "dropped"),
        ("all", {"excludeSenders": "ada"}, Heard("x", sender_id="ad"), "answered"),
        ("triggered", {"pattern": "tea", "excludeSenders": ["bot"]}, Heard("tea", sender_id="bot"), "dropped"),
        # scope allowlisted
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello", sender_id="ada"), "answered"),
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello", sender_id="eve"), "dropped"),
        ("allowlisted", {"includeSenders": ["ada"]}, Heard("hello"), "dropped"),
        ("allowlisted", {}, Heard("hello", sender_id="ada"), "dropped"),
        ("allowlisted", {"includeSenders": ["ada"], "pattern": "x"}, Heard("y", sender_id="ada"), "dropped"),
        ("allowlisted", {"includeSenders": ["ada"], "pattern": "x"}, Heard("x", sender_id="ada"), "answered"),
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
    routes = [choose(wirings, Heard(text)).route for text in ("deploy tea", "tea", "anything")]
    assert [route.agent_group_id for route in routes if route] == ["id of deployer", "id of brewer", "id of helper"]
    assert [route.reason for route in routes if route] == [
        "deployer: its pattern 'deploy' matches",
        "brewer: its pattern 'tea' matches",
        "helper: it listens to everything",
    ]


@pytest.mark.spec("M2")
def test_a_mention_does_not_take_a_message_from_the_agent_it_is_for() -> None:
    """A supervisor beside a worker, on one account of the platform: the text says whom it is for."""
    wirings = [
        Wired("supervisor", trigger_rules={"pattern": "@supervisor"}),
        Wired("worker", trigger_rules={"mentionOnly": True}),
    ]
    for_worker = choose(wirings, Heard("@bot do it", is_mention=True))
    for_supervisor = choose(wirings, Heard("@bot @supervisor look at this", is_mention=True))
    assert for_worker.route is not None
    assert for_worker.route.agent_group_id == "id of worker"
    assert for_supervisor.route is not None
    assert for_supervisor.route.agent_group_id == "id of supervisor"


@pytest.mark.spec("M2")
def test_every_wiring_says_why() -> None:
    wirings = [
        Wired("shy", trigger_rules={"mentionOnly": True}),
        Wired("picky", trigger_rules={"excludeSenders": ["eve"]}),
        Wired("listed", "allowlisted", {"includeSenders": ["ada"]}),
        Wired("quiet", "triggered", {"pattern": "^tea"}),
        Wired("broken", trigger_rules={"pattern": "("}),
        Wired("helper"),
        Wired("second"),
    ]
    considered = choose(wirings, Heard("hello", sender_id="eve")).considered
    assert [(one.folder, one.takes, one.reason) for one in considered] == [
        ("shy", "passes", "it is not mentioned"),
        ("picky", "passes", "the sender eve is excluded"),
        ("listed", "passes", "the sender is not on its list"),
        ("quiet", "beaten", "its pattern '^tea' does not match: kept as context"),
        (
            "broken",
            "passes",
            "its pattern '(' is not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        ("helper", "answers", "it listens to everything"),
        ("second", "beaten", "it listens to everything"),
    ]


@pytest.mark.spec("M2")
@pytest.mark.parametrize("rules", [{"mentionOnly": True}, {"pattern": "^@helper"}])
def test_an_agent_called_once_in_a_thread_follows_it(rules: dict[str, Any]) -> None:
    wiring = Wired(trigger_rules=rules | {"sticky": True})
    called = choose([wiring], Heard("@helper hello", thread_id="t1", is_mention=True)).route
    assert called is not None
    assert called.follows
    following = frozenset({"id of helper"})
    assert _answers(wiring, Heard("and now?", thread_id="t1", followed=following)) == "answered"
    assert _answers(wiring, Heard("and now?", thread_id="t2")) == "dropped"
    assert _answers(Wired(trigger_rules=rules), Heard("and now?", thread_id="t1", followed=following)) == "dropped"


@pytest.mark.spec("M2")
def test_outside_threads_there_is_nothing_to_follow() -> None:
    called = choose([Wired(trigger_rules={"mentionOnly": True, "sticky": True})], Heard("x", is_mention=True)).route
    assert called is not None
    assert not called.follows


@pytest.mark.spec("M2")
def test_who_follows_a_thread_still_minds_who_speaks() -> None:
    rules = {"mentionOnly": True, "sticky": True, "excludeSenders": ["bot"], "includeSenders": ["ada"]}
    following = frozenset({"id of helper"})
    said = {
        sender: _answers(Wired(trigger_rules=rules), Heard("x", sender, "t1", followed=following))
        for sender in ("ada", "eve", "bot")
    }
    assert said == {"ada": "answered", "eve": "dropped", "bot": "dropped"}


@pytest.mark.spec("M2")
@pytest.mark.parametrize(("first", "winner"), [("follower", "follower"), ("caller", "caller")])
def test_in_a_followed_thread_priority_decides_as_always(first: str, winner: str) -> None:
    follower = Wired("follower", trigger_rules={"mentionOnly": True, "sticky": True})
    caller = Wired("caller", trigger_rules={"pattern": "@caller"})
    wirings = [follower, caller] if first == "follower" else [caller, follower]
    heard = Heard("@caller help", thread_id="t1", followed=frozenset({"id of follower"}))
    route = choose(wirings, heard).route
    assert route is not None
    assert route.agent_group_id == f"id of {winner}"


@pytest.mark.spec("M2")
def test_an_agent_that_answers_is_preferred_to_one_that_only_overhears() -> None:
    wirings = [Wired("quiet", "triggered", {"pattern": "quiet"}), Wired("helper")]
    route = choose(wirings, Heard("hello")).route
    assert route == Route("id of helper", "place", "", True, "helper: it listens to everything")


@pytest.mark.spec("M2")
def test_the_first_of_those_that_overhear_keeps_it_as_context() -> None:
    wirings = [Wired("one", "triggered", {"pattern": "x"}), Wired("two", "triggered", {"pattern": "y"})]
    decision = choose(wirings, Heard("hello"))
    why = "one: its pattern 'x' does not match: kept as context"
    assert decision.route == Route("id of one", "place", "", False, why)
    assert [one.takes for one in decision.considered] == ["overhears", "beaten"]


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("mode", "thread", "expected"),
    [("shared", None, ""), ("shared", "t1", ""), ("per-thread", None, ""), ("per-thread", "t1", "t1")],
)
def test_the_session_mode_decides_about_threads(mode: str, thread: str | None, expected: str) -> None:
    route = choose([Wired(session_mode=mode)], Heard("hello", thread_id=thread)).route
    assert route is not None
    assert route.thread_id == expected


@pytest.mark.spec("M2")
def test_where_nobody_listens_there_is_no_route() -> None:
    assert choose([], Heard("hello")).route is None


@pytest.mark.spec("M2")
def test_a_wiring_without_rules_may_hold_null() -> None:
    wiring = Wired()
    wiring.trigger_rules = None  # type: ignore[assignment]  # what an old row may hold
    assert _answers(wiring, Heard("hello")) == "answered"
