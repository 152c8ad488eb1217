"""The stand-in in a thread with a loop of its own: for tests that block, and for clients in other processes."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.support.model_api.recording import Outcome
from tests.support.model_api.server import ModelApi


class ModelApiThread(ModelApi):
    """`with ModelApiThread(script) as api:`. Everything of `ModelApi` may be used from any thread."""

    _failure: OSError | None = None  # why it could not start, told to the thread that wanted it

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="model-api")
        self._thread.start()
        started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop.set)
        self._thread.join()

    def release(self) -> None:
        if threading.current_thread() is self._thread:
            super().release()
        else:
            self._call(super().release)

    def wait(self, count: int, outcome: Outcome | None = None, timeout: float = 10.0) -> None:
        """As `arrived`, for threads without a loop."""
        self.recorder.wait(count, outcome, timeout)

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self.__aenter__()
        except OSError as error:
            self._failure = error
            return
        finally:
            started.set()
        await self._stop.wait()
        await self.__aexit__(None, None, None)

    def _call(self, function: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(function)
