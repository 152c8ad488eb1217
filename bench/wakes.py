"""(a) Wakes per second against plain no-op tasks: one worker process each, a full queue, until the last has ended."""

from bench.drain import Drains, drain
from bench.figures import Aim, Figure
from bench.ledger import Ledger
from bench.rows import add_group, add_sessions, count_completed
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage

CONCURRENCY = 200  # as in the Procfile
OURS, PLAIN, THREADS = "agent.scripted", "plain.first", "plain.second"
WARM_UP = 50
ANSWER = "ok"
AIM = Aim("at least", 0.6)


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    url = stage.make_database(kind)
    add_group(url, script=ANSWER)
    drains = Drains()
    with stage.workers(url) as workers, Ledger(stage.broker) as ledger:
        agent = workers.ours("agent", OURS, CONCURRENCY)
        plain = workers.plain("plain", PLAIN, CONCURRENCY)
        threads = workers.plain("threads", THREADS, CONCURRENCY, pool="threads")

        def nothing(name: str, queue: str, count: int) -> None:
            worker = threads if queue == THREADS else plain
            calls = [([str(n)], dict[str, object]()) for n in range(count)]
            drains.add(name, drain(ledger, stage.broker, [worker], queue, "plain.nothing", calls))

        def wakes(name: str, count: int, *, text: str | None) -> None:
            before = count_completed(url)
            calls = [([session_id], dict[str, object]()) for session_id in add_sessions(url, count, text=text)]
            drains.add(name, drain(ledger, stage.broker, [agent], OURS, "agent.wake", calls))
            done = count_completed(url) - before
            assert done == (count if text else 0), f"{done} of {count} turns were completed"

        for repeat in range(scale.repeats + 1):
            noops, turns = (scale.noops, scale.turns) if repeat else (WARM_UP, WARM_UP)
            nothing("plain", PLAIN, noops)
            wakes("idle wakes", noops, text=None)
            wakes("turns", turns, text="hello")
            nothing("plain on threads", THREADS, noops)
            say(f"(a) {kind}, {f'repeat {repeat}' if repeat else 'warm-up'}: {drains}")
    return [
        Figure("a", f"wake, nothing due ({kind})", *drains.rates("idle wakes", "plain"), "/s", AIM),
        Figure("a", "  CPU of the worker per wake", *drains.costs("idle wakes", "plain"), "ms"),
        Figure("a", f"wake, smallest turn ({kind})", *drains.rates("turns", "plain"), "/s", AIM),
        Figure("a", "  CPU of the worker per wake", *drains.costs("turns", "plain"), "ms"),
        Figure("a", "plain no-op: our pool / -P threads", *drains.rates("plain", "plain on threads"), "/s"),
    ]
