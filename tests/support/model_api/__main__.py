"""The stand-in by hand, and as a child process of benchmarks: prints its address, then one line per request."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from tests.support.model_api.recording import Recorded
from tests.support.model_api.script import Script, load_script
from tests.support.model_api.server import ModelApi


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.model_api", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", type=Path, help="YAML or JSON; without one, the user is echoed")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before the first event")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between events")
    parser.add_argument("--chunk", type=int, default=24, help="characters of one delta")
    parser.add_argument("--deltas", type=int, help="always the same answer of so many deltas, unchecked and cheap")
    parser.add_argument("--lenient", action="store_true", help="note mistakes of the client, but answer")
    parser.add_argument("--no-record", action="store_true", help="keep no bodies")
    parser.add_argument("--quiet", action="store_true", help="no line per request")
    options = parser.parse_args()
    api = ModelApi(
        load_script(options.script) if options.script else Script(),
        port=options.port,
        strict=not options.lenient,
        wait=options.wait,
        pace=options.pace,
        chunk=options.chunk,
        deltas=options.deltas,
        record=not options.no_record,
        report=None if options.quiet else _line,
    )
    asyncio.run(_serve(api))


async def _serve(api: ModelApi) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with api:
        print(f"listening on {api.url}")
        print(f"export ANTHROPIC_BASE_URL={api.url} ANTHROPIC_API_KEY=fake")
        print(f"export OPENAI_BASE_URL={api.openai_url} OPENAI_API_KEY=fake")
        print(f"export GOOGLE_GEMINI_BASE_URL={api.url} GEMINI_API_KEY=fake", flush=True)
        await stop.wait()


def _line(seen: Recorded) -> None:
    asked = seen.conversation
    text = repr(asked.text[:60]) if asked else ""
    facts = [f"#{seen.number}", seen.path, str(seen.status or "-"), seen.outcome, text]
    facts += [f"round {asked.rounds}"] if asked and asked.rounds else []
    facts += [f"fault {seen.fault}"] if seen.fault else []
    facts += [f"PROBLEM {problem}" for problem in seen.problems]
    sys.stdout.write(" ".join(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
