"""Emoji, as agents give them."""

import pytest

from adapters.markup.emoji import NAMES, emoji_of


@pytest.mark.spec("C3")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("👍", "👍"),
        ("👍🏽", "👍"),
        ("thumbs_up", "👍"),
        (" :+1: ", "👍"),
        ("EYES", "👀"),
        ("❤️", "❤"),
        (":red_heart:", "❤"),
        ("🫖", "🫖"),
        ("ship_it:109", "ship_it:109"),
        ("No_Such", "No_Such"),
        ("🏽", ""),
    ],
)
def test_an_emoji_is_meant_by_itself_or_by_any_of_its_names(given: str, meant: str) -> None:
    assert emoji_of(given) == meant


@pytest.mark.spec("C3")
def test_a_name_means_one_emoji() -> None:
    assert all(emoji_of(name) == emoji for emoji, names in NAMES.items() for name in names)
