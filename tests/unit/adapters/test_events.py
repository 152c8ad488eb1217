"""Events on the wire: every type survives JSON, none can be changed, and readers of other versions are not broken."""

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from adapters.events import (
    LIVE_ONLY,
    PREVIEW_LIMIT,
    VERSION,
    AnyEvent,
    ApprovalRequested,
    DeliveryChanged,
    Envelope,
    Failed,
    MessagesJoined,
    ProviderEvent,
    QuestionAsked,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    event_from_dict,
    event_schema,
    event_to_dict,
    is_lasting,
)
from tests.support.sample_events import EVENTS

AT = datetime(2026, 1, 31, 9, 0, 0, 123456, tzinfo=UTC)

every_event = pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)


def _wrapped(event: AnyEvent, **fields: Any) -> Envelope:
    return Envelope(session="s-1", at=AT, event=event, **fields)


@pytest.mark.spec("P2")
def test_the_table_above_names_every_event_by_its_type() -> None:
    assert {type(event) for event in EVENTS.values()} == set(get_args(AnyEvent))
    assert {name: event.type for name, event in EVENTS.items()} == {name: name for name in EVENTS}


@pytest.mark.spec("P2")
@every_event
def test_an_event_comes_back_from_json_as_it_was(event: AnyEvent) -> None:
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    envelope = _wrapped(event, turn="t-1", seq=7)
    assert Envelope.from_json(envelope.to_json()) == envelope
    assert Envelope.from_json(envelope.to_json().encode()) == envelope


@pytest.mark.spec("P2")
@every_event
def test_an_event_cannot_be_changed(event: AnyEvent) -> None:
    for name in type(event).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(event, name, getattr(event, name))
    envelope = _wrapped(event)
    with pytest.raises(ValidationError, match="frozen"):
        envelope.session = "another"  # type: ignore[misc]


@pytest.mark.spec("P2")
@every_event
def test_fields_of_a_later_version_are_ignored(event: AnyEvent) -> None:
    assert event_from_dict(event_to_dict(event) | {"from_the_future": {"x": 1}}) == event
    raw = json.loads(_wrapped(event).to_json()) | {"region": "eu"}
    raw["event"]["from_the_future"] = True
    assert Envelope.from_json(json.dumps(raw)) == _wrapped(event)


@pytest.mark.spec("P2")
@every_event
def test_what_is_unset_is_not_on_the_wire(event: AnyEvent) -> None:
    raw = json.loads(_wrapped(event).to_json())
    assert None not in raw.values()
    assert None not in raw["event"].values()
    assert raw["v"] == VERSION
    assert raw["event"]["type"] == event.type


@pytest.mark.spec("P2")
def test_an_unknown_event_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="telepathy"):
        event_from_dict({"type": "telepathy", "text": "x"})


@pytest.mark.spec("P2")
@given(st.text(st.characters(exclude_characters="\x00"), max_size=500))
def test_a_preview_is_one_line_of_two_hundred_characters(preview: str) -> None:
    shown = ToolCall(id="1", name="x", preview=preview).preview
    assert len(shown) <= PREVIEW_LIMIT == 200
    preview = " ".join(preview.split())
    if len(preview) <= PREVIEW_LIMIT:
        assert shown == preview
    else:
        assert shown == preview[:199] + "…"


@pytest.mark.spec("P2")
def test_only_passing_things_are_not_kept() -> None:
    passing = {name for name, event in EVENTS.items() if not is_lasting(event)}
    assert passing == {"session_started", "text_delta", "tool_progress", "screen_changed", "delivery"}
    assert {kind.model_fields["type"].default for kind in LIVE_ONLY} == passing


@pytest.mark.spec("P2")
def test_the_fleet_s_own_events_are_not_a_provider_s() -> None:
    own = {TurnStarted, MessagesJoined, QuestionAsked, TurnEnded, DeliveryChanged}
    assert set(get_args(AnyEvent)) - set(get_args(ProviderEvent)) == own


@pytest.mark.spec("P2")
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ApprovalRequested, {"category": "x", "summary": "y", "risk": "enormous"}),
        (TurnEnded, {"status": "exploded"}),
        (DeliveryChanged, {"message": 1, "status": "shredded", "channel": "x"}),
        (Failed, {"message": "x", "error_class": "bad luck"}),
        (ToolResult, {"id": "1", "name": "x"}),
    ],
)
def test_a_wrong_value_is_refused(kind: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind(**fields)


@pytest.mark.spec("P2")
def test_the_published_schema_describes_the_envelope_and_every_event() -> None:
    schema = event_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert {"session", "at", "event"} <= set(schema["required"])
    assert set(schema["properties"]) == {"v", "session", "turn", "seq", "after", "at", "event"}
    named = schema["properties"]["event"]["discriminator"]["mapping"]
    assert set(named) == set(EVENTS)
    for name, reference in named.items():
        definition = schema["$defs"][reference.removeprefix("#/$defs/")]
        assert definition["properties"]["type"]["const"] == name


@pytest.mark.spec("P2")
def test_the_wire_form_is_this_and_no_other() -> None:
    """Other services read it: a change here is a new version."""
    wire = Envelope(session="s", turn="t", seq=3, at=AT, event=ToolCall(id="1", name="clock", preview="p")).to_json()
    assert wire == (
        '{"v":1,"session":"s","turn":"t","seq":3,"at":"2026-01-31T09:00:00.123456Z",'
        '"event":{"type":"tool_call","id":"1","name":"clock","preview":"p"}}'
    )
