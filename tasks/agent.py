"""`agent.wake`: this session has work."""

from workers.app import Call, coroutine_task, settings
from workers.turn import wake as run_turn


@coroutine_task("agent.wake", soft_time_limit=settings.turn_seconds, time_limit=settings.turn_seconds + 60)
async def wake(call: Call, session_id: str) -> str:
    provider = call.queue.removeprefix("agent.") if call.queue.startswith("agent.") else None
    return await run_turn(call.runtime, session_id, provider, task_id=call.task_id)
