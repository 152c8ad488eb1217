"""A mail server: SMTP (aiosmtpd) for what is sent, IMAP for what lies in the mailbox, on two ports of one thread.

Both check what they get, and both can misbehave."""

import asyncio
import re
import ssl
import threading
from collections.abc import Awaitable, Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Literal
from urllib.parse import quote

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.imap_server import Conversation, Mailbox

USER = "agent"
PASSWORD = 'hunter2 "quoted" \\'
ADDRESS = "agent@longshore.example"

# For one mail each: refused for now (by the server, or by the mailbox it is for), or for good; taken, and then not a
# word, a word that is none, or nothing at all; nothing at all before that.
SmtpFault = Literal[
    "later", "greylisted", "never", "no such user", "took it and left", "took it and babbles", "took it and is silent",
    "silent", "echo"
]  # fmt: skip


_NEEDED = (b"from", b"to", b"subject", b"date", b"message-id", b"mime-version", b"content-type")


class MailServer:
    """`tls`: the certificate; with `implicit`, connections begin with it, else STARTTLS is offered and required."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, implicit: bool = False) -> None:
        self.mailbox = Mailbox(USER, PASSWORD)
        self.sent: list[EmailMessage] = []
        self.envelopes: list[tuple[str, str]] = []  # sender, recipient
        self.refused: list[str] = []
        self.waiting = threading.Event()  # somebody waits for an answer that does not come
        self.faults: list[SmtpFault] = []
        self._tls = tls
        self._implicit = implicit
        self._protocols: list[SMTP] = []
        # asyncio refers weakly to tasks: the collector takes one that waits for nothing that anybody else holds.
        self._conversations: list[asyncio.Task[Any] | None] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail-stand-in")
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self.smtp_port, self.imap_port = self._call(self._start)

    @property
    def smtp_url(self) -> str:
        """As LONGSHORE_EMAIL_SMTP wants it."""
        return f"smtp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.smtp_port}"

    @property
    def imap_url(self) -> str:
        """As LONGSHORE_EMAIL_IMAP wants it."""
        return f"imap://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.imap_port}"

    def close(self) -> None:
        if not self._loop.is_closed():
            self._call(self._stop)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # --- what aiosmtpd asks ---

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not session.authenticated:
            return self._refuse("530 5.7.0 log in first")
        if address != ADDRESS:
            return self._refuse(f"553 5.7.1 {address} is not yours")
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        match self.faults[:1]:
            case ["greylisted"]:
                self.faults.pop(0)
                return "450 4.2.0 greylisted, come back"
            case ["no such user"]:
                self.faults.pop(0)
                return "550 5.1.1 nobody of that name here"
            case ["silent"]:
                self.faults.pop(0)
                await self._silence()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        fault = self.faults.pop(0) if self.faults else None
        match fault:
            case "later":
                return "451 4.3.0 the queue is full"
            case "never":
                return "554 5.7.1 we do not like this mail"
            case "echo":
                return f"554 5.7.1 you are {PASSWORD}"
        raw = envelope.content
        assert isinstance(raw, bytes)
        if complaint := complaint_about(raw):
            return self._refuse(f"554 {complaint}")
        assert envelope.mail_from is not None
        self.envelopes.append((envelope.mail_from, *envelope.rcpt_tos))  # type: ignore[arg-type]
        mail = message_from_bytes(raw, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.sent.append(mail)
        match fault:
            case "took it and left":
                assert isinstance(server.transport, asyncio.Transport)
                server.transport.abort()
                await self._silence()
            case "took it and is silent":
                await self._silence()
            case "took it and babbles":
                return "splendid"
        return "250 OK"

    # --- its own affairs ---

    async def _start(self) -> tuple[int, int]:
        immediate = self._tls if self._implicit else None
        smtp = await self._loop.create_server(self._protocol, "127.0.0.1", 0, ssl=immediate)
        imap = await asyncio.start_server(self._converse, "127.0.0.1", 0, ssl=immediate)
        self._servers = [smtp, imap]
        smtp_port, imap_port = (int(server.sockets[0].getsockname()[1]) for server in self._servers)
        return smtp_port, imap_port

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for protocol in self._protocols:
            if isinstance(protocol.transport, asyncio.Transport):
                protocol.transport.abort()
        tasks = {*asyncio.all_tasks(), *filter(None, self._conversations)} - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        await asyncio.sleep(0)  # closed transports say so in the loop's next round

    def _protocol(self) -> SMTP:
        explicit = self._tls if not self._implicit else None
        protocol = SMTP(
            self,
            hostname="stand-in.example",
            tls_context=explicit,
            require_starttls=explicit is not None,
            auth_require_tls=explicit is not None,
            authenticator=self._authenticate,
            loop=self._loop,
        )
        self._protocols.append(protocol)
        return protocol

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        right = data == LoginPassword(USER.encode(), PASSWORD.encode())
        return AuthResult(success=right, handled=False)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._conversations.append(asyncio.current_task())
        await Conversation(self.mailbox, self._tls if not self._implicit else None, self.waiting).run(reader, writer)

    async def _silence(self) -> None:
        """Until the other side gives up, or this one is closed."""
        self.waiting.set()
        await asyncio.Event().wait()

    def _refuse(self, why: str) -> str:
        self.refused.append(why)
        return why

    def _call(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)


def complaint_about(raw: bytes) -> str | None:
    """What a strict server says of a mail."""
    if not raw.isascii():
        return "8-bit characters, which nobody has offered to take"
    if re.search(rb"[^\r]\n|\r[^\n]|\0", raw):
        return "bare line ends"
    if max(map(len, raw.split(b"\r\n"))) > 998:
        return "a line is too long"
    head = raw.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n") if line[:1] not in (b" ", b"\t")]
    for name in _NEEDED:
        if names.count(name) != 1:
            return f"{names.count(name)} times {name.decode()}"
    others = {b"in-reply-to", b"references", b"auto-submitted", b"x-auto-response-suppress"}
    if strange := set(names) - set(_NEEDED) - others:
        return f"headers that nobody writes: {sorted(strange)}"
    return None
