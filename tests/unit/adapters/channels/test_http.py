"""What a platform answers, whatever it is."""

import pytest

from adapters.channels.http import Reply


@pytest.mark.spec("C2")
@pytest.mark.parametrize("body", [b"", b"\xff", b"{", b"[" * 100_000], ids=["nothing", "bytes", "half", "depth"])
def test_an_answer_that_is_not_json_is_none(body: bytes) -> None:
    assert Reply(200, {}, body).json() is None
