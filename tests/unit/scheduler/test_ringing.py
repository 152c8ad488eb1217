"""How many tasks may be rung for: a share of the slots, less what runs and was rung for; and never none for long."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.ringing import UNATTENDED, UNKNOWN_SLOTS, Load, Rooms, room_for


def worker(*providers: str, slots: int | None = 100) -> Any:
    return SimpleNamespace(queues=["messages", *(f"agent.{name}" for name in providers)], slots=slots)


def admitted(rooms: Rooms, provider: str, *, was_rung: bool = False) -> int:
    """How many more are, until none is."""
    count = 0
    while rooms.admit(provider, was_rung=was_rung):
        count += 1
    return count


@pytest.mark.spec("S6")
@pytest.mark.parametrize(
    ("load", "room"),
    [
        (Load(), 75),
        (Load(running=30), 45),
        (Load(running=30, lately=20, tasks_lately=20), 25),
        (Load(running=75), 10),  # the floor
        (Load(running=500), 10),
        (Load(running=500, lately=300), 10),
        (Load(running=500, lately=300, tasks_lately=4), 6),
        (Load(running=500, lately=300, tasks_lately=10), 0),
    ],
)
def test_three_quarters_of_the_slots_and_at_least_a_tenth(load: Load, room: int) -> None:
    assert max(0, room_for(100, load).left) == room


@pytest.mark.spec("S6")
def test_rings_that_nobody_took_are_lost_if_there_were_free_slots_and_wait_if_there_were_none() -> None:
    untaken = {"earlier": 60, "tasks_earlier": 60}
    assert room_for(100, Load(running=20, **untaken)).left == 55
    assert room_for(100, Load(running=100, **untaken)).left <= 0
    assert not room_for(100, Load(running=99)).full
    assert room_for(100, Load(running=100)).full


@pytest.mark.spec("S6")
def test_where_nobody_listens_a_few_are_rung_for_and_not_again_soon() -> None:
    assert room_for(0, Load()).left == UNATTENDED
    assert room_for(0, Load(earlier=4, tasks_earlier=4)).left == UNATTENDED - 4
    assert admitted(Rooms([], {}), "anybody") == UNATTENDED
    assert admitted(Rooms([], {}), "anybody", was_rung=True) == 0


@pytest.mark.spec("S6")
@given(st.integers(1, 10_000), st.builds(Load, *[st.integers(0, 20_000)] * 3))
def test_there_is_room_for_one_unless_one_is_on_its_way(slots: int, load: Load) -> None:
    room = room_for(slots, load)
    assert room.left >= 1 or load.tasks_lately >= 1
    assert room.left <= max(1, slots * 0.75)


@pytest.mark.spec("S6")
def test_workers_of_one_provider_add_up_and_one_that_does_not_say_counts_too() -> None:
    assert admitted(Rooms([worker("a"), worker("a", slots=20), worker("b")], {}), "a") == 90
    assert admitted(Rooms([worker("a", slots=None)], {}), "a") == UNKNOWN_SLOTS * 3 // 4
    assert admitted(Rooms([worker("a", slots=1)], {}), "a") == 1


@pytest.mark.spec("S6")
def test_providers_that_share_a_worker_share_its_slots() -> None:
    rooms = Rooms([worker("a", "b")], {"a": Load(running=30)})
    assert admitted(rooms, "b") == 45
    assert admitted(rooms, "a") == 0
    assert rooms.without == {"a", "b"}


@pytest.mark.spec("S6")
def test_one_with_a_few_shared_slots_does_not_get_those_of_the_other_s_own_workers() -> None:
    rooms = Rooms([worker("a", "b", slots=20), worker("b", slots=1000)], {})
    assert admitted(rooms, "a") == 15
    assert admitted(rooms, "b") == 750
    assert rooms.left == 0


@pytest.mark.spec("S6")
def test_a_backlog_of_one_takes_nothing_from_another() -> None:
    rooms = Rooms([worker("a"), worker("b")], {"a": Load(running=100, lately=400, tasks_lately=100)})
    assert admitted(rooms, "a") == 0
    assert rooms.without == {"a"}
    assert admitted(rooms, "b") == 75
