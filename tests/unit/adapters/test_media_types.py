"""Bytes are what they begin with, and no header makes the reader fail."""

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import media_types
from adapters.media_types import image_size, native_kind, sniff


def png(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + header + struct.pack(">I", zlib.crc32(header))


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00"


def jpeg(width: int, height: int, before: bytes = b"\xff\xe0\x00\x04ab\xff\xff\xc4\x00\x02") -> bytes:
    return b"\xff\xd8" + before + b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + bytes(9)


def webp(chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk + bytes(10)


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X" + struct.pack("<I", 10) + bytes(4) + sides)


IMAGES: list[Callable[[int, int], bytes]] = [png, gif, jpeg, lossy, lossless, extended]


@pytest.mark.spec("T8")
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(1, 1), "image/png"),
        (jpeg(1, 1), "image/jpeg"),
        (gif(1, 1), "image/gif"),
        (b"GIF87a", "image/gif"),
        (lossy(1, 1), "image/webp"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"PK\x05\x06", "application/zip"),
        (b"\x1f\x8b\x08", "application/gzip"),
        (b"hello\r\n\tworld", "text/plain"),
        ("grüß dich".encode(), "text/plain"),
        ("grü".encode()[:-1], "text/plain"),
        (b"<html>%PDF-", "text/plain"),
        (b"", None),
        (b"\x00", None),
        (b"a\x00b", None),
        (b"gr\xfc\xdf", None),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"\x7fELF\x02\x01\x01\x00", None),
    ],
)
def test_data_is_what_it_begins_with(data: bytes, media_type: str | None) -> None:
    assert sniff(data) == media_type


@pytest.mark.spec("T8")
@pytest.mark.parametrize("image", IMAGES)
def test_the_size_is_read_from_the_header(image: Callable[[int, int], bytes]) -> None:
    assert image_size(image(640, 480)) == (640, 480)


@pytest.mark.spec("T8")
@pytest.mark.parametrize("image", IMAGES)
def test_a_cut_header_has_no_size(image: Callable[[int, int], bytes]) -> None:
    whole = image(640, 480)
    for end in range(len(whole)):
        assert image_size(whole[:end]) in (None, (640, 480))
        native_kind(whole[:end])
    assert image_size(whole[:20]) in (None, (640, 480))


@pytest.mark.parametrize(
    "data",
    [
        png(0, 5),
        gif(5, 0),
        jpeg(5, 0),
        jpeg(5, 5, before=b"\xff\xda"),
        jpeg(5, 5, before=b"\xff\xd9"),
        jpeg(5, 5, before=b"\xff\xe0\xff\xff"),
        jpeg(5, 5, before=b"\xff\xe0\x00\x03abc"),
        b"\xff\xd8" + b"\xff" * 1000,
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 1000,
        webp(b"VP8?" + bytes(30)),
        b"%PDF-",
        b"text",
    ],
)
def test_what_claims_no_size_has_none(data: bytes) -> None:
    assert image_size(data) is None
    assert native_kind(data) in (None, "pdf")


@pytest.mark.spec("T8")
def test_images_within_the_limits_are_shown() -> None:
    assert native_kind(png(8000, 8000)) == "image"
    assert native_kind(jpeg(1, 1)) == "image"


@pytest.mark.spec("T8")
def test_pixel_bombs_are_not_shown() -> None:
    assert native_kind(png(8001, 1)) is None
    assert native_kind(png(1, 2**32 - 1)) is None
    assert native_kind(extended(2**24, 2**24)) is None


@pytest.mark.spec("T8")
def test_what_is_too_long_is_not_shown() -> None:
    image = png(1, 1)
    assert native_kind(image.ljust(media_types.MAX_IMAGE_BYTES, b"\x00")) == "image"
    assert native_kind(image.ljust(media_types.MAX_IMAGE_BYTES + 1, b"\x00")) is None
    assert native_kind(b"%PDF-1.7".ljust(media_types.MAX_PDF_BYTES)) == "pdf"
    assert native_kind(b"%PDF-1.7".ljust(media_types.MAX_PDF_BYTES + 1)) is None


@pytest.mark.spec("T8")
@pytest.mark.parametrize("data", [b"hello", b" %PDF-1.7", b"\n\x89PNG", b"PK\x03\x04", b"<svg xmlns=''/>", b""])
def test_the_rest_is_a_file(data: bytes) -> None:
    assert native_kind(data) is None


STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", b"RIFF....WEBPVP8L", b"%PDF-"]


@pytest.mark.spec("T8")
@given(st.sampled_from(STARTS), st.binary(max_size=200))
def test_no_bytes_make_it_fail(start: bytes, rest: bytes) -> None:
    sniff(start + rest)
    native_kind(start + rest)
    size = image_size(start + rest)
    assert size is None or min(size) > 0
