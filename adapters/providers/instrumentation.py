"""What a turn does to its workspace, seen from outside, whichever provider works in it: FilesTouched when files change,
DiffAvailable when the difference to the last commit does. It only looks, and nothing it cannot see ends a turn."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from adapters.events import DiffAvailable, FilesTouched, ProviderEvent
from adapters.providers.git_summary import NO_CHANGES, diff_summary
from adapters.providers.watching import Watching
from adapters.sandbox.port import Sandbox

# Between two looks of git, and ten times as long as it took: a large repository must not keep a core busy.
REST_SECONDS: Final = 2.0
REST_FACTOR: Final = 10


class Instrumented:
    """Open it around a turn. `emit` is called on the event loop; what happened last is told before it closes. Without a
    sandbox there are no summaries: git in somebody else's repository runs nowhere else."""

    def __init__(self, sandbox: Sandbox | None, workspace: Path, emit: Callable[[ProviderEvent], None]) -> None:
        self._sandbox, self._workspace, self._emit = sandbox, workspace, emit
        self._watching = Watching(workspace, self._seen)
        self._changed = asyncio.Event()
        self._summary = NO_CHANGES
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Instrumented":
        await self._watching.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._watching.__aexit__()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        # Somebody who cancels a turn does not wait for git.
        if kind is not asyncio.CancelledError and (self._changed.is_set() or self._watching.given_up):
            await self._look()

    def _seen(self, event: ProviderEvent) -> None:
        self._emit(event)
        if isinstance(event, FilesTouched) and self._sandbox is not None:
            self._changed.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            await self._changed.wait()
            started = time.monotonic()
            await self._look()
            await asyncio.sleep(max(REST_SECONDS, REST_FACTOR * (time.monotonic() - started)))

    async def _look(self) -> None:
        if self._sandbox is None:
            return
        self._changed.clear()
        try:
            summary = await diff_summary(self._sandbox, self._workspace)
        except asyncio.CancelledError:
            self._changed.set()  # taken again at the end
            raise
        if summary is not None and summary != self._summary:
            self._summary = summary
            self._emit(DiffAvailable(summary=summary))
