"""Secrets in all their forms, cut in every way; and ordinary text, which stays as it is."""

import base64
import json
import re
import time
import uuid
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.redaction import Redactor, process_redactor, secrets_in
from adapters.redaction_stream import LABEL
from adapters.transcript import Called, Said, Thought

PASSWORD = 'p@ss/w0rd "quoted" ünd\nmore'
KEY = "vault-9f8e7d6c5b4a"
KNOWN = Redactor([PASSWORD, KEY])
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6iJ9"

SHAPES = {
    "anthropic": f"sk-ant-api03-{LETTERS}",
    "openai project": f"sk-proj-{LETTERS}",
    "openai": f"sk-{LETTERS}",
    "github": f"ghp_{LETTERS[:36]}",
    "github oauth": f"gho_{LETTERS[:36]}",
    "github server": f"ghs_{LETTERS[:36]}",
    "github fine-grained": f"github_pat_11ABCDEFG0_{LETTERS}",
    "slack": f"xoxb-123456789012-{LETTERS[:24]}",
    "slack user": f"xoxp-123456789012-{LETTERS[:24]}",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": f"AIza{LETTERS[:35]}",
    "gitlab": f"glpat-{LETTERS[:20]}",
    "npm": f"npm_{LETTERS[:36]}",
    "huggingface": f"hf_{LETTERS[:34]}",
    "gateway token": f"lst_{LETTERS[:20]}-_{LETTERS[:21]}",
    "one-time code": "LS-7KX2-0QPD-9ZZM",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{LETTERS}",
    "bearer": f"Bearer {LETTERS}",
    "telegram": f"123456789:AA{LETTERS[:33]}",
    "slack webhook": f"hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/{LETTERS[:24]}",
    "private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{LETTERS}\n{LETTERS}\n-----END OPENSSH PRIVATE KEY-----",
    "escaped private key": f"-----BEGIN PRIVATE KEY-----\\n{LETTERS}\\n-----END PRIVATE KEY-----",
}

ORDINARY = [
    "The task-scheduler-configuration-2 of disk-usage-report-for-2024-and-later is fine: 10:30, 12345678:90.",
    str(uuid.UUID(int=2**127 + 12345)),
    "0190a8c2-7b3c-7def-8123-456789abcdef:12345678:0190a8c2-7b3c-7def-8123-456789abcdef",
    "commit 9241920e6811b28407b16087d504aa00bb11cc22",
    "call_9abcdef0_3_1 and call_0190a8c2_12_0",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode(),
    "see https://user@example.com/a?b=c, ssh://git@github.com:22/x, http://localhost:8080/a@b and mail@example.com",
    '{"broker":"redis://localhost:6379","mail":"a@b"}',
    "Bearer authentication/authorization and a bearer of bad news; Basic internationalization",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "sk-learn-is-not-a-key-but-a-library, npm_config_registry_of_everything_we_ever_had_here",
    'base64 JSON: eyJhIjoxfQ== and [redacted] and ":// : @"',
]


def streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = redactor.stream()
    return "".join(map(stream.feed, pieces)) + stream.flush()


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("around", ["{}", "say {} now", '{{"key": "{}"}}', "a={}&b", "line\\n{}\\nline", "({})"])
@pytest.mark.spec("F9")
def test_shapes_of_secrets_nobody_told_us_about(secret: str, around: str) -> None:
    text = around.format(secret)
    expected = around.format(LABEL)
    assert KNOWN.text(text) == expected
    assert KNOWN.text(expected) == expected
    for size in range(1, 12):
        assert streamed(KNOWN, cut(text, size)) == expected


@pytest.mark.parametrize("text", ORDINARY)
@pytest.mark.spec("F9")
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert KNOWN.text(text) is text
    for size in range(1, 8):
        assert streamed(KNOWN, cut(text, size)) == text


@pytest.mark.parametrize(
    "form",
    [
        PASSWORD,
        quote(PASSWORD),
        quote(PASSWORD, safe=""),
        re.sub("%..", lambda escaped: escaped[0].lower(), quote(PASSWORD, safe="")),
        quote_plus(PASSWORD),
        json.dumps(PASSWORD)[1:-1],
        json.dumps(PASSWORD, ensure_ascii=False)[1:-1],
        repr(PASSWORD)[1:-1],
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.urlsafe_b64encode(PASSWORD.encode()).decode().rstrip("="),
    ],
)
@pytest.mark.spec("F9")
def test_a_known_secret_in_every_form(form: str) -> None:
    for around in ("{}", "x{}y", "a {} b"):
        text = around.format(form)
        assert KNOWN.text(text) == around.format(LABEL)
        assert streamed(KNOWN, list(text)) == around.format(LABEL)


