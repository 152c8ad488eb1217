"""Workers that kill themselves, by SIGKILL, at a boundary: `python -m tests.support.boundaries.worker SCENARIO`.

A server that has imported everything forks one for each case it is asked to run (one JSON object a line): a fork costs
milliseconds, a new Python more than a second. Whenever it forks it has no thread, no event loop and no connection."""

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
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import structlog

import adapters.registry
from adapters.actions import Action
from adapters.contracts import ToolOutcome
from adapters.model_port import ModelReply
from adapters.tool_port import Tool, ToolContext
from models.database import Database
from tests.support.boundaries import marks
from tests.support.boundaries.marks import Case, Marks
from tests.support.boundaries.scenario import AnyScenario
from tests.support.engines import share_compiled_statements
from tests.support.fleet import Fleet, fleet_settings
from tests.support.process_group import PR_SET_PDEATHSIG
from workers.journal import Journal
from workers.model_journal import ModelJournal
from workers.toolbox import JournaledToolBox

_writing: ContextVar[str] = ContextVar("writing", default="")
_tool: ContextVar[str] = ContextVar("tool", default="")


def hook(mark: Marks) -> None:
    """Mark every commit, every tool's handler, and replies on their way to the journal. This process is given up
    afterwards."""
    attempt, write, finish = Database._attempt, Journal.write, ModelJournal.finish
    call, check = JournaledToolBox.call, JournaledToolBox._checked

    async def named_write(self: Journal, work: Any = None, **more: Any) -> None:
        token = _writing.set(marks.FLUSH if work is None else _name(work))
        try:
            await write(self, work, **more)
        finally:
            _writing.reset(token)

    async def named_call(self: JournaledToolBox, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        _tool.set(name)  # each call is a task of its own
        return await call(self, call_id, name, arguments)

    async def marked_attempt(self: Database, work: Callable[..., Awaitable[Any]], read_only: bool) -> Any:
        if read_only:
            return await attempt(self, work, read_only)
        name = _writing.get() or _name(work)
        name = f"{name} {_tool.get()}" if name in (marks.BEGIN, marks.END) else name

        async def marked(conn: Any) -> Any:
            result = await work(conn)
            mark(marks.BEFORE_COMMIT + name)
            return result

        result = await attempt(self, marked, read_only)
        mark(marks.AFTER_COMMIT + name)
        return result

    def marked_check(self: JournaledToolBox, name: str, arguments: Mapping[str, Any]) -> tuple[Tool[Any], Any]:
        tool, checked = check(self, name, arguments)

        async def handler(arguments: Any, context: ToolContext) -> str | Action:
            mark(marks.BEFORE_EFFECT + tool.name)
            said = await tool.handler(arguments, context)
            mark(marks.AFTER_EFFECT + tool.name)
            return said

        return replace(tool, handler=handler), checked

    async def marked_finish(self: ModelJournal, number: int, reply: ModelReply) -> None:
        mark(f"{marks.HEARD}{number}")
        await finish(self, number, reply)

    Journal.write = named_write  # type: ignore[method-assign]
    JournaledToolBox.call = named_call  # type: ignore[method-assign]
    JournaledToolBox._checked = marked_check  # type: ignore[method-assign]
    Database._attempt = marked_attempt  # type: ignore[method-assign]
    ModelJournal.finish = marked_finish  # type: ignore[method-assign]


def _name(work: Callable[..., Any]) -> str:
    return work.__qualname__.partition(".<locals>")[0]


async def _run(scenario: AnyScenario, case: Case, mark: Marks) -> None:
    folder = Path(case.folder)
    # No beat of a lease falls into a life: when it runs out is the scenario's to say.
    changes = {"lease_seconds": 600.0, **scenario.settings}
    settings = fleet_settings(case.database_url, case.redis_url, folder, **changes)
    fleet = Fleet(settings, scenario.registry(case, mark), name="boundary")
    await scenario.run(fleet, case)
    mark(marks.OVER)
    if not case.warms:
        os._exit(0)  # nothing is closed: a worker that was not killed is of no more interest
    await fleet.close()


def _run_fork(scenario: AnyScenario, case: Case) -> None:
    """Never returns: what a fork shares with its parent is not cleaned up here."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(2, 1)  # the answers are the parent's to write
        os.chdir(case.folder)
        mark = Marks(case.trace, case.kill_at)
        if fault := case.options.get("fault"):
            scenario.faults[fault]()
        hook(mark)
        scenario.hook(mark)
        asyncio.run(_run(scenario, case, mark))
    except BaseException:  # noqa: BLE001 - all of it belongs in the log
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)


def main(scenario: AnyScenario) -> None:
    """Fork for each case; say how each process ended: its number in order of asking, and the negative number of its
    signal or its exit code."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    share_compiled_statements()
    vars(adapters.registry)["entry_points"] = functools.cache(entry_points)
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
            elif (case := Case(**json.loads(line))).warms:
                # What the first life loads and compiles, later ones find done.
                asyncio.run(_run(scenario, case, Marks(case.trace)))
                gc.collect()
                gc.freeze()
                print(next(asked), 0, flush=True)
            else:
                pid = os.fork()
                if pid == 0:
                    _run_fork(scenario, case)
                ended = os.pidfd_open(pid)
                poll.register(ended, select.POLLIN)
                running[ended] = (next(asked), pid)


if __name__ == "__main__":
    main(import_module(f"tests.support.boundaries.scenario_{sys.argv[1]}").SCENARIO())
