"""Long Markdown in parts: each fits, each stands for itself, and nothing is lost between them."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.markup.document import MAX_BRACKETS, MAX_CHARACTERS
from adapters.markup.layout import utf16_length
from adapters.markup.slack import to_mrkdwn
from adapters.markup.splitting import split
from adapters.markup.telegram import to_telegram
from tests.support.markdown_texts import MARKDOWN, PLAIN

pytestmark = pytest.mark.spec("C3")


def telegram_length(text: str) -> int:
    return utf16_length(to_telegram(text).text)


def slack_length(text: str) -> int:
    return len(to_mrkdwn(text))


LENGTHS = st.sampled_from([len, utf16_length, telegram_length, slack_length])


def within(needle: str, haystack: str) -> bool:
    """Whether all its characters are there, in that order."""
    rest = iter(haystack)
    return all(character in rest for character in needle if not character.isspace())


@given(st.lists(MARKDOWN, max_size=6).map("\n".join), st.integers(24, 80), LENGTHS)
@example("```python\n" + "x = 1\n" * 40 + "```\nend", 40, len)
@example("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 20, 50, telegram_length)
@example("[" + "label " * 20 + "](https://x.y/" + "z" * 90 + ")", 24, slack_length)
@example("```" + "0" * 20 + "\n0\n`", 24, len)
@example("> " * 60 + "a" * 100, 24, len)
def test_every_part_fits_and_no_character_is_lost(text: str, limit: int, length: Callable[[str], int]) -> None:
    parts = split(text, limit, length)
    assert all(length(part) <= limit for part in parts)
    assert within(text.replace("\r", "\n").replace("\0", "\ufffd"), "".join(parts).replace("\0", "\ufffd"))
    assert len(parts) == 1 or all(part.strip() for part in parts)


@given(st.lists(PLAIN, min_size=1, max_size=4).map("\n\n".join), st.integers(24, 60))
def test_plain_words_stay_whole_and_are_the_same_in_the_end(text: str, limit: int) -> None:
    assert " ".join(split(text, limit)).split() == text.split()


def test_what_fits_is_one_part() -> None:
    assert split("short  \n", 100) == ["short  \n"]
    assert split("", 100) == [""]


def test_breaks_between_paragraphs_before_lines_before_sentences_before_words() -> None:
    assert split("one two\n\nthree four\nfive six", 20) == ["one two\n\nthree four", "five six"]
    assert split("one two three\n\nfour\nfive six", 22) == ["one two three", "four\nfive six"]
    assert split("one two three. four five six", 18) == ["one two three.", "four five six"]
    assert split("one two three four", 10) == ["one two", "three four"]
    assert split("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_an_open_code_block_is_closed_and_opened_again_with_its_language() -> None:
    parts = split("before\n```py\na = 1\n\nb = 2\nc = 3\n```\nafter", 24)
    assert parts == ["before\n```py\na = 1\n```", "```py\nb = 2\nc = 3\n```", "after"]


def test_code_in_a_list_or_quote_stays_there() -> None:
    parts = split("- item\n  ~~~sh\n  first\n  second\n  ~~~", 28)
    assert parts == ["- item\n  ~~~sh\n  first\n  ~~~", "  ~~~sh\n  second\n  ~~~"]
    assert split("> ```\n> one\n> two\n> ```", 20) == ["> ```\n> one\n> ```", "> ```\n> two\n> ```"]


def test_a_table_is_continued_under_its_heading() -> None:
    parts = split("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", 32)
    assert parts == ["| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 3 | 4 |"]


def test_links_and_code_are_not_broken_if_there_is_another_place() -> None:
    assert split("some words [a long label](https://x.y) more", 30) == [
        "some words",
        "[a long label](https://x.y)",
        "more",
    ]
    assert split("it is `a b c d e f g` really", 20) == ["it is", "`a b c d e f g`", "really"]


def test_a_break_makes_no_markup_of_plain_text() -> None:
    assert split("one two three # four five", 14) == ["one two", "three # four", "five"]


def test_characters_of_several_code_points_stay_whole() -> None:
    family = "👨‍👩‍👧"
    assert split(family * 4, 12, len) == [family * 2, family * 2]
    assert split("e\u0301" * 10, 5) == ["e\u0301" * 2] * 5
    assert split("\ud83d\ude00" * 3, 3) == ["\ud83d\ude00"] * 3
    assert split("🫖" * 5, 5, utf16_length) == ["🫖🫖", "🫖🫖", "🫖"]


def test_a_long_text_takes_no_long_time() -> None:
    calls = 0

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        assert len(text) <= 10_000 or calls == 1, "the rest of the text is measured again and again"
        return len(text)

    assert len(split("word " * 40_000, 4000, counted)) == 50
    assert calls < 50 * 20


@pytest.mark.parametrize("text", ["[" * 30_000, "*a" * 15_000, "![a](" * 6_000, "# a\n" * 7_500, "`a``b" * 6_000])
def test_a_hostile_text_is_measured_only_a_few_times(text: str) -> None:
    measured = 0

    def counted(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return len(part) + part.count("*") + part.count("`")

    assert all(counted(part) <= 2000 for part in split(text, 2000, counted))
    assert measured < 10 * len(text)


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("echo ok" + " " * 5000 + "; rm -rf x", 4),
        ("x" * 50 + "\t" * 5000 + "x", 4),
        ("x" * 1990 + " " * 1500 + "w" * 1200, 3),
        ("x" * 1990 + " " * 1500 + "#" + "w" * 1200, 3),
    ],
)
def test_a_run_of_spaces_in_code_is_broken_where_the_room_ends(code: str, most: int) -> None:
    parts = split(f"```\n{code}\n```", 2000)
    assert len(parts) <= most
    assert all(len(part) <= 2000 and part.startswith("```\n") and part.endswith("\n```") for part in parts)
    assert "".join(part[4:-4] for part in parts) == code, "inside code every space counts"


def test_a_paragraph_of_nothing_but_brackets_is_shown_as_it_is() -> None:
    link = "[a](https://x.y) "
    assert to_telegram(link * MAX_BRACKETS).text == ("a " * MAX_BRACKETS).strip()
    many = link * MAX_BRACKETS + "\n[b"
    assert to_telegram(many).text == many
    assert to_telegram(f"{many}\n\n**c**").text == f"{many}\n\nc"


def test_code_in_a_text_of_any_length_stays_code() -> None:
    code = "x = [1](https://x.y)\n" * (MAX_CHARACTERS // 15)
    parts = split(f"May I?\n```\n{code}```", 20_000)
    assert len(parts) > 10
    assert all(part.removeprefix("May I?\n").startswith("```\nx") and part.endswith("\n```") for part in parts)
