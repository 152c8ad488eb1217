"""External MCP servers are run in one exact version: a package that is fetched when it is started could be another one
tomorrow, by another author's hand. Checked when a group is configured and again when a server is started.

Programs that are installed are pinned by the image they are installed in. What cannot be read for certain is refused:
an option that is not known might take the next word for its value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from adapters.policy import McpServerPolicy, PolicyError


@dataclass(frozen=True)
class _Runner:
    """A program that fetches what it runs, and how its command line is read."""

    package: re.Pattern[str]
    instead: str
    switches: frozenset[str]  # options without a value
    valued: frozenset[str]  # options whose value is the next word
    naming: frozenset[str] = frozenset()  # those of them that name the package; the first plain word is a command then
    beside: frozenset[str] = frozenset()  # those that name further packages


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Two numbers are a range for npm, and an exact version for Python.
_NODE: Final = _Runner(
    re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*@\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?"),
    "write the exact version, as in `npx -y @scope/server@1.2.3`",
    switches=_words("-y --yes --no -q --quiet --silent --offline --prefer-offline --ignore-scripts --bun"),
    valued=_words("-p --package --registry --cache"),
    naming=_words("-p --package"),
)
_PYTHON: Final = _Runner(
    re.compile(
        r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._,-]+\])?(?:==|@)"
        r"v?\d+(?:\.\d+)*(?:[._-]?(?:a|b|rc|post|dev)\d*)*(?:\+[A-Za-z0-9.]+)?"
    ),
    "write the exact version, as in `uvx mcp-server==1.2.3`",
    switches=_words("-q --quiet -v --verbose --offline --no-cache -n --isolated --no-config --no-python-downloads"),
    valued=_words("--from --spec --with --python -p --index --default-index --index-url -i --cache-dir"),
    naming=_words("--from --spec"),
    beside=_words("--with"),
)
_IMAGE: Final = _Runner(
    re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}"),
    "name the image by its digest, as in `docker run -i --rm registry/server@sha256:<64 digits>`",
    switches=_words("-i --interactive -t --tty -it -ti --rm --init --read-only --no-healthcheck"),
    valued=_words(
        "-e --env -v --volume --mount --name -w --workdir -u --user --network -m --memory --cpus --cap-drop "
        "--security-opt --entrypoint --platform --tmpfs -l --label"
    ),
)
_INSTALL: Final = "install the server into the image and name its program"

_RUNNERS: Final = {
    ("npx",): _NODE,
    ("bunx",): _NODE,
    ("pnpx",): _NODE,
    ("pnpm", "dlx"): _NODE,
    ("yarn", "dlx"): _NODE,
    ("bun", "x"): _NODE,
    ("uvx",): _PYTHON,
    ("uv", "tool", "run"): _PYTHON,
    ("pipx", "run"): _PYTHON,
    ("docker", "run"): _IMAGE,
    ("podman", "run"): _IMAGE,
}
_SHELLS: Final = _words("sh bash dash zsh ksh ash fish csh tcsh busybox pwsh")
# They run another program, which nobody would have looked at.
_WRAPPERS: Final = _words("env xargs nohup timeout nice setsid stdbuf sudo doas su script")
# What else they can do than what is in the table of runners is not pinned.
_FETCHING: Final = _words("npm pnpm yarn bun uv pipx docker podman deno go cargo hatch poetry")


class _UnpinnedError(Exception):
    """The command may run something else tomorrow."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why, instead)
        self.why = why
        self.instead = instead


def check_pinned(name: str, server: McpServerPolicy) -> None:
    """Raises PolicyError, with what to write instead, if the command may run something else tomorrow."""
    program = PurePosixPath(server.command).name.lower()
    try:
        if program in _SHELLS:
            raise _UnpinnedError(f"a shell ({program}) could run anything", f"name the program itself, or {_INSTALL}")
        if program in _WRAPPERS:
            raise _UnpinnedError(f"{program} runs another program", "name that program itself")
        line = (program, *server.args)
        for start, runner in _RUNNERS.items():
            if line[: len(start)] == start:
                return _check(line[len(start) :], runner)
        if program in _FETCHING:
            raise _UnpinnedError(f"`{' '.join(line[:2])}` fetches or runs what is not named here", _INSTALL)
    except _UnpinnedError as error:
        raise PolicyError(f"policy.mcp_servers.{name}: {error.why}; {error.instead}") from None


def _check(words: Sequence[str], runner: _Runner) -> None:
    named, beside, plain = _read(words, runner)
    for package in [*(named or [plain]), *beside]:
        if not runner.package.fullmatch(package):
            raise _UnpinnedError(f"{package[:200]!r} is not one exact version", runner.instead)


def _read(words: Sequence[str], runner: _Runner) -> tuple[list[str], list[str], str]:
    """The packages that options name, those beside them, and the first plain word. What follows is the server's."""
    named: list[str] = []
    beside: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return named, beside, next(rest, "")
        if not word.startswith("-"):
            return named, beside, word
        option, equals, value = word.partition("=")
        if not equals and option in runner.valued:
            value = next(rest, "")
        elif option not in runner.switches and option not in runner.valued:
            raise _UnpinnedError(f"the option {option[:100]} is not known here", f"leave it out, or {_INSTALL}")
        if option in runner.naming:
            named.append(value)
        elif option in runner.beside:
            beside += value.split(",")
    return named, beside, ""
