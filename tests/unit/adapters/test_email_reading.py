"""What becomes of a mail: who it is from, what was said, what goes with it. Nothing in it is believed."""

import base64
import json
from email.message import EmailMessage
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channel_port import Destination, InboundMessage, OutboundMessage
from adapters.channels.email import reading as email_reading
from adapters.channels.email.reading import AUTOMATIC, read_mail
from adapters.channels.email.settings import ADDRESS_FORM, EmailSettings
from adapters.channels.email.text import without_history
from adapters.channels.email.writing import write_mail
from adapters.errors import MalformedError
from tests.support.mail_server import complaint_about
from workers.intake.incoming import parse_incoming

ADA: Final = "ada@example.com"
SETTINGS: Final = EmailSettings(address="agent@longshore.example", authserv="mx.own.example")


def read(*headers: str, body: str = "hi", settings: EmailSettings = SETTINGS) -> InboundMessage:
    head = [*headers, *(() if any(h.startswith("From:") for h in headers) else (f"From: {ADA}",))]
    return read_mail("\n".join([*head, "", body]).encode("utf-8", "surrogateescape"), settings)


# --- Who it is from ----------------------------------------------------------------------------------------------

OWN: Final = "Authentication-Results: mx.own.example"
PASSED: Final = f"{OWN}; dmarc=pass header.from=example.com"


@pytest.mark.spec("C2", "C5")
@pytest.mark.parametrize(
    "results",
    [
        [PASSED],
        ["Authentication-Results: MX.own.example 1; DMARC=PASS (p=reject; dis=none) header.from=Example.com"],
        [f"{OWN};\n\tdkim=pass (2048-bit key) header.d=x.example;\n\tdmarc=pass action=none header.from=example.com"],
        [f"{OWN}; dmarc=none header.from=example.com; dkim=pass header.i=@example.com header.s=s header.b=ab=+/"],
        [f"{OWN}; spf=pass (it is; (really)) smtp.mailfrom=bounce+ada=x@example.com"],
        [f'{OWN}; spf=fail reason="not; at \\" all" smtp.mailfrom=x.example; dkim=pass header.d=example.com;'],
        ["Authentication-Results: relay.example; dmarc=fail", PASSED],
        ['Authentication-Results: "mx.own.example"; dmarc=pass header.from=example.com'],
        [PASSED, f"{OWN}; dmarc=fail"],  # of an earlier hop, or made up
    ],
)
def test_a_sender_our_own_server_vouches_for_is_believed(results: list[str]) -> None:
    message = read(f'From: "Lovelace, Ada" <{ADA.upper()}>', *results)
    assert (message.sender_id, message.sender_name, message.platform_id) == (ADA, "Lovelace, Ada", ADA)


