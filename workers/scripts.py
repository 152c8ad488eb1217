"""The script before a task: bash that looks whether there is anything to do, so that no model is asked in vain.

It runs in the sandbox, in the agent's folder, as a step of the turn's journal. A finished one is never run again; one
whose worker died while it ran is. Its last line on stdout is JSON: `{"wakeAgent": true, "data": ...}`."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass, SandboxError
from adapters.events import AnyEvent, Progress, ToolCall, ToolResult
from adapters.policy import PolicyError, parse_policy
from adapters.redaction import Redactor
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.running import Finished, run
from models.base import AnyRow, new_id, storable
from models.errors import LeaseLostError
from models.inbox import leave_for_later
from models.lookup import short
from models.turns import Step, count_steps, find_step, finish_step, forget_unasked
from models.upsert import insert_ignoring
from workers.journal import Journal
from workers.opening import OpenedTurn
from workers.runtime import Runtime
from workers.verdicts import Failure

log = structlog.get_logger()

NAME: Final = "script"
KEY: Final = "script:"
LIMITS: Final = SandboxLimits(seconds=30.0, memory_bytes=512 << 20, output_bytes=1 << 20, processes=64)
MAX_DATA: Final = 50_000  # characters of JSON
MAX_LINE: Final = 7 * MAX_DATA  # more than the same takes if each of them is escaped
SHOWN_LINES: Final = 10  # of stderr, in the error
SHOWN: Final = 1000  # characters of them
_READ: Final = 20_000  # so much of them is looked through for secrets before it is cut: a part of one is not known
# Its text comes on stdin, where nobody who lists processes sees it; it reads nothing there itself. Half a script, of a
# worker that was stopped while it handed it over, is not begun: its last line is missing. (All on one line: bash counts
# the script's own lines from there.)
_BASH: Final = (
    "LONGSHORE_SCRIPT=$(cat); case $LONGSHORE_SCRIPT in "
    """*"$1") LONGSHORE_SCRIPT=${LONGSHORE_SCRIPT%"$1"}; shift; eval "$LONGSHORE_SCRIPT" </dev/null;; """
    "*) echo 'it did not arrive whole' >&2; exit 125;; esac"
)
_LIKE: Final = 'its last line must be JSON like {"wakeAgent": true, "data": {}}'


@dataclass(frozen=True)
class Found:
    """What a script has found out: whether the agent is to be asked, and what it is told then, as JSON."""

    wakes: bool
    data: str | None = None


class FailedScriptError(Exception):
    """A script did not do what scripts have to do; the text says what."""


class TaskScript:
    """The script of the task that a turn is a run of."""

    def __init__(self, runtime: Runtime, turn: OpenedTurn, journal: Journal) -> None:
        self._runtime = runtime
        self._turn = turn
        self._journal = journal
        self._message = next(message for message in turn.messages if message.series_id is not None)
        self._key = f"{KEY}{self._message.id}"

    async def ask(self) -> Found | Failure:
        """Run it, unless an earlier attempt has. What it found for the agent is kept with the turn's facts."""
        try:
            found = await self._found()
        except FailedScriptError as error:
            return Failure(ErrorClass.SCRIPT, f"the script before this task failed: {error}", retryable=False)
        except PolicyError as error:
            return Failure(ErrorClass.INVALID_REQUEST, str(error), retryable=False)
        except LeaseLostError:
            raise
        except Exception as error:  # ours, or the database's: it may pass
            log.exception("script.crashed", turn=self._turn.id)
            why = f"the script before this task could not be run ({type(error).__name__})"
            return Failure(ErrorClass.INTERNAL, why, retryable=True)
        if found.data is not None:
            self._turn.facts.found[self._message.seq] = found.data
        return found

    async def leave(self, conn: AsyncConnection) -> None:
        """In the transaction that ends a turn whose agent is not asked: what rode along reaches it with the next."""
        await leave_for_later(conn, self._turn.id)
        await forget_unasked(conn, self._turn.id)

    async def _found(self) -> Found:
        earlier = await self._runtime.db.read(lambda conn: find_step(conn, self._turn.id, self._key))
        if earlier is not None and earlier.status != "started":
            return _kept(earlier)
        if earlier is None and any(other.wakes for other in self._turn.messages if other is not self._message):
            return Found(wakes=True)  # it is new, and the run is not: people have joined it, and wait for an answer
        step_id = await self._begin(earlier)
        try:
            found = self._read(await self._run(step_id))
        except FailedScriptError as error:
            await self._finish(step_id, ok=False, output={"text": str(error)})
            raise
        words = "the agent is asked" if found.wakes else "there is nothing to do, and the agent is not asked"
        await self._finish(step_id, ok=True, output={"text": words, "wakes": found.wakes, "data": found.data})
        return found

    async def _begin(self, earlier: AnyRow | None) -> str:
        """The id of its step. One that is found begun has lost its worker, and is run again under it."""
        turn, script = self._turn, str(self._turn.terms.script)
        step_id = str(earlier.id) if earlier is not None else new_id()
        step = {"id": step_id, "turn_id": turn.id, "key": self._key, "kind": "tool", "name": NAME}
        asked = {"task": turn.series_id, "sha256": hashlib.sha256(script.encode("utf-8", "replace")).hexdigest()}

        async def work(conn: AsyncConnection, _: int) -> None:
            await insert_ignoring(conn, Step, **step, number=await count_steps(conn, turn.id) + 1, input=asked)

        call = ToolCall(id=self._key, name=NAME, preview=f"before task {short(str(turn.series_id))}")
        await self._journal.write(work, activity=f"tool: {NAME}", events=[call])
        return step_id

    async def _finish(self, step_id: str, *, ok: bool, output: dict[str, Any]) -> None:
        async def work(conn: AsyncConnection, _: int) -> None:
            await finish_step(conn, step_id, ok=ok, output=output)

        events: list[AnyEvent] = [
            Progress(text=f"script: {output['text']}"),
            ToolResult(id=self._key, name=NAME, ok=ok),
        ]
        await self._journal.write(work, activity="calling model", events=events)

    async def _run(self, step_id: str) -> Finished:
        runtime, turn = self._runtime, self._turn
        policy = parse_policy(turn.config)
        sandbox = await runtime.sandbox()
        if sandbox is None:
            raise FailedScriptError(
                "it runs in a sandbox, and this machine has none that holds: see `longshore doctor`"
            )
        end = f"# end of script {step_id}"
        command = Command(
            argv=("bash", "--noprofile", "--norc", "-c", _BASH, NAME, end),
            workspace=(await runtime.workspace(turn.folder)).root,
            env=self._environment(),
            hosts=policy.hosts,
            limits=LIMITS,
        )
        text = storable(f"{turn.terms.script}\n{end}").encode()
        try:
            async with runtime.scripts:
                return await run(sandbox, command, text, keep=2 * LIMITS.output_bytes)
        except SandboxError as error:
            raise FailedScriptError(f"it could not be started: {error}") from None

    def _environment(self) -> dict[str, str]:
        turn, date = self._turn, self._message.scheduled_for
        return {
            "LONGSHORE_SESSION_ID": turn.lease.session_id,
            "LONGSHORE_TURN_ID": turn.id,
            "LONGSHORE_AGENT": turn.folder,
            "LONGSHORE_TASK_ID": str(turn.series_id),
            "LONGSHORE_SCHEDULED_FOR": date.isoformat() if date is not None else "",
        }

    def _read(self, finished: Finished) -> Found:
        redactor = self._runtime.redactor
        try:
            if finished.ended != "exited" or finished.exit_code != 0:
                raise FailedScriptError(finished.words)
            return read_output(finished.stdout, redactor)
        except FailedScriptError as error:
            said = _last_words(finished.stderr, redactor)
            raise FailedScriptError(f"{error}; on stderr: {said}" if said else str(error)) from None


