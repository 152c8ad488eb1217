"""What git is told wherever we run it, and how its failures are put into words.

Hooks, monitors, pagers, helpers and every way to another machine are off, whatever a repository's own settings say.
Nothing of the worker's environment is handed on but where programs are."""

import re
from typing import Final

from adapters.errors import GitError

# `merge-tree --write-tree`, and `safe.directory` on the command line.
LEAST_VERSION: Final = (2, 38)
_OFF: Final = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.untrackedCache=false"),
    *("core.sshCommand=false", "core.askPass=false", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null"),
    *("core.logAllRefUpdates=false", "diff.external=", "diff.ignoreSubmodules=all", "submodule.recurse=false"),
    *("credential.helper=", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false", "safe.directory=*"),
    *("commit.gpgSign=false", "log.showSignature=false", "merge.verifySignatures=false", "merge.autoStash=false"),
    *("pack.threads=2", "core.quotePath=true", "advice.detachedHead=false", "rerere.enabled=false"),
)
OPTIONS: Final = ("--no-pager", *(part for setting in _OFF for part in ("-c", setting)))
ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "LC_ALL": "C",
}
_PASSING: Final = re.compile(
    r"\.lock': File exists|No space left on device|Disk quota exceeded|Resource temporarily unavailable"
    r"|Cannot allocate memory|Too many open files|is at [0-9a-f]+ but expected"
)
_VERSION: Final = re.compile(r"git version (\d+)\.(\d+)")
_MOST_WORDS: Final = 600


def check_version(said: str, where: str) -> None:
    """GitError: it is too old, or no git has answered. `where` is for whoever has to install it."""
    needed = ".".join(map(str, LEAST_VERSION))
    found = _VERSION.search(said)
    if found is None:
        raise GitError(f"there is no git {where}: install git {needed} or newer")
    if (int(found[1]), int(found[2])) < LEAST_VERSION:
        raise GitError(f"git {where} is {found[1]}.{found[2]}: {needed} or newer is needed")


def failure(arguments: tuple[str, ...], code: int, words: str) -> GitError:
    """What git said, for a person. A lock that somebody holds or a full disk may pass."""
    said = shown(" ".join(words.split()))
    if len(said) > _MOST_WORDS:
        said = f"{said[:_MOST_WORDS]} ..."
    text = f"git {arguments[0]} did not work (exit code {code}): {said or 'it said nothing'}"
    return GitError(text, retryable=_PASSING.search(words) is not None)


def message_of(words: str, otherwise: str) -> bytes:
    """A commit's message, for standard input. People read it on terminals, and agents have written parts of it: what
    could steer one is not in it."""
    plain = words.replace("\0", "").replace("\r\n", "\n").strip()
    return ("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in plain) or otherwise).encode()


def shown(path: str) -> str:
    """A name from a repository as it can stand in a line of text: whatever is not to be seen is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)
