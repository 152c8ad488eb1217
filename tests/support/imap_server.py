"""The IMAP half of the mail stand-in: as much of RFC 3501 as a reader needs, strictly. It refuses whatever would mark,
move or delete a mail, and what comes out of turn, and keeps each such complaint."""

import asyncio
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Literal

# Once each: the login is refused; the connection ends before a mail was sent whole; a command is answered with BYE, or
# not at all.
ImapFault = Literal["no login", "drop", "bye", "silent"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_QUOTED = r'"((?:[^"\\\r\n]|\\["\\])*)"'


@dataclass(frozen=True)
class Stored:
    uid: int
    raw: bytes
    day: date  # its internal date


@dataclass
class Mailbox:
    """What lies in INBOX. Changed from tests' threads, read by the server's: each change is one assignment."""

    user: str
    password: str
    uidvalidity: int = 7
    mails: tuple[Stored, ...] = ()
    next_uid: int = 1
    shows_uidnext: bool = True
    poison: frozenset[int] = frozenset()  # UIDs on which the connection breaks each time
    unfetchable: frozenset[int] = frozenset()  # UIDs that are answered NO
    faults: list[ImapFault] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)  # without tags and logins
    logins: int = 0

    def add(self, raw: bytes, *, day: date | None = None) -> int:
        """With the line ends of the wire, as servers store it."""
        wire = re.sub(rb"\r?\n", b"\r\n", raw)
        uid = self.next_uid
        self.next_uid += 1
        self.mails = (*self.mails, Stored(uid, wire, day or datetime.now(UTC).date()))
        return uid

    def renumber(self) -> None:
        """As after a restored backup: new UIDs, and the word that they are new."""
        self.uidvalidity += 1
        self.mails = tuple(Stored(number, mail.raw, mail.day) for number, mail in enumerate(self.mails, 1))
        self.next_uid = len(self.mails) + 1


class _Out(Exception):  # noqa: N818 - how a conversation ends
    """The connection ends here."""


