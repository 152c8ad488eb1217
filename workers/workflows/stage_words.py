"""What people call the stages of a foreman's workflow, at every door and in what it says of itself."""

from collections.abc import Mapping
from typing import Final

from workers.workflows.spec import StageKind

NAMES: Final[Mapping[StageKind, str]] = {
    "prepare": "take in",
    "plan": "plan",
    "build": "build",
    "fix": "fix",
    "check": "check",
    "review": "review",
    "merge": "merge",
    "publish": "hand over",
}
# Of one that is under way, and before the name of the task, if it is of one.
DOING: Final[Mapping[str, str]] = {
    "prepare": "taking the repository in",
    "plan": "planning",
    "build": "building",
    "fix": "fixing",
    "check": "checking",
    "review": "the review of",
    "merge": "putting the work together",
    "publish": "handing the result over",
}
