"""A CLI agent's turns through a whole worker process: what they add to it, and what is left while one waits.

The worker is the Procfile's for programs. For the last turn the model asks its person a question, nobody answers, and
the session must be put away: not one process may be left."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.providers.cli.installation import VARIABLE
from bench.bare_clis import PATIENCE_SECONDS, PROMPT, Cli
from bench.drain import drain
from bench.ledger import Ledger
from bench.process_tree import Watch, below, resident_mb
from bench.rows import add_group, add_sessions, count_answered, count_parked
from bench.stage import DatabaseKind, Stage
from bench.standin import QUESTION, ModelServer


@dataclass(frozen=True)
class InFleet:
    """Per turn: seconds from the wake to its end, and MB the worker took at most beyond what it had before. A later one
    uses again what an earlier has given back; `first_mb` is what the worker's first turn took, modules and servers
    included. Then what a session that waits for a person holds."""

    seconds: Sequence[float]
    added_mb: Sequence[float]
    first_mb: float
    waiting_processes: int
    waiting_kb: float


def run_in_fleet(stage: Stage, kind: DatabaseKind, cli: Cli, server: ModelServer, repeats: int) -> InFleet:
    queue, url = f"agent.{cli.adapter_id}", stage.make_database(kind)
    add_group(url, provider=cli.adapter_id, model=cli.model)
    installed = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
    with stage.workers(url, {**server.environment, **installed}) as workers, Ledger(stage.broker) as ledger:
        worker = workers.ours("clis", queue, 2)
        pid = worker.process.pid

        def turn(text: str | None) -> tuple[float, float]:
            calls = [([session], dict[str, object]()) for session in add_sessions(url, 1, text=text)]
            with Watch(pid) as watch:
                drained = drain(
                    ledger, stage.broker, [worker], queue, "agent.wake", calls, patience_seconds=PATIENCE_SECONDS
                )
            return 1 / drained.per_second, watch.root_mb - watch.before_mb

        turn(None)  # a wake that finds nothing: the worker is up
        _, first = turn(PROMPT)
        measured = [turn(PROMPT) for _ in range(repeats)]
        answered = count_answered(url)
        assert answered == repeats + 1, f"{answered} of {repeats + 1} turns of {cli.name} were answered"
        before = resident_mb(pid)
        turn(QUESTION)
        assert count_parked(url) == 1, f"{cli.name} does not wait for its person"
        left = below(pid)
        assert not left, f"{cli.name} waits for its person with {len(left)} processes"
        return InFleet(
            [seconds for seconds, _ in measured],
            [added for _, added in measured],
            first,
            len(left),
            (resident_mb(pid) - before) * 1000,
        )
