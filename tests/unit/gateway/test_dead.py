"""Dead letters in the terminal: the ids of messages are their producers' own, and may look like markup."""

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.dead import _dead, _rejected, _undelivered


@pytest.mark.spec("G4")
@pytest.mark.parametrize("table", [_dead, _rejected, _undelivered])
def test_an_id_that_looks_like_markup_is_shown_as_it_is(table: Any) -> None:
    row = SimpleNamespace(
        id="task[/x]", folder="demo", tries=1, error_class="auth", error="x", content={"text": "x"}, reason="x",
        created_at=datetime(2026, 1, 1, tzinfo=UTC), payload={}, channel_type="x", platform_id="x",
        status="failed", attempts=1,
    )  # fmt: skip
    paper = io.StringIO()
    Console(file=paper, width=120).print(table([row]))
    assert "task[/x]" in paper.getvalue()
