"""What every channel must do, as checks anybody can run: ours, and those of other people's distributions.

Write a `Harness` for the channel and its (stand-in) platform, then run each of `CHECKS` with `run_check`: it returns
None when the channel behaves, `NotApplicable` with the reason when its capabilities exclude the check, and raises
ConformanceError with a sentence otherwise. No test framework is needed; `tests/contract/test_channels.py` shows it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from adapters.channel_port import Button, Channel, Destination, InboundMessage, InboundRequest, OutboundMessage, Receipt
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError

# How a request can fail to be the platform's: another body than was signed, no signature, one made an hour ago, one
# with characters no signature has, one with numbers no clock has.
Forgery = Literal["wrong", "missing", "old", "non-ascii", "garbage"]
# How a platform can fail: asks to wait RETRY_AFTER seconds; is not there for now and says so; refuses for good; takes
# the message and then breaks; takes it and says nothing; cannot be reached.
Fault = Literal["busy", "broken", "refused", "spoiled", "lost", "away"]

FORGERIES: Final[tuple[Forgery, ...]] = ("wrong", "missing", "old", "non-ascii", "garbage")
FAULTS: Final[tuple[Fault, ...]] = ("busy", "broken", "refused", "spoiled", "lost", "away")
RETRY_AFTER: Final = 7.0
TEXT: Final = "two < three & „quotes“ 🫖\nsecond line"


class Harness(Protocol):
    """A channel and its platform. A fresh one is made for each check."""

    @property
    def channel(self) -> Channel: ...

    @property
    def destination(self) -> Destination: ...

    @property
    def receives(self) -> bool:
        """Whether the platform sends requests; if not, every request must be refused."""

    @property
    def forgeries(self) -> Sequence[Forgery]:
        """Which forgeries there can be: a signature without a time cannot be old."""

    @property
    def threads(self) -> Sequence[str | None]:
        """Threads a message can be in, None for none."""

    @property
    def faults(self) -> Sequence[Fault]:
        """How the platform can fail."""

    @property
    def knows_its_keys(self) -> bool:
        """Whether the platform can be asked what arrived."""

    def named(self, ours: str) -> str:
        """How the platform calls what is `message-1`, `thread-9` or `ada` here."""

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        """What the platform sends for a message in `destination`, properly signed. The names are ours."""

    def press(self, label: str, sender: str) -> InboundRequest:
        """What the platform sends when a person presses the button with this label."""

    def forged(self, forgery: Forgery) -> InboundRequest: ...

    def unreadable(self) -> Sequence[InboundRequest]:
        """Properly signed requests that hold no message."""

    def unwanted(self) -> InboundMessage | None:
        """A message the channel's own filter drops; None if it has no filter."""

    def shown(self) -> list[str]:
        """The texts that people on the platform see, in order."""

    def buttons(self) -> list[str]:
        """The labels of all buttons that people can press."""

    def fail_next(self, fault: Fault) -> None: ...


class ConformanceError(AssertionError):
    """The channel breaks the contract; the text says how."""


@dataclass(frozen=True)
class NotApplicable:
    """The channel's capabilities, or what its platform can do, exclude the check."""

    reason: str


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[Harness], Awaitable[None]]
    excuse: Callable[[Harness], str | None] = lambda harness: None


async def run_check(check: Check, harness: Harness) -> NotApplicable | None:
    if excuse := check.excuse(harness):
        return NotApplicable(f"{check.name}: {excuse}")
    await check.run(harness)
    return None


# --- Receiving ---------------------------------------------------------------------------------------------------


async def accepts_what_the_platform_signed(harness: Harness) -> None:
    harness.channel.verify(_request(harness))


async def refuses_what_the_platform_did_not_sign(harness: Harness) -> None:
    for forgery in harness.forgeries:
        try:
            harness.channel.verify(harness.forged(forgery))
        except SignatureError as error:
            _expect(bool(str(error)), f"a {forgery} signature is refused without a reason")
        else:
            raise ConformanceError(f"a request with a {forgery} signature passes")


