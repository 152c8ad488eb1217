"""A worker that kills itself, by SIGKILL, at one named boundary of a turn.

Started once it imports everything and then forks for each turn it is asked to run (one JSON object a line): a fork
costs milliseconds, a new Python more than a second. Whenever it forks it has no thread and no event loop.

A boundary is passed when its name is written to the trace, a file outside the database; so is each effect of a tool.
What a process has written to a file survives its SIGKILL: only a crash of the machine would need a sync."""

import asyncio
import ctypes
import functools
import gc
import itertools
import json
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anthropic  # noqa: F401 - so that no fork has to
import openai  # noqa: F401
import structlog
from pydantic import BaseModel

import models.database
import workers.toolbox
from adapters.actions import Send
from adapters.contracts import ToolOutcome
from adapters.events import TextDelta, Thinking
from adapters.model_port import AnyProvider, ModelProvider, ModelReply, ModelRequest
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.openai import OpenAIProvider
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models.database import Database
from tests.support.boundary_marks import (
    AFTER_COMMIT,
    AFTER_EFFECT,
    ARRIVED,
    ASKING,
    BEFORE_COMMIT,
    BEFORE_EFFECT,
    BEGIN,
    END,
    FIRST_PIECE,
    FLUSH,
    HEARD,
    PR_SET_PDEATHSIG,
    Errand,
)
from tests.support.boundary_plan import TOOLS, Planned
from tests.support.fleet import HeldBells, fleet_settings
from workers import turn
from workers.journal import Journal
from workers.model_journal import ModelJournal
from workers.runtime import Node, Runtime
from workers.toolbox import JournaledToolBox


