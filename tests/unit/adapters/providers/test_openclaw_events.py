"""What openclaw printed at its end, as recorded of the real program: with and without its gateway's words around it."""

import json

import pytest

from adapters.errors import ProviderError
from adapters.events import FilesTouched, Message, TextDelta
from adapters.providers.cli.openclaw.events import End, Events, end_of, intent, our_line
from adapters.providers.talking import CALLS, LONGEST_TEXT

pytestmark = pytest.mark.spec("P9")

LOCAL = {
    "payloads": [{"text": "Good morning", "mediaUrl": None}, {"text": "And good night", "mediaUrl": None}],
    "meta": {"durationMs": 7936, "agentMeta": {"sessionId": "mysess1", "usage": {"input": 1214, "output": 56}}},
}
REFUSED = {
    "ok": False,
    "status": "error",
    "final": "",
    "payloads": [],
    "model": None,
    "error": {"message": "⚠️ request failed (authentication failed, HTTP 401).", "kind": "exception"},
}


def test_the_answer_is_in_its_payloads() -> None:
    assert end_of(json.dumps(LOCAL, indent=2)) == End("Good morning\n\nAnd good night")


def test_an_error_is_told_wherever_it_stands() -> None:
    told = end_of(json.dumps(REFUSED, indent=2))
    assert told is not None
    assert "HTTP 401" in told.error
    broken = {"payloads": [{"text": "Agent run failed", "isError": True}], "meta": {"error": {"message": "malformed"}}}
    assert end_of(json.dumps(broken)) == End("", "malformed; Agent run failed")


def test_lines_are_an_answer_and_nothing_is_none() -> None:
    assert end_of("one\ntwo\n") == End("one\ntwo")
    assert end_of(" \n") is None
    with pytest.raises(ProviderError, match="no JSON"):
        end_of('{"payloads": [')


def test_only_lines_of_the_plug_in_are_its() -> None:
    assert our_line('{"longshore":{"ask":"hello"}}') == {"ask": "hello"}
    assert our_line('{"payloads": []}') is None
    assert our_line("longshore") is None


def test_what_a_tool_wants_is_said_in_paths_and_commands() -> None:
    assert intent("exec", {"command": "ls"}, "/workspace").command == "ls"
    reading = intent("read", {"path": "/workspace/sub/a.txt"}, "/workspace")
    assert (reading.paths, reading.writes) == (("sub/a.txt",), False)
    outside = intent("write", {"path": "/etc/passwd", "content": "x"}, "/workspace")
    assert (outside.paths, outside.writes) == (("/etc/passwd",), True)
    patch = {"input": "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n*** Delete File: c.py\n*** End Patch"}
    assert intent("apply_patch", patch, "/workspace").paths == ("a.py", "b.py", "c.py")
    assert intent("unheard_of", {"x": 1}, "/workspace").details == {"x": 1}


def test_words_and_calls_without_end_are_not_kept_without_end() -> None:
    events = Events("/workspace")
    piece = "x" * (LONGEST_TEXT // 3)
    for _ in range(9):
        assert list(events.take("assistant", {"delta": piece})) == [TextDelta(text=piece)]
    whole = Message(text=piece * 9)
    assert list(events.whole(whole)) == [whole], "it was written before"
    for number in range(CALLS + 1):
        list(events.take("tool", {"phase": "start", "toolCallId": number, "name": "write", "args": {"path": "a.txt"}}))
    results = [{"phase": "result", "toolCallId": number, "name": "write"} for number in (0, CALLS)]
    touched = [event for result in results for event in events.take("tool", result) if isinstance(event, FilesTouched)]
    assert len(touched) == 1
