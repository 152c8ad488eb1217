"""`email`: a mailbox over IMAP, answers over SMTP. docs/channels/email.md takes a newcomer through it.

A place is the address of the person written to, a thread is the Message-ID it began with. The mailbox is only looked
at: no mail is marked as read, moved or deleted."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from adapters.channel_port import (
    Batch,
    ChannelCapabilities,
    InboundMessage,
    OutboundMessage,
    Rate,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.email.imap import ImapMailbox, State, UnfetchableError, since_yesterday
from adapters.channels.email.reading import AUTOMATIC, read_mail
from adapters.channels.email.settings import ADDRESS, ADDRESS_FORM, MAX_ADDRESS, SMTP, EmailSettings
from adapters.channels.email.smtp import SmtpSending
from adapters.channels.email.threads import in_thread
from adapters.channels.email.writing import message_id_of, write_mail
from adapters.errors import ChannelError, DeliveryError
from adapters.markup.plain import to_plain

log = structlog.get_logger()

SENDING_SECONDS: Final = 40.0
LOOKING_SECONDS: Final = 300.0  # for one look at the mailbox, or for reading one batch
BATCH: Final = 10  # mails
MOST_AGAIN: Final = 500  # mails that are looked at again when all UIDs have changed
TRIES: Final = 3  # a mail that so often ends the connection, or is not read in time, is passed over

T = TypeVar("T")


@dataclass(frozen=True)
class _Cursor:
    """Up to which UID everything has been read."""

    uidvalidity: int
    uid: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "_Cursor | None":
        validity, uid = (given or {}).get("uidvalidity"), (given or {}).get("uid")
        return cls(validity, uid) if isinstance(validity, int) and isinstance(uid, int) else None

    def stored(self) -> dict[str, Any]:
        return {"uidvalidity": self.uidvalidity, "uid": self.uid}


class EmailChannel(PlainChannel):
    channel_type = "email"
    # Mail servers keep no keys, and what they have sent on cannot be asked for.
    capabilities = ChannelCapabilities(
        idempotent=False, files=True, direct_messages=True, max_text=100_000, overall=Rate(30, 60.0)
    )

    def __init__(self, settings: EmailSettings | None = None) -> None:
        self._settings = settings or EmailSettings.from_environment()
        self._tries: dict[tuple[int, int], int] = {}  # of mails that were not read to their end

    # --- in ---

    def accepts(self, message: InboundMessage) -> bool:
        """Not our own mails, nor what programs send by themselves."""
        return message.platform_id != self._settings.address and AUTOMATIC not in message.content

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        return (self._settings.agent or None) if known else None

    def listens(self) -> str | None:
        settings = self._settings
        return f"email:{settings.address}" if settings.imap is not None and settings.address else None

    async def listen(self, cursor: Mapping[str, Any] | None) -> AsyncIterator[Batch]:
        """Without a cursor, from the present end of the mailbox on: mail of before is never answered."""
        if self._settings.imap is None:
            raise ChannelError("LONGSHORE_EMAIL_IMAP is not set")
        mailbox = ImapMailbox(self._settings.imap)
        at = _Cursor.read(cursor)
        try:
            while True:
                state, uids = await _in_mailbox(mailbox, partial(_look, mailbox, at))
                now = _Cursor(state.uidvalidity, state.last)
                known = at is not None and at.uidvalidity == state.uidvalidity and at.uid <= state.last
                if at is None or (not known and not uids):
                    at = now
                    yield Batch(Received(), at.stored())
                for start in range(0, len(uids), BATCH):
                    some = uids[start : start + BATCH]
                    messages = await _in_mailbox(mailbox, partial(self._read, mailbox, state, some))
                    if known:
                        at = _Cursor(state.uidvalidity, some[-1])
                    elif start + BATCH >= len(uids):
                        # Until all have been looked at again, whoever begins anew begins with the first.
                        at = now
                    yield Batch(Received(tuple(messages)), at.stored())
                if not uids:
                    await asyncio.sleep(self._settings.poll_seconds)
        finally:
            mailbox.hang_up()

    def _read(self, mailbox: ImapMailbox, state: State, uids: Sequence[int]) -> list[InboundMessage]:
        """What can be read of these. One that cannot must not stop those behind it."""
        read = [self._read_one(mailbox, (state.uidvalidity, uid)) for uid in uids]
        return [message for message in read if message is not None]

    def _read_one(self, mailbox: ImapMailbox, which: tuple[int, int]) -> InboundMessage | None:
        tries = self._tries[which] = self._tries.get(which, 0) + 1
        if tries > TRIES:
            log.warning("email.passed_over", uid=which[1], why=f"{TRIES} attempts to read it have not come to an end")
            return None
        try:
            raw = mailbox.fetch(which[1])
            message = read_mail(raw, self._settings) if raw is not None else None
        except DeliveryError:
            raise
        except Exception as error:  # whatever a stranger has made up  # noqa: BLE001
            why = str(error) if isinstance(error, ChannelError | UnfetchableError) else type(error).__name__
            log.warning("email.passed_over", uid=which[1], why=why)
            message = None
        del self._tries[which]
        return message

    # --- out ---

    def length(self, text: str) -> int:
        return len(to_plain(text))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        settings, to = self._settings, message.destination.platform_id
        if settings.smtp is None or not settings.address:
            raise DeliveryError(f"{SMTP if settings.address else ADDRESS} is not set", retryable=False)
        if not _is_address(to):
            raise DeliveryError(f"email: {to[:100]!r} is not a mail address", retryable=False)
        mail = await asyncio.to_thread(write_mail, message, settings)
        sending = SmtpSending(settings.smtp, sender=settings.address, recipient=to, mail=mail)
        try:
            await in_thread(sending.run, sending.hang_up, SENDING_SECONDS)
        except TimeoutError:
            late = "email: SMTP gave no answer in time"
            raise DeliveryError(late, retryable=True, may_have_arrived=sending.doubtful) from None
        return Receipt(message_id_of(message.idempotency_key, settings))

    async def open_dm(self, user_id: str) -> str | None:
        """Whoever has an address can be written to; one whose mails nobody vouches for is not known by it."""
        return user_id if _is_address(user_id) else None


def _look(mailbox: ImapMailbox, at: _Cursor | None) -> tuple[State, list[int]]:
    """What is new. When UIDs have lost their meaning, all of the last day: ids of mails tell the new ones."""
    state = mailbox.examine()
    if at is None:
        return state, []
    if at.uidvalidity != state.uidvalidity or at.uid > state.last:
        return state, mailbox.search("SINCE", since_yesterday())[-MOST_AGAIN:]
    # The last one is always found, however low its UID.
    return state, [uid for uid in mailbox.search("UID", f"{at.uid + 1}:*") if uid > at.uid]


async def _in_mailbox(mailbox: ImapMailbox, work: Callable[[], T]) -> T:
    try:
        return await in_thread(work, mailbox.hang_up, LOOKING_SECONDS)
    except TimeoutError:
        raise DeliveryError("email: IMAP gave no answer in time", retryable=True) from None


def _is_address(text: str) -> bool:
    return len(text) <= MAX_ADDRESS and re.fullmatch(ADDRESS_FORM, text) is not None
