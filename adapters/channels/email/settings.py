"""Settings of the `email` channel, from LONGSHORE_EMAIL_*. The addresses of the servers hold passwords: a malformed one
is named and never shown, and `Server.words` takes passwords out of what a server says."""

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from adapters.channels.variables import FOLDER, variable
from adapters.errors import ChannelError

ADDRESS: Final = "LONGSHORE_EMAIL_ADDRESS"
IMAP: Final = "LONGSHORE_EMAIL_IMAP"
SMTP: Final = "LONGSHORE_EMAIL_SMTP"
POLL_SECONDS: Final = "LONGSHORE_EMAIL_POLL_SECONDS"

# What people's addresses look like. Quoted local parts and other scripts are left out: they cannot be sent to
# everywhere, and programs do not agree on how to read them.
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS_FORM: Final = rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL}){{0,8}}"
MAX_ADDRESS: Final = 200  # characters: an id of a person is this and a few words

_SHOWN: Final = 300  # characters of what a server says
_PORTS: Final = {"imaps": 993, "imap": 143, "smtps": 465, "smtp": 587}
_PRINTABLE: Final = r"[\x20-\x7e]*"


@dataclass(frozen=True)
class Server:
    """Where to log in. `security`: TLS from the first byte, after STARTTLS or not at all; never less than asked for."""

    host: str
    port: int
    security: Literal["tls", "starttls", "none"]
    user: str = ""
    password: str = field(default="", repr=False)
    mailbox: str = "INBOX"

    def words(self, said: object) -> str:
        """What a server or a library said, in one line and without our password, in whatever form it comes back."""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        if self.password:
            packed = [self.password, f"\0{self.user}\0{self.password}"]
            forms = [self.password, *(base64.b64encode(one.encode()).decode() for one in packed)]
            for form in sorted(forms, key=len, reverse=True):
                text = text.replace(form, "…")
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_SHOWN]


@dataclass(frozen=True)
class EmailSettings:
    address: str = ""  # lower-case
    imap: Server | None = None
    smtp: Server | None = None
    agent: str = ""
    poll_seconds: float = 10.0
    # The name under which our own mail server writes Authentication-Results.
    authserv: str = ""
    trust_from: bool = False

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    @classmethod
    def from_environment(cls) -> "EmailSettings":
        flag = (r"(?i:true|false|1|0)", "true or false")
        authserv = variable("LONGSHORE_EMAIL_AUTHSERV", None, (r"[\x21-\x7e]{1,255}", "the name of a mail server"))
        return cls(
            address=variable(ADDRESS, None, (ADDRESS_FORM, "a mail address, like agent@example.com")).lower(),
            imap=_server(IMAP, "imap"),
            smtp=_server(SMTP, "smtp"),
            agent=variable("LONGSHORE_EMAIL_AGENT", None, FOLDER),
            poll_seconds=_poll_seconds(),
            authserv=authserv.lower(),
            trust_from=variable("LONGSHORE_EMAIL_TRUST_FROM", None, flag).lower() in ("true", "1"),
        )


def _poll_seconds() -> float:
    given = variable(POLL_SECONDS, None, (r"[0-9]{1,5}(?:\.[0-9]{1,3})?", "a number of seconds"), default="10")
    if not 0.1 <= float(given) <= 3600:
        raise ChannelError(f"{POLL_SECONDS} is not between 0.1 and 3600")
    return float(given)


def _server(name: str, protocol: Literal["imap", "smtp"]) -> Server | None:
    given = variable(name, None, (r"[\x21-\x7e]+", "an address without spaces; write other characters as %20"))
    if not given:
        return None
    try:
        url = urlsplit(given)
        port = url.port
    except ValueError:  # its text holds what was given
        raise ChannelError(f"{name} is not an address like {protocol}s://user:password@host") from None
    if url.scheme not in (protocol, f"{protocol}s") or not url.hostname or url.fragment:
        raise ChannelError(f"{name} is not an address like {protocol}s://user:password@host")
    if url.query not in ("", "starttls"):
        raise ChannelError(f"{name} may end in ?starttls, and in no other question")
    user, password = unquote(url.username or ""), unquote(url.password or "")
    mailbox = unquote(url.path.removeprefix("/"))
    if not all(re.fullmatch(_PRINTABLE, part) for part in (user, password, mailbox)):
        raise ChannelError(f"{name} has other characters than ASCII in user, password or mailbox")
    if bool(user) != bool(password) or (protocol == "imap" and not user):
        raise ChannelError(f"{name} needs a user and a password: {protocol}s://user:password@host")
    if protocol == "smtp" and mailbox:
        raise ChannelError(f"{name} has a path, and a server that sends has no mailboxes")
    security = _security(name, url)
    return Server(url.hostname, port or _PORTS[url.scheme], security, user, password, mailbox or "INBOX")


def _security(name: str, url: SplitResult) -> Literal["tls", "starttls", "none"]:
    if url.scheme.endswith("s"):
        return "tls"
    if url.query == "starttls":
        return "starttls"
    if _is_loopback(url.hostname or ""):
        return "none"
    if url.scheme == "imap":
        raise ChannelError(f"{name} would send the password in the clear: use imaps://, or add ?starttls")
    return "starttls"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