async def refuses_every_request(harness: Harness) -> None:
    for body in (b"", b"{}", b'{"id": "1", "text": "hello"}'):
        try:
            harness.channel.verify(InboundRequest(headers={}, body=body))
        except SignatureError:
            continue
        raise ConformanceError("a channel without a platform takes requests")


async def extracts_ids_and_content(harness: Harness) -> None:
    for thread in harness.threads:
        message = _received(harness, _request(harness, thread=thread))
        expected = harness.named(thread) if thread else None
        _expect(message.platform_id == harness.destination.platform_id, f"the channel id is {message.platform_id!r}")
        _expect(
            message.platform_message_id == harness.named("message-1"),
            f"the message id is {message.platform_message_id!r}",
        )
        _expect(message.thread_id == expected, f"the thread id is {message.thread_id!r}, not {expected!r}")
        _expect(message.sender_id == harness.named("ada"), f"the sender is {message.sender_id!r}")
        _expect(message.content.get("text") == TEXT, f"the text is {message.content.get('text')!r}")
        _expect(harness.channel.accepts(message), "its own filter drops an ordinary message")


async def says_whether_it_takes_requests(harness: Harness) -> None:
    _expect(harness.channel.receives == harness.receives, f"receives is {harness.channel.receives}")


async def reads_the_same_request_the_same_way(harness: Harness) -> None:
    request = _request(harness)
    _expect(
        harness.channel.receive(request) == harness.channel.receive(request),
        "the same request gave different messages: repeated ones could not be told apart",
    )


async def says_what_it_cannot_read(harness: Harness) -> None:
    for request in harness.unreadable():
        harness.channel.verify(request)
        try:
            received = harness.channel.receive(request)
        except MalformedError as error:
            _expect(bool(str(error)), f"{request.body!r} is refused without a reason")
        else:
            raise ConformanceError(f"{request.body!r} was read as {received}")


async def filters_what_it_never_forwards(harness: Harness) -> None:
    unwanted = harness.unwanted()
    assert unwanted is not None
    _expect(not harness.channel.accepts(unwanted), f"the filter lets {unwanted} through")


# --- Sending -----------------------------------------------------------------------------------------------------


async def shows_buttons_and_hears_them(harness: Harness) -> None:
    """A pressed button brings back its token, who pressed it and where; an edit takes the buttons away."""
    buttons = (Button("Allow", f"{'t' * 58}:1", "good"), Button("Deny", "card-1:2", "bad"))
    receipt = await harness.channel.deliver(replace(_message(harness, "key-1"), buttons=buttons))
    _expect(harness.buttons() == ["Allow", "Deny"], f"the platform shows the buttons {harness.buttons()}")
    _expect(harness.shown() == [TEXT], f"beside the buttons it shows {harness.shown()}")
    for button in buttons:
        request = harness.press(button.label, "ada")
        harness.channel.verify(request)
        received = harness.channel.receive(request)
        _expect(len(received.presses) == 1 and not received.messages, f"a press was received as {received}")
        press = received.presses[0]
        _expect(press.token == button.token, f"the button {button.label} brought back {press.token!r}")
        _expect(press.sender_id == harness.named("ada"), f"it was pressed by {press.sender_id!r}")
        _expect(press.platform_id == harness.destination.platform_id, f"it was pressed in {press.platform_id!r}")
        await harness.channel.tell(press, "heard")
    _expect(bool(receipt.platform_message_id), "a message with buttons has no id by which to take them away")
    assert receipt.platform_message_id is not None
    await harness.channel.edit(harness.destination, receipt.platform_message_id, {"text": "decided"})
    _expect(harness.buttons() == [], f"after an edit without buttons there are still {harness.buttons()}")
    _expect("decided" in harness.shown()[-1], f"after the edit it shows {harness.shown()}")


