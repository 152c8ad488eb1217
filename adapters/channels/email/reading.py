"""A mail as it lies on the server becomes a message. Everything in it is hostile: headers, encodings, nesting, sizes.

The older header classes of the standard library are used on purpose: they take anything, in linear time."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32, compat32
from typing import Any, Final

from adapters.channel_port import InboundMessage
from adapters.channels.email.identity import Author, Headers, author_of, decoded, plain_line
from adapters.channels.email.imap import MAX_MAIL_BYTES
from adapters.channels.email.settings import EmailSettings
from adapters.channels.email.text import readable, without_history
from adapters.errors import MalformedError
from adapters.tools.fetching import html_to_text

MAX_ID: Final = 255
MAX_SUBJECT: Final = 200  # characters
MAX_TEXT_BYTES: Final = 100_000
MAX_DATA_BYTES: Final = 150_000  # of all attachments of a mail
MAX_ATTACHMENTS: Final = 20
# Together with the text, in base64: a row takes 256 kB.
_ROOM: Final = 230_000
_MAX_PARTS: Final = 500
# Each line is compared with the boundaries of all parts it is in.
_MAX_MULTIPARTS: Final = 20
_MAX_HEADER: Final = 16_000  # characters
_MAX_BODY_BYTES: Final = 400_000  # of a text before it is made readable

AUTOMATIC: Final = "automatic"
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_LONE_RETURN: Final = re.compile(rb"\r(?!\n)")
_MESSAGE_ID: Final = re.compile(r"<[!-;=?-~]+>")
_FORWARDED: Final = re.compile(r"\s*(?:fwd?|wg|tr|rv|i|enc)\s*:", re.IGNORECASE)
_SIGNATURES: Final = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
# Encodings of text that a mail can have; Python knows more, some of them slow or not of text at all.
_CHARSETS: Final = re.compile(
    r"us-ascii|ascii|utf-?(?:8|16|32)(?:-?[bl]e)?|iso-?8859-?\d{1,2}|latin-?1|(?:windows|cp)-?\d{3,4}|koi8-[ru]|gb2312"
    r"|gbk|gb18030|big5|euc-(?:jp|kr)|shift[_-]jis|iso-2022-(?:jp|kr)|macintosh|tis-620"
)


class _Bounded(Compat32):
    """The parser takes quadratic time for the parameters of a long header, also of a part far inside. Of a longer one
    nothing is left: what is cut off could change its meaning. Of References, only the first id matters."""

    def header_source_parse(self, sourcelines: Sequence[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(list(sourcelines))
        if len(value) <= _MAX_HEADER:
            return name, value
        return name, value[:_MAX_HEADER] if name.lower() == "references" else ""


class _Counted:
    """Makes the parser's messages, so many and no more: a mail of nothing but boundaries would fill the memory."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self, policy: Any = compat32) -> Message:
        self._made += 1
        if self._made > _MAX_PARTS:
            raise MalformedError(f"it has more than {_MAX_PARTS} parts")
        return Message(policy)


def read_mail(raw: bytes, settings: EmailSettings) -> InboundMessage:
    """MalformedError if there is nobody to answer to, or if reading it would take long. The same bytes are read the
    same way. What a program sent by itself is marked with a reason under AUTOMATIC: the channel drops it, so that two
    programs never talk for ever."""
    if raw.lower().count(b"multipart/") > _MAX_MULTIPARTS:
        raise MalformedError(f"its parts are nested too deeply: it names multipart/ more than {_MAX_MULTIPARTS} times")
    mail = BytesParser(_Counted(), policy=_Bounded()).parsebytes(raw)
    headers = [(name.lower(), " ".join(str(value).split())) for name, value in mail.raw_items()]
    author = author_of(headers, authserv=settings.authserv, trust_from=settings.trust_from)
    if author is None:
        raise MalformedError("its From has no address that could be answered")
    if _LONE_RETURN.search(_END_OF_HEAD.split(raw, maxsplit=1)[0]):
        # A line ends there for this parser, and for our mail server, which has checked the sender, it does not.
        author = replace(author, verified=False)
    own = message_id(_first(headers, "message-id")) or f"sha256:{hashlib.sha256(raw).hexdigest()}"
    root = message_id(_first(headers, "references")) or message_id(_first(headers, "in-reply-to")) or own
    content = _content(
        mail, plain_line(decoded(_first(headers, "subject")), MAX_SUBJECT), cut=len(raw) >= MAX_MAIL_BYTES
    )
    reason = _automatic(mail, headers, author)
    return InboundMessage(
        platform_id=author.address,
        platform_message_id=_fitting(own),
        thread_id=_fitting(root),
        sender_id=author.sender_id,
        sender_name=author.shown_name,
        content=content | ({AUTOMATIC: reason} if reason else {}),
        is_mention=True,
        is_direct=True,
    )


