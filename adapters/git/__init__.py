"""A workflow's private repository and its trees, and the way from and to the user's."""

from adapters.git.check_commands import check_command_of
from adapters.git.checking import Checked
from adapters.git.commits import Work
from adapters.git.inspecting import Inspected, inspect
from adapters.git.intake import TakenIn
from adapters.git.listings import Changed
from adapters.git.merging import Merged
from adapters.git.publishing import Published
from adapters.git.workbench import Workbench

__all__ = [
    "Changed",
    "Checked",
    "Inspected",
    "Merged",
    "Published",
    "TakenIn",
    "Work",
    "Workbench",
    "check_command_of",
    "inspect",
]
