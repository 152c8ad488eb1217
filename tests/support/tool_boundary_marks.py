"""The names of the story's boundaries, besides those every turn has; for whoever only judges traces."""

from collections.abc import Iterable
from typing import Final

from tests.support.boundary_marks import AFTER_COMMIT, AFTER_EFFECT, BEFORE_COMMIT, BEFORE_EFFECT, BEGIN, COMPLETE, END
from tests.support.tool_boundary_story import TOOLS, WITH_FILE
from workers.consent.risky_calls import Consent

BEFORE_DELIVERY, AFTER_DELIVERY = "before delivery: ", "after delivery: "
HALF_COPIED: Final = "half copied"
OVER: Final = "over"
SHOWN: Final = "shown.jsonl"
USE, ASK = Consent._use.__qualname__, Consent._ask.__qualname__
LAUNCHED_COMMIT: Final = f"{END} launch"
RESET: Final = f"{COMPLETE} #2"  # the first is the other agent's


def around_tools() -> set[str]:
    """Before and after every commit and every effect of the tools."""
    commits = [f"{commit} {tool}" for commit in (BEGIN, END) for tool in TOOLS] + [USE, ASK]
    return _around(commits) | {f"{side}{tool}" for side in (BEFORE_EFFECT, AFTER_EFFECT) for tool in TOOLS}


def never_left_out() -> set[str]:
    """These, and what makes an effect out of what they wrote: the file's delivery, the two ways between the agents, the
    decision, the end of the turn."""
    file = {BEFORE_DELIVERY + WITH_FILE, AFTER_DELIVERY + WITH_FILE, HALF_COPIED}
    return around_tools() | file | _around(["_claim", "delivered", "_to_agent", "_to_agent #2", "decide", RESET])


def _around(commits: Iterable[str]) -> set[str]:
    return {f"{side}{commit}" for side in (BEFORE_COMMIT, AFTER_COMMIT) for commit in commits}