@pytest.mark.parametrize("user", ["", "u", "us", "use", "user", "a-longer-user"])
def test_a_known_secret_as_a_part_of_something_in_base64(user: str) -> None:
    shown = KNOWN.text(base64.b64encode(f"{user}:{KEY}:x".encode()).decode())
    assert LABEL in shown
    raw = shown.split(LABEL)[1]
    assert len(raw) <= 6, "`:x`, and one character that is shared with it"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://:pw@h:1/0", "redis://:[redacted]@h:1/0"),
        ("postgresql+psycopg://me:p@ss@db/x", "postgresql+psycopg://me:[redacted]@db/x"),
        ("https://x-access-token:abc@github.com/a", "https://x-access-token:[redacted]@github.com/a"),
        (f"https://ghp_{LETTERS[:36]}:@github.com", "https://[redacted]:[redacted]@github.com"),
    ],
)
@pytest.mark.spec("F9")
def test_passwords_in_addresses(text: str, expected: str) -> None:
    assert KNOWN.text(text) == expected
    assert KNOWN.text(expected) == expected
    for size in range(1, 8):
        assert streamed(KNOWN, cut(text, size)) == expected


def test_secrets_that_overlap_or_touch_are_covered_whole() -> None:
    redactor = Redactor(["abcd-1234", "1234-wxyz", "with a space in it"])
    assert redactor.text("abcd-1234-wxyz") == LABEL
    assert redactor.text("abcd-1234abcd-1234") == LABEL * 2
    assert redactor.text(f"abcd-1234sk-{LETTERS}") == LABEL * 2, "what follows a secret is not the middle of a word"
    text = f"Bearer {LETTERS}with a space in it."
    assert redactor.text(text) == f"{LABEL}."
    assert streamed(redactor, list(text)) == f"{LABEL}."


def test_a_secret_cut_by_the_end_of_a_text_or_preview() -> None:
    assert KNOWN.text(f"it is {KEY[:-2]}") == f"it is {LABEL}"
    assert KNOWN.text(f"it is {KEY[:9]}…") == f"it is {LABEL}…"
    assert KNOWN.text(f"it is {KEY[:5]}") == f"it is {KEY[:5]}"
    assert KNOWN.text(f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS}") == LABEL


PIECES = st.sampled_from(
    [*SHAPES.values(), PASSWORD, KEY, quote(PASSWORD), *(text[:90] for text in ORDINARY), "sk-", "eyJ", "://u:p@", "…"]
) | st.text(alphabet="sk-antghp_eyJ.:/@AIza01BEGIN \n\\%v", max_size=12)


