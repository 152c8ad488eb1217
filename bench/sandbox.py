"""(sandbox) Starting a program in the sandbox against starting it plainly: `true`, to its end.

The two sides take turns, sample by sample. The sandbox's figure holds all of it: namespaces, mounts, the system call
filter, the shell that sets limits, the watch and the clearing away."""

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.port import Command
from adapters.sandbox.running import run
from bench.figures import Figure, percentile
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage

WARM_UP = 5
SAMPLES = 100


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    """Neither the stage nor a database is used: it is one process and its children."""
    folder = Path(tempfile.mkdtemp(prefix="longshore-bench-"))
    try:
        folder.chmod(0o711)
        workspace = folder / "workspace"
        workspace.mkdir()
        return asyncio.run(_measure(workspace, scale, say))
    finally:
        shutil.rmtree(folder)


async def _measure(workspace: Path, scale: Scale, say: Say) -> list[Figure]:
    sandbox, command = Bubblewrap(), Command(("true",), workspace)
    ours: list[list[float]] = []
    plain: list[list[float]] = []
    for repeat in range(scale.repeats + 1):
        pairs = [(await _confined(sandbox, command), await _plain()) for _ in range(SAMPLES if repeat else WARM_UP)]
        if repeat:
            ours.append([pair[0] for pair in pairs])
            plain.append([pair[1] for pair in pairs])
            p50, peer = percentile(ours[-1], 0.5), percentile(plain[-1], 0.5)
            say(f"(sandbox) repeat {repeat}: p50 {p50:.1f} ms, plain {peer:.1f} ms")
    return [
        Figure(
            "sandbox",
            f"`true` in bubblewrap, {name}",
            [percentile(values, share) for values in ours],
            [percentile(values, share) for values in plain],
            "ms",
            note="peer: a plain asyncio subprocess",
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


async def _confined(sandbox: Bubblewrap, command: Command) -> float:
    started = time.perf_counter()
    finished = await run(sandbox, command)
    taken = (time.perf_counter() - started) * 1000
    assert (finished.exit_code, finished.ended) == (0, "exited"), finished
    return taken


async def _plain() -> float:
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        "true", env={"PATH": os.defpath},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await process.communicate()
    taken = (time.perf_counter() - started) * 1000
    assert process.returncode == 0
    return taken
