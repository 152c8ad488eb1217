"""A mailbox over IMAP, looked at and never changed: EXAMINE and BODY.PEEK leave every mail unread where it is.

Blocking, for one thread at a time; `hang_up` may be called from another."""

import imaplib
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from adapters.channels.email.settings import Server
from adapters.channels.email.threads import cut_off
from adapters.errors import DeliveryError

TIMEOUT_SECONDS: Final = 30.0  # for each thing the server is asked
REFUSED_SECONDS: Final = 60.0  # servers lock out whoever tries a refused login again and again
MAX_MAIL_BYTES: Final = 1 << 20  # of longer mails only the beginning is read: what a row takes, several times
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class State:
    """A mailbox now. UIDs mean something only together with their `uidvalidity`; `last` is the highest given out."""

    uidvalidity: int
    last: int


class UnfetchableError(Exception):
    """The server will not hand out this one mail."""


class ImapMailbox:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: imaplib.IMAP4 | None = None
        self._hung_up = False
        self._in_use = threading.Lock()

    def examine(self) -> State:
        """Connects, if it is not connected. Asked anew each time: UIDVALIDITY may change under an open connection."""
        with self._asking():
            if self._connection is None and not self._hung_up:
                self._connection = self._connect()
            connection = self._open()
            kind, said = connection.select(_quoted(self._server.mailbox), readonly=True)
            if kind != "OK":
                what = f"email: IMAP does not open the mailbox {self._server.mailbox!r}: {self._words(said)}"
                raise DeliveryError(what, retryable=True, retry_after=REFUSED_SECONDS)
            uidvalidity, uidnext = (_number(connection.response(name)[1]) for name in ("UIDVALIDITY", "UIDNEXT"))
            if uidvalidity is None:
                raise DeliveryError("email: IMAP gives no UIDVALIDITY for the mailbox", retryable=True)
            if uidnext is None:
                uidnext = max(self._search(connection, "ALL"), default=0) + 1
            return State(uidvalidity, uidnext - 1)

    def search(self, *criteria: str) -> list[int]:
        """UIDs, ascending."""
        with self._asking():
            return self._search(self._open(), *criteria)

    def fetch(self, uid: int) -> bytes | None:
        """The mail, at most MAX_MAIL_BYTES of it; None if it is gone. UnfetchableError if the server refuses; a broken
        connection is a DeliveryError."""
        with self._asking():
            kind, found = self._open().uid("FETCH", str(uid), f"(UID BODY.PEEK[]<0.{MAX_MAIL_BYTES}>)")
        if kind != "OK":
            raise UnfetchableError(self._words(found))
        # Servers may slip in news of other mails; and they may say the UID before the mail or after it.
        of_it = re.compile(rb"\bUID %d\b" % uid)
        for part, after in zip(found, [*found[1:], b""], strict=True):
            if isinstance(part, tuple) and b"BODY[]" in part[0]:
                around = part[0] + (after if isinstance(after, bytes) else b"")
                if of_it.search(around):
                    return bytes(part[1])
        return None

    def hang_up(self) -> None:
        """It is of no use afterwards. Whoever is asking something finds the connection closed."""
        self._hung_up = True
        if self._in_use.acquire(blocking=False):
            self._drop()
            self._in_use.release()
        elif self._connection is not None:
            cut_off(self._connection.sock)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with self._in_use:
            try:
                yield
            except (imaplib.IMAP4.error, OSError) as error:
                self._drop()
                # An OSError's own words name addresses of the network; its kind says enough.
                words = type(error).__name__ if isinstance(error, OSError) else self._words(error)
                raise DeliveryError(f"email: IMAP: {words}", retryable=True) from error
            finally:
                if self._hung_up:
                    self._drop()

    def _open(self) -> imaplib.IMAP4:
        if self._connection is None:
            raise ConnectionAbortedError("hung up")
        return self._connection

    def _search(self, connection: imaplib.IMAP4, *criteria: str) -> list[int]:
        kind, found = connection.uid("SEARCH", *criteria)
        if kind != "OK":
            raise DeliveryError(f"email: IMAP does not search: {self._words(found)}", retryable=True)
        return sorted({int(word) for line in found if line for word in line.split() if word.isdigit()})

    def _connect(self) -> imaplib.IMAP4:
        server = self._server
        if server.security == "tls":
            tls = ssl.create_default_context()
            connection: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                server.host, server.port, ssl_context=tls, timeout=TIMEOUT_SECONDS
            )
        else:
            connection = imaplib.IMAP4(server.host, server.port, timeout=TIMEOUT_SECONDS)
        try:
            if server.security == "starttls":
                connection.starttls(ssl.create_default_context())
            self._log_in(connection)
        except BaseException:
            with suppress(OSError):
                connection.shutdown()
            raise
        return connection

    def _log_in(self, connection: imaplib.IMAP4) -> None:
        try:
            connection.login(_quoted(self._server.user), self._server.password)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            what = f"email: IMAP refuses the login: {self._words(error)}"
            raise DeliveryError(what, retryable=True, retry_after=REFUSED_SECONDS) from None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown()

    def _words(self, said: object) -> str:
        first = said[0] if isinstance(said, list) and said else said
        return self._server.words(first)


def since_yesterday() -> str:
    """A day that began at least 24 hours ago in every time zone a server may be in; IMAP's own month names."""
    day = datetime.now(UTC) - timedelta(days=2)
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(said: object) -> int | None:
    first = said[0] if isinstance(said, list) and said else None
    return int(first) if isinstance(first, bytes) and first.isdigit() else None
