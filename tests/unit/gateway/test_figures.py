"""Figures as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.figures import ago, bar, money, span, spent, tokens, until

pytestmark = pytest.mark.spec("G4", "P21")


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        (None, "?"),
        (0.0, "$0.00"),
        (0.00000001, "<$0.0001"),
        (0.0001, "$0.0001"),
        (0.0042, "$0.0042"),
        (0.0999, "$0.0999"),
        (0.1, "$0.10"),
        (12.3, "$12.30"),
        (1234567.891, "$1,234,567.89"),
    ],
)
def test_money(usd: float | None, words: str) -> None:
    assert money(usd) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (340, "340"), (999, "999"), (1000, "1k"), (1234, "1.2k"), (9949, "9.9k"), (9950, "10k"), (12_345, "12k"),
     (999_499, "999k"), (1_000_000, "1M"), (3_400_000, "3.4M"), (123_000_000, "123M")],
)  # fmt: skip
def test_tokens(count: int, words: str) -> None:
    assert tokens(count) == words


def test_what_a_turn_took() -> None:
    assert spent(1234, 340, 0.0031) == "1.2k tokens in, 340 out, $0.0031"
    assert spent(1234, 340, None) == "1.2k tokens in, 340 out"
    assert spent(10, 3, 0.5, partly_unknown=True) == "10 tokens in, 3 out, at least $0.50"


@pytest.mark.parametrize(
    ("part", "cells"), [(0.0, 0), (0.001, 1), (0.5, 5), (0.99, 9), (1.0, 10), (7.0, 10), (-1.0, 0)]
)
def test_a_bar_is_full_only_when_all_is_gone(part: float, cells: int) -> None:
    assert bar(part, 1.0) == "█" * cells + "░" * (10 - cells)


def test_a_bar_of_nothing_is_full() -> None:
    assert bar(0.0, 0.0) == "█" * 10


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3, "0 s"), (12.4, "12 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_moments() -> None:
    assert ago(None) == "-"
    assert ago(datetime.now(UTC) - timedelta(minutes=5)) == "5 min"
    assert until(datetime.now(UTC) + timedelta(hours=3, seconds=5)) == "3 h"
