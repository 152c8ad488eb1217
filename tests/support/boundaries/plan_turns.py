"""The plan of the turn that is killed everywhere. Known to the worker that runs it, to the stand-in that asks for it
and to the ledger that judges it."""

from dataclasses import dataclass

from tests.support.model_api import Call, Script, Think, reply, rule, script


@dataclass(frozen=True)
class PlannedTool:
    """Called once. `sends`: the number of the message it sends on the way (0: none). `seconds`: how long its work
    takes."""

    name: str
    idempotent: bool
    sends: int = 0
    seconds: float = 0.0

    @property
    def result(self) -> str:
        return f"sent as message {self.sends}" if self.sends else f"{self.name} is done"

    @property
    def note(self) -> str:
        return f"note of {self.name}"


# The slow one lets the results of its neighbours be written on their own, before the round ends.
ROUNDS: tuple[tuple[PlannedTool, ...], ...] = (
    (PlannedTool("t01", idempotent=False),),
    (PlannedTool("t02", idempotent=True),),
    (
        PlannedTool("t03", idempotent=False),
        PlannedTool("t04", idempotent=True),
        PlannedTool("t05", idempotent=True, seconds=0.06),
    ),
    (PlannedTool("t06", idempotent=True, sends=2),),
    (PlannedTool("t07", idempotent=False), PlannedTool("t08", idempotent=True, sends=3)),
    (PlannedTool("t09", idempotent=False),),
    (PlannedTool("t10", idempotent=True),),
)
TOOLS = tuple(tool for calls in ROUNDS for tool in calls)
# Alone in their rounds: what a kill does to them does not depend on how a neighbour's work is interleaved.
ALONE = tuple(calls[0] for calls in ROUNDS if len(calls) == 1)
MODEL_CALLS = len(ROUNDS) + 1
ANSWER = "All ten are done."
SAID = [*(tool.note for tool in TOOLS if tool.sends), ANSWER]


def round_text(number: int) -> str:
    return f"On to round {number}, one moment."


def ten_tools() -> Script:
    asked = [
        reply(Think(f"Round {number} is next."), round_text(number), *(Call(tool.name) for tool in calls))
        for number, calls in enumerate(ROUNDS, 1)
    ]
    return script(rule(None, *asked, ANSWER))
