"""What bytes are, by their first ones: what a sender or a server says of them is not believed.

Never decodes: hostile files meet only fixed offsets here. `native_kind` decides what a model is shown as a picture or a
document, the rest is saved as a file."""

import codecs
from typing import Final, Literal

# The smallest of what the model APIs take. Anthropic counts an image's 5 MB after base64, which makes 4 bytes of 3.
MAX_IMAGE_BYTES: Final = 5 * 1024 * 1024 * 3 // 4
MAX_IMAGE_SIDE: Final = 8000  # pixels
MAX_PDF_BYTES: Final = 20 * 1000 * 1000

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),  # an empty one
    (b"\x1f\x8b\x08", "application/gzip"),
)
_NOT_TEXT: Final = frozenset(range(32)) - frozenset(b"\t\n\f\r\x1b")
_TEXT_SAMPLE: Final = 64 * 1024  # bytes that are looked at for text

# Start-of-frame markers, and those that stand alone without a length.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_LAST: Final = frozenset({0xD9, 0xDA})  # the end, or where the picture itself begins


def sniff(data: bytes) -> str | None:
    """The media type: of a known kind of file, or text/plain for UTF-8 without control characters; None for the rest
    and for nothing at all."""
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "text/plain" if data and _is_text(data[:_TEXT_SAMPLE]) else None


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height that the header of a PNG, JPEG, GIF or WebP claims, in pixels; None when it claims nothing
    readable. A few bytes can claim a picture of gigabytes: look here before anything decodes it."""
    match sniff(data):
        case "image/png":
            size = (_big(data, 16, 4), _big(data, 20, 4)) if data[12:16] == b"IHDR" and len(data) >= 24 else (0, 0)
        case "image/gif":
            size = (_little(data, 6, 2), _little(data, 8, 2)) if len(data) >= 10 else (0, 0)
        case "image/jpeg":
            size = _jpeg_size(data)
        case "image/webp":
            size = _webp_size(data)
        case _:
            return None
    return size if min(size) > 0 else None


def native_kind(data: bytes) -> Literal["image", "pdf"] | None:
    """As what a model API can take it, within its limits; None: only as a file."""
    if sniff(data) == "application/pdf":
        return "pdf" if len(data) <= MAX_PDF_BYTES else None
    size = image_size(data)
    if size is None or len(data) > MAX_IMAGE_BYTES or max(size) > MAX_IMAGE_SIDE:
        return None
    return "image"


def _is_text(data: bytes) -> bool:
    if not _NOT_TEXT.isdisjoint(data):
        return False
    try:
        # Not final: the sample, or the data, may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(data, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _JPEG_ALONE:
            at += 2
        elif marker in _JPEG_FRAMES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        elif marker in _JPEG_LAST:
            break
        else:
            at += 2 + _big(data, at + 2, 2)
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    if len(data) < 30:
        return 0, 0
    match data[12:16]:
        case b"VP8X":
            return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
        case b"VP8L" if data[20] == 0x2F:
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    return 0, 0


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