@pytest.mark.spec("C2", "C5")
@pytest.mark.parametrize(
    "results",
    [
        [],
        ["Authentication-Results: mx.evil.example; dmarc=pass header.from=example.com"],
        ["Authentication-Results: mx.own.example.evil.example; dmarc=pass header.from=example.com"],
        ["Authentication-Results: dmarc=pass header.from=example.com; mx.own.example"],
        [f"{OWN}; none"],
        ["Authentication-Results: ; dmarc=pass header.from=example.com"],
        [OWN],
        [f"{OWN}; dmarc=fail header.from=example.com", PASSED],
        [f"{OWN}; none", PASSED],
        [f"{OWN}; dmarc=pass header.from=evil.example"],
        [f"{OWN}; dmarc=pass (p=none); dkim=pass header.d=example.com"],  # whose policy?
        # What our server wrote cannot be read, and the sender has written another below it.
        [f"{OWN}; {'dkim=fail header.d=evil.example; ' * 200}dmarc=fail header.from=example.com", PASSED],
        [f"{OWN}; {'dkim=fail header.d=evil.example; ' * 900}dmarc=fail header.from=example.com", PASSED],
        [f'{OWN}; spf=pass (of "("@evil.example) smtp.mailfrom=evil.example; dmarc=fail', PASSED],
        [f"(x) {OWN}; dmarc=fail)", f"Authentication-Results: (( {OWN}; dmarc=fail", PASSED],
        # Programs do not agree on where such a header ends, nor which From comes first.
        [PASSED, "Subject: x\rX: y"],
        [PASSED, "Subject: x\r\r"],
        [f"{OWN}; dmarc=fail header.from=example.com; dkim=pass header.d=example.com"],
        [f"{OWN}; dmarc=fail; dmarc=pass header.from=example.com"],
        [f"{OWN}; dmarc=temperror; spf=pass smtp.mailfrom=example.com"],
        [f"{OWN}; dkim=pass header.d=evil.example"],
        [f"{OWN}; dkim=pass header.d=evil.example header.i=@example.com"],
        [f"{OWN}; dkim=pass header.d=sub.example.com"],
        [f"{OWN}; dkim=pass header.d=com"],
        [f"{OWN}; dkim=pass header.d=evilexample.com"],
        [f"{OWN}; dkim=fail header.d=example.com"],
        [f"{OWN}; spf=pass smtp.helo=example.com"],
        [f"{OWN}; spf=pass smtp.mailfrom=example.com@evil.example"],
        [f"{OWN}; spf=pass smtp.mailfrom=x smtp.mailfrom=example.com"],
        [f'{OWN}; spf=fail smtp.mailfrom="x; dmarc=pass"@evil.example'],
        [f"{OWN}; spf=fail (x; dmarc=pass header.from=example.com) smtp.mailfrom=evil.example"],
        [f"{OWN}; spf=fail (unclosed; dmarc=pass"],
        [f'{OWN}; spf=fail "unclosed; dmarc=pass'],
        [f"{OWN}; dmarc=pass) header.from=example.com"],
        [f"{OWN} dmarc=pass header.from=example.com"],
        [f"{PASSED}; {'x=y ' * 2000}"],
        ["X-Authentication-Results: mx.own.example; dmarc=pass", "Subject: x\rAuthentication-Results: mx.own.example"],
    ],
)
def test_a_sender_nobody_vouches_for_is_nobody_known(results: list[str]) -> None:
    message = read(f"From: Ada <{ADA}>", *results)
    assert message.sender_id is None
    assert (message.sender_name, message.platform_id) == (f"{ADA} (unverified)", ADA)


@pytest.mark.spec("C2", "C5")
@pytest.mark.parametrize(
    ("senders", "first"),
    [
        ([f"From: {ADA}, eve@evil.example"], ADA),
        ([f"From: {ADA}", "From: eve@evil.example"], ADA),
        ([f"From: {ADA} <eve@evil.example>"], None),
        ([f"From: Ada <{ADA}> <eve@evil.example>"], None),
        ([f"From: Ada ({ADA}) <eve@evil.example>"], "eve@evil.example"),
        (["From: friends: ada@example.com, eve@evil.example;"], ADA),
        ([f'From: "Ada" {ADA}'], None),
    ],
)
def test_a_from_that_can_be_read_in_two_ways_is_not_believed(senders: list[str], first: str | None) -> None:
    for trusting in (SETTINGS, EmailSettings(trust_from=True)):
        try:
            message = read(PASSED, *senders, settings=trusting)
        except MalformedError:
            assert first is None
            continue
        assert message.sender_id is None
        assert first in (None, message.platform_id)


@pytest.mark.spec("C2", "C5")
def test_a_from_is_taken_at_its_word_only_where_the_operator_says_so() -> None:
    assert read(settings=EmailSettings()).sender_id is None
    assert read(settings=EmailSettings(trust_from=True)).sender_id == ADA
    both = EmailSettings(trust_from=True, authserv="mx.own.example")
    assert read(settings=both).sender_id is None


@pytest.mark.spec("C2")
@pytest.mark.parametrize("sender", ["", "nobody", "<>", "é@example.com", "@", f"{'a' * 300}@example.com", "a@-x"])
def test_without_an_address_there_is_nobody_to_answer(sender: str) -> None:
    with pytest.raises(MalformedError, match="no address"):
        read(f"From: {sender}")


@pytest.mark.spec("C2", "C5")
def test_a_lone_carriage_return_is_not_overlooked_because_the_operator_trusts_senders() -> None:
    assert read("Subject: x\rX: y", settings=EmailSettings(trust_from=True)).sender_id is None
    assert read("Subject: x\r", body="a\rb", settings=EmailSettings(trust_from=True)).sender_id == ADA


# --- Programs ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-replied",
        "Auto-Submitted: Auto-Generated; x=y",
        "Precedence: bulk",
        "Precedence: LIST",
        "Precedence: junk",
        "List-Id: <all.example.com>",
        "X-Autoreply: yes",
        "Return-Path: <>",
        "From: Mailer-Daemon@example.com",
        "Content-Type: multipart/report; boundary=x",
    ],
)
def test_what_a_program_sent_by_itself_is_marked(header: str) -> None:
    assert read(header).content[AUTOMATIC]


