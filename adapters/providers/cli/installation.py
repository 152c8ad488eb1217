"""Where a CLI agent is installed, what version it is and which flags it has: found by looking, never assumed.

`make clis` leaves a file `<name>.json` in `.clis` (or `LONGSHORE_CLIS`) for each program; without one, the PATH is
searched. `inspect` runs `--version` and `--help` with nothing of our environment."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.contracts import Detection
from adapters.errors import ErrorClass, ProviderError
from adapters.station import Needs

VARIABLE: Final = "LONGSHORE_CLIS"
FOLDER: Final = ".clis"
LOOK_SECONDS: Final = 60.0
NOT_THERE: Final = "there is no program `{name}`: run `make clis`, or install it on the PATH"
# Else these start themselves a second time: slower, and through a wrapper that is deaf to signals.
_ONE_PROCESS: Final = {"GEMINI_CLI_NO_RELAUNCH": "true", "OPENCLAW_NO_RESPAWN": "1"}
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Installation:
    """How to run a program. `readable` are the folders it lives in, which a sandbox must show it."""

    name: str
    argv: tuple[str, ...]
    readable: tuple[Path, ...]


@dataclass(frozen=True)
class Inspection:
    """What a program says of itself. `help` is empty if it has none."""

    installation: Installation
    version: str
    help: str

    def offers(self, flag: str) -> bool:
        """Whether its help names that flag or command. Programs know flags that their help does not list."""
        return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", self.help) is not None

    def is_between(self, first: str, last: str) -> bool:
        """Whether the version is one of those that were tried out, both included."""
        return _parts(first) <= _parts(self.version) <= _parts(last)


def find(name: str) -> Installation | None:
    folder = Path(os.environ.get(VARIABLE) or FOLDER).absolute()
    try:
        facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        return Installation(
            name,
            (str(folder / facts["argv"][0]), *(_there(folder, word) for word in facts["argv"][1:])),
            tuple(folder / path for path in facts["readable"]),
        )
    except (OSError, ValueError, LookupError, TypeError):
        found = shutil.which(name)
    if found is None:
        return None
    real = Path(found).resolve()
    return Installation(name, (str(real),), () if str(real).startswith(("/usr/", "/bin/")) else (_home_of(real),))


def is_at_hand(provider: object) -> bool:
    """Whether the program that a provider needs is on this machine; true for those that need none, or whichever their
    options name."""
    needs = getattr(provider, "needs", None)
    return not isinstance(needs, Needs) or not needs.program or find(needs.program) is not None


def _there(folder: Path, word: str) -> str:
    """A path of the installation is given relative to it; other words are arguments."""
    return str(folder / word) if (folder / word).exists() else word


def _home_of(program: Path) -> Path:
    """The folder with all that a program needs: its npm package with those beside it, or just where it lies."""
    for parent in program.parents:
        if parent.name == "node_modules":
            return parent
    return program.parent


_INSPECTED: Final[dict[tuple[tuple[str, ...], int], Inspection]] = {}


async def inspect(installation: Installation, help_of: Sequence[str] = ()) -> Inspection:
    """`help_of` is the subcommand whose help is wanted. Asked once per program and process. Raises OSError if it does
    not run."""
    stamp = max(os.stat(word).st_mtime_ns for word in installation.argv if os.path.isabs(word))
    key = ((*installation.argv, *help_of), stamp)
    if key not in _INSPECTED:
        with tempfile.TemporaryDirectory(prefix="longshore-look-", ignore_cleanup_errors=True) as home:
            env = {"PATH": os.defpath, "HOME": home, "LANG": "C.UTF-8", "NO_COLOR": "1", **_ONE_PROCESS}
            printed, shown = await asyncio.gather(
                _run([*installation.argv, "--version"], env), _run([*installation.argv, *help_of, "--help"], env)
            )
        version = _VERSION.search(printed)
        if version is None:
            raise OSError(f"{installation.argv[-1]} --version says no version: {printed.strip()[:200]!r}")
        _INSPECTED[key] = Inspection(installation, version[0], shown)
    return _INSPECTED[key]


async def inspected(name: str, help_of: Sequence[str] = ()) -> Inspection:
    """The program that is to be run now. Raises ProviderError, in words, if it cannot be."""
    installation = find(name)
    if installation is None:
        raise ProviderError(NOT_THERE.format(name=name), ErrorClass.INVALID_REQUEST)
    try:
        return await inspect(installation, help_of)
    except OSError as error:
        raise ProviderError(f"{name} does not run: {error}", ErrorClass.INTERNAL) from error


async def _run(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What it prints, up to its own end: into a file, which a child that lives longer cannot hold open. Nothing of its
    process group is left."""
    with tempfile.TemporaryFile() as printed:
        process = await asyncio.create_subprocess_exec(
            *argv, env=dict(env), cwd=env["HOME"], start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=printed, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            await asyncio.wait_for(process.wait(), LOOK_SECONDS)
        except TimeoutError as error:
            raise OSError(f"{' '.join(argv)} did not end within {LOOK_SECONDS:g} s") from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        printed.seek(0)
        return printed.read().decode("utf-8", "replace")


async def detection(name: str, tried: tuple[str, str], help_of: Sequence[str] = ()) -> Detection:
    """For `Provider.detect`. `tried` are the oldest and the newest version that this driver was run with."""
    installation = find(name)
    if installation is None:
        return Detection(False, details=NOT_THERE.format(name=name))
    try:
        inspection = await inspect(installation, help_of)
    except OSError as error:
        return Detection(False, details=f"`{name}` is there but does not run: {error}")
    return Detection(True, inspection.version, note_on(inspection, tried) or installation.argv[-1])


def note_on(inspection: Inspection, tried: tuple[str, str]) -> str:
    """What to tell about a version nobody has tried; empty if somebody has."""
    if inspection.is_between(*tried):
        return ""
    age = "newer" if _parts(inspection.version) > _parts(tried[1]) else "older"
    return (
        f"{inspection.installation.name} {inspection.version} is {age} than what this driver was tried with "
        f"({' to '.join(dict.fromkeys(tried))}); what it says may be shown less well"
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
