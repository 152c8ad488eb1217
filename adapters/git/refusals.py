"""Why a push did not go through, from what git prints (`push --porcelain`, in English), in words for a person.

Half of that is the server's own text, and may be anything: lines of the server decide nothing, and what is shown is one
short line without secrets."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from adapters.errors import GitError

_SHOWN: Final = 300  # characters of what git or the server says
# What git says of one branch: `!`, from:to, [what] (why).
_REFUSED: Final = re.compile(r"^!\t[^\t\n]*:refs/heads/([^\t\n]+)\t\[([a-z ]+)\](?: \((.*)\))?$", re.MULTILINE)
_MOVED: Final = re.compile(r"fetch first|non-fast-forward|needs force|stale info")
_PROTECTED: Final = re.compile(r"protected branch|rule violations", re.IGNORECASE)
# Somebody else writes to the same branch at this moment, or the server did not come to an end.
_BUSY: Final = re.compile(r"cannot lock|failed to update|failed to report|unpacker|internal|time.?out", re.IGNORECASE)

# A pattern for a line of stderr, what to tell, whether it may pass. The first that fits decides.
_FAILURES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), words, retryable)
    for pattern, words, retryable in (
        (r"host key verification failed", "its ssh key is not known here: connect to it by hand once", False),
        (r"permission denied \(", "it does not let us in: check the ssh key", False),
        (r"terminal prompts disabled|authentication failed|returned error: 40[13]", "", False),
        (r"returned error: 30\d|url base", "its address leads elsewhere: set the remote to where it is now", False),
        (r"returned error: (?:404|410)|repository '' not found|does not appear to be a git repository",
         "there is no repository at its address, or none that we may see", False),
        (r"not a git repository", "the folder is no git repository", False),
        (r"src refspec .* does not match|not a valid object|bad object", "the repository lacks this commit", False),
        (r"certificate|SSL|TLS", "its certificate cannot be checked", False),
        (r"transport '' not allowed", "its address must begin with https:// or ssh://, or be a folder", False),
        (r"could not resolve|failed to connect|couldn't connect|connection (?:refused|reset|timed out|closed)|timed out"
         r"|no route|unreachable|returned error: (?:408|429|5\d\d)|RPC failed|hung up|empty reply|early eof|too slow"
         r"|broken pipe|recv failure|send failure|unexpected disconnect", "it cannot be reached", True),
        (r"no space left|unable to create temporary|cannot allocate", "this machine has no room left", True),
    )
)  # fmt: skip
_DENIED: Final = "it does not take the token: LONGSHORE_GITHUB_TOKEN must be valid, with contents (write) there"
_UNKNOWN: Final = (
    "it does not let us in: set LONGSHORE_GITHUB_TOKEN if it is on that server, else give git a key for it"
)


def refusal(
    stdout: str, stderr: str, remote: str, branch: str, *, hide: Callable[[str], str], authorised: bool = False
) -> GitError:
    """`hide` takes secrets out of a text. `authorised`: a token was shown."""
    for found in _REFUSED.finditer(stdout):
        if found[1] == branch:
            return _refused(found[2], found[3] or "", remote, branch, hide)
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("remote:")]
    for pattern, words, retryable in _FAILURES:
        for line in lines:
            # An address may hold any of these words.
            if pattern.search(re.sub(r"'[^']*'", "''", line)):
                words = words or (_DENIED if authorised else _UNKNOWN)
                return GitError(f"the remote {remote!r}: {words} ({one_line(hide(line))})", retryable=retryable)
    last = one_line(hide(lines[-1])) if lines else "it did not say why"
    return GitError(f"the remote {remote!r}: git could not push to it ({last})")


def _refused(what: str, why: str, remote: str, branch: str, hide: Callable[[str], str]) -> GitError:
    there = f"{branch!r} of {remote!r}"
    if _MOVED.search(why):
        do = "bring their commits in, or push to another branch"
        return GitError(f"somebody else has written to {there}, and nothing was pushed: {do}")
    shown = one_line(hide(why)) or what
    if _PROTECTED.search(why):
        do = "push to another branch, or let this account pass the rule"
        return GitError(f"{there} is protected ({shown}): {do}")
    if _BUSY.search(why):
        return GitError(f"{there} could not be written just now ({shown})", retryable=True)
    return GitError(f"{there} may not be written: {shown}")


def one_line(text: str, most: int = _SHOWN) -> str:
    """Without what a terminal would act on or what turns text around."""
    shown = "".join(" " if unicodedata.category(sign)[0] in "CZ" else sign for sign in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else shown[: most - 1] + "…"