@pytest.mark.spec("C2")
@pytest.mark.parametrize("header", ["Auto-Submitted: no", f"Return-Path: <{ADA}>", "Precedence: first-class"])
def test_what_a_person_sent_is_not(header: str) -> None:
    assert AUTOMATIC not in read(header).content


@pytest.mark.spec("C2")
def test_our_own_mail_is_one_that_programs_leave_alone() -> None:
    sent = write_mail(OutboundMessage(Destination(ADA, "<1@x>"), {"text": "hi"}, "key-1"), SETTINGS)
    assert read_mail(sent, SETTINGS).content[AUTOMATIC] == "Auto-Submitted: auto-replied"


# --- Threads -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "M2")
@pytest.mark.parametrize(
    ("headers", "own", "thread"),
    [
        (["Message-ID: <1@x>"], "<1@x>", "<1@x>"),
        (["Message-ID: <2@x>", "In-Reply-To: <1@x>"], "<2@x>", "<1@x>"),
        (["Message-Id: <3@x>", "In-Reply-To: <2@x>", "References: <0@x>\n <1@x> <2@x>"], "<3@x>", "<0@x>"),
        (["Message-ID: (a comment) <4@x> (another)", "References: garbage"], "<4@x>", "<4@x>"),
        (["Message-ID: <5@x>", "References: " + " ".join(f"<{n}@x>" for n in range(5000))], "<5@x>", "<0@x>"),
    ],
)
def test_a_thread_is_the_mail_it_began_with(headers: list[str], own: str, thread: str) -> None:
    message = read(*headers)
    assert (message.platform_message_id, message.thread_id) == (own, thread)


@pytest.mark.spec("C2")
def test_a_mail_without_an_id_has_one_all_the_same() -> None:
    first, again, other = read(body="a"), read(body="a"), read(body="b")
    assert first.platform_message_id == again.platform_message_id != other.platform_message_id
    assert first.thread_id == first.platform_message_id
    long = read(f"Message-ID: <{'x' * 300}@x>")
    assert len(long.platform_message_id) < 100
    assert long.platform_message_id.startswith("sha256:")


# --- What was said -----------------------------------------------------------------------------------------------


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Yes.\n\nOn Mon, 17 Nov 2025 at 09:00, Bob <bob@x> wrote:\n> Shall we?\n>\n> Bob\n", "Yes."),
        ("Yes.\n\nOn Mon, 17 Nov 2025 at 09:00, Bob Long Name\n<bob@x.example> wrote:\n\n> Shall we?", "Yes."),
        ("Ja.\n\nAm 17.11.2025 um 09:00 schrieb Bob:\n> Wollen wir?", "Ja."),
        ("Oui.\n\nLe 17 nov. 2025 à 09:00, Bob a écrit :\n> On y va ?", "Oui."),
        ("Yes.\n\n-----Original Message-----\nFrom: Bob\nShall we?", "Yes."),
        ("Yes.\n\n________________________________\nFrom: Bob <bob@x>\nSent: Monday\nTo: Ada\n\nShall we?", "Yes."),
        ("Yes.\n\n*From:* Bob\n*Sent:* Monday\n\nShall we?", "Yes."),
        # An answer among the quotes keeps them: they are what it answers. What follows the last one goes.
        ("On 1 May Bob wrote:\n> A or B?\nB\n> When?\nNow\n> Bob", "On 1 May Bob wrote:\n> A or B?\nB\n> When?\nNow"),
        ("On 1 May Bob wrote:\n> A or B?\n\nB", "On 1 May Bob wrote:\n> A or B?\n\nB"),
        ("1\n\n-- \nAda\nLoading & Sons\n\nOn 1 May Bob wrote:\n> 1. Allow\n> 2. Deny", "1"),
        ("2\n\nSent from my iPhone\n\n> On 1 May, Bob wrote:\n>\n> 1. Allow", "2"),
        # Not history.
        ("a\n--\n" + "b\n" * 20 + "c", "a\n--\n" + "b\n" * 20 + "c"),
        ("On Monday Bob wrote:\nplease fix it", "On Monday Bob wrote:\nplease fix it"),
        ("From: here\nto there", "From: here\nto there"),
        ("a > b", "a > b"),
        ("> only a quote", "> only a quote"),
        ("", ""),
    ],
)
def test_earlier_mails_are_cut_off_and_answers_among_them_are_not(text: str, kept: str) -> None:
    assert without_history(text) == kept