@st.composite
def cuttings(draw: st.DrawFn) -> tuple[str, list[str]]:
    parts = draw(st.lists(PIECES, max_size=6))
    text = "".join(part[: draw(st.integers(0, len(part)))] if draw(st.booleans()) else part for part in parts)
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return text, [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(cuttings())
@pytest.mark.spec("F9")
def test_however_a_text_is_cut_the_stream_gives_what_the_whole_gives(given: tuple[str, list[str]]) -> None:
    text, pieces = given
    whole = KNOWN.text(text)
    assert streamed(KNOWN, pieces) == whole
    assert streamed(KNOWN, list(text)) == whole
    assert KNOWN.text(whole) == whole
    assert KEY not in whole
    assert PASSWORD not in whole


@given(st.text(alphabet="abc xyz.", max_size=30), st.integers(1, len(KEY)), st.text(alphabet="qru ", max_size=5))
@pytest.mark.spec("F9")
def test_no_beginning_of_a_secret_is_shown_while_it_may_go_on(before: str, size: int, after: str) -> None:
    stream = KNOWN.stream()
    shown = ""
    for piece in [*before, *cut(KEY, size), *after]:
        shown += stream.feed(piece)
        assert KEY[:4] not in shown
    assert shown + stream.flush() == before + LABEL + after


def test_ordinary_text_is_shown_at_once() -> None:
    text = "It is what one would expect: things, names such as next, and 1234 numbers; https://a.b/c too"
    stream = KNOWN.stream()
    fed = shown = 0
    for piece in cut(text, 3):
        fed += len(piece)
        shown += len(stream.feed(piece))
        assert fed - shown <= 8


def test_a_stream_is_not_starved() -> None:
    """Whatever is said, the most that waits is about a thousand characters."""
    for text in ("eyJ" + "a" * 9000, "://" + "u" * 9000, "://u:" + "p" * 9000, "Bearer " + "a" * 9000, "1" * 9000):
        stream = Redactor().stream()
        fed = shown = 0
        for piece in cut(text, 50):
            fed += len(piece)
            shown += len(stream.feed(piece))
            assert fed - shown < 1100


@pytest.mark.parametrize(
    "unit",
    ["eyJ", "eyJ.", "ghp_", "sk-", " sk-a", "://a:", "://a:b@", "a@", "-----BEGIN ", "-", "1", "123456:AA", "Bearer ",
     "Bearer a", "\\nsk-", KEY, KEY[:-1], " "],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        times = []
        for _ in range(3):
            begin = time.process_time()
            KNOWN.text(text)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(80_000) < 8 * seconds(20_000) + 0.05, "four times the text, about four times as long"


def test_values_are_searched_all_through_and_kept_if_clean() -> None:
    clean = {"a": [1, None, ("x", 2.5)], "b": {"c": "d"}}
    assert KNOWN.value(clean) is clean
    found = KNOWN.value({KEY: [KEY, (1, f"x{KEY}")], "n": 3})
    assert found == {LABEL: [LABEL, (1, f"x{LABEL}")], "n": 3}


def test_what_only_its_author_can_read_stays_as_it_came() -> None:
    thought = KNOWN.record(Thought("anthropic", f"hm {KEY}", {"signature": KEY}))
    assert thought["content"] == {"provider": "anthropic", "text": f"hm {LABEL}", "opaque": {"signature": KEY}}
    signed = {"type": "thinking", "thinking": f"hm {KEY}", "signature": "abc"}
    assert KNOWN.record(Thought("anthropic", "hm", signed))["content"]["opaque"] == {}, "changed, it would be refused"
    assert KNOWN.record(Said("user", KEY))["content"] == {"text": LABEL}
    assert KNOWN.record(Called("1", "t", {"a": [KEY]}))["content"]["arguments"] == {"a": [LABEL]}


@pytest.mark.spec("F9")
def test_which_variables_hold_secrets() -> None:
    env = {
        "ANTHROPIC_API_KEY": "fake-key-anthropic",
        "MY_TOKEN": "abcdefgh",
        "db_password": "hunter2hunter2",
        "SHORT_KEY": "true",
        "MAX_TOKENS": "100000000",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google/key.json",
        "TOKEN_URL": "https://example.com/token/endpoint",
        "DATABASE_URL": "postgresql://me:p%40ss%2Fw0rd@db/x",
        "SENTRY_DSN": "https://public:private-part@sentry.example.com/1",
        "REDIS_URL": "redis://localhost:6379/0",
        "OTHER_URL": "postgresql://longshore:longshore@db/longshore",
        "PATH": "/usr/bin:/usr/local/bin",
    }
    assert secrets_in(env) == {
        "fake-key-anthropic", "abcdefgh", "hunter2hunter2", "p%40ss%2Fw0rd", "p@ss/w0rd", "private-part",
    }  # fmt: skip


def test_the_process_knows_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "correct horse battery")
    process_redactor.cache_clear()
    try:
        assert process_redactor().text("correct horse battery staple") == f"{LABEL} staple"
    finally:
        process_redactor.cache_clear()


def test_values_that_are_not_text_do_no_harm() -> None:
    assert Redactor(["half\udc80pair-of-bytes"]).text("x half\udc80pair-of-bytes") == f"x {LABEL}"


@pytest.mark.spec("F9")
def test_secrets_inside_json_variables_are_known() -> None:
    env = {
        "LONGSHORE_WEBHOOKS": '{"crm": {"url": "https://crm.example/x", "secret": "s3cret-of-the-crm"}}',
        "SOME_KEYS": '[{"api_key": "k-of-the-list-1234"}]',
        "BROKEN": '{"secret": ',
    }
    assert secrets_in(env) == {"s3cret-of-the-crm", "k-of-the-list-1234"}
