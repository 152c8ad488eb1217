"""`upkeep.prune`: remove what is old and finished, for a while each hour."""

from workers.app import Call, coroutine_task
from workers.retention import prune_round


@coroutine_task("upkeep.prune")
async def prune(call: Call) -> dict[str, int]:
    return dict((await prune_round(call.runtime.db, call.runtime.settings)).rows)
