"""Neutral conversations for property tests of the wire mappings: sound ones, and damaged ones."""

from typing import Any

from hypothesis import strategies as st

from adapters.transcript import Called, Item, Returned, Said, Shown, Thought
from tests.support.model_api.anthropic_wire import signature
from tests.support.model_api.responses_wire import encrypted

texts = st.text(max_size=12) | st.sampled_from(["", " ", "\n", "hello", "Größe 🦑", "half \ud800", "\x00"])
words = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8)
arguments: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    words, st.none() | st.integers() | words | st.lists(words, max_size=2), max_size=2
)
names = st.sampled_from(["clock", "send_message", "forecast-2"])


@st.composite
def thoughts(draw: st.DrawFn) -> Thought:
    text = draw(words)
    number = draw(st.integers(0, 9**6))
    return draw(
        st.sampled_from(
            [
                Thought("anthropic", text, {"type": "thinking", "thinking": text, "signature": signature(text)}),
                Thought("anthropic", "", {"type": "redacted_thinking", "data": text}),
                Thought(
                    "openai",
                    text,
                    {
                        "type": "reasoning",
                        "id": f"rs_{number}",
                        "summary": [{"type": "summary_text", "text": text}],
                        "encrypted_content": encrypted(f"rs_{number}"),
                    },
                ),
                Thought("openai", text),
                Thought("anthropic", text, {"type": "thinking", "thinking": text}),
                Thought("elsewhere", text, {"type": "thinking", "thinking": text, "signature": "x"}),
            ]
        )
    )


shown = st.builds(
    Shown,
    media_type=st.sampled_from(["image/png", "image/jpeg", "application/pdf", "image/tiff", "audio/mpeg"]),
    path=words,
    name=st.just("") | words,
    data=st.sampled_from(["", "aGFsbG8="]),
)
from_user = st.builds(Said, st.just("user"), texts) | shown


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Item]]:
    """Sound ones, in steps: a request is made at the end of a step that does not end with the assistant's own words."""
    steps: list[list[Item]] = []
    made = 0
    for _ in range(draw(st.integers(1, 4))):
        steps.append([Said("user", draw(words)), *draw(st.lists(from_user, max_size=2))])
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                Called(f"call_{made + n}", draw(names), draw(arguments), draw(st.just("") | words))
                for n in range(draw(st.integers(1, 3)))
            ]
            made += len(calls)
            before = draw(st.lists(thoughts() | st.builds(Said, st.just("assistant"), texts), max_size=2))
            results = [
                Returned(call.id, call.name, draw(texts), draw(st.booleans())) for call in draw(st.permutations(calls))
            ]
            meanwhile = draw(st.lists(from_user, max_size=2))
            steps.append([*before, *calls, *meanwhile, *results])
        steps.append([*draw(st.lists(thoughts(), max_size=1)), Said("assistant", draw(words))])
    return steps


ids = st.sampled_from(["a", "b", "c"])
damaged = st.lists(
    from_user
    | thoughts()
    | st.builds(Said, st.just("assistant"), texts)
    | st.builds(Called, ids, st.text(max_size=4), arguments, st.just("") | words)
    | st.builds(Returned, ids, names, texts, st.booleans()),
    max_size=14,
).map(lambda items: [*items, Said("user", "and now?")])
