"""`longshore`: readable by people, `--json` for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 69 a service (database, broker) is not there."""

import atexit
import gc
import sys


def main() -> None:
    # What is imported stays. To look through it for garbage, meanwhile and at the end, takes a third of a command.
    gc.disable()
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    if sys.argv[1:2] == ["mcp"]:
        # CLI agents start this in every turn: it does without the rest, which takes a second to import.
        from gateway.cli.mcp import mcp

        collect_from_here()
        mcp()
    else:
        from gateway.cli.main import app

        app()


def collect_from_here() -> None:
    """The command is imported: from now on, and only in what comes now, garbage is looked for."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
