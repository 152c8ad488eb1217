"""The names of a turn's boundaries, and what a worker that passes them is asked to do. Knows no SDK, so that whoever
only judges traces need not load them."""

import json
from dataclasses import asdict, dataclass

from workers.model_journal import ModelJournal
from workers.toolbox import JournaledToolBox

PR_SET_PDEATHSIG = 1
BEFORE_COMMIT, AFTER_COMMIT = "before commit: ", "after commit: "
BEFORE_EFFECT, AFTER_EFFECT = "before effect: ", "after effect: "
ASKING, FIRST_PIECE, ARRIVED, HEARD = "asking: ", "first piece: ", "reply arrived: ", "reply heard: "
FLUSH = "flush"
BEGIN, END = JournaledToolBox._begin.__qualname__, JournaledToolBox._finish.__qualname__
RECORD, COMPLETE = ModelJournal.finish.__qualname__, "Ending.complete"


@dataclass(frozen=True)
class Errand:
    """One turn to run. `broken` names a fault of BROKEN to work with; `warms`: in this process, not in a fork."""

    session_id: str
    provider: str
    database_url: str
    redis_url: str
    model_url: str
    folder: str
    trace: str
    effects: str
    kill_at: str | None = None
    broken: str | None = None
    warms: bool = False

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"
