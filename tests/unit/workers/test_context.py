"""Trimming: whatever the conversation, no call is torn from its result, and what stays is in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.transcript import Called, Item, Returned, Said, Shown, Thought
from tests.support.transcripts import conversations
from workers.context import CUT, estimate, pieces, shrink, trim

flat = conversations().map(lambda steps: tuple(item for step in steps for item in step))


def _ids(items: tuple[Item, ...], kind: type[Called] | type[Returned]) -> list[str]:
    return [item.id for item in items if isinstance(item, kind)]


@pytest.mark.spec("P17")
@given(flat, st.integers(0, 3000))
def test_trimming_never_splits_a_call_from_its_result(items: tuple[Item, ...], tokens: int) -> None:
    kept = trim(items, tokens)
    assert sorted(_ids(kept, Called)) == sorted(_ids(kept, Returned))
    assert kept == tuple(items[len(items) - len(kept) :]), "an end of the conversation, whole and in order"


@pytest.mark.spec("P17")
@given(flat, st.integers(0, 3000))
def test_what_is_kept_fits_and_nothing_that_would_fit_is_dropped(items: tuple[Item, ...], tokens: int) -> None:
    kept = trim(items, tokens)
    assert estimate(kept) <= max(tokens, max((estimate(piece) for piece in pieces(items)), default=0))
    if tokens >= estimate(items) and items and isinstance(items[0], Said | Shown):
        assert kept == tuple(items)


@pytest.mark.spec("P17")
@given(flat)
def test_pieces_are_the_conversation_cut_up(items: tuple[Item, ...]) -> None:
    cut = pieces(items)
    assert tuple(item for piece in cut for item in piece) == tuple(items)
    for piece in cut:
        assert sorted(_ids(tuple(piece), Called)) == sorted(_ids(tuple(piece), Returned))


@pytest.mark.spec("P17")
@given(flat, st.integers(0, 3000))
def test_shrinking_keeps_every_item_and_cuts_only_results(items: tuple[Item, ...], tokens: int) -> None:
    shrunk = shrink(items, tokens)
    assert len(shrunk) == len(items)
    for before, after in zip(items, shrunk, strict=True):
        assert before == after or (isinstance(after, Returned) and after.text == CUT)
    assert estimate(shrunk) <= estimate(items)


def test_a_thought_stays_with_the_message_it_belongs_to() -> None:
    thought = Thought("anthropic", "hm", {"type": "thinking"})
    talk = (Said("user", "a"), thought, Called("1", "clock"), Returned("1", "clock", "noon"), Said("assistant", "noon"))
    assert [len(piece) for piece in pieces(talk)] == [1, 4]
    assert trim(talk, 0) == talk[1:], "the last piece stays, whatever its size"


def test_the_oldest_results_are_cut_first_and_no_more_than_needed() -> None:
    talk = [item for n in range(3) for item in (Called(str(n), "read"), Returned(str(n), "read", "x" * 3500))]
    shrunk = shrink(talk, estimate(talk) - 900)
    assert [item.text == CUT for item in shrunk if isinstance(item, Returned)] == [True, False, False]
