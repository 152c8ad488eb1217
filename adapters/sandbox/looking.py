"""Looking at a program's processes from threads of our own. A program can make itself tedious to look at (thousands of
open files, a hundred processes): the worker's event loop, and its other threads, must not be what waits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(4, thread_name_prefix="longshore-watch")


async def look(at: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: at(*args, **kwargs))
