"""Signatures with a time: what passes, what does not, and that nothing a stranger sends is anything but refused."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channels.signing import HEADER, TOLERANCE_SECONDS, check_signature, sign
from adapters.errors import SignatureError

BODY = b'{"text": "hello"}'
NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: float(NOW))


@pytest.mark.spec("C8")
def test_the_form_is_the_documented_one() -> None:
    """Computed once with openssl: `printf '1800000000.{"text": "hello"}' | openssl dgst -sha256 -hmac secret`."""
    digest = "4aa7c233212f1d5213555368ab9319f2bac738ee0ff4f448bf2b09a48e0418ef"
    assert sign("secret", BODY) == f"t=1800000000,v1={digest}"


@pytest.mark.spec("C8")
@pytest.mark.parametrize("seconds", [0, -TOLERANCE_SECONDS, TOLERANCE_SECONDS])
def test_a_signature_passes_within_the_tolerance(seconds: int) -> None:
    check_signature("secret", BODY, sign("secret", BODY, NOW + seconds))


@pytest.mark.spec("C8")
@pytest.mark.parametrize("seconds", [-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1, -NOW, 10**12])
def test_an_old_or_future_one_does_not(seconds: int) -> None:
    with pytest.raises(SignatureError, match="too old or from the future"):
        check_signature("secret", BODY, sign("secret", BODY, NOW + seconds))


@pytest.mark.spec("C8")
@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (None, f"the request has no {HEADER} header"),
        ("", f"the request has no {HEADER} header"),
        ("hello", "is not of the form"),
        (",,,", "is not of the form"),
        ("t=,v1=", "is not of the form"),
        ("v1=abc", "is not of the form"),
        (f"t={NOW}", "is not of the form"),
        ("t=nan,v1=abc", "is not of the form"),
        ("t=1e9,v1=abc", "is not of the form"),
        (f"t={NOW},v1=", "does not fit"),
        (f"t={NOW},v1=abc", "does not fit"),
        (f"t={NOW},v1=ünïcödé", "does not fit"),
        (f"t={NOW},v0={'0' * 64}", "is not of the form"),
    ],
)
def test_a_header_that_is_no_signature_is_refused_with_a_reason(header: str | None, complaint: str) -> None:
    with pytest.raises(SignatureError, match=complaint):
        check_signature("secret", BODY, header)


@pytest.mark.spec("C8")
def test_another_secret_body_or_time_does_not_fit() -> None:
    good = sign("secret", BODY)
    for secret, body, header in (
        ("Secret", BODY, good),
        ("secret", BODY + b" ", good),
        ("secret", BODY, good.replace(f"t={NOW}", f"t={NOW - 1}")),
    ):
        with pytest.raises(SignatureError, match="does not fit the body"):
            check_signature(secret, body, header)


@pytest.mark.spec("C8")
def test_the_time_is_part_of_what_is_signed() -> None:
    """Else `1` + `2.body` and `12` + `.body` would have one signature."""
    assert sign("secret", b"2.x", 1).split("v1=")[1] != sign("secret", b".x", 12).split("v1=")[1]


@pytest.mark.spec("C8")
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_whatever_a_stranger_sends_is_refused(header: str) -> None:
    with pytest.raises(SignatureError):
        check_signature("secret", BODY, header)


@pytest.mark.spec("C8")
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.binary())
def test_any_secret_and_any_body_can_be_signed(secret: str, body: bytes) -> None:
    check_signature(secret, body, sign(secret, body))
