"""Other people's words within ours: none of them can leave its marks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from adapters.markup.splitting import split
from models.quoting import fenced, fenced_json, named, quoted, visible

TEXTS = st.text(alphabet=st.sampled_from("`~ab\n \t*_[]()<>#|\\\u202e\u200b\x00\ud800\U000e0041ü"), max_size=40)


@pytest.mark.spec("C6")
@given(TEXTS)
def test_a_quotation_is_one_piece_of_code(text: str) -> None:
    [_, inline, _] = MarkdownIt().parse(f"so: {quoted(text)}")
    assert [child.type for child in inline.children or ()] == ["text", "code_inline"]


@pytest.mark.spec("C6")
@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=2), max_size=3))
def test_json_is_one_block_of_code_and_says_all_of_it(value: dict[str, object]) -> None:
    [block] = MarkdownIt().parse(fenced_json(value))
    assert block.type == "fence"
    assert block.content.strip() == visible(json.dumps(value, indent=2, ensure_ascii=False)).strip()


@pytest.mark.spec("C6")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Ada", "Ada"),
        ("  Ada\n Lovelace ", "Ada Lovelace"),
        ("Zoë O'Neil-Smith", "Zoë O'Neil-Smith"),
        ("Dr. Ada B.", "Dr. Ada B."),
        ("example.com", "`example.com`"),
        ("pay.example.com now", "`pay.example.com now`"),
        ("_Ada_", "`_Ada_`"),
        ("**Ada**", "`**Ada**`"),
        ("Ada\u202e", "`Ada\\u202e`"),
        ("[x](y)", "`[x](y)`"),
        ("telegram:123", "`telegram:123`"),
        ("", "` `"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_names(name: str, shown: str) -> None:
    assert named(name) == shown


@pytest.mark.spec("C6")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a" + " " * 40 + "b", "a" + " " * 40 + "b"),
        ("a" + " " * 41 + "b", "a⟨41 spaces⟩b"),
        ("true" + " " * 5000 + "; rm -rf x", "true⟨5,000 spaces⟩; rm -rf x"),
        ("a" + "\n" * 11 + "b", "a" + "\n" * 11 + "b"),
        ("a" + "\n" * 12 + "b", "a\n⟨11 empty lines⟩\nb"),
        ("a" + "\n    " * 900 + "\nb", "a\n⟨900 empty lines⟩\nb"),
        ("`" * 10, "`" * 10),
        ("`" * 1600, "⟨1,600 backticks⟩"),
        ("a\u2800\u3164b", "a\\u2800\\u3164b"),
    ],
)
def test_what_pushes_the_rest_out_of_sight_is_said_in_words(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.spec("C6", "C3")
@pytest.mark.parametrize("text", ["`" * 1600 + "\n**approved**" * 400, "`" * 10 + "\n**approved**" * 400])
def test_every_part_of_a_block_is_within_its_fence(text: str) -> None:
    for part in split(fenced(text), 2000):
        assert [token.type for token in MarkdownIt().parse(part)] == ["fence"]