@pytest.mark.spec("C2")
def test_a_forwarded_mail_is_what_was_sent() -> None:
    body = "See below.\n\n-----Original Message-----\nFrom: Bob\n\nThe figures"
    assert read("Subject: Fwd: figures", body=body).content["text"] == body
    assert read("Subject: Re: figures", body=body).content["text"] == "See below."


@pytest.mark.spec("C2")
def test_html_becomes_text_without_scripts_and_styles() -> None:
    body = "<head><style>p{}</style></head><p>Hi &amp; <b>bye</b><br>x</p><script>alert(1)</script><a href='https://x/'>l</a>"
    assert read("Content-Type: text/html", body=body).content["text"] == "Hi & bye\nx\nl (https://x/)"


@pytest.mark.spec("C2")
def test_of_two_forms_of_a_text_the_plain_one_is_taken_if_it_says_anything() -> None:
    for plain, expected in (("plain", "plain"), (" \n", "rich")):
        mail = EmailMessage()
        mail["From"] = ADA
        mail.set_content(plain)
        mail.add_alternative("<p>rich</p>", subtype="html")
        assert read_mail(mail.as_bytes(), SETTINGS).content == {"text": expected}


@pytest.mark.spec("C2")
def test_a_mail_that_is_only_a_subject_says_that() -> None:
    content = read("Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\n =?utf-8?q?_der_Kiste?=", body="").content
    assert content == {"text": "Größe der Kiste", "subject": "Größe der Kiste"}


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        (["Content-Type: text/plain; charset=iso-8859-1", "Content-Transfer-Encoding: 8bit"], b"gr\xfc\xdf", "grüß"),
        (["Content-Type: text/plain; charset=windows-1252"], b"gr\xfc\xdf \x80", "grüß €"),
        (["Content-Type: text/plain; charset=no-such"], "grüß".encode(), "grüß"),
        (["Content-Type: text/plain; charset=idna"], "grüß".encode(), "grüß"),
        (["Content-Type: text/plain; charset=hex"], b"6869", "6869"),
        (["Content-Type: text/plain; charset*=utf-8''x%FF"], b"hi", "hi"),
        (["Content-Type: text/plain; charset=utf-8"], b"gr\xfc\xdf", "gr\ufffd\ufffd"),
        (["Content-Transfer-Encoding: base64"], b"not base64 at all!", None),
        (["Content-Transfer-Encoding: base64"], b"aGk", "hi"),
        (["Content-Transfer-Encoding: x-uuencode"], b"begin 666 x\n#", None),
        (["Content-Type: ///"], b"hi", "hi"),
        (["Content-Type: multipart/mixed"], b"hi", None),
        (["Content-Type: text/plain"], b"a\x00b\x1b[31mc\x07\x9bd", None),
        (["Subject: =?no-such?b?!!!?=", "Content-Type: \xff\xfe"], b"hi", "hi"),
    ],
)
def test_broken_encodings_are_read_as_far_as_they_go(headers: list[str], body: bytes, text: str | None) -> None:
    raw = "\n".join([f"From: {ADA}", *headers, "", ""]).encode("latin-1") + body
    content = read_mail(raw, SETTINGS).content
    assert text in (None, content["text"])
    assert all(char.isprintable() or char in "\n\t" for char in content["text"])


@pytest.mark.spec("C2")
def test_attachments_come_along_as_far_as_a_row_takes_them() -> None:
    mail = EmailMessage()
    mail["From"] = ADA
    mail.set_content("see")
    mail.add_attachment(b"\xff" * 100_000, maintype="image", subtype="png", filename="Größe.png")
    mail.add_attachment(b"x" * 100_000, maintype="application", subtype="zip", filename="../../big\x07.zip")
    mail.add_attachment(b"x" * 40_000, maintype="application", subtype="zip")
    inner = EmailMessage()
    inner.set_content("what somebody else said")
    mail.add_attachment(inner)
    content = read_mail(mail.as_bytes(), SETTINGS).content
    assert content["text"] == "see"
    first, big, third, forwarded = content["attachments"]
    assert (first["name"], first["media_type"]) == ("Größe.png", "image/png")
    assert base64.b64decode(first["data"]) == b"\xff" * 100_000
    assert big == {"name": "../../big .zip", "media_type": "application/zip", "note": "too large"}
    assert (third["name"], len(base64.b64decode(third["data"]))) == ("attachment3", 40_000)
    assert forwarded["name"] == "mail.eml"
    assert b"somebody else" in base64.b64decode(forwarded["data"])


