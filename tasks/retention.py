"""`upkeep.prune`: remove what is old and finished, a while each hour."""

from typing import Final

import structlog

from models.rounds import begin_round
from workers.app import Call, coroutine_task
from workers.archive import Archive, ArchiveError
from workers.retention import Pruning, Terms

log = structlog.get_logger()

ROUND: Final = "prune"
EVERY_SECONDS: Final = 3500.0
# What is left then is for the next round.
LONGEST_SECONDS: Final = 900.0


@coroutine_task("upkeep.prune")
async def prune(call: Call) -> dict[str, int]:
    runtime = call.runtime
    terms = Terms.of(runtime.settings)
    if not await runtime.db.transact(lambda conn: begin_round(conn, ROUND, EVERY_SECONDS)):
        return {}
    folder = runtime.settings.archive
    pruning = Pruning(runtime.db, terms, Archive(folder) if folder is not None else None, seconds=LONGEST_SECONDS)
    try:
        await pruning.run()
    except ArchiveError as error:
        log.error("prune.stopped", why=str(error))
    pruned = pruning.pruned
    if pruned.total:
        log.info("prune.removed", rows=pruned.total, whole=pruned.whole, **pruned.rows)
    return dict(pruned.rows)
