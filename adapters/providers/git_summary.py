"""How much a workspace differs from its last commit, in one line.

A repository's own settings name programs that git runs (filters, monitors, hooks), and whoever writes the workspace
writes those: git runs in the sandbox only, with everything switched off that can be. Where there is no sandbox there is
no summary."""

import os
import re
from pathlib import Path
from typing import Final

from adapters.errors import SandboxError
from adapters.sandbox.looking import look
from adapters.sandbox.port import Command, Sandbox, SandboxLimits
from adapters.sandbox.running import run

LIMITS: Final = SandboxLimits(seconds=10.0, memory_bytes=512 << 20, output_bytes=1 << 16, processes=32)
NO_CHANGES: Final = "no changes"
# Filters (clean, process) have names of their own and cannot be switched off: they run, in the sandbox.
_OFF: Final = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.untrackedCache=false"),
    *("core.sshCommand=false", "diff.external=", "credential.helper=", "protocol.allow=never", "gc.auto=0"),
    *("diff.ignoreSubmodules=all", "submodule.recurse=false", "safe.directory=*", "core.quotePath=true"),
)
_SCRIPT: Final = """
base=$(git "$@" rev-parse -q --verify 'HEAD^{commit}') || base=$(git "$@" hash-object -t tree /dev/null) || exit 3
git "$@" diff --shortstat --no-ext-diff --no-textconv --no-renames --ignore-submodules=all "$base" -- || exit 4
git "$@" ls-files --others --exclude-standard | wc -l
"""
_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_DIR": ".git",
    "GIT_WORK_TREE": ".",
    "LC_ALL": "C",
}
_SAID: Final = re.compile(
    r"\s*(?:(\d{1,9}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?)?\s*(\d{1,9})\s*"
)


async def diff_summary(sandbox: Sandbox, workspace: Path) -> str | None:
    """For example `2 files changed, 10 insertions(+), 1 deletion(-), 3 untracked`, or `no changes`. None if the
    workspace is no repository, git could not say within its limits, or nothing would confine it."""
    if not sandbox.confines or not await look(os.path.lexists, workspace / ".git"):
        return None
    options = [part for setting in _OFF for part in ("-c", setting)]
    argv = ("/bin/sh", "-c", _SCRIPT, "git-summary", "--no-pager", *options)
    try:
        finished = await run(sandbox, Command(argv, workspace, env=_ENV, limits=LIMITS))
    except SandboxError:
        return None
    said = _SAID.fullmatch(finished.stdout)
    if finished.ended != "exited" or finished.exit_code != 0 or said is None:
        return None
    files, added, removed, untracked = (int(number or 0) for number in said.groups())
    counts = (
        (files, "file changed", "files changed"),
        (added, "insertion(+)", "insertions(+)"),
        (removed, "deletion(-)", "deletions(-)"),
        (untracked, "untracked", "untracked"),
    )
    return ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts if number) or NO_CHANGES
