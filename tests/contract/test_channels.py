"""The channel contract, run on the channels that ship here: in memory, at the terminal, and over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import pytest

from adapters.channel_port import Channel, Destination, InboundMessage, InboundRequest, OutboundMessage, Receipt
from adapters.channels import conformance, fake, http
from adapters.channels.conformance import (
    CHECKS,
    FAULTS,
    FORGERIES,
    Check,
    ConformanceError,
    Fault,
    Forgery,
    NotApplicable,
    run_check,
)
from adapters.channels.fake import FakeChannel
from adapters.channels.local import LocalChannel
from adapters.channels.signing import HEADER, sign
from adapters.channels.webhook import ENDPOINT_HEADER, Endpoint, WebhookChannel
from adapters.errors import ChannelError, DeliveryError, SignatureError
from tests.support.forged_requests import forge_request
from tests.support.row_channels import APPLYING, RowHarness
from tests.support.servers import free_port
from tests.support.webhook_server import Behaviour, WebhookServer

SECRET: Final = "a secret of the CRM"


class FakeHarness:
    destination = Destination("chat-1")
    receives = True
    forgeries: Sequence[Forgery] = FORGERIES
    threads: Sequence[str | None] = (None, "thread-9")
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = True

    def __init__(self, *, idempotent: bool = True) -> None:
        self.channel = FakeChannel(idempotent=idempotent, receives=True)

    def named(self, ours: str) -> str:
        return ours

    def press(self, label: str, sender: str) -> InboundRequest:
        [token] = [b.token for shown in self.channel.shown for b in shown.buttons if b.label == label]
        return self.channel.request(press=token, chat="chat-1", sender=sender)

    def buttons(self) -> list[str]:
        return [button.label for shown in self.channel.shown for button in shown.buttons]

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        return self.channel.request(id=message_id, chat="chat-1", text=text, thread=thread, sender=sender)

    def forged(self, forgery: Forgery) -> InboundRequest:
        return forge_request(fake.SECRET, b'{"id": 1, "chat": 2, "text": "hi"}', forgery, {})

    def unreadable(self) -> Sequence[InboundRequest]:
        bodies = (b"", b"not json", b"\xff\xfe", b"[]", b"5", b"null", b'{"id": 1}')
        return [InboundRequest(headers={HEADER: sign(fake.SECRET, body)}, body=body) for body in bodies]

    def unwanted(self) -> InboundMessage | None:
        return InboundMessage("chat-1", "1", {"text": "beep"}, sender_id="bot")

    def shown(self) -> list[str]:
        return [str(message.content["text"]) for message in self.channel.shown]

    def fail_next(self, fault: Fault) -> None:
        self.channel.failures.append(
            {
                "busy": DeliveryError("wait", retryable=True, retry_after=conformance.RETRY_AFTER),
                "broken": DeliveryError("broken", retryable=True),
                "refused": DeliveryError("no", retryable=False),
                "spoiled": DeliveryError("spoiled", retryable=True, may_have_arrived=True),
                "lost": DeliveryError("lost", retryable=True, may_have_arrived=True),
                "away": DeliveryError("away", retryable=True),
            }[fault]
        )


class WebhookHarness:
    destination = Destination("crm")
    receives = True
    forgeries: Sequence[Forgery] = FORGERIES
    threads: Sequence[str | None] = (None, "thread-9")
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = False

    def __init__(self, server: WebhookServer) -> None:
        self.server = server
        self.channel = WebhookChannel({"crm": Endpoint(url=server.url, secret=SECRET)})

    def named(self, ours: str) -> str:
        return f"crm/{ours}" if ours == "ada" else ours

    def press(self, label: str, sender: str) -> InboundRequest:
        raise NotImplementedError("a webhook has no buttons")

    def buttons(self) -> list[str]:
        return []

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        return self._signed({"id": message_id, "text": text, "thread": thread, "sender": sender})

    def forged(self, forgery: Forgery) -> InboundRequest:
        return forge_request(SECRET, b'{"id": "1", "text": "hi"}', forgery, {ENDPOINT_HEADER: "crm"})

    def unreadable(self) -> Sequence[InboundRequest]:
        bodies: tuple[bytes, ...] = (
            b"",
            b"not json",
            b"\xff\xfe",
            b"[]",
            b"5",
            b"null",
            b'{"id": "1"}',
            b'{"text": "x"}',
        )
        return [self._request(body) for body in (*bodies, b'{"id": 5, "text": "x"}', b'{"id": "1", "text": "\\ud800"}')]

    def unwanted(self) -> InboundMessage | None:
        return None

    def shown(self) -> list[str]:
        assert self.server.refused == []
        return [str(message["content"]["text"]) for message in self.server.shown.values()]

    def fail_next(self, fault: Fault) -> None:
        behaviours: dict[Fault, Behaviour] = {
            "busy": "busy",
            "broken": "broken",
            "refused": "missing",
            "spoiled": "spoiled",
            "lost": "drop",
        }
        if fault == "away":
            self.server.close()
        else:
            self.server.fail_next(behaviours[fault])

    def _signed(self, body: dict[str, Any]) -> InboundRequest:
        return self._request(json.dumps(body).encode())

    def _request(self, body: bytes) -> InboundRequest:
        return InboundRequest(headers={HEADER: sign(SECRET, body), ENDPOINT_HEADER: "crm"}, body=body)


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    stand_in = WebhookServer(SECRET)
    yield stand_in
    stand_in.close()


@pytest.fixture
async def crm(server: WebhookServer) -> AsyncIterator[WebhookHarness]:
    harness = WebhookHarness(server)
    yield harness
    await harness.channel.close()


def _named(check: Check) -> str:
    return check.name


@pytest.mark.spec("C1")
@pytest.mark.parametrize("check", CHECKS, ids=_named)
async def test_fake_keeps_the_contract(check: Check) -> None:
    outcome = await run_check(check, FakeHarness())
    assert (outcome is None) == (check.name != "refuses_every_request")


@pytest.mark.spec("C1")
async def test_fake_without_keys_is_excused_only_from_honouring_them() -> None:
    excused = {check.name for check in CHECKS if await run_check(check, FakeHarness(idempotent=False)) is not None}
    assert excused == {"shows_one_message_per_key", "refuses_every_request"}


@pytest.mark.spec("C1")
@pytest.mark.parametrize("check", CHECKS, ids=_named)
async def test_local_keeps_what_of_the_contract_concerns_it(check: Check) -> None:
    outcome = await run_check(check, RowHarness(LocalChannel(), "inbox"))
    assert (outcome is None) == (check.name in APPLYING)


@pytest.mark.spec("C1", "C2", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=_named)
async def test_webhook_keeps_the_contract_over_http(check: Check, crm: WebhookHarness) -> None:
    outcome = await run_check(check, crm)
    excused = {
        "refuses_every_request",
        "filters_what_it_never_forwards",
        "opens_a_direct_chat",
        "finds_what_arrived",
        "shows_buttons_and_hears_them",
    }
    assert (outcome is None) == (check.name not in excused)


@pytest.mark.spec("C1")
async def test_what_does_not_apply_says_why() -> None:
    [check] = [check for check in CHECKS if check.name == "waits_as_long_as_the_platform_asks"]
    outcome = await run_check(check, RowHarness(LocalChannel(), "inbox"))
    assert outcome == NotApplicable("waits_as_long_as_the_platform_asks: the platform cannot be busy")


class TrustingChannel(FakeChannel):
    """Breaks the contract in the ways a new driver does."""

    def verify(self, request: InboundRequest) -> None: ...

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        self.shown.append(OutboundMessage(destination, {"text": emoji}, emoji))

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        return Receipt("m0")

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        await self.deliver(OutboundMessage(destination, {"text": "…"}, "typing"))


@pytest.mark.spec("C1")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("refuses_what_the_platform_did_not_sign", "a request with a wrong signature passes"),
        ("reacts_or_refuses", "a reaction changed the messages"),
        ("finds_what_arrived", "the receipt that was found is another one"),
        ("claims_no_receipt_it_cannot_know", "nothing of that key was sent"),
        ("shows_typing_or_nothing", "typing shows a message"),
    ],
)
async def test_a_channel_that_breaks_the_contract_is_told_how(name: str, complaint: str) -> None:
    harness = FakeHarness()
    harness.channel = TrustingChannel()
    [check] = [check for check in CHECKS if check.name == name]
    with pytest.raises(ConformanceError, match=complaint):
        await run_check(check, harness)


@pytest.mark.spec("C2", "M12")
async def test_a_webhook_delivery_carries_everything_the_receiver_needs(crm: WebhookHarness) -> None:
    message = OutboundMessage(Destination("crm", "thread-9"), {"text": "hé"}, "key-1", kind="notice")
    receipt = await crm.channel.deliver(message)
    assert receipt.details == {"status": 202}
    expected = {"id": "key-1", "kind": "notice", "thread": "thread-9", "content": {"text": "hé"}}
    assert crm.server.shown == {"key-1": expected}


@pytest.mark.spec("C2", "C8")
async def test_a_redirect_is_not_followed(crm: WebhookHarness) -> None:
    crm.server.fail_next("redirect")
    with pytest.raises(DeliveryError, match="webhook answered 307") as caught:
        await crm.channel.deliver(OutboundMessage(crm.destination, {"text": "x"}, "key-1"))
    assert not caught.value.retryable
    assert crm.server.elsewhere == 0


@pytest.mark.spec("C2", "M12")
async def test_a_receiver_that_does_not_answer_in_time_is_in_doubt(
    crm: WebhookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.2)
    crm.server.fail_next("slow")
    with pytest.raises(DeliveryError, match="webhook: ReadTimeout") as caught:
        await crm.channel.deliver(OutboundMessage(crm.destination, {"text": "x"}, "key-1"))
    assert caught.value.retryable
    assert caught.value.may_have_arrived


@pytest.mark.spec("C2")
async def test_a_slow_receiver_does_not_hold_up_another(crm: WebhookHarness) -> None:
    crm.server.fail_next("slow")
    slow = asyncio.create_task(crm.channel.deliver(OutboundMessage(crm.destination, {"text": "slow"}, "key-1")))
    assert await asyncio.to_thread(crm.server.waiting.wait, 10)
    await crm.channel.deliver(OutboundMessage(crm.destination, {"text": "quick"}, "key-2"))
    assert list(crm.server.shown) == ["key-2"]
    crm.server.close()
    with pytest.raises(DeliveryError, match="webhook: RemoteProtocolError"):
        await slow


@pytest.mark.spec("C2")
async def test_a_receiver_with_another_secret_refuses_for_good(server: WebhookServer) -> None:
    channel = WebhookChannel({"crm": Endpoint(url=server.url, secret="another")})
    with pytest.raises(DeliveryError, match="webhook answered 401") as caught:
        await channel.deliver(OutboundMessage(Destination("crm"), {"text": "x"}, "key-1"))
    assert not caught.value.retryable
    assert server.refused == ["the signature does not fit"]
    await channel.close()


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize("platform_id", ["", "unknown", "http://127.0.0.1/", "crm/../x", "CRM"])
async def test_only_endpoints_the_operator_named_are_called(platform_id: str, crm: WebhookHarness) -> None:
    with pytest.raises(DeliveryError, match="has no endpoint") as caught:
        await crm.channel.deliver(OutboundMessage(Destination(platform_id), {"text": "x"}, "key-1"))
    assert not caught.value.retryable


@pytest.mark.spec("C8")
def test_a_request_of_an_unknown_endpoint_is_refused_before_its_signature_is_looked_at() -> None:
    channel: Channel = WebhookChannel({})
    body = b'{"id": "1", "text": "hi"}'
    for headers in ({}, {ENDPOINT_HEADER: "crm"}):
        with pytest.raises(SignatureError, match="names no endpoint"):
            channel.verify(InboundRequest(headers={HEADER: sign("", body)} | headers, body=body))


@pytest.mark.spec("C8")
async def test_a_request_signed_for_one_endpoint_is_not_another_s(server: WebhookServer) -> None:
    endpoint = {"url": f"http://127.0.0.1:{free_port()}", "secret": "of another"}
    channel = WebhookChannel({"crm": Endpoint(url=server.url, secret=SECRET), "erp": Endpoint.model_validate(endpoint)})
    body = b'{"id": "1", "text": "hi"}'
    with pytest.raises(SignatureError, match="does not fit"):
        channel.verify(InboundRequest(headers={HEADER: sign(SECRET, body), ENDPOINT_HEADER: "erp"}, body=body))


@pytest.mark.spec("F9", "C2")
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("hunter2", "LONGSHORE_WEBHOOKS at top: Invalid JSON"),
        ('["hunter2"]', "LONGSHORE_WEBHOOKS at top: Input should be an object"),
        ('{"crm": {"url": "hunter2", "secret": "hunter2"}}', "LONGSHORE_WEBHOOKS at crm.url: Input should be a valid"),
        ('{"crm": {"url": "http://x", "secret": ["hunter2"]}}', "LONGSHORE_WEBHOOKS at crm.secret: Input should be"),
        ('{"crm/eu": {"secret": "hunter2"}}', "LONGSHORE_WEBHOOKS at crm/eu.[key]: Value error, the name of"),
        ('{"crm": {"url": "http://x"}}', "LONGSHORE_WEBHOOKS at crm.secret: Field required"),
        ('{"crm": {"url": "http://x", "secret": "hunter2", "key": "hunter2"}}', "LONGSHORE_WEBHOOKS at crm.key: Extra"),
    ],
)
def test_bad_endpoints_are_refused_without_repeating_a_secret(
    value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGSHORE_WEBHOOKS", value)
    with pytest.raises(ChannelError) as caught:
        WebhookChannel()
    assert str(caught.value).startswith(complaint)
    assert "hunter2" not in str(caught.value)


@pytest.mark.spec("C2")
def test_endpoints_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSHORE_WEBHOOKS", '{"crm": {"url": "https://crm.example", "secret": "s"}}')
    body = b'{"id": "1", "text": "hi"}'
    WebhookChannel().verify(InboundRequest(headers={HEADER: sign("s", body), ENDPOINT_HEADER: "crm"}, body=body))
