"""(streams) 500 streaming turns at a time in one worker process, against a bare program that makes the same calls.

The stand-in model server has a process of its own and is nobody's bottleneck: a stream lasts as long as a model's does,
but 500 of them would be done sooner than any client can read them, so that the client's CPU decides. Two peers: the
vendor's SDK alone, and the SDK through our adapter: what the fleet adds can be told from what the adapter does."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from bench.backlog import Backlog
from bench.drain import Drain, Drains, drain
from bench.figures import Aim, Figure
from bench.ledger import Ledger
from bench.rows import accept_messages, add_group, count_answered
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from bench.standin import BareProgram, ModelServer, bare_program, model_server
from tests.support.servers import wait_until

QUEUE = "agent.anthropic"
CHARACTERS = 5  # of one delta of the stand-in
WARM_UP = 50
SETTLE_SECONDS = 3.0
PATIENCE_SECONDS = 400.0
RATE_AIM = Aim("at least", 0.7)
MEMORY_AIM = Aim("at most", 2)


@dataclass(frozen=True)
class Answer:
    """What the model says: `pace` is the seconds between two deltas."""

    name: str
    deltas: int
    pace: float
    aim: Aim | None = None


# 50 deltas per second is what a quick model writes. 500 such streams are 83 per second, if only somebody reads them.
LONG = Answer("300 deltas in 6 s", 300, 0.02, RATE_AIM)
# The worst case: hardly any reading, so that what a turn costs besides it shows most.
SHORT = Answer("40 deltas in 0.4 s", 40, 0.01)
# So slow that all streams are open and nearly idle while memory is read.
TRICKLE = Answer("trickle", 300, 5.0)


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    figures: list[Figure] = []
    for answer in (LONG, SHORT):
        figures += _rates(stage, scale, kind, say, answer)
    return figures + _memory(stage, scale, kind, say)


def _rates(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say, answer: Answer) -> list[Figure]:
    url = stage.make_database(kind)
    add_group(url, provider="anthropic")
    drains = Drains()
    with (
        model_server(answer.deltas, answer.pace) as server,
        stage.workers(url, server.environment) as workers,
        bare_program("sdk", server) as sdk,
        bare_program("adapter", server) as adapter,
        Ledger(stage.broker) as ledger,
    ):
        worker = workers.ours("agent", QUEUE, scale.streams)

        def turns(count: int) -> Drain:
            before = count_answered(url)
            calls = [([session_id], dict[str, object]()) for session_id in accept_messages(url, count)]
            drained = drain(
                ledger, stage.broker, [worker], QUEUE, "agent.wake", calls, patience_seconds=PATIENCE_SECONDS
            )
            answered = count_answered(url) - before
            assert answered == count, f"{answered} of {count} turns were completed with one answer"
            return drained

        for repeat in range(scale.repeats + 1):
            count = scale.streamed if repeat else WARM_UP
            busy, started = _cpu_seconds(server.pid), time.monotonic()
            drains.add("SDK", _calls(sdk, count, scale.streams, answer))
            drains.add("turns", turns(count))
            drains.add("adapter", _calls(adapter, count, scale.streams, answer))
            share = (_cpu_seconds(server.pid) - busy) / (time.monotonic() - started)
            what = f"repeat {repeat}" if repeat else "warm-up"
            say(f"(streams) {answer.name}, {what}: {drains}; the stand-in took {share:.0%} of a core, "
                f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    return [
        Figure("streams", f"turns, {answer.name} / SDK alone", *drains.rates("turns", "SDK"), "/s", answer.aim),
        Figure("streams", "  CPU of the worker per turn", *drains.costs("turns", "SDK"), "ms"),
        Figure("streams", f"turns, {answer.name} / SDK and adapter", *drains.rates("turns", "adapter"), "/s"),
        Figure("streams", "  CPU of the worker per turn", *drains.costs("turns", "adapter"), "ms"),
    ]


def _calls(program: BareProgram, count: int, at_once: int, answer: Answer) -> Drain:
    cpu = _cpu_seconds(program.pid)
    done = program.ask(f"run {count} {at_once}")
    expected = count * answer.deltas * CHARACTERS
    assert done["characters"] == expected, f"{done['characters']} of {expected} characters came"
    return Drain(count / done["seconds"], (_cpu_seconds(program.pid) - cpu) * 1000 / count)


def _memory(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    """Each repeat has fresh processes: what a process has once taken it does not give back."""
    ours: list[float] = []
    bare: list[float] = []
    for repeat in range(1, scale.repeats + 1):
        with model_server(TRICKLE.deltas, TRICKLE.pace) as server:
            ours.append(_open_turns(stage, kind, server, scale.streams))
            bare.append(_bare_streams(server, scale.streams))
        say(f"(streams) repeat {repeat}: {ours[-1]:.0f} kB per streaming turn, {bare[-1]:.0f} kB per bare stream")
    return [Figure("streams", f"memory per open stream ({scale.streams})", ours, bare, "kB", MEMORY_AIM)]


def _open_turns(stage: Stage, kind: DatabaseKind, server: ModelServer, count: int) -> float:
    url = stage.make_database(kind)
    add_group(url, provider="anthropic")
    with stage.workers(url, server.environment) as workers:
        worker = workers.ours("agent", QUEUE, count + WARM_UP)

        def begin(how_many: int) -> None:
            backlog = Backlog(stage.broker, QUEUE)
            backlog.fill("agent.wake", [([session_id], {}) for session_id in accept_messages(url, how_many)])
            backlog.release()

        grown = _growth(worker.process.pid, server, count, begin)
        worker.process.kill()  # politely, it would wait for them and hand each of them over
        worker.process.wait()
        return grown


def _bare_streams(server: ModelServer, count: int) -> float:
    with bare_program("sdk", server) as program:
        return _growth(program.pid, server, count, lambda how_many: program.ask(f"open {how_many}"))


def _growth(pid: int, server: ModelServer, count: int, begin: Callable[[int], object]) -> float:
    """Kilobytes per stream, when `count` more are opened beside a few that are: those have brought in the modules,
    connections and caches that a process has once."""
    begin(WARM_UP)
    before = _resident_kb(pid, server, WARM_UP)
    begin(count)
    return (_resident_kb(pid, server, WARM_UP + count) - before) / count


def _resident_kb(pid: int, server: ModelServer, streams: int) -> float:
    """Read when so many streams are open and the process has come to rest."""
    process = psutil.Process(pid)
    wait_until(lambda: _connections(process, server) >= streams, PATIENCE_SECONDS, f"{streams} open streams")
    time.sleep(SETTLE_SECONDS)
    return float(process.memory_info().rss) / 1000


def _connections(process: psutil.Process, server: ModelServer) -> int:
    return sum(1 for one in process.net_connections("tcp") if one.raddr and one.raddr.port == server.port)


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
