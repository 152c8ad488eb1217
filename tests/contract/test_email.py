"""The `email` channel over real SMTP and IMAP, against a stand-in that checks what it gets and can misbehave."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from structlog.testing import capture_logs

from adapters.channel_port import (
    Batch,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundFile,
    OutboundMessage,
    Received,
)
from adapters.channels.conformance import CHECKS, Check, Fault, Forgery, run_check
from adapters.channels.email import EmailChannel
from adapters.channels.email import channel as email
from adapters.channels.email.settings import EmailSettings, Server
from adapters.channels.email.threads import in_thread
from adapters.errors import ChannelError, DeliveryError
from tests.support.certificates import Authority
from tests.support.mail_server import ADDRESS, PASSWORD, USER, MailServer, SmtpFault
from tests.support.servers import free_port, wait_until

ADA: Final = "ada@example.com"
ROOT: Final = "<root-1@example.com>"
NOT_APPLYING: Final = {
    # It takes no requests: what it receives is tested below, over IMAP.
    "accepts_what_the_platform_signed",
    "refuses_what_the_platform_did_not_sign",
    "extracts_ids_and_content",
    "reads_the_same_request_the_same_way",
    "says_what_it_cannot_read",
    "claims_no_receipt_it_cannot_know",
    # SMTP has no keys, no buttons, no way to ask, and no way to say when to come back.
    "shows_buttons_and_hears_them",
    "shows_one_message_per_key",
    "finds_what_arrived",
    "waits_as_long_as_the_platform_asks",
}


def settings_for(
    server: MailServer, *, host: str = "127.0.0.1", security: Literal["tls", "starttls", "none"] = "none"
) -> EmailSettings:
    return EmailSettings(
        address=ADDRESS,
        imap=Server(host, server.imap_port, security, USER, PASSWORD),
        smtp=Server(host, server.smtp_port, security, USER, PASSWORD),
        agent="clerk",
        poll_seconds=0.01,
        authserv="mx.longshore.example",
    )


class EmailHarness:
    destination = Destination(ADA, ROOT)
    receives = False
    forgeries: Sequence[Forgery] = ()
    threads: Sequence[str | None] = ()
    faults: Sequence[Fault] = ("broken", "refused", "spoiled", "lost", "away")
    knows_its_keys = False

    def __init__(self, server: MailServer) -> None:
        self.server = server
        self.channel = EmailChannel(settings_for(server))

    def named(self, ours: str) -> str:
        return f"{ours}@example.com"

    def press(self, label: str, sender: str) -> InboundRequest:
        raise NotImplementedError("mail has no buttons")

    def buttons(self) -> list[str]:
        return []

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        raise NotImplementedError("mail comes by IMAP")

    def forged(self, forgery: Forgery) -> InboundRequest:
        raise NotImplementedError("mail comes by IMAP")

    def unreadable(self) -> Sequence[InboundRequest]:
        return ()

    def unwanted(self) -> InboundMessage | None:
        return InboundMessage(ADDRESS, "<1@longshore.example>", {"text": "our own"}, sender_id=ADDRESS)

    def shown(self) -> list[str]:
        assert self.server.refused == []
        return [text_of(mail) for mail in self.server.sent]

    def fail_next(self, fault: Fault) -> None:
        faults: dict[Fault, SmtpFault] = {
            "broken": "later",
            "refused": "never",
            "spoiled": "took it and babbles",
            "lost": "took it and left",
        }
        if fault == "away":
            self.server.close()
        else:
            self.server.faults.append(faults[fault])


def text_of(mail: EmailMessage, kind: Literal["plain", "html"] = "plain") -> str:
    body = mail.get_body((kind,))
    assert isinstance(body, EmailMessage)
    return str(body.get_content()).replace("\r\n", "\n").removesuffix("\n")


@pytest.fixture
def server() -> Iterator[MailServer]:
    stand_in = MailServer()
    yield stand_in
    stand_in.close()
    assert stand_in.mailbox.complaints == []
    no_thread_is_left()


def no_thread_is_left() -> None:
    wait_until(lambda: "longshore-email" not in {thread.name for thread in threading.enumerate()}, 10, "no thread left")


@pytest.fixture
def harness(server: MailServer) -> EmailHarness:
    return EmailHarness(server)


@pytest.fixture
def channel(harness: EmailHarness) -> EmailChannel:
    return harness.channel


@pytest.mark.spec("C1", "C2", "M12")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_email_keeps_what_of_the_contract_concerns_it(check: Check, harness: EmailHarness) -> None:
    outcome = await run_check(check, harness)
    assert (outcome is None) == (check.name not in NOT_APPLYING)


# --- Out ---------------------------------------------------------------------------------------------------------


def answer(text: str = "hello", key: str = "key-1", thread: str | None = ROOT, **content: Any) -> OutboundMessage:
    return OutboundMessage(Destination(ADA, thread), {"text": text, **content}, key)


async def failure(channel: EmailChannel, message: OutboundMessage | None = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        await channel.deliver(message or answer())
    assert "hunter2" not in str(caught.value)
    return caught.value


@pytest.mark.spec("C2", "C3", "M12")
async def test_an_answer_lands_in_its_thread_as_text_and_html(server: MailServer, channel: EmailChannel) -> None:
    receipt = await channel.deliver(answer("**two** < three\n\n- one & „all“ 🫖", subject="Größe der Kiste"))
    [mail] = server.sent
    assert server.envelopes == [(ADDRESS, ADA)]
    assert (mail["From"], mail["To"], mail["Subject"]) == (ADDRESS, ADA, "Re: Größe der Kiste")
    assert (mail["In-Reply-To"], mail["References"]) == (ROOT, ROOT)
    assert mail["Auto-Submitted"] == "auto-replied"
    assert mail["Message-ID"] == receipt.platform_message_id
    assert re.fullmatch(r"<[0-9a-f]{32}@longshore\.example>", str(receipt.platform_message_id))
    assert abs(mail["Date"].datetime - datetime.now(UTC)) < timedelta(minutes=1)
    assert mail.get_content_type() == "multipart/alternative"
    assert "**" not in text_of(mail)
    assert "„all“ 🫖" in text_of(mail)
    assert "<strong>two</strong> &lt; three" in text_of(mail, "html")


@pytest.mark.spec("C2", "M12")
async def test_one_key_has_one_message_id_and_another_has_another(server: MailServer, channel: EmailChannel) -> None:
    ids = [(await channel.deliver(answer(key=key))).platform_message_id for key in ("key-1", "key-1", "key-2")]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.spec("C2")
async def test_a_mail_nobody_asked_for_begins_a_thread_with_its_first_words(
    server: MailServer, channel: EmailChannel
) -> None:
    place = await channel.open_dm(ADA)
    assert place == ADA
    await channel.deliver(
        answer("# Shall I\ndeploy the very long thing that has a very long name, today?", thread=None)
    )
    [mail] = server.sent
    assert mail["Subject"] == "Shall I deploy the very long thing that has a very long…"
    assert mail["In-Reply-To"] is None
    assert mail["References"] is None
    assert mail["Auto-Submitted"] == "auto-generated"


@pytest.mark.spec("C2")
async def test_a_thread_too_long_to_be_kept_is_left_out_of_the_headers(
    server: MailServer, channel: EmailChannel
) -> None:
    await channel.deliver(answer(thread=f"sha256:{'0' * 64}", subject="re: x"))
    assert server.sent[0]["References"] is None
    assert server.sent[0]["Subject"] == "re: x"


@pytest.mark.spec("C2", "C8")
async def test_what_people_write_does_not_become_a_header(
    server: MailServer, channel: EmailChannel, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    file = OutboundFile("a\r\nBcc: eve@example.com\r\n\r\n.pdf", tmp_path / "f", "text/plain\r\nX-Eve: 1", 1)
    evil = "hi\r\nBcc: eve@example.com\r\n\r\nbody \u2028\x85\x0b\x00\ud800"
    message = replace(answer(f"{evil}\r\n.\r\nMAIL FROM:<eve@example.com>", subject=evil), files=(file,))
    await channel.deliver(message)
    [mail] = server.sent
    assert server.refused == []
    assert server.envelopes == [(ADDRESS, ADA)]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Re: hi Bcc: eve@example.com body"
    [attached] = mail.iter_attachments()
    assert attached.get_content_type() == "application/octet-stream"
    assert attached["X-Eve"] is None
    assert "\n.\nMAIL FROM" in text_of(mail)


@pytest.mark.spec("C2", "M12")
async def test_files_go_with_the_mail(server: MailServer, channel: EmailChannel, tmp_path: Path) -> None:
    contents = {"Größe.pdf": b"%PDF-\x00\xff", "notes.txt": b"..\r\n.\r\nnot the end", "old.eml": b"From: x\n\ny"}
    kinds = ("application/pdf", "text/plain", "message/rfc822")
    files = []
    for (name, data), kind in zip(contents.items(), kinds, strict=True):
        (tmp_path / name).write_bytes(data)
        files.append(OutboundFile(name, tmp_path / name, kind, len(data)))
    await channel.deliver(replace(answer("see"), files=tuple(files)))
    [mail] = server.sent
    assert mail.get_content_type() == "multipart/mixed"
    assert text_of(mail) == "see"
    found = {part.get_filename(): part for part in mail.iter_attachments()}
    assert {name: part.get_payload(decode=True) for name, part in found.items()} == contents
    assert [part.get_content_type() for part in found.values()] == [*kinds[:2], "application/octet-stream"]


@pytest.mark.spec("C2", "M12")
async def test_a_file_that_is_gone_is_not_sent_without(server: MailServer, channel: EmailChannel) -> None:
    gone = OutboundFile("a", Path("/nonexistent/a"), "text/plain", 1)
    error = await failure(channel, replace(answer(), files=(gone,)))
    assert "could not be read" in str(error)
    assert not error.may_have_arrived
    assert server.sent == []


@pytest.mark.spec("C2", "M12")
@pytest.mark.parametrize(
    ("fault", "words", "retryable", "doubtful"),
    [
        ("later", "email: SMTP answered 451 to the mail: 4.3.0 the queue is full", True, False),
        ("greylisted", "email: SMTP answered 450 to the recipient: 4.2.0 greylisted, come back", True, False),
        ("never", "email: SMTP answered 554 to the mail: 5.7.1 we do not like this mail", False, False),
        ("no such user", "email: SMTP answered 550 to the recipient: 5.1.1 nobody of that name here", False, False),
        ("took it and left", "email: SMTP: SMTPServerDisconnected", True, True),
        ("echo", "email: SMTP answered 554 to the mail: 5.7.1 you are …", False, False),
    ],
)
async def test_what_the_server_says_decides_over_trying_again(
    fault: SmtpFault, words: str, retryable: bool, doubtful: bool, server: MailServer, channel: EmailChannel
) -> None:
    server.faults.append(fault)
    error = await failure(channel)
    assert (str(error), error.retryable, error.may_have_arrived) == (words, retryable, doubtful)
    assert len(server.sent) == int(doubtful)


@pytest.mark.spec("C2", "M12")
@pytest.mark.parametrize(("fault", "doubtful"), [("silent", False), ("took it and is silent", True)])
async def test_a_silent_server_is_given_up_and_only_after_the_mail_is_in_doubt(
    fault: SmtpFault, doubtful: bool, server: MailServer, channel: EmailChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def until_it_is_silent(work: Callable[[], None], hang_up: Callable[[], None], seconds: float) -> None:
        waiting = asyncio.create_task(in_thread(work, hang_up, seconds))
        assert await asyncio.to_thread(server.waiting.wait, 10)
        waiting.cancel()
        await asyncio.wait([waiting])
        raise TimeoutError

    monkeypatch.setattr(email, "in_thread", until_it_is_silent)
    server.faults.append(fault)
    error = await failure(channel)
    assert str(error) == "email: SMTP gave no answer in time"
    assert (error.retryable, error.may_have_arrived) == (True, doubtful)
    assert len(server.sent) == int(doubtful)


@pytest.mark.spec("C2")
async def test_what_does_not_end_in_time_is_ended_from_outside() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError):
        await in_thread(ended.wait, ended.set, 0.01)
    assert ended.is_set()


@pytest.mark.spec("C2")
async def test_a_cancelled_sending_lets_go_at_once(server: MailServer, channel: EmailChannel) -> None:
    server.faults.append("silent")
    sending = asyncio.create_task(channel.deliver(answer()))
    assert await asyncio.to_thread(server.waiting.wait, 10)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    no_thread_is_left()
    assert server.sent == []


@pytest.mark.spec("C2", "F9")
async def test_a_wrong_password_is_refused_for_good_and_not_shown(server: MailServer) -> None:
    settings = settings_for(server)
    assert settings.smtp is not None
    wrong = replace(settings, smtp=replace(settings.smtp, password="hunter2 hunter2"))
    error = await failure(EmailChannel(wrong))
    assert str(error).startswith("email: SMTP answered 535")
    assert not error.retryable
    assert "hunter2" not in repr(wrong)


@pytest.mark.spec("C2")
@pytest.mark.parametrize("address", ["", "ada", "ada@", "ada@x>\r\nRCPT TO:<eve@x", "unverified:ada@x", "a b@x", "é@x"])
async def test_only_addresses_are_written_to(address: str, server: MailServer, channel: EmailChannel) -> None:
    error = await failure(channel, replace(answer(), destination=Destination(address)))
    assert "is not a mail address" in str(error)
    assert not error.retryable
    assert await channel.open_dm(address) is None


@pytest.mark.spec("C2")
async def test_without_settings_nothing_is_sent_or_heard() -> None:
    channel = EmailChannel(EmailSettings())
    assert channel.listens() is None
    assert str(await failure(channel)) == "LONGSHORE_EMAIL_ADDRESS is not set"
    error = await failure(EmailChannel(EmailSettings(address=ADDRESS)))
    assert str(error) == "LONGSHORE_EMAIL_SMTP is not set"
    assert not error.retryable
    with pytest.raises(ChannelError, match="LONGSHORE_EMAIL_IMAP is not set"):
        await anext(channel.listen(None))


# --- Encryption --------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Whom this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return Authority(tmp_path)


@pytest.mark.spec("C2", "F9")
@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_mail_goes_and_comes_over_tls(security: Literal["tls", "starttls"], authority: Authority) -> None:
    server = MailServer(authority.server("localhost"), implicit=security == "tls")
    try:
        channel = EmailChannel(settings_for(server, host="localhost", security=security))
        await channel.deliver(answer("quietly"))
        assert [text_of(mail) for mail in server.sent] == ["quietly"]
        async with listening(channel, None) as batches:
            assert (await heard(batches)).cursor == {"uidvalidity": 7, "uid": 0}
        assert server.mailbox.complaints == []
    finally:
        server.close()


@pytest.mark.spec("C2", "F9")
@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_a_server_with_another_name_s_certificate_gets_no_password(
    security: Literal["tls", "starttls"], authority: Authority
) -> None:
    server = MailServer(authority.server("elsewhere.example"), implicit=security == "tls")
    try:
        channel = EmailChannel(settings_for(server, host="localhost", security=security))
        assert str(await failure(channel)) == "email: SMTP: SSLCertVerificationError"
        with pytest.raises(DeliveryError, match=r"^email: IMAP: SSLCertVerificationError$"):
            await anext(channel.listen(None))
        assert server.mailbox.logins == 0
    finally:
        server.close()


@pytest.mark.spec("C2", "F9")
async def test_a_server_that_does_not_offer_starttls_gets_no_password(server: MailServer) -> None:
    channel = EmailChannel(settings_for(server, security="starttls"))
    error = await failure(channel)
    assert str(error) == "email: STARTTLS extension not supported by server. See LONGSHORE_EMAIL_SMTP."
    assert not error.retryable
    with pytest.raises(DeliveryError, match="TLS not supported by server"):
        await anext(channel.listen(None))
    assert server.mailbox.logins == 0


# --- In ----------------------------------------------------------------------------------------------------------

VOUCHED: Final = "Authentication-Results: mx.longshore.example; dmarc=pass header.from=example.com\n"


def mail_of(text: str = "hello", *, number: int = 1, sender: str = f"Ada <{ADA}>", more: str = VOUCHED) -> bytes:
    head = f"From: {sender}\nTo: {ADDRESS}\nSubject: Crates\nMessage-ID: <m{number}@example.com>\n{more}"
    return f"{head}Content-Type: text/plain; charset=utf-8\n\n{text}\n".encode()


@asynccontextmanager
async def listening(channel: EmailChannel, cursor: dict[str, Any] | None) -> AsyncIterator[AsyncIterator[Batch]]:
    async with aclosing(channel.listen(cursor)) as batches:  # type: ignore[type-var]
        yield batches


async def heard(batches: AsyncIterator[Batch]) -> Batch:
    async with asyncio.timeout(20):
        return await anext(batches)


def texts(batch: Batch) -> list[str]:
    return [str(message.content["text"]) for message in batch.received.messages]


@pytest.mark.spec("C2", "M2")
async def test_a_first_start_begins_at_the_end_of_the_mailbox_and_hears_what_comes(
    server: MailServer, channel: EmailChannel
) -> None:
    assert channel.listens() == f"email:{ADDRESS}"
    server.mailbox.add(mail_of("of last year"))
    async with listening(channel, None) as batches:
        assert await heard(batches) == Batch(Received(), {"uidvalidity": 7, "uid": 1})
        server.mailbox.add(mail_of("Grüße", number=2, more=f"{VOUCHED}References: {ROOT} <x@y>\nIn-Reply-To: <x@y>\n"))
        batch = await heard(batches)
    assert batch.cursor == {"uidvalidity": 7, "uid": 2}
    [message] = batch.received.messages
    assert message == InboundMessage(
        platform_id=ADA,
        platform_message_id="<m2@example.com>",
        thread_id=ROOT,
        sender_id=ADA,
        sender_name="Ada",
        content={"text": "Grüße", "subject": "Crates"},
        is_mention=True,
        is_direct=True,
    )
    assert channel.accepts(message)
    assert channel.registers(message, known=True) == "clerk"
    assert channel.registers(message, known=False) is None


@pytest.mark.spec("C2")
async def test_what_came_while_nobody_listened_is_heard_in_order_and_in_small_batches(
    server: MailServer, channel: EmailChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email, "BATCH", 2)
    for number in range(1, 7):
        server.mailbox.add(mail_of(f"text {number}", number=number))
    async with listening(channel, {"uidvalidity": 7, "uid": 1}) as batches:
        found = [await heard(batches) for _ in range(3)]
    assert [texts(batch) for batch in found] == [["text 2", "text 3"], ["text 4", "text 5"], ["text 6"]]
    assert [batch.cursor["uid"] for batch in found] == [3, 5, 6]
    assert server.mailbox.logins == 1


@pytest.mark.spec("C2")
async def test_the_mailbox_is_only_looked_at(server: MailServer, channel: EmailChannel) -> None:
    server.mailbox.add(mail_of())
    async with listening(channel, {"uidvalidity": 7, "uid": 0}) as batches:
        assert texts(await heard(batches)) == ["hello"]
    asked = {command.split(" ")[0] for command in server.mailbox.commands}
    assert asked == {"CAPABILITY", "EXAMINE", "UID"}
    assert any("BODY.PEEK[]" in command for command in server.mailbox.commands)


@pytest.mark.spec("C2")
async def test_the_last_mail_is_not_heard_again_each_time(server: MailServer, channel: EmailChannel) -> None:
    server.mailbox.add(mail_of("heard"))
    async with listening(channel, {"uidvalidity": 7, "uid": 1}) as batches:
        following = asyncio.create_task(heard(batches))
        looked = ["UID SEARCH UID 2:*"] * 2
        await asyncio.to_thread(
            wait_until, lambda: following.done() or [c for c in server.mailbox.commands if c in looked][:2] == looked
        )
        server.mailbox.add(mail_of("new", number=2))
        assert texts(await following) == ["new"]


@pytest.mark.spec("C2")
async def test_a_mailbox_without_a_next_uid_is_counted(server: MailServer, channel: EmailChannel) -> None:
    server.mailbox.shows_uidnext = False
    for number in (1, 2):
        server.mailbox.add(mail_of(number=number))
    async with listening(channel, None) as batches:
        assert (await heard(batches)).cursor == {"uidvalidity": 7, "uid": 2}
        server.mailbox.add(mail_of("third", number=3))
        assert texts(await heard(batches)) == ["third"]


@pytest.mark.spec("C2")
@pytest.mark.parametrize("how", ["new uidvalidity", "rolled back"])
async def test_when_uids_lose_their_meaning_the_last_day_is_looked_at_again(
    how: str, server: MailServer, channel: EmailChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email, "BATCH", 1)
    today = datetime.now(UTC).date()
    for number, days in ((1, 0), (2, 400), (3, 1)):
        server.mailbox.add(mail_of(f"text {number}", number=number), day=today - timedelta(days=days))
    before = {"uidvalidity": 7 if how == "rolled back" else 6, "uid": 90}
    async with listening(channel, before) as batches:
        first, second = await heard(batches), await heard(batches)
        # Whoever dies here looks at all of them again.
        assert (texts(first), first.cursor) == (["text 1"], before)
        assert (texts(second), second.cursor) == (["text 3"], {"uidvalidity": 7, "uid": 3})
        server.mailbox.add(mail_of("new", number=4))
        assert texts(await heard(batches)) == ["new"]


@pytest.mark.spec("C2")
async def test_a_mailbox_that_changes_while_it_is_watched_goes_on(server: MailServer, channel: EmailChannel) -> None:
    long_ago = datetime.now(UTC).date() - timedelta(days=30)
    server.mailbox.add(mail_of(), day=long_ago)
    async with listening(channel, None) as batches:
        await heard(batches)
        server.mailbox.renumber()
        assert (await heard(batches)).cursor == {"uidvalidity": 8, "uid": 1}
        server.mailbox.add(mail_of("after", number=2))
        assert texts(await heard(batches)) == ["after"]


@pytest.mark.spec("C2")
async def test_a_mail_that_cannot_be_read_does_not_stop_those_behind_it(
    server: MailServer, channel: EmailChannel
) -> None:
    bad = server.mailbox.add(mail_of(sender="nobody at all"))
    refused = server.mailbox.add(mail_of("refused", number=2))
    layers = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(1500))
    nested = server.mailbox.add(f"From: {ADA}\n{layers}".encode())
    server.mailbox.add(mail_of("good", number=4))
    server.mailbox.unfetchable = frozenset({refused})
    with capture_logs() as logs:
        async with listening(channel, {"uidvalidity": 7, "uid": 0}) as batches:
            batch = await heard(batches)
    assert texts(batch) == ["good"]
    assert batch.cursor["uid"] == 4
    assert {line["uid"]: line["why"] for line in logs if line["event"] == "email.passed_over"} == {
        bad: "its From has no address that could be answered",
        refused: "[SERVERBUG] this one is broken",
        nested: "its parts are nested too deeply: it names multipart/ more than 20 times",
    }


@pytest.mark.spec("C2")
async def test_a_mail_that_breaks_the_connection_each_time_is_passed_over(
    server: MailServer, channel: EmailChannel
) -> None:
    poison = server.mailbox.add(mail_of("poison"))
    server.mailbox.add(mail_of("good", number=2))
    server.mailbox.poison = frozenset({poison})
    cursor = {"uidvalidity": 7, "uid": 0}
    for _ in range(email.TRIES):
        with pytest.raises(DeliveryError, match=r"^email: IMAP: ") as caught:
            async with listening(channel, cursor) as batches:
                await heard(batches)
        assert caught.value.retryable
    async with listening(channel, cursor) as batches:
        batch = await heard(batches)
    assert (texts(batch), batch.cursor["uid"]) == (["good"], 2)


@pytest.mark.spec("C2")
async def test_a_broken_connection_costs_no_mail(server: MailServer, channel: EmailChannel) -> None:
    server.mailbox.add(mail_of())
    cursor = {"uidvalidity": 7, "uid": 0}
    server.mailbox.faults += ["drop", "bye"]
    for _ in range(2):
        with pytest.raises(DeliveryError, match=r"^email: IMAP: ") as caught:
            async with listening(channel, cursor) as batches:
                await heard(batches)
        assert (caught.value.retryable, caught.value.retry_after) == (True, None)
    async with listening(channel, cursor) as batches:
        assert texts(await heard(batches)) == ["hello"]


@pytest.mark.spec("C2", "F9")
@pytest.mark.parametrize("why", ["wrong password", "not now"])
async def test_a_refused_login_is_not_tried_again_at_once(why: str, server: MailServer) -> None:
    settings = settings_for(server)
    assert settings.imap is not None
    if why == "not now":
        server.mailbox.faults.append("no login")
    else:
        settings = replace(settings, imap=replace(settings.imap, password='hunter2" no'))
    with pytest.raises(DeliveryError, match=r"^email: IMAP refuses the login: ") as caught:
        await anext(EmailChannel(settings).listen(None))
    assert "hunter2" not in str(caught.value)
    assert caught.value.retry_after == 60


@pytest.mark.spec("C2")
async def test_a_mailbox_that_does_not_open_is_named(server: MailServer) -> None:
    settings = settings_for(server)
    assert settings.imap is not None
    channel = EmailChannel(replace(settings, imap=replace(settings.imap, mailbox='Robots "and" \\ others')))
    with pytest.raises(DeliveryError, match=r"does not open the mailbox .*Robots.*there is no such mailbox") as caught:
        await anext(channel.listen(None))
    assert caught.value.retry_after == 60


@pytest.mark.spec("C2")
async def test_a_server_that_is_away_may_come_back() -> None:
    away = Server("127.0.0.1", free_port(), "none", USER, PASSWORD)
    with pytest.raises(DeliveryError, match=r"^email: IMAP: ConnectionRefusedError$") as caught:
        await anext(EmailChannel(EmailSettings(address=ADDRESS, imap=away)).listen(None))
    assert caught.value.retryable


@pytest.mark.spec("C2")
async def test_a_silent_server_is_given_up(
    server: MailServer, channel: EmailChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email, "LOOKING_SECONDS", 0.1)
    server.mailbox.faults.append("silent")
    with pytest.raises(DeliveryError, match=r"^email: IMAP gave no answer in time$"):
        await anext(channel.listen(None))


@pytest.mark.spec("C2")
async def test_a_cancelled_listener_lets_go_at_once(server: MailServer, channel: EmailChannel) -> None:
    server.mailbox.faults.append("silent")

    async def listen() -> None:
        async with listening(channel, None) as batches:
            await anext(batches)

    task = asyncio.create_task(listen())
    assert await asyncio.to_thread(server.waiting.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    no_thread_is_left()


@pytest.mark.spec("C2", "C5")
async def test_a_forged_sender_is_nobody_known_and_robots_are_dropped(
    server: MailServer, channel: EmailChannel
) -> None:
    server.mailbox.add(mail_of("forged", number=1, more=""))
    server.mailbox.add(mail_of("away until Monday", number=2, more=f"{VOUCHED}Auto-Submitted: auto-replied\n"))
    server.mailbox.add(mail_of("our own", number=3, sender=ADDRESS))
    async with listening(channel, {"uidvalidity": 7, "uid": 0}) as batches:
        forged, robot, own = (await heard(batches)).received.messages
    assert (forged.platform_id, forged.sender_id) == (ADA, None)
    assert [channel.accepts(message) for message in (forged, robot, own)] == [True, False, False]


@pytest.mark.spec("C2")
async def test_a_huge_mail_is_read_only_in_part(
    server: MailServer, channel: EmailChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.channels.email.imap.MAX_MAIL_BYTES", 2000)
    monkeypatch.setattr("adapters.channels.email.reading.MAX_MAIL_BYTES", 2000)
    mail = EmailMessage()
    mail["From"], mail["Message-ID"] = ADA, "<m@example.com>"
    mail.set_content("see the small one")
    mail.add_attachment(b"small", maintype="application", subtype="pdf", filename="small.pdf")
    mail.add_attachment(b"x" * 5000, maintype="application", subtype="pdf", filename="huge.pdf")
    server.mailbox.add(mail.as_bytes())
    async with listening(channel, {"uidvalidity": 7, "uid": 0}) as batches:
        [message] = (await heard(batches)).received.messages
    assert message.content["text"] == "see the small one"
    assert message.content["attachments"] == [
        {"name": "small.pdf", "media_type": "application/pdf", "data": "c21hbGw="},
        {"name": "huge.pdf", "media_type": "application/pdf", "note": "too large"},
    ]


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "F9")
@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("ADDRESS", "hunter2", "is not a mail address"),
        ("IMAP", "https://u:hunter2@x", "is not an address like imaps://user:password@host"),
        ("IMAP", "imaps://u:hunter2@[x", "is not an address like imaps://user:password@host"),
        ("IMAP", "imaps://u:hunter2@x:port", "is not an address like imaps://user:password@host"),
        ("IMAP", "imaps://u:hunter2@℀", "is not an address without spaces"),
        ("IMAP", "imaps://hunter2@x", "needs a user and a password"),
        ("IMAP", "imaps://u:hunter2%0Ax@x", "has other characters than ASCII"),
        ("IMAP", "imap://u:hunter2@mail.example.com", "would send the password in the clear"),
        ("IMAP", "imaps://u:hunter2@x?insecure", "may end in ?starttls"),
        ("SMTP", "smtp://u:hunter2@x/INBOX", "has a path"),
        ("SMTP", "imaps://u:hunter2@x", "is not an address like smtps://user:password@host"),
        ("POLL_SECONDS", "hunter2", "is not a number of seconds"),
        ("POLL_SECONDS", "0", "is not between 0.1 and 3600"),
        ("TRUST_FROM", "hunter2", "is not true or false"),
        ("AUTHSERV", "a hunter2", "is not the name of a mail server"),
    ],
)
def test_a_malformed_setting_is_named_and_not_shown(
    name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LONGSHORE_EMAIL_{name}", value)
    with pytest.raises(ChannelError) as caught:
        EmailChannel()
    assert str(caught.value).startswith(f"LONGSHORE_EMAIL_{name} {complaint}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.spec("C2")
async def test_settings_come_from_the_environment(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ADDRESS": ADDRESS.title(), "IMAP": server.imap_url, "SMTP": server.smtp_url}.items():
        monkeypatch.setenv(f"LONGSHORE_EMAIL_{name}", value)
    channel = EmailChannel()
    assert channel.listens() == f"email:{ADDRESS}"
    await channel.deliver(answer())
    assert [text_of(mail) for mail in server.sent] == ["hello"]


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("imaps://ada%40example.com:p%3Aw%20%2F@mail.example.com/Robots%2FIn", ("tls", 993, "Robots/In")),
        ("imap://u:p@mail.example.com?starttls", ("starttls", 143, "INBOX")),
        ("imap://u:p@127.0.0.1:1143", ("none", 1143, "INBOX")),
        ("imap://u:p@[::1]", ("none", 143, "INBOX")),
    ],
)
def test_the_server_to_read_from_is_an_address(
    value: str, expected: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_EMAIL_IMAP", value)
    server = EmailSettings.from_environment().imap
    assert server is not None
    assert (server.security, server.port, server.mailbox) == expected
    if "ada" in value:
        assert (server.user, server.password) == ("ada@example.com", "p:w /")


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("smtps://u:p@mail.example.com", ("tls", 465)),
        ("smtp://u:p@mail.example.com", ("starttls", 587)),
        ("smtp://localhost:25", ("none", 25)),
        ("smtp://localhost:25?starttls", ("starttls", 25)),
    ],
)
def test_what_leaves_the_machine_is_encrypted(
    value: str, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_EMAIL_SMTP", value)
    server = EmailSettings.from_environment().smtp
    assert server is not None
    assert (server.security, server.port) == expected
