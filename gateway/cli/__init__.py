"""`longshore`: readable by people, `--json` for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 69 a service (database, broker) is not there."""

import atexit
import gc
import sys


def main() -> None:
    # What is imported stays: looking through it every 700 objects takes a sixth of a command's time.
    gc.set_threshold(50_000)
    # So does looking through it at the end, to free what ends with the process: a quarter of a second.
    atexit.register(gc.freeze)
    if sys.argv[1:2] == ["mcp"]:
        # CLI agents start this in every turn: it does without the rest, which takes a second to import.
        from gateway.cli.mcp import mcp

        mcp()
    else:
        from gateway.cli.main import app

        app()