class Trace:
    """Names of boundaries in the order they were passed. A name that comes again gets a number."""

    def __init__(self, path: str, kill_at: str | None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._kill_at = kill_at
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self._seen[name] += 1
        if (times := self._seen[name]) > 1:
            name = f"{name} #{times}"
        os.write(self._file, f"{name}\n".encode())
        if name == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


_writing: ContextVar[str] = ContextVar("writing")
_tool: ContextVar[str] = ContextVar("tool", default="")


def hook(trace: Trace) -> None:
    """Name every commit, and the moment a reply is on its way to the journal. This process is given up afterwards."""
    attempt, write, call, finish = Database._attempt, Journal.write, JournaledToolBox.call, ModelJournal.finish

    async def named_write(self: Journal, work: Any = None, **more: Any) -> None:
        token = _writing.set(FLUSH if work is None else _place(work))
        try:
            await write(self, work, **more)
        finally:
            _writing.reset(token)

    async def named_call(self: JournaledToolBox, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        _tool.set(name)  # each call is a task of its own
        return await call(self, call_id, name, arguments)

    async def traced_attempt(self: Database, work: Callable[..., Awaitable[Any]], read_only: bool) -> Any:
        if read_only:
            return await attempt(self, work, read_only)
        name = _writing.get("") or _place(work)
        name = f"{name} {_tool.get()}" if name in (BEGIN, END) else name

        async def traced(conn: Any) -> Any:
            result = await work(conn)
            trace(BEFORE_COMMIT + name)
            return result

        result = await attempt(self, traced, read_only)
        trace(AFTER_COMMIT + name)
        return result

    async def traced_finish(self: ModelJournal, number: int, reply: ModelReply) -> None:
        trace(f"{HEARD}{number}")
        await finish(self, number, reply)

    Journal.write = named_write  # type: ignore[method-assign]
    JournaledToolBox.call = named_call  # type: ignore[method-assign]
    Database._attempt = traced_attempt  # type: ignore[method-assign]
    ModelJournal.finish = traced_finish  # type: ignore[method-assign]


def _place(work: Callable[..., Any]) -> str:
    return work.__qualname__.partition(".<locals>")[0]


def traced_stream(provider: ModelProvider, trace: Trace) -> None:
    """Name what happens within each model call of a provider."""
    stream = provider.stream
    calls = 0

    async def traced(request: ModelRequest) -> AsyncGenerator[TextDelta | Thinking | ModelReply | None, None]:
        nonlocal calls
        calls += 1
        number, said = calls, False
        trace(f"{ASKING}{number}")
        pieces = stream(request)
        try:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    trace(f"{ARRIVED}{number}")
                elif isinstance(piece, TextDelta) and not said:
                    said = True
                    trace(f"{FIRST_PIECE}{number}")
                yield piece
        finally:
            await pieces.aclose()

    provider.stream = traced  # type: ignore[method-assign]


class NoArguments(BaseModel):
    """None are needed."""


def make_tool(planned: Planned, effects: Path, trace: Trace) -> Tool[NoArguments]:
    async def handler(arguments: NoArguments, context: ToolContext) -> str | Send:
        trace(BEFORE_EFFECT + planned.name)
        with effects.open("a") as file:
            file.write(f"{planned.name}\n")
        trace(AFTER_EFFECT + planned.name)
        if planned.seconds:
            await asyncio.sleep(planned.seconds)
        return Send({"text": planned.note}) if planned.sends else planned.result

    return Tool(planned.name, "Does its part.", NoArguments, handler, idempotent=planned.idempotent)


async def _forget(*_: Any) -> None:
    return None


def _forgetful() -> None:
    """Never finds what an earlier attempt has done."""
    setattr(workers.toolbox, "find_step", _forget)  # noqa: B010 - not a name it exports


def _late() -> None:
    """Writes a call down only after it was run."""
    begin, run = JournaledToolBox._begin, JournaledToolBox._run
    late: dict[str, Callable[[], Awaitable[str]]] = {}

    async def begin_later(self: JournaledToolBox, key: str, tool: Any, arguments: Mapping[str, Any]) -> str:
        late[key] = functools.partial(begin, self, key, tool, arguments)
        return key

    async def run_first(self: JournaledToolBox, step_id: str, *given: Any) -> ToolOutcome:
        finish = self._finish

        async def begin_and_finish(step_id: str, *given: Any) -> None:
            await finish(await late[step_id]() if step_id in late else step_id, *given)

        self._finish = begin_and_finish  # type: ignore[method-assign, assignment]
        return await run(self, step_id, *given)

    JournaledToolBox._begin = begin_later  # type: ignore[method-assign]
    JournaledToolBox._run = run_first  # type: ignore[method-assign, assignment]


def _reckless() -> None:
    """Runs again whatever was begun, as if every tool were idempotent."""
    call = JournaledToolBox.call

    async def call_again(self: JournaledToolBox, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        object.__setattr__(self._tools.get(name), "idempotent", True)
        return await call(self, call_id, name, arguments)

    JournaledToolBox.call = call_again  # type: ignore[method-assign]


BROKEN: dict[str, Callable[[], None]] = {"forgetful": _forgetful, "late": _late, "reckless": _reckless}


async def run(errand: Errand, trace: Trace) -> None:
    providers: dict[str, AnyProvider] = {"anthropic": AnthropicProvider(), "openai": OpenAIProvider()}
    for provider in providers.values():
        assert isinstance(provider, ModelProvider)
        traced_stream(provider, trace)
    tools = {tool.name: make_tool(tool, Path(errand.effects), trace) for tool in TOOLS}
    registry = Registry(Drivers("provider", providers), tools=Drivers[Tool[Any]]("tool", tools))
    # No beat of the lease falls into the turn: when it runs out is the test's to say.
    settings = fleet_settings(errand.database_url, errand.redis_url, Path(errand.folder), lease_seconds=600.0)
    runtime = Runtime(settings, HeldBells(), registry, Node("boundary"))
    trace(f"outcome: {await turn.wake(runtime, errand.session_id, errand.provider)}")
    if not errand.warms:
        os._exit(0)  # nothing is closed: a worker that was not killed here is of no more interest
    await runtime.close()


def _child(errand: Errand) -> None:
    """Never returns: what a fork shares with its parent is not cleaned up here."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(2, 1)  # the answers are the parent's to write
        trace = Trace(errand.trace, errand.kill_at)
        if errand.broken is not None:
            BROKEN[errand.broken]()
        hook(trace)
        asyncio.run(run(errand, trace))
    except BaseException:  # noqa: BLE001 - all of it belongs in the log
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)


def _warm_up(errand: Errand) -> None:
    """What the first turn of a process loads and compiles, later ones find done. Leaves no thread and no connection."""
    os.environ |= {
        "ANTHROPIC_API_KEY": "fake-key-anthropic",
        "ANTHROPIC_BASE_URL": errand.model_url,
        "OPENAI_API_KEY": "fake-key-openai",
        "OPENAI_BASE_URL": f"{errand.model_url}/v1",
    }
    asyncio.run(run(errand, Trace(errand.trace, None)))
    gc.collect()
    gc.freeze()


def main() -> None:
    """Fork for each errand; say how each process ended: its number in order of asking, and the negative number of its
    signal or its exit code."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # An engine has compiled its statements by the warm-up, and no connections after it.
    models.database._make_engine = functools.cache(models.database._make_engine)
    asking = open(0, "rb", buffering=0)  # noqa: SIM115 - a line that waits in a buffer is not seen by poll
    poll = select.poll()
    poll.register(0, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    asked = itertools.count(1)
    while True:
        for ready, _ in poll.poll():
            if ready != 0:
                number, pid = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                print(number, os.waitstatus_to_exitcode(status), flush=True)
            elif not (line := asking.readline()):
                return
            elif (errand := Errand(**json.loads(line))).warms:
                _warm_up(errand)
                print(next(asked), 0, flush=True)
            else:
                pid = os.fork()
                if pid == 0:
                    _child(errand)
                ended = os.pidfd_open(pid)
                poll.register(ended, select.POLLIN)
                running[ended] = (next(asked), pid)


if __name__ == "__main__":
    main()
