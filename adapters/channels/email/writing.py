"""A message becomes a mail: text and HTML, files, and the headers that put it into its thread and tell programs not to
answer. What agents and senders wrote never becomes a header of its own."""

import hashlib
import re
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, Final

from adapters.channel_port import OutboundFile, OutboundMessage
from adapters.channels.email.identity import plain_line
from adapters.channels.email.reading import MAX_SUBJECT, message_id
from adapters.channels.email.settings import EmailSettings
from adapters.errors import DeliveryError
from adapters.markup.html import to_html
from adapters.markup.plain import to_plain

# Nothing but ASCII on the wire: not every server says, or knows, whether it takes more.
_POLICY: Final = SMTP.clone(cte_type="7bit")
_REPLY: Final = re.compile(r"re\s*:", re.IGNORECASE)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")
_SUBJECT_WORDS: Final = 60  # characters


def message_id_of(idempotency_key: str, settings: EmailSettings) -> str:
    """One key, one id: people's programs show two mails of one id once, more often than not."""
    return f"<{hashlib.sha256(idempotency_key.encode('utf-8', 'replace')).hexdigest()[:32]}@{settings.domain}>"


def write_mail(message: OutboundMessage, settings: EmailSettings) -> bytes:
    """DeliveryError if a file cannot be read."""
    markdown = str(message.content.get("text") or "").encode("utf-8", "replace").decode()
    plain = to_plain(markdown)
    thread = message_id(message.destination.thread_id or "")
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = settings.address
    mail["To"] = message.destination.platform_id
    mail["Subject"] = _subject(message.content, plain, in_thread=message.destination.thread_id is not None)
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = message_id_of(message.idempotency_key, settings)
    if thread is not None:
        mail["In-Reply-To"] = thread
        mail["References"] = thread
    mail["Auto-Submitted"] = "auto-replied" if message.destination.thread_id is not None else "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"  # Exchange does not know the line above
    mail.set_content(plain)
    mail.add_alternative(f"<!DOCTYPE html>\n<html><body>\n{to_html(markdown)}</body></html>\n", subtype="html")
    for file in message.files:
        _attach(mail, file)
    return mail.as_bytes()


def _subject(content: dict[str, Any], plain: str, *, in_thread: bool) -> str:
    """The one of the mail that is answered, if it is known: some programs sort by it. Else the first words."""
    given = content.get("subject")
    known = plain_line(given, MAX_SUBJECT) if isinstance(given, str) else ""
    if known:
        return f"Re: {known}" if in_thread and not _REPLY.match(known) else known
    words = plain_line(plain.strip(), _SUBJECT_WORDS + 1)
    if len(words) > _SUBJECT_WORDS:
        words = f"{words[:_SUBJECT_WORDS].rpartition(' ')[0] or words[:_SUBJECT_WORDS]}…"
    return words or "(no text)"


def _attach(mail: EmailMessage, file: OutboundFile) -> None:
    try:
        data = file.path.read_bytes()
    except OSError as error:
        raise DeliveryError(f"email: a file could not be read: {error.strerror}", retryable=True) from error
    kind = file.media_type.lower()
    if not _MEDIA_TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        kind = "application/octet-stream"
    main, _, sub = kind.partition("/")
    mail.add_attachment(data, maintype=main, subtype=sub, filename=plain_line(file.name, 100) or "file")
