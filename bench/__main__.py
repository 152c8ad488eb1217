"""`python -m bench [a b c d e schedules http streams events sandbox files clis] [--quick]`: Longshore beside its peers.

Real processes, a Valkey and a PostgreSQL of its own, all in a temporary folder; ends what it starts."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.markup import escape

from bench import (
    clis,
    event_latency,
    files,
    first_event,
    http_intake,
    memory,
    path,
    sandbox,
    schedules,
    streams,
    sweeps,
    wakes,
)
from bench.bare_clis import CLIS
from bench.figures import Figure, as_markdown, as_table
from bench.plain import settings_differ
from bench.scale import FULL, QUICK, Say, Scale
from bench.stage import DatabaseKind, Stage, set_stage

Part = Callable[[Stage, Scale, DatabaseKind, Say], list[Figure]]

BOTH: tuple[DatabaseKind, ...] = ("postgresql", "sqlite")
# What is measured, and on which databases; --quick takes the first only.
PARTS: dict[str, tuple[Part, tuple[DatabaseKind, ...]]] = {
    "a": (wakes.measure, BOTH),
    "b": (path.measure, BOTH),
    "c": (first_event.measure, ("postgresql",)),
    "d": (memory.measure, ("postgresql",)),
    "e": (sweeps.measure, BOTH),
    "schedules": (schedules.measure, BOTH),
    "http": (http_intake.measure, BOTH),
    "streams": (streams.measure, ("postgresql",)),
    "events": (event_latency.measure, ("postgresql",)),
    "sandbox": (sandbox.measure, ("postgresql",)),
    "files": (files.measure, ("postgresql",)),
    **{cli.name: (partial(clis.measure, cli), ("postgresql",)) for cli in CLIS},
}
# Names for several parts.
TOGETHER = {"clis": [cli.name for cli in CLIS]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, *TOGETHER], help="which parts to run; all by default")
    parser.add_argument("--quick", action="store_true", help="small and once: does it run at all?")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown as well")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    started = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:4.0f} s[/dim]  {line}", soft_wrap=True)

    # A polite kill is as Ctrl-C, also for a shell's background job: loops end their work and clean up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    _refuse_unequal_settings()
    figures: list[Figure] = []
    with set_stage() as stage:
        say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Valkey and PostgreSQL are up")
        failed = 0
        for name in [name for part in arguments.parts or PARTS for name in TOGETHER.get(part, [part])]:
            measure, kinds = PARTS[name]
            for kind in kinds if scale.sqlite_too else kinds[:1]:
                try:
                    figures += measure(stage, scale, kind, say)
                except Exception as error:  # minutes of other figures must not be lost with it
                    say(f"[red]({name}) {kind} was given up: {type(error).__name__}: {escape(str(error))}[/red]")
                    failed += 1
    console.print(as_table(figures))
    if arguments.markdown:
        print(as_markdown(figures))
    return 1 if failed else 0


def _refuse_unequal_settings() -> None:
    """The comparison is worth nothing if our Celery settings have moved away from the peer's."""
    from workers.app import app

    if different := settings_differ(app.conf):
        sys.exit(f"bench/plain.py and workers/celery_config.py differ in: {', '.join(different)}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