async def takes_a_text_as_long_as_it_says(harness: Harness) -> None:
    channel = harness.channel
    text = ("word " * (channel.capabilities.max_text // 5)).strip()
    _expect(channel.length(text) <= channel.capabilities.max_text, "plain words become longer on the platform")
    await channel.deliver(_message(harness, "key-1", text))
    _expect("".join(harness.shown()) == text, "the longest text does not arrive whole")


async def delivers_and_gives_a_receipt(harness: Harness) -> None:
    receipt = await harness.channel.deliver(_message(harness, "key-1"))
    _expect(isinstance(receipt, Receipt), f"deliver() returned {receipt!r}, not a receipt")
    _expect(harness.shown() == [TEXT], f"the platform shows {harness.shown()}")
    if harness.channel.capabilities.edits or harness.channel.capabilities.reactions:
        _expect(bool(receipt.platform_message_id), "there are edits or reactions, but no message id to name in them")


async def keeps_the_order(harness: Harness) -> None:
    for number in range(3):
        await harness.channel.deliver(_message(harness, f"key-{number}", f"text {number}"))
    _expect(harness.shown() == ["text 0", "text 1", "text 2"], f"the platform shows {harness.shown()}")


async def shows_one_message_per_key(harness: Harness) -> None:
    first = await harness.channel.deliver(_message(harness, "key-1"))
    second = await harness.channel.deliver(_message(harness, "key-1"))
    _expect(harness.shown() == [TEXT], f"one key, sent twice, shows {len(harness.shown())} messages")
    _expect(first.platform_message_id == second.platform_message_id, "one message has two ids")
    await harness.channel.deliver(_message(harness, "key-2"))
    _expect(harness.shown() == [TEXT, TEXT], "another key with the same text is another message")


async def waits_as_long_as_the_platform_asks(harness: Harness) -> None:
    error = await _failure(harness, "busy")
    _expect(error.retryable, "a platform that asks to wait may be asked again")
    _expect(error.retry_after == RETRY_AFTER, f"it was to wait {RETRY_AFTER:g} s, the error says {error.retry_after}")


async def tries_again_what_can_pass(harness: Harness) -> None:
    _expect((await _failure(harness, "broken")).retryable, "a broken platform may be asked again")
    await harness.channel.deliver(_message(harness, "key-1"))
    _expect(harness.shown() == [TEXT], f"after a failure and a success the platform shows {harness.shown()}")


async def gives_up_what_cannot_pass(harness: Harness) -> None:
    error = await _failure(harness, "refused")
    _expect(not error.retryable, "what the platform refused for good is to be sent again")
    _expect(bool(str(error)), "the refusal has no reason")


async def admits_that_it_may_have_arrived(harness: Harness) -> None:
    error = await _failure(harness, "lost")
    _expect(error.may_have_arrived, "the platform took it without saying so, and the error does not say so either")
    if harness.channel.capabilities.idempotent:
        _expect(error.retryable, "a doubtful sending is repeated on a channel that honours keys")
        await harness.channel.deliver(_message(harness, "key-1"))
        _expect(harness.shown() == [TEXT], f"a repeated doubtful sending shows {len(harness.shown())} messages")


async def admits_that_a_broken_platform_may_have_taken_it(harness: Harness) -> None:
    error = await _failure(harness, "spoiled")
    _expect(error.retryable, "a platform that broke may be asked again")
    _expect(error.may_have_arrived, "the platform broke after it took the message, and the error rules that out")


async def survives_a_platform_that_is_away(harness: Harness) -> None:
    _expect((await _failure(harness, "away")).retryable, "a platform that is away may come back")


# --- Afterwards --------------------------------------------------------------------------------------------------


async def edits_or_refuses(harness: Harness) -> None:
    channel = harness.channel
    receipt = await channel.deliver(_message(harness, "key-1"))
    edit = channel.edit(
        harness.destination, receipt.platform_message_id or harness.named("message-1"), {"text": "changed"}
    )
    if channel.capabilities.edits:
        await edit
        _expect(harness.shown() == ["changed"], f"after an edit the platform shows {harness.shown()}")
    else:
        await _refused(edit, "edit()")
        _expect(harness.shown() == [TEXT], "a refused edit changed something")


async def reacts_or_refuses(harness: Harness) -> None:
    channel = harness.channel
    receipt = await channel.deliver(_message(harness, "key-1"))
    reaction = channel.react(harness.destination, receipt.platform_message_id or harness.named("message-1"), "👍")
    await (reaction if channel.capabilities.reactions else _refused(reaction, "react()"))
    _expect(harness.shown() == [TEXT], "a reaction changed the messages")


async def shows_typing_or_nothing(harness: Harness) -> None:
    """Typing is a courtesy: it never fails, also where the platform has none, and may be repeated."""
    for on in (True, True, False, False):
        await harness.channel.show_typing(harness.destination, on=on)
    _expect(harness.shown() == [], "typing shows a message")


async def opens_a_direct_chat(harness: Harness) -> None:
    user = harness.named("ada")
    first, second = await harness.channel.open_dm(user), await harness.channel.open_dm(user)
    _expect(isinstance(first, str) and first != "", "direct_messages is true, but there is no direct chat")
    _expect(first == second, "one user has two direct chats")


async def finds_what_arrived(harness: Harness) -> None:
    sent = await harness.channel.deliver(_message(harness, "key-1"))
    found = await harness.channel.find_receipt(harness.destination, "key-1")
    _expect(found is not None, "the platform knows its keys, but not the one that arrived")
    assert found is not None
    _expect(found.platform_message_id == sent.platform_message_id, "the receipt that was found is another one")


async def claims_no_receipt_it_cannot_know(harness: Harness) -> None:
    found = await harness.channel.find_receipt(harness.destination, "never-sent")
    _expect(found is None, f"nothing of that key was sent, and find_receipt() says {found}")


async def has_consistent_capabilities(harness: Harness) -> None:
    channel = harness.channel
    _expect(channel.channel_type.isidentifier(), f"the channel type {channel.channel_type!r} is not a plain word")
    _expect(channel.channel_type == channel.channel_type.lower(), "the channel type is not lower-case")
    _expect(channel.capabilities.max_text > 0, "max_text leaves no room for a text")
    _expect(channel.capabilities == channel.capabilities, "the capabilities are not the same twice")


async def closes_twice(harness: Harness) -> None:
    await harness.channel.deliver(_message(harness, "key-1"))
    await harness.channel.close()
    await harness.channel.close()


# --- When a check does not apply ---------------------------------------------------------------------------------


def _takes_requests(harness: Harness) -> str | None:
    return None if harness.receives else "the channel takes no requests from a platform"


def _takes_none(harness: Harness) -> str | None:
    return "the channel takes requests" if harness.receives else None


def _has_a_filter(harness: Harness) -> str | None:
    return None if harness.unwanted() is not None else "the channel has no filter of its own"


def _can_fail(fault: Fault) -> Callable[[Harness], str | None]:
    return lambda harness: None if fault in harness.faults else f"the platform cannot be {fault}"


def _honours_keys(harness: Harness) -> str | None:
    return None if harness.channel.capabilities.idempotent else "the channel's capabilities say idempotent=False"


def _has_buttons(harness: Harness) -> str | None:
    if not harness.channel.capabilities.buttons:
        return "its capabilities say buttons=False"
    return None if harness.receives else "presses do not come as requests of a platform"


def _has_direct_chats(harness: Harness) -> str | None:
    return None if harness.channel.capabilities.direct_messages else "its capabilities say direct_messages=False"


def _knows_its_keys(harness: Harness) -> str | None:
    return None if harness.knows_its_keys else "the platform cannot be asked what arrived"


def _does_not_know_by_itself(harness: Harness) -> str | None:
    return None if harness.receives else "delivering is writing the row: every key that is asked for has arrived"


CHECKS: Final = (
    Check("says_whether_it_takes_requests", says_whether_it_takes_requests),
    Check("accepts_what_the_platform_signed", accepts_what_the_platform_signed, _takes_requests),
    Check("refuses_what_the_platform_did_not_sign", refuses_what_the_platform_did_not_sign, _takes_requests),
    Check("refuses_every_request", refuses_every_request, _takes_none),
    Check("extracts_ids_and_content", extracts_ids_and_content, _takes_requests),
    Check("reads_the_same_request_the_same_way", reads_the_same_request_the_same_way, _takes_requests),
    Check("says_what_it_cannot_read", says_what_it_cannot_read, _takes_requests),
    Check("filters_what_it_never_forwards", filters_what_it_never_forwards, _has_a_filter),
    Check("delivers_and_gives_a_receipt", delivers_and_gives_a_receipt),
    Check("keeps_the_order", keeps_the_order),
    Check("takes_a_text_as_long_as_it_says", takes_a_text_as_long_as_it_says),
    Check("shows_buttons_and_hears_them", shows_buttons_and_hears_them, _has_buttons),
    Check("shows_one_message_per_key", shows_one_message_per_key, _honours_keys),
    Check("waits_as_long_as_the_platform_asks", waits_as_long_as_the_platform_asks, _can_fail("busy")),
    Check("tries_again_what_can_pass", tries_again_what_can_pass, _can_fail("broken")),
    Check("gives_up_what_cannot_pass", gives_up_what_cannot_pass, _can_fail("refused")),
    Check(
        "admits_that_a_broken_platform_may_have_taken_it",
        admits_that_a_broken_platform_may_have_taken_it,
        _can_fail("spoiled"),
    ),
    Check("admits_that_it_may_have_arrived", admits_that_it_may_have_arrived, _can_fail("lost")),
    Check("survives_a_platform_that_is_away", survives_a_platform_that_is_away, _can_fail("away")),
    Check("edits_or_refuses", edits_or_refuses),
    Check("reacts_or_refuses", reacts_or_refuses),
    Check("shows_typing_or_nothing", shows_typing_or_nothing),
    Check("opens_a_direct_chat", opens_a_direct_chat, _has_direct_chats),
    Check("finds_what_arrived", finds_what_arrived, _knows_its_keys),
    Check("claims_no_receipt_it_cannot_know", claims_no_receipt_it_cannot_know, _does_not_know_by_itself),
    Check("has_consistent_capabilities", has_consistent_capabilities),
    Check("closes_twice", closes_twice),
)


# --- How the checks speak to a channel ---------------------------------------------------------------------------


def _request(harness: Harness, thread: str | None = None) -> InboundRequest:
    return harness.request(message_id="message-1", text=TEXT, thread=thread, sender="ada")


def _received(harness: Harness, request: InboundRequest) -> InboundMessage:
    harness.channel.verify(request)
    received = harness.channel.receive(request)
    _expect(len(received.messages) == 1 and not received.presses, f"one message was received as {received}")
    return received.messages[0]


def _message(harness: Harness, key: str, text: str = TEXT) -> OutboundMessage:
    return OutboundMessage(harness.destination, {"text": text}, key)


async def _failure(harness: Harness, fault: Fault) -> DeliveryError:
    harness.fail_next(fault)
    try:
        receipt = await harness.channel.deliver(_message(harness, "key-1"))
    except DeliveryError as error:
        return error
    raise ConformanceError(f"the platform was {fault}, and deliver() returned {receipt}")


async def _refused(act: Awaitable[None], name: str) -> None:
    try:
        await act
    except ChannelError as error:
        _expect(bool(str(error)), f"{name} is refused without a reason")
    else:
        raise ConformanceError(f"the capabilities exclude {name}, but it was taken in silence")


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ConformanceError(otherwise)