@pytest.mark.spec("C2")
@pytest.mark.parametrize("character", ["x", '"', "\n", "🫖", "é"])
def test_the_longest_mail_fits_into_a_row(character: str) -> None:
    text = base64.b64encode(f"x{character * 110_000}x".encode()).decode()
    parts = [f"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n{text}"]
    name = "%F0%9F%AB%96" * 150
    parts += [f"Content-Disposition: attachment; filename*=utf-8''{name}\n\n{'x' * 9_000}"] * 30
    body = "".join(f"--b\n{part}\n" for part in parts)
    message = read(f"Subject: {'🫖' * 300}", "Content-Type: multipart/mixed; boundary=b", body=f"{body}--b--\n")
    content = as_incoming(message)
    assert content["text"].endswith("[… the mail is longer than this]")
    assert len(content["attachments"]) == email_reading.MAX_ATTACHMENTS
    assert "data" in content["attachments"][0]
    assert content["attachments"][-1]["note"] == "too large"


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "header", ["Content-Type: a/b", "Content-Type: multipart/mixed", "From: a@example.com", "X: y"]
)
def test_endless_headers_are_left_out(header: str) -> None:
    """Reading such parameters one by one would take hours."""
    try:
        message = read(PASSED, header + ";" * 3_000_000, body="hi")
    except MalformedError:
        assert header.startswith("From")
    else:
        assert message.content["text"] == "hi"
        assert not header.startswith("From")


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("".join(f"Content-Type:\x1cMultipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(21)), "nested"),
        ("Content-Type: multipart/mixed; boundary=b\n\n" + "--b\n\n" * 600, "more than 500 parts"),
        ("Content-Type: message/rfc822\n\n" * 600, "more than 500 parts"),
    ],
    ids=["nested", "many", "mails in mails"],
)
def test_what_would_take_long_to_read_is_refused(raw: str, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        read_mail(f"From: {ADA}\n{raw}".encode(), SETTINGS)


# --- All of it ---------------------------------------------------------------------------------------------------


def as_incoming(message: InboundMessage) -> dict[str, Any]:
    """Whether the fleet would take it."""
    return parse_incoming(
        {
            "channel_type": "email",
            "platform_id": message.platform_id,
            "thread_id": message.thread_id,
            "message_id": message.platform_message_id,
            "content": message.content,
            "sender_id": message.sender_id,
            "sender_name": message.sender_name,
            "is_mention": message.is_mention,
        }
    ).stored_content()


_NAMES: Final = [
    *("From", "Subject", "Message-ID", "References", "In-Reply-To", "Authentication-Results", "Auto-Submitted"),
    *("Content-Type", "Content-Disposition", "Content-Transfer-Encoding"),
]
_PIECES: Final = [
    *("text/plain", "text/html", "multipart/mixed", "message/rfc822", "; boundary=b", "; charset=", "utf-16", "idna"),
    *("base64", "attachment; filename*0*=", "=?utf-8?b?", "?=", "<a@b>", "ada@example.com", "--b\n", "--b--", "\n"),
    *("> q", "On 1 wrote:", "<p>", "<!--", "mx.own.example; dmarc=pass", '"', "\\", "("),
]


@st.composite
def mails(draw: st.DrawFn) -> bytes:
    def words() -> bytes:
        parts = draw(st.lists(st.sampled_from(_PIECES).map(str.encode) | st.binary(max_size=12), max_size=6))
        return b"".join(parts)

    lines = [b"From: ada@example.com"] if draw(st.booleans()) else []
    lines += [name.encode() + b": " + words() for name in draw(st.lists(st.sampled_from(_NAMES), max_size=6))]
    return b"\n".join([*lines, b"", words(), words()])


@pytest.mark.spec("C2")
@given(mails())
def test_whatever_comes_is_read_or_refused_and_what_is_read_can_be_stored(raw: bytes) -> None:
    try:
        message = read_mail(raw, SETTINGS)
    except MalformedError:
        return
    assert message == read_mail(raw, SETTINGS)
    json.dumps(as_incoming(message)).encode()


@pytest.mark.spec("C2", "C8")
@given(
    text=st.text(max_size=200),
    subject=st.none() | st.text(max_size=300),
    address=st.from_regex(ADDRESS_FORM, fullmatch=True),
    thread=st.none() | st.text(max_size=50),
)
def test_whatever_is_written_is_a_proper_mail(text: str, subject: str | None, address: str, thread: str | None) -> None:
    content = {"text": text, "subject": subject}
    raw = write_mail(OutboundMessage(Destination(address, thread), content, text), SETTINGS)
    assert complaint_about(raw) is None