def message_id(value: str) -> str | None:
    """The first one in a header."""
    found = _MESSAGE_ID.search(value)
    return found[0] if found else None


def _fitting(value: str) -> str:
    return value if len(value) <= MAX_ID else f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"


def _first(headers: Headers, name: str) -> str:
    return next((value for key, value in headers if key == name), "")


def _automatic(mail: Message, headers: Headers, author: Author) -> str | None:
    """Why nobody is to be answered (RFC 3834)."""
    submitted = _first(headers, "auto-submitted").partition(";")[0].strip().lower()
    if submitted not in ("", "no"):
        return f"Auto-Submitted: {submitted[:50]}"
    if (precedence := _first(headers, "precedence").lower()) in ("bulk", "list", "junk", "auto_reply"):
        return f"Precedence: {precedence}"
    if _first(headers, "return-path") == "<>" or mail.get_content_type() == "multipart/report":
        return "a report of a mail server"
    if author.address.startswith("mailer-daemon@"):
        return "a mail server"
    marks = {"list-id", "x-autoreply", "x-autorespond", "x-autoresponse"} & {name for name, _ in headers}
    return f"it has {min(marks)}" if marks else None


def _content(mail: Message, subject: str, *, cut: bool) -> dict[str, Any]:
    texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    files: list[Message] = []
    parts = list(_parts(mail))
    for part in parts:
        kind = part.get_content_type()
        if kind in texts and part.get_content_disposition() != "attachment" and not _filename(part):
            texts[kind].append(_text_of(part))
        elif kind not in _SIGNATURES:
            files.append(part)
    text = readable("\n\n".join(texts["text/plain"])).strip()
    if not text:
        text = readable("\n\n".join(html_to_text(html, "") for html in texts["text/html"])).strip()
    if not _FORWARDED.match(subject):
        text = without_history(text)
    text = _shortened(text.strip() or subject)
    content: dict[str, Any] = {"text": text}
    if subject:
        content["subject"] = subject
    if files:
        room = min(MAX_DATA_BYTES, (_ROOM - len(json.dumps(text, ensure_ascii=False).encode())) * 3 // 4)
        # What the mail was cut in is not whole.
        content["attachments"] = _attachments(files, room, broken=parts[-1] if cut else None)
    return content


def _parts(mail: Message) -> Iterator[Message]:
    """The leaves, in order. A mail within a mail is one of them: it is not what this sender says."""
    waiting = [mail]
    while waiting:
        part = waiting.pop()
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            waiting += reversed(_inner(part))
        else:
            yield part


def _text_of(part: Message) -> str:
    data = _data_of(part)[:_MAX_BODY_BYTES]
    named = str(part.get_param("charset") or "").strip().lower()
    try:
        return data.decode(named if _CHARSETS.fullmatch(named) else "utf-8")
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")


def _data_of(part: Message) -> bytes:
    if part.is_multipart():  # a mail within the mail
        return b"".join(one.as_bytes() for one in _inner(part)[:1])
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _inner(part: Message) -> list[Message]:
    inner = part.get_payload()
    return [one for one in inner if isinstance(one, Message)] if isinstance(inner, list) else []


def _attachments(files: list[Message], room: int, broken: Message | None) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = []
    for number, part in enumerate(files[:MAX_ATTACHMENTS], 1):
        unnamed = "mail.eml" if part.get_content_maintype() == "message" else f"attachment{number}"
        one: dict[str, Any] = {
            "name": _filename(part) or unnamed,
            "media_type": plain_line(part.get_content_type(), 100),
        }
        data = _data_of(part)
        if len(data) > room or part is broken:
            one["note"] = "too large"
        else:
            room -= len(data)
            one["data"] = base64.b64encode(data).decode()
        given.append(one)
    return given


def _filename(part: Message) -> str:
    try:
        return plain_line(decoded(part.get_filename() or ""), 100)
    except (ValueError, LookupError, TypeError):  # odd encodings of odd parameters
        return ""


def _shortened(text: str) -> str:
    """By its size as a stored row counts it."""
    if len(json.dumps(text, ensure_ascii=False).encode()) <= MAX_TEXT_BYTES:
        return text
    # Line ends and quotes take twice their bytes there.
    kept = text.encode()[: MAX_TEXT_BYTES // 2 - 100].decode("utf-8", "ignore")
    return f"{kept}\n[… the mail is longer than this]"
