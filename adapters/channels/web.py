"""`web`: people with a browser or a program of their own, over the gateway's HTTP (`gateway/http/web.py`).

Nothing leaves the machine: the stored row, with the receipt made here, is the delivery, and the gateway shows it from
there. LONGSHORE_WEB_AGENT names the agent that answers in direct chats nobody has wired."""

from pathlib import Path

from adapters.channel_port import ChannelCapabilities, OutboundMessage, Receipt
from adapters.channels.local import LocalChannel
from adapters.channels.variables import FOLDER, variable

VARIABLE = "LONGSHORE_WEB_AGENT"


class WebChannel(LocalChannel):
    channel_type = "web"
    capabilities = ChannelCapabilities(
        idempotent=True,
        edits=True,
        reactions=True,
        typing=True,
        files=True,
        buttons=True,
        direct_messages=True,
        max_text=1_000_000,
    )

    def __init__(self, home: Path | None = None, agent: str | None = None) -> None:
        super().__init__(home)
        self._agent = variable(VARIABLE, agent, FOLDER)

    async def deliver(self, message: OutboundMessage) -> Receipt:
        receipt = await super().deliver(message)
        shown = [
            {"label": button.label, "token": button.token, "style": button.style, "url": button.url}
            for button in message.buttons
        ]
        # The row keeps the receipt, and so the buttons.
        return Receipt(receipt.platform_message_id, receipt.details | ({"buttons": shown} if shown else {}))
