"""`delivery.send`: this message is to leave. `delivery.settle`: its sender died; find out what became of it."""

from workers import delivery
from workers.app import Call, coroutine_task


@coroutine_task("delivery.send")
async def send(call: Call, message_out_id: str) -> None:
    await delivery.send(call.runtime, message_out_id)


@coroutine_task("delivery.settle")
async def settle(call: Call, message_out_id: str) -> None:
    await delivery.settle_doubtful(call.runtime, message_out_id)
