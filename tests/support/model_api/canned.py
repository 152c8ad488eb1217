"""One fixed answer of many deltas, built once: for benchmarks, which must not measure the stand-in.

It looks at nothing but whether the client wants a stream; scripts, faults and checks do not apply."""

import json
from collections.abc import Sequence

from tests.support.model_api.answer import Answer, Tokens
from tests.support.model_api.script import Text
from tests.support.model_api.wires import Wire

_WORD = "word "


class Canned:
    def __init__(self, deltas: int) -> None:
        self._deltas, self._text = deltas, _WORD * deltas
        self._streams: dict[str, Sequence[bytes]] = {}
        self._wholes: dict[str, Sequence[bytes]] = {}

    def pieces(self, wire: Wire, raw: bytes, stream: bool = False) -> tuple[bool, Sequence[bytes]]:
        """Whether it is a stream, and its events; `stream` is what the path already said."""
        stream = stream or b'"stream":true' in raw or b'"stream": true' in raw
        known = self._streams if stream else self._wholes
        if wire.name not in known:
            answer = self._answer()
            known[wire.name] = wire.events(answer) if stream else [json.dumps(wire.whole(answer)).encode()]
        return stream, known[wire.name]

    def _answer(self) -> Answer:
        options = {"stream_options": {"include_usage": True}}
        tokens = Tokens(input=1000, output=self._deltas)
        return Answer("stand-in", (Text(self._text),), "end", tokens, chunk=len(_WORD), body=options)
