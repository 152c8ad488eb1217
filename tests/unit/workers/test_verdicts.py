"""What becomes of a failed attempt, as a table; and whom a turn asks next."""

from types import SimpleNamespace
from typing import Any

import pytest

from adapters.errors import ErrorClass
from models.series import DEFAULT_TERMS, Terms
from scheduler.backoff import Backoff
from workers.failover import Choice, after, choices, choose
from workers.settings import Settings
from workers.verdicts import Failure, GiveUp, Move, Patience, Rest

PATIENCE = Patience(Backoff(5.0, 5, jitter=0.0), move_after=30.0, waits=3600.0)
OTHER = Choice("openai")


def _judge(error_class: ErrorClass, *, after: float | None = None, asked: bool = True, **given: Any) -> Any:
    failure = Failure(error_class, "no", error_class.can_pass, after, asked)
    return PATIENCE.judge(failure, **({"tries": 1, "waited": 0.0, "other": None} | given))


@pytest.mark.spec("M9")
@pytest.mark.parametrize("error_class", [c for c in ErrorClass if not c.can_pass and c is not ErrorClass.BUDGET])
def test_what_cannot_pass_is_given_up_at_once(error_class: ErrorClass) -> None:
    assert _judge(error_class) == GiveUp()


@pytest.mark.spec("M9")
def test_what_can_pass_is_tried_again_five_times() -> None:
    waits = [_judge(ErrorClass.TRANSPORT, tries=tries) for tries in range(1, 6)]
    assert waits == [Rest(5.0), Rest(10.0), Rest(20.0), Rest(40.0), GiveUp()]


@pytest.mark.spec("M9", "P19")
def test_waiting_for_a_limit_uses_up_no_try_for_an_hour() -> None:
    assert _judge(ErrorClass.RATE_LIMIT, after=20.0, tries=99) == Rest(20.0, counted=False)
    assert _judge(ErrorClass.RATE_LIMIT, after=20.0, tries=2, waited=3600.0) == Rest(20.0)
    assert _judge(ErrorClass.RATE_LIMIT, after=20.0, tries=5, waited=3600.0) == GiveUp()
    assert _judge(ErrorClass.TRANSPORT, after=20.0, asked=False, tries=99) == Rest(20.0, counted=False)
    assert _judge(ErrorClass.RATE_LIMIT, after=1e12) == Rest(5.0), "who asks for years is not taken at their word"


@pytest.mark.spec("P21")
def test_a_spent_budget_parks_the_turn() -> None:
    assert _judge(ErrorClass.BUDGET, after=60.0, asked=False) == Rest(60.0, counted=False, parked=True)
    assert _judge(ErrorClass.BUDGET, asked=False, other=OTHER) == GiveUp(), "another provider costs money too"


@pytest.mark.spec("P20")
@pytest.mark.parametrize(
    ("error_class", "given", "moves"),
    [
        (ErrorClass.QUOTA, {}, True),
        (ErrorClass.AUTH, {}, True),
        (ErrorClass.UNKNOWN_PROVIDER, {}, True),
        (ErrorClass.RATE_LIMIT, {"after": 31.0}, True),
        (ErrorClass.RATE_LIMIT, {"after": 29.0}, False),
        (ErrorClass.RATE_LIMIT, {}, False),
        (ErrorClass.RATE_LIMIT, {"tries": 2}, True),
        (ErrorClass.TRANSPORT, {}, False),
        (ErrorClass.TRANSPORT, {"tries": 2}, True),
        (ErrorClass.TRANSPORT, {"asked": False, "after": 5.0}, True),
        (ErrorClass.PROVIDER_HANG, {"tries": 2}, True),
        (ErrorClass.INVALID_REQUEST, {}, False),
        (ErrorClass.CONTEXT_TOO_LONG, {}, False),
        (ErrorClass.INTERNAL, {"tries": 4}, False),
        (ErrorClass.CANCELLED, {}, False),
        (ErrorClass.OUTPUT_SENT, {}, False),
    ],
)
def test_another_provider_is_asked_when_this_one_cannot(
    error_class: ErrorClass, given: dict[str, Any], moves: bool
) -> None:
    assert isinstance(_judge(error_class, other=OTHER, **given), Move) == moves


def _offered(session: dict[str, Any] | None = None, terms: Terms = DEFAULT_TERMS, **group: Any) -> tuple[Choice, ...]:
    own = {"provider": None, "model": None} | (session or {})
    row = {"provider": None, "model": None, "config": {}} | group
    settings = Settings(default_provider="anthropic", default_model="m0")
    return choices(SimpleNamespace(**own), SimpleNamespace(**row), settings, terms)  # type: ignore[arg-type]


@pytest.mark.spec("M3")
def test_the_session_decides_before_the_group_and_the_default() -> None:
    assert _offered() == (Choice("anthropic", "m0"),)
    assert _offered(provider="openai", model="m1") == (Choice("openai", "m1"),)
    assert _offered({"provider": "scripted", "model": "m2"}, provider="openai", model="m1") == (
        Choice("scripted", "m2"),
    )
    assert _offered(provider="openai") == (Choice("openai"),), "the default model is the default provider's"


@pytest.mark.spec("P20")
def test_fallbacks_come_in_order_each_provider_once_and_without_the_groups_options() -> None:
    config = {"provider_options": {"thinking": "low"}, "fallbacks": ["openai:big", "anthropic:small", "openai"]}
    offered = _offered(config=config)
    assert offered == (Choice("anthropic", "m0", {"thinking": "low"}), Choice("openai", "big"))
    assert choose(offered, (), ()).provider == "anthropic"
    assert choose(offered, (), {"anthropic"}).provider == "openai"
    assert choose(offered, ("anthropic",), {"openai"}).provider == "openai", "nobody else is left"
    assert choose(offered, ("anthropic", "openai"), ()).provider == "openai"
    assert after(offered, "anthropic", ()) == Choice("openai", "big")
    assert after(offered, "openai", ("anthropic",)) is None


@pytest.mark.spec("P20")
def test_the_agents_own_comes_first_wherever_it_is_listed() -> None:
    assert _offered(config={"fallbacks": ["openai", "anthropic:small"]}) == (
        Choice("anthropic", "m0"),
        Choice("openai"),
    )


OPTIONS = {"thinking": "low"}


@pytest.mark.spec("S4", "P20")
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (Terms(), Choice("openai", "m1", OPTIONS)),
        (Terms(model="small"), Choice("openai", "small", OPTIONS)),
        (Terms(provider="openai"), Choice("openai", "m1", OPTIONS)),
        (Terms(provider="openai", model="small"), Choice("openai", "small", OPTIONS)),
        # The group's model and options are its own provider's.
        (Terms(provider="scripted"), Choice("scripted")),
        (Terms(provider="scripted", model="small"), Choice("scripted", "small")),
        (Terms(provider="anthropic"), Choice("anthropic", "m0")),
    ],
)
def test_a_task_may_be_run_by_another_than_its_agents(terms: Terms, expected: Choice) -> None:
    """The fallbacks stay, and one of them may be the task's own."""
    config = {"provider_options": OPTIONS, "fallbacks": ["gemini", "scripted:other"]}
    offered = _offered(terms=terms, provider="openai", model="m1", config=config)
    assert offered[0] == expected
    assert [one.provider for one in offered[1:]] == [
        name for name in ("gemini", "scripted") if name != expected.provider
    ]