class Conversation:
    def __init__(self, mailbox: Mailbox, tls: ssl.SSLContext | None, waiting: threading.Event) -> None:
        self._mailbox = mailbox
        self._waiting = waiting
        self._tls = tls  # to be asked for with STARTTLS
        self._logged_in = False
        self._examined = False
        self._writer: asyncio.StreamWriter

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            self._say("* OK the stand-in is ready")
            while line := await reader.readline():
                tag, _, rest = line.decode("ascii").rstrip("\r\n").partition(" ")
                if rest == "STARTTLS" and self._tls is not None:
                    self._say(f"{tag} OK begin")
                    await writer.start_tls(self._tls)
                    self._tls = None
                    continue
                try:
                    said = await self._do(rest)
                except _Refusal as refusal:
                    self._mailbox.complaints.append(f"{refusal}: {rest}")
                    said = f"BAD {refusal}"
                self._say(f"{tag} {said}")
                await writer.drain()
        except (_Out, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    async def _do(self, rest: str) -> str:
        name = rest.split(" ")[0].upper()
        if name != "LOGIN":
            self._mailbox.commands.append(rest)
        if name not in ("LOGIN", "CAPABILITY") and self._mailbox.faults:
            match self._mailbox.faults[0]:
                case "bye":
                    self._mailbox.faults.pop(0)
                    self._say("* BYE we are going down")
                    raise _Out
                case "silent":
                    self._mailbox.faults.pop(0)
                    self._waiting.set()
                    await asyncio.Event().wait()
        match name:
            case "CAPABILITY":
                self._say("* CAPABILITY IMAP4rev1" + (" STARTTLS LOGINDISABLED" if self._tls else ""))
                return "OK done"
            case "NOOP":
                return "OK done"
            case "LOGIN":
                return self._log_in(rest)
            case "EXAMINE":
                return self._examine(rest)
            case "UID":
                return self._uid(rest)
        raise _Refusal("a reader has no use for that")

    def _log_in(self, rest: str) -> str:
        self._mailbox.logins += 1
        given = re.fullmatch(f"LOGIN {_QUOTED} {_QUOTED}", rest)
        if given is None or self._logged_in or self._tls is not None:
            raise _Refusal("a login has a quoted user and password, comes once, and not in the clear")
        user, password = (re.sub(r"\\(.)", r"\1", part) for part in given.groups())
        if self._mailbox.faults[:1] == ["no login"]:
            self._mailbox.faults.pop(0)
            return "NO [UNAVAILABLE] later, perhaps"
        if (user, password) != (self._mailbox.user, self._mailbox.password):
            return f"NO [AUTHENTICATIONFAILED] there is no user {user} with {password}"
        self._logged_in = True
        return "OK done"

    def _examine(self, rest: str) -> str:
        mailbox = self._mailbox
        if not self._logged_in:
            raise _Refusal("log in first")
        if rest != 'EXAMINE "INBOX"':
            return "NO [NONEXISTENT] there is no such mailbox"
        self._examined = True
        self._say(f"* {len(mailbox.mails)} EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY {mailbox.uidvalidity}] valid")
        if mailbox.shows_uidnext:
            self._say(f"* OK [UIDNEXT {mailbox.next_uid}] next")
        return "OK [READ-ONLY] looked at"

    def _uid(self, rest: str) -> str:
        if not self._examined:
            raise _Refusal("examine a mailbox first")
        if rest.upper().startswith("UID SEARCH "):
            wanted = self._criterion(rest[len("UID SEARCH ") :])
            self._say(" ".join(["* SEARCH", *(str(mail.uid) for mail in self._mailbox.mails if wanted(mail))]))
            return "OK done"
        fetched = re.fullmatch(r"UID FETCH (\d+) \(UID BODY\.PEEK\[\]<0\.(\d+)>\)", rest)
        if fetched is None:
            raise _Refusal("fetch one mail, with BODY.PEEK, and not more of it than can be kept")
        return self._fetch(int(fetched[1]), int(fetched[2]))

    def _criterion(self, said: str) -> Callable[[Stored], bool]:
        if said == "ALL":
            return lambda mail: True
        if from_uid := re.fullmatch(r"UID (\d+):\*", said):
            # `*` is the last mail, and a range has no direction: it is found in any case.
            last = max((mail.uid for mail in self._mailbox.mails), default=0)
            low, high = sorted((int(from_uid[1]), last))
            return lambda mail: low <= mail.uid <= high
        if since := re.fullmatch(r"SINCE (\d{1,2})-([A-Z][a-z]{2})-(\d{4})", said):
            day = date(int(since[3]), _MONTHS.index(since[2]) + 1, int(since[1]))
            return lambda mail: mail.day >= day
        raise _Refusal("no such search")

    def _fetch(self, uid: int, limit: int) -> str:
        mailbox = self._mailbox
        if uid in mailbox.unfetchable:
            return "NO [SERVERBUG] this one is broken"
        for number, mail in enumerate(mailbox.mails, 1):
            if mail.uid != uid:
                continue
            part = mail.raw[:limit]
            # With news of another mail before it, and the UID before or after the mail, as servers like.
            before, after = (f"UID {uid} ", "") if uid % 2 else ("", f" UID {uid}")
            self._say(f"* 1 FETCH (FLAGS (\\Recent))\r\n* {number} FETCH ({before}BODY[]<0> {{{len(part)}}}")
            if uid in mailbox.poison or mailbox.faults[:1] == ["drop"]:
                if uid not in mailbox.poison:
                    mailbox.faults.pop(0)
                self._writer.write(part[: len(part) // 2])
                raise _Out
            self._writer.write(part + f"{after})\r\n".encode())
        return "OK done"

    def _say(self, text: str) -> None:
        self._writer.write(text.encode("ascii") + b"\r\n")


class _Refusal(Exception):  # noqa: N818 - what the server says, not what went wrong in it
    """Nobody who only reads does that."""
