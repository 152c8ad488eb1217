"""Handing one mail to the server that sends it on, and what its failures mean: SMTP says exactly until when a mail has
not been taken. Only between the final dot and the answer to it does nobody know."""

import re
import smtplib
import socket
import ssl
from contextlib import suppress
from typing import Final

from adapters.channels.email.settings import SMTP, Server
from adapters.channels.email.threads import cut_off
from adapters.errors import DeliveryError

TIMEOUT_SECONDS: Final = 25.0  # for each thing the server is asked


class SmtpSending:
    """One mail on its way. Blocking; `hang_up` may be called from another thread, and after it the mail does not
    arrive any more unless it is `doubtful`."""

    def __init__(self, server: Server, *, sender: str, recipient: str, mail: bytes) -> None:
        self.doubtful = False
        self._server = server
        self._sender = sender
        self._recipient = recipient
        self._mail = mail
        self._connection: smtplib.SMTP | None = None
        self._hung_up = False

    def run(self) -> None:
        """Returns when the server has taken it; else DeliveryError."""
        try:
            self._connection = connection = self._connect()
            if self._hung_up:
                raise smtplib.SMTPServerDisconnected("hung up")
            self._converse(connection)
        except smtplib.SMTPResponseException as error:
            raise self._refused("to begin with", error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPNotSupportedError as error:  # STARTTLS, or the login: the library says which
            raise DeliveryError(f"email: {error} See {SMTP}.", retryable=False) from None
        except (smtplib.SMTPException, OSError) as error:
            why = f"email: SMTP: {type(error).__name__}"
            raise DeliveryError(why, retryable=True, may_have_arrived=self.doubtful) from error
        finally:
            if self._connection is not None:
                self._connection.close()

    def hang_up(self) -> None:
        self._hung_up = True
        if self._connection is not None:
            cut_off(self._connection.sock)

    def _connect(self) -> smtplib.SMTP:
        server = self._server
        # Our own domain as the name we greet with: looking up this machine's can take long, and tells it to others.
        named = self._sender.rpartition("@")[2]
        if server.security == "tls":
            tls = ssl.create_default_context()
            return smtplib.SMTP_SSL(server.host, server.port, named, timeout=TIMEOUT_SECONDS, context=tls)
        return smtplib.SMTP(server.host, server.port, named, timeout=TIMEOUT_SECONDS)

    def _converse(self, connection: smtplib.SMTP) -> None:
        if self._server.security == "starttls":
            connection.starttls(context=ssl.create_default_context())
        if self._server.user:
            connection.login(self._server.user, self._server.password)
        connection.ehlo_or_helo_if_needed()
        sized = [f"size={len(self._mail)}"] if connection.has_extn("size") else []
        self._expect("the sender", connection.mail(self._sender, sized), 2)
        self._expect("the recipient", connection.rcpt(self._recipient), 2)
        self._expect("the mail", connection.docmd("DATA"), 3)
        if connection.sock is not None:
            # The dot goes by itself, and is not to wait until the rest has been confirmed.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.send(_without_lone_dots(self._mail))
        self.doubtful = True
        connection.send(b".\r\n")
        self._expect("the mail", connection.getreply(), 2)
        with suppress(smtplib.SMTPException, OSError):
            connection.quit()

    def _expect(self, what: str, reply: tuple[int, bytes], hundreds: int) -> None:
        code, said = reply
        if code // 100 != hundreds:
            raise self._refused(f"to {what}", code, said)

    def _refused(self, what: str, code: int, said: bytes | str) -> DeliveryError:
        """4 means later, 5 means never. An answer that is neither says nothing, and leaves what was in doubt there."""
        clear = code // 100 in (4, 5)
        return DeliveryError(
            f"email: SMTP answered {code} {what}: {self._server.words(said)}",
            retryable=code // 100 != 5,
            may_have_arrived=self.doubtful and not clear,
        )


def _without_lone_dots(mail: bytes) -> bytes:
    """A line with one dot would end the mail there, and let what follows be read as commands."""
    stuffed = re.sub(rb"(?m)^\.", b"..", mail)
    return stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n"
