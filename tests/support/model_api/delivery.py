"""An answer on its way: what is written, waited for or broken, in which order.

Pure, so that a fault's exact effect on the bytes can be tested without a socket."""

from collections.abc import Iterator, Sequence
from typing import Literal

from tests.support.model_api.faults import Fault

Step = bytes | float | Literal["stall", "cut"]  # bytes are written; a number is a pause in seconds
_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"
_BROKEN = b'data: {"type": "content_block_delta", "index": 0, "delta": {"type":\n\n'


def steps(pieces: Sequence[bytes], fault: Fault | None, pace: float = 0.0) -> Iterator[Step]:
    """`pace` is the pause between events, in seconds; without one, everything is written at once."""
    if fault is None:
        yield from _paced(pieces, pace)
        return
    body = b"".join(pieces)
    after = len(body) // 2 if fault.after is None else fault.after
    match fault.kind:
        case "cut":
            yield from (body[:after], "cut")
        case "truncate":
            yield body[:after]
        case "stall":
            yield from (body[:after], "stall", body[after:])
        case "garbage" if fault.garbage == "html":
            yield _PAGE
        case "garbage":
            half = len(pieces) // 2
            name = b"event: content_block_delta\n" if body.startswith(b"event: message_start") else b""
            yield b"".join(pieces[:half]) + name + _BROKEN
        case "drip":
            for at in range(0, len(body), fault.size):
                yield from (body[at : at + fault.size], fault.pause)
        case _:
            yield from _paced(pieces, pace)


def _paced(pieces: Sequence[bytes], pace: float) -> Iterator[Step]:
    if not pace:
        yield b"".join(pieces)
        return
    for piece in pieces:
        yield from (piece, pace)
