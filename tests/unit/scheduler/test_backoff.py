"""When a failed attempt is made again: never earlier than promised, exactly when a provider asks, and not for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.backoff import Backoff

PROMISED = {1: 5.0, 2: 10.0, 3: 20.0, 4: 40.0}


@pytest.mark.spec("M9")
@pytest.mark.parametrize(("tries", "seconds"), PROMISED.items())
def test_the_waits_double_from_five_seconds(tries: int, seconds: float) -> None:
    assert Backoff(jitter=0).delay(tries) == seconds


@pytest.mark.spec("M9")
@given(st.sampled_from(sorted(PROMISED)))
def test_jitter_only_adds_and_at_most_a_fifth(tries: int) -> None:
    delay = Backoff().delay(tries)
    assert delay is not None
    assert PROMISED[tries] <= delay <= PROMISED[tries] * 1.2


@pytest.mark.spec("M9")
def test_jitter_spreads_those_that_failed_together() -> None:
    assert len({Backoff().delay(1) for _ in range(100)}) > 90


@pytest.mark.spec("M9")
@given(st.integers(1, 4), st.floats(0, 86_400))
def test_what_a_provider_asked_for_is_obeyed_to_the_second(tries: int, seconds: float) -> None:
    assert Backoff().delay(tries, seconds) == seconds


@pytest.mark.spec("M9")
@pytest.mark.parametrize("retry_after", [None, 0.0, 3.0])
@pytest.mark.parametrize("tries", [5, 6, 1000])
def test_after_five_tries_there_is_no_other(tries: int, retry_after: float | None) -> None:
    assert Backoff().delay(tries, retry_after) is None


@pytest.mark.spec("M9")
def test_the_operator_s_numbers_are_used() -> None:
    backoff = Backoff(base_seconds=0.5, max_tries=3, jitter=0)
    assert [backoff.delay(tries) for tries in (1, 2, 3)] == [0.5, 1.0, None]
    assert Backoff(max_tries=1).delay(1) is None
