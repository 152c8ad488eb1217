"""What reaches a JSON column can be stored, whatever people, models and platforms wrote."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.base import storable_json

anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**15), 10**15) | st.text(st.characters(), max_size=50),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.spec("M1", "D2")
@given(st.dictionaries(st.text(st.characters(), max_size=9), anything, max_size=4))
def test_any_content_is_made_storable(content: dict[str, Any]) -> None:
    """PostgreSQL stores neither NUL nor half a surrogate pair, and JSON has neither NaN nor infinity."""
    stored = storable_json(content)
    assert "\\u0000" not in stored
    json.dumps(json.loads(stored, parse_constant=_no_constant), ensure_ascii=False).encode()


@pytest.mark.spec("M1", "D2")
def test_what_cannot_be_stored_is_replaced_and_the_rest_kept() -> None:
    content = {"text": "a\x00b\ud800c🫖", "list": ["\udfff", 1, None, float("nan")], "k\x00": {"\ud800": True}}
    stored = json.loads(storable_json(content))
    assert stored == {"text": "a\ufffdb?c🫖", "list": ["?", 1, None, None], "k\ufffd": {"?": True}}
