"""How a conversation is spelled for Anthropic, message by message."""

from typing import Any

import pytest

from adapters.contracts import ToolSpec
from adapters.model_port import ModelRequest
from adapters.providers.anthropic.request import CUT_OFF, messages, parameters
from adapters.transcript import Called, Item, Returned, Said, Shown, Thought

pytestmark = pytest.mark.spec("P3")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def sent(*items: Item) -> list[Any]:
    return list(messages(items))


def test_what_the_assistant_did_in_a_row_is_one_message_and_results_follow_with_what_the_user_wrote_meanwhile() -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert sent(
        Said("user", "go"),
        Thought("anthropic", "hm", signed),
        Said("assistant", "I look."),
        Called("c1", "clock", {"b": 1, "a": {"z": 1, "y": 2}}),
        Called("c2", "clock", {}, broken="{{"),
        Said("user", "hurry"),
        Returned("c2", "clock", "what?", ok=False),
        Returned("c1", "clock", "noon"),
        Said("user", "please"),
        Said("assistant", "Noon."),
    ) == [
        {"role": "user", "content": [text("go")]},
        {
            "role": "assistant",
            "content": [
                signed,
                text("I look."),
                {"type": "tool_use", "id": "c1", "name": "clock", "input": {"a": {"y": 2, "z": 1}, "b": 1}},
                {"type": "tool_use", "id": "c2", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("noon")]},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("what?")], "is_error": True},
                text("hurry"),
            ],
        },
        {"role": "user", "content": [text("please")]},
        {"role": "assistant", "content": [text("Noon.")]},
    ]


def test_two_messages_of_the_user_stay_two_and_a_picture_stays_with_its_text() -> None:
    picture = Shown("image/png", "in/a.png", "a.png", "aGFsbG8=")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGFsbG8="}}
    assert sent(Said("user", "one"), Said("user", "two"), picture, Said("user", "three")) == [
        {"role": "user", "content": [text("one")]},
        {"role": "user", "content": [text("two"), image]},
        {"role": "user", "content": [text("three")]},
    ]
    assert sent(picture, Said("user", "what?")) == [{"role": "user", "content": [image, text("what?")]}]


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (Shown("image/png", "in/a.png", "a.png"), "[image: a.png]"),
        (Shown("image/png", "in/b.png"), "[image: b.png]"),
        (Shown("image/tiff", "in/a.tiff", "a.tiff", "aGFsbG8="), "[image: a.tiff]"),
        (Shown("application/pdf", "in/a.pdf", "a.pdf"), "[pdf: a.pdf]"),
        (Shown("audio/ogg", "in/a.ogg", "a.ogg", "aGFsbG8="), "[file: a.ogg]"),
    ],
)
def test_what_cannot_be_shown_is_named(shown: Shown, told: str) -> None:
    assert sent(shown) == [{"role": "user", "content": [text(told)]}]


def test_nothing_empty_is_sent_and_no_thought_comes_last() -> None:
    signed = Thought("anthropic", "hm", {"type": "thinking", "thinking": "hm", "signature": "sig"})
    assert sent(Said("user", " \n"), Said("user", "go"), signed, Said("assistant", "  "), Said("user", "on")) == [
        {"role": "user", "content": [text("go")]},
        {"role": "user", "content": [text("on")]},
    ]


def test_a_call_without_result_is_answered_and_a_result_without_call_left_out() -> None:
    assert sent(Said("user", "go"), Called("c1", "clock"), Returned("c9", "clock", "?"), Said("user", "so?")) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "clock", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [text("no result is known")],
                    "is_error": True,
                },
                text("so?"),
            ],
        },
    ]


def test_a_user_begins() -> None:
    assert sent(Said("assistant", "left over"), Said("user", "go"))[0] == {"role": "user", "content": [text(CUT_OFF)]}


def test_parameters_hold_only_what_there_is() -> None:
    request = ModelRequest(model="claude-x", system=" ", items=(Said("user", "go"),))
    given: dict[str, Any] = dict(parameters(request))
    assert set(given) == {"model", "max_tokens", "messages", "cache_control", "stream"}
    spec = ToolSpec("clock", "The time.", {"type": "object"})
    full: dict[str, Any] = dict(
        parameters(
            ModelRequest(
                model="claude-x",
                system="Be brief.",
                items=request.items,
                tools=(spec,),
                options={"thinking": "low", "iterations": 3},
            )
        )
    )
    assert full["system"] == [{**text("Be brief."), "cache_control": {"type": "ephemeral"}}]
    assert full["tools"] == [{"name": "clock", "description": "The time.", "input_schema": {"type": "object"}}]
    assert full["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert full["output_config"] == {"effort": "low"}
    assert full["messages"] == given["messages"]