def read_output(stdout: str, redactor: Redactor) -> Found:
    """What its last line says. FailedScriptError says what is wrong with it."""
    line = next((line.strip() for line in reversed(stdout.split("\n")) if line.strip()), None)
    if line is None:
        raise FailedScriptError(f"it printed nothing; {_LIKE}")
    if len(line) > MAX_LINE:
        raise FailedScriptError(f"what it printed last has {len(line):,} characters; it may have {MAX_LINE:,}")
    try:
        said = json.loads(line, parse_constant=_refuse)
        data = _json(said["data"]) if _has_data(said) else None
        # Measured first: to look through a long text for secrets takes its time, and other turns wait meanwhile.
        if data is not None and len(data) > MAX_DATA:
            raise FailedScriptError(f"its data has {len(data):,} characters; it may have {MAX_DATA:,}")
        data = _json(redactor.value(said["data"])) if data is not None else None
    except RecursionError:
        raise FailedScriptError("what it printed last is nested too deep") from None
    except ValueError:
        raise FailedScriptError(f"what it printed last is no JSON: {_excerpt(line, redactor)}; {_LIKE}") from None
    if not isinstance(said, dict):
        raise FailedScriptError(f"what it printed last is no JSON object: {_excerpt(line, redactor)}; {_LIKE}")
    if not isinstance(said.get("wakeAgent"), bool):
        what = "is neither true nor false" if "wakeAgent" in said else "is missing"
        raise FailedScriptError(f"wakeAgent {what} in what it printed last: {_excerpt(line, redactor)}")
    return Found(said["wakeAgent"], storable(data) if data is not None and said["wakeAgent"] else None)


def _has_data(said: Any) -> bool:
    return isinstance(said, dict) and said.get("data") is not None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _excerpt(line: str, redactor: Redactor) -> str:
    shown = _printable(redactor.text(line[:_READ]))
    return repr(shown if len(shown) <= 200 else f"{shown[:199]}…")


def _last_words(stderr: str, redactor: Redactor) -> str:
    lines = [_printable(line) for line in redactor.text(stderr[-_READ:]).splitlines()]
    return " | ".join([line for line in lines if line][-SHOWN_LINES:])[-SHOWN:]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _kept(step: AnyRow) -> Found:
    """What came of it when an earlier attempt ran it."""
    if step.status == "failed":
        raise FailedScriptError(step.output["text"])
    return Found(step.output["wakes"], step.output["data"])
